"""What cannot be told is unknown, never guessed: each refusal names the place and who must act."""

from __future__ import annotations

from typing import Any

import pytest

from kvgate.core.kvcache import JSON, KVBytesUnknown, KVLayout, Reason, kv_layout, parse_config

Config = dict[str, Any]
REMEDY = "supply spec.model.kvCache.bytesPerToken"

LLAMA: Config = {
    "model_type": "llama",
    "num_hidden_layers": 4,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "hidden_size": 4096,
    "torch_dtype": "bfloat16",
}
QWEN3: Config = {**LLAMA, "model_type": "qwen3", "head_dim": 128}
MLA: Config = {
    "model_type": "deepseek_v3",
    "num_hidden_layers": 4,
    "num_attention_heads": 128,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "torch_dtype": "bfloat16",
}
DSA: Config = {**MLA, "model_type": "glm_moe_dsa", "index_head_dim": 128}
V4: Config = {
    "model_type": "deepseek_v4",
    "num_hidden_layers": 2,
    "num_attention_heads": 64,
    "num_key_value_heads": 1,
    "head_dim": 512,
    "index_head_dim": 128,
    "sliding_window": 128,
    "compress_ratios": [4, 128, 0],
    "torch_dtype": "bfloat16",
}
GDN: Config = {
    **QWEN3,
    "model_type": "qwen3_next",
    "full_attention_interval": 4,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
}
MAMBA: Config = {
    **LLAMA,
    "model_type": "nemotron_h",
    "hybrid_override_pattern": "M-M*",
    "ssm_state_size": 128,
    "mamba_num_heads": 64,
    "mamba_head_dim": 64,
    "n_groups": 8,
    "conv_kernel": 4,
}
GEMMA4: Config = {
    **QWEN3,
    "model_type": "gemma4_text",
    "global_head_dim": 512,
    "sliding_window": 1024,
    "layer_types": ["sliding_attention"] * 3 + ["full_attention"],
}
KIMI: Config = {
    **MLA,
    "model_type": "kimi_linear",
    "linear_attn_config": {
        "full_attn_layers": [4],
        "kda_layers": [1, 2, 3],
        "head_dim": 128,
        "num_heads": 32,
        "short_conv_kernel_size": 4,
    },
}
BLOCK = {"attention": {"n_heads_in_group": 4, "no_op": False, "replace_with_linear": False}}
NO_OP = {"attention": {"n_heads_in_group": None, "no_op": True}}
NAS: Config = {**LLAMA, "model_type": "nemotron-nas", "num_key_value_heads": None, "block_configs": [BLOCK, NO_OP] * 2}
MLLAMA: Config = {**LLAMA, "model_type": "mllama_text_model", "cross_attention_layers": [3]}
JAMBA: Config = {
    **LLAMA,
    "model_type": "jamba",
    "attn_layer_period": 4,
    "attn_layer_offset": 2,
    "mamba_d_state": 16,
    "mamba_expand": 2,
    "mamba_d_conv": 4,
}
MIMO: Config = {
    **QWEN3,
    "model_type": "mimo_v2_flash",
    "v_head_dim": 128,
    "hybrid_layer_pattern": [0, 1, 1, 1],
    "sliding_window": 128,
    "swa_num_key_value_heads": 8,
    "swa_head_dim": 192,
    "swa_v_head_dim": 128,
}
M3: Config = {**QWEN3, "model_type": "minimax_m3"}
SPARSE = {
    "use_sparse_attention": True,
    "sparse_index_dim": 128,
    "sparse_attention_freq": [0, 1, 1, 1],
    "sparse_disable_index_value": [0, 1, 1, 1],
}
GGUF: Config = {"llama.block_count": 4, "llama.attention.head_count_kv": 8, "llama.attention.key_length": 64}

SOUND = {
    "llama": LLAMA,
    "qwen3": QWEN3,
    "MLA": MLA,
    "DSA": DSA,
    "V4": V4,
    "GDN": GDN,
    "Mamba2": MAMBA,
    "Gemma 4": GEMMA4,
    "Kimi": KIMI,
    "NAS": NAS,
    "mllama": MLLAMA,
    "Jamba": JAMBA,
    "MiMo": MIMO,
    "MiniMax M3": {**M3, "sparse_attention_config": SPARSE},
    "GGUF": GGUF,
}


@pytest.mark.parametrize("name", SOUND)
def test_the_configs_below_are_known_before_they_are_spoilt(name: str) -> None:
    assert isinstance(kv_layout(SOUND[name]), KVLayout)


REFUSED: dict[str, tuple[Config, Reason, str]] = {
    "no model_type": ({**LLAMA, "model_type": None}, Reason.UNKNOWN_MODEL_TYPE, "no model_type"),
    "an empty object": ({}, Reason.UNKNOWN_MODEL_TYPE, "no model_type"),
    "a model_type without a row": ({**LLAMA, "model_type": "llama9"}, Reason.UNKNOWN_MODEL_TYPE, "'llama9'"),
    "a model_type that is a list": ({**LLAMA, "model_type": ["llama"]}, Reason.UNKNOWN_MODEL_TYPE, "a list"),
    "a wrapper without a row": (
        {"model_type": "flamingo", "text_config": LLAMA},
        Reason.UNKNOWN_MODEL_TYPE,
        "'flamingo'",
    ),
    "a wrapper that is an object": ({"model_type": {}, "text_config": LLAMA}, Reason.UNKNOWN_MODEL_TYPE, "an object"),
    "a vision model without a language part": (
        {"model_type": "qwen3_vl", "vision_config": {"num_hidden_layers": 27, "num_attention_heads": 16}},
        Reason.MISSING,
        "num_attention_heads",
    ),
    "two language parts": (
        {"model_type": "llava", "text_config": LLAMA, "llm_config": LLAMA},
        Reason.CONTRADICTION,
        "text_config and llm_config",
    ),
    "a root that contradicts its language part": (
        {"model_type": "llava", "num_hidden_layers": 5, "text_config": LLAMA},
        Reason.CONTRADICTION,
        "num_hidden_layers",
    ),
    "a language part that is nested without end": (
        {"model_type": "llava", "text_config": {"text_config": {"text_config": {"text_config": LLAMA}}}},
        Reason.NO_LANGUAGE_PART,
        "deeper than 3",
    ),
    "layers missing": ({**LLAMA, "num_hidden_layers": None}, Reason.MISSING, "num_hidden_layers"),
    "layers zero": ({**LLAMA, "num_hidden_layers": 0}, Reason.BAD_VALUE, "num_hidden_layers is 0"),
    "layers negative": ({**LLAMA, "num_hidden_layers": -4}, Reason.BAD_VALUE, "num_hidden_layers is -4"),
    "layers true": ({**LLAMA, "num_hidden_layers": True}, Reason.BAD_VALUE, "num_hidden_layers"),
    "layers as text": ({**LLAMA, "num_hidden_layers": "32"}, Reason.BAD_VALUE, "num_hidden_layers is '32'"),
    "layers NaN": ({**LLAMA, "num_hidden_layers": float("nan")}, Reason.BAD_VALUE, "a fraction"),
    "more layers than any model has": ({**LLAMA, "num_hidden_layers": 10**30}, Reason.BAD_VALUE, "a huge number"),
    "two names for one number that differ": (
        {**LLAMA, "num_kv_heads": 4},
        Reason.CONTRADICTION,
        "num_key_value_heads and num_kv_heads differ",
    ),
    "more KV heads than heads": ({**LLAMA, "num_key_value_heads": 64}, Reason.CONTRADICTION, "more than the 32"),
    "a hidden size that the heads do not divide": ({**LLAMA, "hidden_size": 4097}, Reason.CONTRADICTION, "4097"),
    "a head_dim that the type does not derive": (
        {k: v for k, v in QWEN3.items() if k != "head_dim"},
        Reason.MISSING,
        "head_dim",
    ),
    "a KV head count whose default is the type's own": (
        {k: v for k, v in QWEN3.items() if k != "num_key_value_heads"},
        Reason.MISSING,
        "num_key_value_heads",
    ),
    "a window of which no one says where": (
        {**LLAMA, "sliding_window": 4096},
        Reason.UNKNOWN_WINDOW_PATTERN,
        "sliding_window",
    ),
    "an alternating type without its window": ({**QWEN3, "model_type": "gemma2"}, Reason.MISSING, "sliding_window"),
    "a pattern type without its pattern": (
        {**LLAMA, "model_type": "cohere2", "sliding_window": 4096},
        Reason.UNKNOWN_WINDOW_PATTERN,
        "sliding_window_pattern",
    ),
    "a layer kind that is not known": (
        {**QWEN3, "layer_types": ["full_attention"] * 3 + ["holographic_attention"]},
        Reason.UNKNOWN_LAYER_KIND,
        "'holographic_attention'",
    ),
    "layer_types for another number of layers": (
        {**QWEN3, "layer_types": ["full_attention"] * 3},
        Reason.CONTRADICTION,
        "3 entries for 4 layers",
    ),
    "a sliding layer without a window": (
        {**QWEN3, "layer_types": ["sliding_attention"] * 4},
        Reason.MISSING,
        "sliding_window",
    ),
    "a latent in a plain model": ({**LLAMA, "kv_lora_rank": 512}, Reason.UNKNOWN_KEY, "'kv_lora_rank'"),
    "a key about the cache that nobody knows": ({**LLAMA, "kv_sharing_stride": 2}, Reason.UNKNOWN_KEY, "kv_sharing"),
    "cross-layer sharing in a plain model": ({**LLAMA, "cla_share_factor": 2}, Reason.UNKNOWN_KEY, "'cla_share"),
    "values of another width in a plain model": ({**LLAMA, "v_head_dim": 64}, Reason.UNKNOWN_KEY, "'v_head_dim'"),
    "cross attention in a plain model": ({**LLAMA, "add_cross_attention": True}, Reason.UNKNOWN_KEY, "cross"),
    "a wrapper with a window of its own": (
        {"model_type": "llava", "text_config": LLAMA, "sliding_window": 64},
        Reason.UNKNOWN_KEY,
        "'sliding_window'",
    ),
    "a latent without its rope part": (
        {**MLA, "qk_rope_head_dim": None},
        Reason.MISSING,
        "qk_rope_head_dim",
    ),
    "an indexer in a type that has none": ({**MLA, "index_head_dim": 128}, Reason.UNKNOWN_KEY, "'index_head_dim'"),
    "a windowed latent": (
        {**MLA, "layer_types": ["sliding_attention"] * 4},
        Reason.UNKNOWN_LAYER_KIND,
        "'sliding_attention'",
    ),
    "a DSA layer of another kind": (
        {**DSA, "layer_types": ["full_attention"] * 4},
        Reason.UNKNOWN_LAYER_KIND,
        "'full_attention'",
    ),
    "an indexer type that is not known": (
        {**DSA, "indexer_types": ["full", "full", "full", "half"]},
        Reason.UNKNOWN_LAYER_KIND,
        "indexer_types",
    ),
    "an indexer pattern of another length": (
        {**DSA, "index_topk_pattern": "FFS"},
        Reason.UNKNOWN_LAYER_KIND,
        "4 layers",
    ),
    "a compression of another ratio": (
        {**V4, "compress_ratios": [4, 64, 0]},
        Reason.UNKNOWN_LAYER_KIND,
        "compress_ratios",
    ),
    "fewer compression ratios than layers": (
        {**V4, "compress_ratios": [4]},
        Reason.UNKNOWN_LAYER_KIND,
        "compress_ratios",
    ),
    "compressed entries for several KV heads": ({**V4, "num_key_value_heads": 2}, Reason.BAD_VALUE, "is 2, not 1"),
    "a hybrid without layer types and interval": (
        {**GDN, "full_attention_interval": None},
        Reason.MISSING,
        "full_attention_interval",
    ),
    "a hybrid layer of another kind": (
        {**GDN, "layer_types": ["linear_attention"] * 3 + ["sliding_attention"]},
        Reason.UNKNOWN_LAYER_KIND,
        "'sliding_attention'",
    ),
    "a hybrid without its state's size": ({**GDN, "linear_key_head_dim": None}, Reason.MISSING, "linear_key_head_dim"),
    "a state dtype that is not known": ({**GDN, "mamba_ssm_dtype": "int3"}, Reason.UNKNOWN_DTYPE, "'int3'"),
    "a block letter that is not known": (
        {**MAMBA, "hybrid_override_pattern": "M-MX"},
        Reason.UNKNOWN_LAYER_KIND,
        "'X'",
    ),
    "a block pattern for another number of layers": (
        {**MAMBA, "num_hidden_layers": 5},
        Reason.CONTRADICTION,
        "4 layers of the pattern",
    ),
    "two block patterns": (
        {**MAMBA, "layers_block_type": ["mamba", "mlp", "mamba", "attention"]},
        Reason.UNKNOWN_KEY,
        "'hybrid_override_pattern'",
    ),
    "no layer that attends": ({**MAMBA, "hybrid_override_pattern": "M-M-"}, Reason.NO_ATTENTION, "no layer"),
    "KDA layers that overlap the full ones": (
        {**KIMI, "linear_attn_config": {**KIMI["linear_attn_config"], "kda_layers": [1, 2, 4]}},
        Reason.CONTRADICTION,
        "kda_layers",
    ),
    "a KDA key that is not known": (
        {**KIMI, "linear_attn_config": {**KIMI["linear_attn_config"], "head_twist": 2}},
        Reason.UNKNOWN_KEY,
        "'head_twist'",
    ),
    "blocks for another number of layers": ({**NAS, "block_configs": [BLOCK] * 3}, Reason.CONTRADICTION, "4 blocks"),
    "blocks of which none attends": ({**NAS, "block_configs": [NO_OP] * 4}, Reason.NO_ATTENTION, "block_configs"),
    "a block with a window": (
        {**NAS, "block_configs": [{"attention": {**BLOCK["attention"], "window_length": 64}}] * 4},
        Reason.UNKNOWN_KEY,
        "'window_length'",
    ),
    "a head group that does not divide": (
        {**NAS, "block_configs": [{"attention": {"n_heads_in_group": 5}}] * 4},
        Reason.CONTRADICTION,
        "5 does not divide 32",
    ),
    "cross layers beyond the last": (
        {**MLLAMA, "cross_attention_layers": [7]},
        Reason.CONTRADICTION,
        "cross_attention_layers",
    ),
    "an attending layer beyond its period": ({**JAMBA, "attn_layer_offset": 4}, Reason.BAD_VALUE, "0..3"),
    "a window pattern of other numbers": (
        {**MIMO, "hybrid_layer_pattern": [0, 1, 2, 1]},
        Reason.UNKNOWN_WINDOW_PATTERN,
        "hybrid_layer_pattern",
    ),
    "every layer sharing another's cache": ({**GEMMA4, "num_kv_shared_layers": 4}, Reason.CONTRADICTION, "no layer"),
    "index values in the cache": (
        {**M3, "sparse_attention_config": {**SPARSE, "sparse_disable_index_value": [0, 0, 1, 1]}},
        Reason.UNKNOWN_LAYER_KIND,
        "sparse_disable_index_value",
    ),
    "lightning attention": (
        {**QWEN3, "model_type": "minimax_m2", "attn_type_list": [1, 0, 1, 1]},
        Reason.UNKNOWN_LAYER_KIND,
        "attn_type_list",
    ),
    "falcon that does not say whether it shares heads": (
        {**LLAMA, "model_type": "falcon", "num_key_value_heads": None},
        Reason.MISSING,
        "multi_query",
    ),
    "an attention type that is not known": (
        {**LLAMA, "model_type": "mpt", "attn_config": {"attn_type": "ring_attention"}},
        Reason.UNKNOWN_LAYER_KIND,
        "'ring_attention'",
    ),
    "a model dtype that is not known": ({**LLAMA, "torch_dtype": "posit16"}, Reason.UNKNOWN_DTYPE, "'posit16'"),
    "a model dtype that nothing is served in": ({**LLAMA, "torch_dtype": "fp8"}, Reason.UNKNOWN_DTYPE, "'fp8'"),
    "a GGUF architecture that is not known": ({"gpt9.block_count": 4}, Reason.UNKNOWN_MODEL_TYPE, "'gpt9'"),
    "a GGUF whose lists say no layer attends": (
        {**GGUF, "llama.attention.head_count_kv": [0, 0, 0, 0]},
        Reason.NO_ATTENTION,
        "0 in every layer",
    ),
    "a GGUF llama with layers that do not attend": (
        {**GGUF, "llama.attention.head_count_kv": [8, 0, 8, 8]},
        Reason.UNKNOWN_LAYER_KIND,
        "0 in some layer",
    ),
    "a GGUF with a window": ({**GGUF, "llama.attention.sliding_window": 64}, Reason.UNKNOWN_KEY, "sliding_window"),
    "a GGUF without a key length": (
        {"llama.block_count": 4, "llama.attention.head_count_kv": 8},
        Reason.MISSING,
        "key_length",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_config_that_is_unclear_is_unknown(case: str) -> None:
    config, reason, named = REFUSED[case]
    result = kv_layout(config)
    assert isinstance(result, KVBytesUnknown), result
    assert result.reason is reason
    assert named in result.message
    assert result.message.endswith(REMEDY)


@pytest.mark.parametrize("name", ["llama", "MLA", "GDN", "Gemma 4", "GGUF"])
def test_harmless_keys_do_not_matter(name: str) -> None:
    harmless: Config = {
        "rope_theta": 1e6, "vocab_size": 151_936, "attention_dropout": 0.1, "use_cache": True, "hidden_act": "silu",
        "tie_word_embeddings": True, "n_routed_experts": 256, "num_nextn_predict_layers": 1, "image_token_id": 5,
        "vision_config": {"num_hidden_layers": 9, "sliding_window": 5}, "time_step_limit": [0.0, float("inf")],
        "kv_sharing_stride": 0, "add_cross_attention": False, "layers_that_share": None,
    }  # fmt: skip
    assert kv_layout({**harmless, **SOUND[name]}) == kv_layout(SOUND[name])


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("V4", "fp8"), ("MLA", "nvfp4"), ("DSA", "int8"), ("llama", "fp8_ds_mla"), ("V4", "fp8_ds_mla")],
)
def test_a_dtype_whose_record_depends_on_the_engine_is_unknown(name: str, dtype: str) -> None:
    result = kv_layout(SOUND[name], dtype=dtype)
    assert isinstance(result, KVBytesUnknown)
    assert result.reason is Reason.UNKNOWN_DTYPE


def test_a_latent_in_the_record_with_scales() -> None:
    plain = kv_layout(MLA, dtype="fp8")
    scaled = kv_layout(MLA, dtype="fp8_ds_mla")
    assert isinstance(plain, KVLayout)
    assert isinstance(scaled, KVLayout)
    assert (plain.bytes_per_token, scaled.bytes_per_token) == (4 * 576, 4 * 656)


@pytest.mark.parametrize("count", [-1, 257])
def test_speculative_layers_out_of_range_are_refused(count: int) -> None:
    result = kv_layout(LLAMA, speculative_layers=count)
    assert isinstance(result, KVBytesUnknown)
    assert "0..256" in result.message


def test_deepseek_v4_has_only_the_speculative_layers_it_describes() -> None:
    one, two = kv_layout(V4, speculative_layers=1), kv_layout(V4, speculative_layers=2)
    assert isinstance(one, KVLayout)
    assert one.windows[0].bytes_per_token == 3 * 1024
    assert isinstance(two, KVBytesUnknown)
    assert "describes 1" in two.message


def test_messages_never_echo_foreign_text() -> None:
    evil = "x\n\x1b[31m<script>" + "y" * 100
    for config in ({**LLAMA, "model_type": evil}, {**LLAMA, f"kv_{evil}": 1}, {**LLAMA, "torch_dtype": evil}):
        result = kv_layout(config)
        assert isinstance(result, KVBytesUnknown)
        assert "script" not in result.message
        assert result.message.isprintable()


TEXTS: dict[str, tuple[str, Reason, str]] = {
    "not JSON": ("{model_type: llama}", Reason.NOT_JSON, "19 B are not JSON"),
    "empty": ("", Reason.NOT_JSON, "0 B are not JSON"),
    "cut off": ('{"model_type": "lla', Reason.NOT_JSON, "not JSON"),
    "a list": ("[1, 2]", Reason.NOT_AN_OBJECT, "a list, not a JSON object"),
    "a number": ("7", Reason.NOT_AN_OBJECT, "is 7, not a JSON object"),
    "null": ("null", Reason.NOT_AN_OBJECT, "null"),
    "a key that appears twice": ('{"a": 1, "a": 2}', Reason.NOT_JSON, "not JSON"),
    "nested without end": ("[" * 100_000, Reason.NOT_JSON, "100,000 B"),
    "a byte too many": ('{"a": "' + "x" * 2**20 + '"}', Reason.TOO_LARGE, "the limit is 1,048,576 B"),
    "too large in bytes though not in characters": ('"' + "é" * 600_000 + '"', Reason.TOO_LARGE, "1,200,002 B"),
    "a GGUF file": ("GGUF\x03\x00\x00", Reason.GGUF_ONLY, "give its metadata"),
}


@pytest.mark.parametrize("case", TEXTS)
def test_a_text_that_is_no_config(case: str) -> None:
    text, reason, named = TEXTS[case]
    result = parse_config(text)
    assert isinstance(result, KVBytesUnknown)
    assert result.reason is reason
    assert named in result.message
    assert result.message.endswith(REMEDY)


@pytest.mark.parametrize(
    "text", ['\ufeff{"a": [0.0, Infinity]}', '{"a": [0.0, Infinity]}'], ids=["with a mark", "plain"]
)
def test_a_text_as_published_configs_write_it(text: str) -> None:
    assert parse_config(text) == {"a": [0.0, float("inf")]}


@pytest.mark.parametrize("root", [None, 7, "llama", [LLAMA], True])
def test_a_config_that_is_no_object_is_unknown(root: Any) -> None:
    wrong: JSON = root
    result = kv_layout(wrong)  # type: ignore[arg-type]
    assert isinstance(result, KVBytesUnknown)
    assert result.reason is Reason.NOT_AN_OBJECT
