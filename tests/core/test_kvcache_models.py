"""Every published config of tests/data/model-configs.json gives the expected bytes, to the byte."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kvgate.core.kvcache import Family, KVBytesUnknown, KVLayout, Reason, kv_layout

MODELS: dict[str, dict[str, Any]] = json.loads(
    (Path(__file__).parents[1] / "data" / "model-configs.json").read_text(encoding="utf-8")
)
KNOWN = {name: entry for name, entry in MODELS.items() if entry["expected"] != "KVBytesUnknown"}
QUANTIZED = {name: entry for name, entry in MODELS.items() if "expectedWithQuantConfig" in entry}

# The data counts every layer of these as attending; here only those whose cache grows without bound are "full".
COUNTED_OTHERWISE = frozenset({"gemma2", "deepseek_v4"})


def layout(config: dict[str, Any], **asked: Any) -> KVLayout:
    result = kv_layout(config, **asked)
    assert isinstance(result, KVLayout), result
    return result


def numbers(result: KVLayout) -> dict[str, Any]:
    window = result.windows[0] if result.windows else None
    assert len(result.windows) <= 1
    return {
        "dtype": result.dtype,
        "family": result.family.value,
        "layers": result.layers,
        "bytesPerToken": result.bytes_per_token,
        "windowBytesPerToken": window.bytes_per_token if window else 0,
        "windowTokens": window.tokens if window else 0,
        "stateBytes": result.state_bytes,
        "bytesAt3216": result.bytes_for(3216, 16),
    }


def without_attention_layers(expected: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in expected.items() if key != "attentionLayers"}


def test_the_table_is_whole() -> None:
    assert len(MODELS) == 101
    assert len(KNOWN) == 99
    assert len(QUANTIZED) == 25


@pytest.mark.parametrize("name", KNOWN)
def test_bytes_at_the_models_own_dtype(name: str) -> None:
    expected = KNOWN[name]["expected"]
    result = layout(KNOWN[name]["config"], dtype=expected["dtype"])
    assert numbers(result) == without_attention_layers(expected)
    if KNOWN[name]["config"]["model_type"] not in COUNTED_OTHERWISE:
        assert (result.full_layers or result.windowed_layers) == expected["attentionLayers"]


@pytest.mark.parametrize("name", QUANTIZED)
def test_bytes_with_the_kv_quantization_of_hf_quant_config(name: str) -> None:
    entry = QUANTIZED[name]
    quant = {"producer": {"name": "modelopt"}, "quantization": {"kv_cache_quant_algo": entry["kv_cache_quant_algo"]}}
    expected = without_attention_layers(entry["expectedWithQuantConfig"])
    assert numbers(layout(entry["config"], quant_config=quant)) == expected
    assert numbers(layout(entry["config"], quant_config=quant["quantization"])) == expected


@pytest.mark.parametrize("name", KNOWN)
def test_the_config_alone_says_the_dtype(name: str) -> None:
    config = KNOWN[name]["config"]
    holder = config.get("quantization_config") or config.get("text_config", {}).get("quantization_config") or {}
    result = layout(config)
    assert result.dtype == ("fp8" if holder.get("kv_cache_scheme") else KNOWN[name]["expected"]["dtype"])


@pytest.mark.parametrize("name", sorted(MODELS.keys() - KNOWN.keys()))
def test_a_reference_config_of_an_unknown_type_is_unknown(name: str) -> None:
    result = kv_layout(MODELS[name]["config"])
    assert isinstance(result, KVBytesUnknown)
    assert result.reason is Reason.UNKNOWN_MODEL_TYPE
    assert "'deepseek_ref'" in result.message
    assert result.message.endswith("supply spec.model.kvCache.bytesPerToken")


def test_the_published_minimax_m3_config_adds_index_keys_to_what_the_extract_says() -> None:
    """The whole config has a sparse_attention_config; its 57 sparse layers cache one 128-wide index key each."""
    extract = MODELS["MiniMaxAI/MiniMax-M3"]["config"]
    sparse = [0, 0, 0] + [1] * 57
    section = {
        "use_sparse_attention": True, "sparse_index_dim": 128, "sparse_num_index_heads": 4, "sparse_topk_blocks": 16,
        "sparse_block_size": 128, "sparse_disable_index_value": sparse, "sparse_score_type": "max",
        "sparse_init_block": 0, "sparse_local_block": 1, "sparse_attention_freq": sparse,
    }  # fmt: skip
    result = layout({**extract, "sparse_attention_config": section})
    assert result.bytes_per_token == 122_880 + 57 * 128 * 2 == 137_472
    assert result.family is Family.SPARSE_GQA
    assert layout(extract).warnings == ("no sparse layers in the config: no index keys counted",)
    # four ranks share out the four KV heads; every rank holds every index key: 45,312 B per rank and token
    assert result.bytes_per_token * result.replication(4) == pytest.approx(4 * 45_312)


def test_the_published_glm_5_2_config_has_fewer_indexers_than_the_extract_says() -> None:
    """Its indexer_types name 21 full layers; a shared layer reuses their choice and builds no indexer."""
    extract = MODELS["zai-org/GLM-5.2"]["config"]
    types = ["full" if max(i - 3 + 1, 0) % 4 == 0 else "shared" for i in range(78)]
    published = {"index_topk_freq": 4, "index_skip_topk_offset": 3, "index_topk_pattern": None}
    result = layout({**extract, **published, "indexer_types": types})
    assert types.count("full") == 21
    assert result.bytes_per_token == 78 * 1152 + 21 * 132 == 92_628
    assert layout({**extract, **published}) == result
    assert "57 layers share an indexer" in result.warnings[0]
    assert "7,524 B/token" in result.warnings[0]
