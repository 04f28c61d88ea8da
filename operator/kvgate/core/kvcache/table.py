"""The model types that are known, one row each. What has no row here is unknown, never guessed."""

from __future__ import annotations

from collections.abc import Mapping

from kvgate.core.kvcache import dense, dialects, latent, recurrent, special, windowed
from kvgate.core.kvcache.layers import Row, WindowRule

_MHA = Row(dense.build, mha_by_default=True)
_GQA = Row(dense.build)
_OWN_DIM = Row(dense.build, own_head_dim=True)
_EVERY = Row(dense.build, windows=WindowRule.EVERY)
_QWEN = Row(dense.build, windows=WindowRule.AFTER_MAX_WINDOW_LAYERS)
_QWEN3 = Row(dense.build, windows=WindowRule.AFTER_MAX_WINDOW_LAYERS, own_head_dim=True)
_GEMMA3 = Row(dense.build, windows=WindowRule.PATTERN, own_head_dim=True, default_pattern=6)
_GEMMA3N = Row(windowed.gemma3n, own_head_dim=True)
_GEMMA4 = Row(windowed.gemma4, own_head_dim=True)
_LLAMA4 = Row(windowed.llama4)
_MLA = Row(latent.mla)
_DSA = Row(latent.dsa)
_GDN = Row(recurrent.gated_delta, own_head_dim=True)
_KDA = Row(recurrent.kimi_linear)
_MINIMAX_M3 = Row(special.minimax_m3, own_head_dim=True)

ROWS: Mapping[str, Row] = {
    # one KV head per head unless the config says otherwise
    "llama": _MHA,
    "gpt2": _MHA,
    "gpt_neox": _MHA,
    "gptj": _MHA,
    "opt": _MHA,
    "bloom": _MHA,
    "phi": _MHA,
    "olmo": _MHA,
    "olmo2": _MHA,
    "olmoe": _MHA,
    "granite": _MHA,
    "granitemoe": _MHA,
    "cohere": _MHA,
    "nemotron": _MHA,
    "arcee": _MHA,
    "apertus": _MHA,
    # the type's own default differs: the KV head count must be given
    "internlm2": _GQA,
    "internlm3": _GQA,
    "stablelm": _GQA,
    "ernie4_5": _GQA,
    "ernie4_5_moe": _GQA,
    "glm4_moe": _OWN_DIM,
    "glm": _OWN_DIM,
    "glm4": _OWN_DIM,
    "seed_oss": _OWN_DIM,
    "gemma": _OWN_DIM,
    # windows by layer_types, or none
    "gpt_oss": _OWN_DIM,
    "step3p7": _OWN_DIM,
    "olmo3": _GQA,
    "exaone4": _GQA,
    "smollm3": _GQA,
    "dots1": _GQA,
    # windows by a rule of the type
    "mistral": _EVERY,
    "mixtral": _EVERY,
    "phi3": Row(dense.build, windows=WindowRule.EVERY, mha_by_default=True),
    "phimoe": _EVERY,
    "starcoder2": _EVERY,
    "qwen2": _QWEN,
    "qwen2_moe": _QWEN,
    "qwen2_vl": _QWEN,
    "qwen2_vl_text": _QWEN,
    "qwen2_5_vl": _QWEN,
    "qwen2_5_vl_text": _QWEN,
    "qwen2_5_omni_text": _QWEN,
    "mimo": _QWEN,
    "qwen3": _QWEN3,
    "qwen3_moe": _OWN_DIM,
    "qwen3_vl": _OWN_DIM,
    "qwen3_vl_text": _OWN_DIM,
    "qwen3_vl_moe": _OWN_DIM,
    "qwen3_vl_moe_text": _OWN_DIM,
    "qwen3_omni_moe_text": _OWN_DIM,
    "gemma2": Row(dense.build, windows=WindowRule.ALTERNATE, own_head_dim=True),
    "gemma3_text": _GEMMA3,
    "gemma3": _GEMMA3,
    "cohere2": Row(dense.build, windows=WindowRule.PATTERN, mha_by_default=True),
    # other spellings of plain attention
    "falcon": Row(dialects.falcon),
    "gpt_bigcode": Row(dialects.gpt_bigcode),
    "mpt": Row(dialects.attn_config, mha_by_default=True),
    "dbrx": Row(dialects.attn_config),
    "chatglm": Row(dialects.chatglm),
    "minimax_m2": Row(dialects.minimax_m2, own_head_dim=True),
    # windowed layers of another shape
    "gemma3n_text": _GEMMA3N,
    "gemma3n": _GEMMA3N,
    "gemma4_text": _GEMMA4,
    "gemma4": _GEMMA4,
    "mimo_v2_flash": Row(windowed.mimo_v2),
    "llama4_text": _LLAMA4,
    "llama4": _LLAMA4,
    # latent attention
    "deepseek_v2": _MLA,
    "deepseek_v3": _MLA,
    "kimi_k2": _MLA,
    "glm4_moe_lite": _MLA,
    "deepseek_v32": _DSA,
    "glm_moe_dsa": _DSA,
    "deepseek_v4": Row(latent.deepseek_v4),
    # hybrids with a state
    "nemotron_h": Row(recurrent.nemotron_h),
    "jamba": Row(recurrent.jamba),
    "qwen3_next": _GDN,
    "qwen3_5_text": _GDN,
    "qwen3_5": _GDN,
    "qwen3_5_moe_text": _GDN,
    "qwen3_5_moe": _GDN,
    "kimi_linear": _KDA,
    # a plan per block, a second kind of key
    "nemotron-nas": Row(special.nas),
    "mllama_text_model": Row(special.mllama),
    "whisper": Row(special.whisper),
    "minimax_m3": _MINIMAX_M3,
    "minimax_m3_vl": _MINIMAX_M3,
    "minimax_m3_vl_text": _MINIMAX_M3,
}

WRAPPERS = frozenset(
    {
        "aya_vision", "cohere2_vision", "gemma3", "gemma3n", "gemma4", "glm4v", "glm4v_moe", "idefics3", "internvl",
        "internvl_chat", "kimi_k25", "kimi_k3", "llama4", "llava", "llava_next", "llava_next_video",
        "llava_onevision", "minimax_m3_vl", "mistral3", "mllama", "paligemma", "qwen2_5_omni",
        "qwen2_5_omni_thinker", "qwen2_5_vl", "qwen2_audio", "qwen2_vl", "qwen3_5", "qwen3_5_moe",
        "qwen3_omni_moe", "qwen3_omni_moe_thinker", "qwen3_vl", "qwen3_vl_moe", "smolvlm", "video_llava", "vipllava",
        "voxtral",
    }
)  # fmt: skip
"""Model types whose language part lies in a nested object and alone holds the cache."""
