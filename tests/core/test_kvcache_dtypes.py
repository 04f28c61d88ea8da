"""The width of a cached value: what the worker was told, the checkpoint's scheme, or the model's dtype."""

from __future__ import annotations

import pytest

from kvgate.core.kvcache import Reason
from tests.core.model_configs import (
    LLAMA_8B,
    TEXT,
    Config,
    layout,
    unknown,
)

FP8_SCHEME = {"num_bits": 8, "type": "float"}
QUANTIZED: dict[str, tuple[Config, int]] = {
    "compressed-tensors with an FP8 KV scheme": (
        {"quantization_config": {"quant_method": "compressed-tensors", "kv_cache_scheme": FP8_SCHEME}},
        65_536,
    ),
    "FP8 weights alone leave the cache wide": ({"quantization_config": {"quant_method": "fp8"}}, 131_072),
    "AWQ leaves the cache wide": (
        {"quantization_config": {"quant_method": "awq", "bits": 4}, "torch_dtype": "float16"},
        131_072,
    ),
    "ModelOpt NVFP4 weights with an FP8 KV scheme": (
        {"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4", "kv_cache_scheme": FP8_SCHEME}},
        65_536,
    ),
    "compression_config is the older name": ({"compression_config": {"kv_cache_scheme": FP8_SCHEME}}, 65_536),
    "a KV scheme of null leaves the cache wide": (
        {"quantization_config": {"quant_method": "compressed-tensors", "kv_cache_scheme": None}},
        131_072,
    ),
    "a KV scheme written as a word": ({"quantization_config": {"kv_cache_scheme": "FP8"}}, 65_536),
    "kv_cache_quant_algo in the config itself": ({"quantization_config": {"kv_cache_quant_algo": "FP8"}}, 65_536),
    "NVFP4 is 0.5625 B per element": ({"quantization_config": {"kv_cache_quant_algo": "NVFP4"}}, 73_728 // 2),
}


@pytest.mark.parametrize("case", QUANTIZED)
def test_the_kv_scheme_decides_and_not_the_weights(case: str) -> None:
    changes, expected = QUANTIZED[case]
    assert layout({**LLAMA_8B, **changes}).bytes_per_token == expected


@pytest.mark.parametrize(
    "section",
    [
        pytest.param({"kv_cache_scheme": {"num_bits": 3, "type": "float"}}, id="of three bits"),
        pytest.param({"kv_cache_scheme": {**FP8_SCHEME, "twist": 1}}, id="with a detail that is not known"),
        pytest.param({"kv_cache_scheme": ["FP8"]}, id="that is a list"),
        pytest.param({"kv_cache_quant_algo": "FP3"}, id="of an unknown algorithm"),
    ],
)
def test_a_kv_scheme_that_is_not_known_is_unknown(section: Config) -> None:
    assert unknown({**LLAMA_8B, "quantization_config": section}).reason is Reason.UNKNOWN_DTYPE


def test_a_foreign_key_about_the_kv_cache_in_the_quantization_is_unknown() -> None:
    section = {"quant_method": "quark", "kv_cache_group": ["*k_proj"]}
    assert unknown({**LLAMA_8B, "quantization_config": section}).reason is Reason.UNKNOWN_KEY


DTYPES: dict[str, tuple[Config, str, bool]] = {
    "dtype": ({"dtype": "bfloat16"}, "bfloat16", False),
    "torch_dtype": ({"torch_dtype": "float16"}, "float16", False),
    "torch_dtype with its module": ({"torch_dtype": "torch.bfloat16"}, "bfloat16", False),
    "dtype wins over a torch_dtype that differs": ({"dtype": "bfloat16", "torch_dtype": "float16"}, "bfloat16", True),
    "none: two bytes are assumed": ({}, "bfloat16", True),
    "auto is none": ({"torch_dtype": "auto"}, "bfloat16", True),
    "float32 is served in two bytes": ({"torch_dtype": "float32"}, "bfloat16", True),
}


@pytest.mark.parametrize("case", DTYPES)
def test_the_models_dtype(case: str) -> None:
    said, dtype, warned = DTYPES[case]
    plain = {key: value for key, value in LLAMA_8B.items() if key != "torch_dtype"}
    result = layout({**plain, **said})
    assert (result.bytes_per_token, result.dtype, bool(result.warnings)) == (131_072, dtype, warned)


def test_a_null_dtype_in_the_language_part_falls_back_to_the_root() -> None:
    text = {**TEXT, "dtype": None, "torch_dtype": None}
    result = layout({"model_type": "qwen3_vl", "torch_dtype": "float16", "text_config": text})
    assert (result.dtype, result.bytes_per_token, result.warnings) == ("float16", 131_072, ())


@pytest.mark.parametrize(
    ("asked", "dtype", "per_token"),
    [
        ("fp8", "fp8", 65_536),
        ("fp8_e4m3", "fp8", 65_536),
        ("auto", "bfloat16", 131_072),
        ("bfloat16", "bfloat16", 131_072),
    ],
)
def test_what_the_worker_was_told_comes_first(asked: str, dtype: str, per_token: int) -> None:
    result = layout(LLAMA_8B, dtype=asked)
    assert (result.dtype, result.bytes_per_token) == (dtype, per_token)


def test_what_the_worker_was_told_beats_the_checkpoint() -> None:
    quant = {"quantization": {"kv_cache_quant_algo": "FP8"}}
    assert layout(LLAMA_8B, quant_config=quant, dtype="bfloat16").dtype == "bfloat16"
    assert layout(LLAMA_8B, quant_config=quant, dtype="auto").dtype == "fp8"
    assert unknown(LLAMA_8B, dtype="fp7").reason is Reason.UNKNOWN_DTYPE
    assert unknown(LLAMA_8B, quant_config={"quantization": [1]}).reason is Reason.BAD_VALUE
