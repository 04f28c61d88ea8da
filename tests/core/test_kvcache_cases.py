"""Configs as people really have them: nested, half empty, in old spellings, quantized, and as GGUF metadata."""

from __future__ import annotations

from typing import Any

import pytest

from kvgate.core.kvcache import Family, Reason, Window
from tests.core.model_configs import (
    DEEPSEEK_V3,
    GPT_OSS_20B,
    LLAMA_8B,
    MISTRAL_24B,
    QWEN3_4B,
    TEXT,
    VISION,
    Config,
    layout,
    unknown,
)

PER_TOKEN: dict[str, tuple[Config, int]] = {
    "the language part of a vision model counts, not its vision tower": (
        {"model_type": "qwen3_vl", "vision_config": VISION, "text_config": TEXT},
        131_072,
    ),
    "the language part lies two objects deep": (
        {
            "model_type": "qwen3_omni_moe",
            "thinker_config": {
                "model_type": "qwen3_omni_moe_thinker",
                "vision_config": VISION,
                "text_config": {**TEXT, "model_type": "qwen3_omni_moe_text"},
            },
        },
        131_072,
    ),
    "the language part is called llm_config": (
        {"model_type": "internvl_chat", "vision_config": VISION, "llm_config": {**TEXT, "model_type": "qwen2"}},
        131_072,
    ),
    "a root that repeats its language part's keys is one opinion, not two": (
        {**TEXT, "model_type": "qwen2_5_vl", "text_config": {**TEXT, "model_type": "qwen2_5_vl_text"}},
        131_072,
    ),
    "Qwen3-4B: head_dim is not hidden size by heads (92,160 would be wrong)": (QWEN3_4B, 147_456),
    "Mistral-Small-24B: head_dim 128, not 160": (MISTRAL_24B, 163_840),
    "head_dim null means hidden size by heads": ({**LLAMA_8B, "head_dim": None}, 131_072),
    "head_dim 0 means hidden size by heads": ({**LLAMA_8B, "head_dim": 0}, 131_072),
    "num_key_value_heads null means one per head": ({**LLAMA_8B, "num_key_value_heads": None}, 524_288),
    "santacoder: multi_query is one KV head": (
        {"model_type": "gpt_bigcode", "n_layer": 24, "n_head": 16, "n_embd": 2048, "multi_query": True},
        12_288,
    ),
    "gpt2: its own names, one KV head per head": (
        {"model_type": "gpt2", "n_layer": 12, "n_head": 12, "n_embd": 768},
        36_864,
    ),
    "falcon-7b: multi_query without the new architecture is one KV head": (
        {
            "model_type": "falcon",
            "num_hidden_layers": 32,
            "num_attention_heads": 71,
            "multi_query": True,
            "new_decoder_architecture": False,
            "hidden_size": 4544,
        },
        8_192,
    ),
    "falcon-40b: the new architecture has KV heads of its own": (
        {
            "model_type": "falcon",
            "num_hidden_layers": 60,
            "num_attention_heads": 128,
            "num_kv_heads": 8,
            "multi_query": True,
            "new_decoder_architecture": True,
            "hidden_size": 8192,
        },
        122_880,
    ),
    "dbrx: KV heads in attn_config": (
        {
            "model_type": "dbrx",
            "attn_config": {"kv_n_heads": 8, "clip_qkv": 8, "rope_theta": 5e5},
            "n_layers": 32,
            "n_heads": 32,
            "d_model": 4096,
        },
        131_072,
    ),
    "mpt: multihead attention without a KV head count": (
        {
            "model_type": "mpt",
            "attn_config": {"attn_type": "multihead_attention", "alibi": True},
            "n_layers": 32,
            "n_heads": 32,
            "d_model": 4096,
        },
        524_288,
    ),
    "chatglm: query groups": (
        {
            "model_type": "chatglm",
            "num_layers": 28,
            "num_attention_heads": 32,
            "hidden_size": 4096,
            "kv_channels": 128,
            "multi_query_attention": True,
            "multi_query_group_num": 2,
        },
        28_672,
    ),
    "DeepSeek-V3: one latent per token, FP8 weights do not change it": (DEEPSEEK_V3, 70_272),
    "qwen2 with use_sliding_window false ignores its window": (
        {
            **LLAMA_8B,
            "model_type": "qwen2",
            "use_sliding_window": False,
            "sliding_window": 4096,
            "max_window_layers": 28,
        },
        131_072,
    ),
    "GGUF LFM2: six of sixteen layers attend (the first list entry would say 0 bytes)": (
        {
            "lfm2.block_count": 16,
            "lfm2.attention.head_count_kv": [0, 0, 8, 0, 0, 8, 0, 0, 8, 0, 8, 0, 8, 0, 8, 0],
            "lfm2.attention.key_length": 64,
        },
        12_288,
    ),
    "GGUF llama: one number for all layers": (
        {
            "general.architecture": "llama",
            "general.name": "an 8B model",
            "llama.block_count": 32,
            "llama.embedding_length": 4096,
            "llama.attention.head_count": 32,
            "llama.attention.head_count_kv": 8,
        },
        131_072,
    ),
}


@pytest.mark.parametrize("case", PER_TOKEN)
def test_bytes_per_token(case: str) -> None:
    config, expected = PER_TOKEN[case]
    result = layout(config)
    assert (result.bytes_per_token, result.windows) == (expected, ())


def test_gpt_oss_20b_keeps_half_of_its_layers_in_a_window() -> None:
    result = layout(GPT_OSS_20B)
    assert result.bytes_per_token + result.windows[0].bytes_per_token == 49_152
    assert layout(GPT_OSS_20B, window_cap=False).bytes_per_token == 49_152
    assert layout(GPT_OSS_20B, window_cap=False).windows == ()


def test_gguf_lfm2_at_32768_tokens_is_384_mib() -> None:
    config, _ = PER_TOKEN["GGUF LFM2: six of sixteen layers attend (the first list entry would say 0 bytes)"]
    result = layout(config)
    assert result.bytes_for(32_768, 16) == 402_653_184 == 384 * 2**20
    assert "not counted" in result.warnings[0]
    whole = layout({**config, "lfm2.shortconv.l_cache": 3, "lfm2.embedding_length": 2048})
    assert whole.state_bytes == 10 * 2 * 2048 * 2
    assert whole.bytes_per_token == 12_288


def test_speculative_layers_are_counted_only_when_the_engine_moves_them() -> None:
    assert layout(DEEPSEEK_V3, speculative_layers=1).bytes_per_token == 71_424
    assert layout(DEEPSEEK_V3, speculative_layers=1).layers == 62
    assert "separate draft model" in layout(DEEPSEEK_V3, speculative_layers=1).warnings[0]


HYBRID: Config = {
    "num_hidden_layers": 64,
    "num_attention_heads": 24,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "hidden_size": 5120,
    "layer_types": (["linear_attention"] * 3 + ["full_attention"]) * 16,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 48,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
    "mamba_ssm_dtype": "float32",
    "dtype": "bfloat16",
    "model_type": "qwen3_5_text",
}


def hybrid(**changes: Any) -> Config:
    text = {**HYBRID, **changes}
    return {"model_type": "qwen3_5", "text_config": {k: v for k, v in text.items() if v != "absent"}}


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"full_attention_interval": 4}, id="layer types and interval agree"),
        pytest.param({}, id="layer types alone"),
        pytest.param({"layer_types": "absent", "full_attention_interval": 4}, id="interval alone"),
        pytest.param({"full_attention_interval": 2}, id="layer types win over an interval that differs"),
    ],
)
def test_hybrid_attention_counts_16_of_64_layers_and_48_states(changes: Config) -> None:
    result = layout(hybrid(**changes))
    assert (result.bytes_per_token, result.full_layers, result.state_layers) == (65_536, 16, 48)
    assert result.state_bytes == 48 * (48 * 128 * 128 * 4 + (2 * 16 * 128 + 48 * 128) * 3 * 2) == 153_944_064
    differs = changes.get("full_attention_interval") == 2
    assert any("differ" in warning for warning in result.warnings) is differs


def test_the_state_follows_its_own_dtype() -> None:
    narrow = layout(hybrid(mamba_ssm_dtype="bfloat16"))
    assert narrow.state_bytes == 48 * (48 * 128 * 128 * 2 + (2 * 16 * 128 + 48 * 128) * 3 * 2)
    assumed = layout(hybrid(mamba_ssm_dtype="absent"))
    assert assumed.state_bytes == 153_944_064
    assert any("no state dtype" in warning for warning in assumed.warnings)
    assert layout(hybrid(), dtype="fp8").state_bytes == 153_944_064


GEMMA4: Config = {
    "model_type": "gemma4_text",
    "num_hidden_layers": 48,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 256,
    "hidden_size": 3840,
    "sliding_window": 1024,
    "layer_types": (["sliding_attention"] * 5 + ["full_attention"]) * 8,
    "dtype": "bfloat16",
}
GLOBAL = {"num_global_key_value_heads": 1, "global_head_dim": 512}
ONE_BY_ONE = {"per_layer_config": {f"{i:02d}": {"head_dim": 512, "num_key_value_heads": 1} for i in range(5, 48, 6)}}


def gemma4(**changes: Any) -> Config:
    return {"model_type": "gemma4", "text_config": {**GEMMA4, **changes}}


@pytest.mark.parametrize("spelling", [GLOBAL, ONE_BY_ONE], ids=["global_ keys", "per_layer_config"])
def test_gemma_4_full_layers_have_their_own_heads(spelling: Config) -> None:
    result = layout(gemma4(**spelling))
    assert result.bytes_per_token == 16_384
    assert result.windows == (Window(327_680, 1024),)
    assert result.bytes_for(4096, 16) - result.bytes_per_token * 4096 == 335_544_320
    assert result.kv_heads == 1


def test_gemma_4_layers_that_share_a_cache_own_none() -> None:
    result = layout(gemma4(**GLOBAL, num_kv_shared_layers=20))
    assert result.full_layers == 4
    assert result.bytes_per_token == 4 * 512 * 2 * 2
    assert result.windows == (Window(24 * 8 * 512 * 2, 1024),)


def test_gemma_4_without_shared_keys_and_values_ignores_the_global_head_count() -> None:
    result = layout(gemma4(**GLOBAL, attention_k_eq_v=False))
    assert result.bytes_per_token == 8 * 8 * 1024 * 2


WHISPER: Config = {
    "model_type": "whisper",
    "is_encoder_decoder": True,
    "d_model": 1280,
    "encoder_layers": 32,
    "decoder_layers": 32,
    "decoder_attention_heads": 20,
    "num_hidden_layers": 32,
    "max_source_positions": 1500,
    "torch_dtype": "float16",
}


@pytest.mark.parametrize(
    ("layers", "per_token", "fixed"),
    [pytest.param(32, 163_840, 245_760_000, id="large-v3"), pytest.param(4, 20_480, 30_720_000, id="turbo")],
)
def test_an_encoder_decoder_pays_its_cross_attention_once(layers: int, per_token: int, fixed: int) -> None:
    result = layout({**WHISPER, "decoder_layers": layers})
    assert (result.family, result.bytes_per_token, result.state_bytes) == (Family.ENCODER_DECODER, per_token, fixed)


def test_an_encoder_decoder_of_a_plain_type_is_unknown() -> None:
    assert unknown({**LLAMA_8B, "is_encoder_decoder": True}).reason is Reason.UNKNOWN_KEY


def test_latent_attention_is_copied_to_every_decode_rank() -> None:
    result = layout(DEEPSEEK_V3)
    assert result.replication(8) == 8
    assert result.bytes_for(50_000, 16) == 50_000 * 70_272
    assert result.bytes_for(50_000, 16) * result.replication(8) == pytest.approx(28.1e9, rel=0.001)


def test_kv_heads_are_copied_when_there_are_more_ranks_than_heads() -> None:
    two_heads = layout({**LLAMA_8B, "num_key_value_heads": 2})
    assert [two_heads.replication(ranks) for ranks in (1, 2, 4, 8)] == [1, 1, 2, 4]


def test_a_uniform_model_agrees_with_an_engines_log_and_a_hybrid_one_need_not() -> None:
    """5.38 GiB for 78,384 tokens: 73,698 B per token logged for 73,728; hybrid logs divide by another number."""
    uniform = layout({**LLAMA_8B, "num_hidden_layers": 18})
    assert uniform.bytes_per_token == 73_728
    assert pytest.approx(uniform.bytes_per_token, rel=0.001) == 5.38 * 2**30 / 78_384
    assert uniform.state_bytes == 0
    assert uniform.windows == ()
    assert layout(hybrid()).state_bytes > 0


WINDOWED: dict[str, tuple[Config, int, tuple[Window, ...]]] = {
    "qwen2 windows its layers from max_window_layers on": (
        {
            **LLAMA_8B,
            "model_type": "qwen2",
            "use_sliding_window": True,
            "sliding_window": 4096,
            "max_window_layers": 24,
        },
        24 * 4096,
        (Window(8 * 4096, 4096),),
    ),
    "a Llama 4 layer without rope is full": (
        {
            **TEXT,
            "model_type": "llama4_text",
            "attention_chunk_size": 8192,
            "no_rope_layers": [1, 1, 1, 1, 1, 1, 1, 0] * 4,
        },
        4 * 4096,
        (Window(28 * 4096, 8192),),
    ),
    "an empty no_rope_layers is the default, every fourth layer full": (
        {**TEXT, "model_type": "llama4_text", "attention_chunk_size": 8192, "no_rope_layers": []},
        8 * 4096,
        (Window(24 * 4096, 8192),),
    ),
    "cohere2 by its pattern": (
        {**LLAMA_8B, "model_type": "cohere2", "sliding_window": 4096, "sliding_window_pattern": 4},
        8 * 4096,
        (Window(24 * 4096, 4096),),
    ),
    "Gemma 4 makes its last layer full whatever the list says": (
        gemma4(**GLOBAL, layer_types=["sliding_attention"] * 48),
        2048,
        (Window(47 * 8192, 1024),),
    ),
}


@pytest.mark.parametrize("case", WINDOWED)
def test_windows_by_the_rule_of_the_type(case: str) -> None:
    config, per_token, windows = WINDOWED[case]
    result = layout(config)
    assert (result.bytes_per_token, result.windows) == (per_token, windows)
