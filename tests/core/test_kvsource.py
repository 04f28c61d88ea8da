"""The size of the KV cache: from which source, with which of the overrides, and who must act where it is unknown."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kvgate.api.pool import KVCache
from kvgate.core.kvsource import DEFAULT_BLOCK_TOKENS, ConfigTexts, kv_size
from kvgate.core.world import KVKnown, KVUnknown

QWEN = {
    "model_type": "qwen3",
    "architectures": ["Qwen3ForCausalLM"],
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "hidden_size": 1024,
    "torch_dtype": "bfloat16",
    "use_sliding_window": False,
}
SOURCE = "ConfigMap qwen3-config/config.json"


def asked(**fields: Any) -> KVCache:
    return KVCache.model_validate(fields)


def config(text: str = json.dumps(QWEN), **more: Any) -> ConfigTexts:
    return ConfigTexts(**{"config": text, "source": SOURCE} | more)


def known(found: KVKnown | KVUnknown) -> KVKnown:
    assert isinstance(found, KVKnown), found
    return found


@pytest.mark.parametrize(
    ("fields", "texts", "bytes_per_token"),
    [
        pytest.param({}, config(), 114_688, id="the config's own element type"),
        pytest.param({"dtype": "fp8_e4m3"}, config(), 57_344, id="the pool's element type"),
        pytest.param({}, config(dtype="fp8"), 57_344, id="the worker's element type"),
        pytest.param({"dtype": "bfloat16"}, config(dtype="fp8"), 114_688, id="the pool's above the worker's"),
        pytest.param({"bytesPerToken": 1000}, ConfigTexts(), 1000, id="the pool's own number"),
        pytest.param({"bytesPerToken": 1000}, ConfigTexts(problem="no"), 1000, id="the pool's number needs no config"),
    ],
)
def test_bytes_per_token(fields: dict[str, Any], texts: ConfigTexts, bytes_per_token: int) -> None:
    assert known(kv_size(asked(**fields), texts)).bytes_per_token == bytes_per_token


@pytest.mark.parametrize(
    ("fields", "texts", "tokens"),
    [
        pytest.param({"blockTokens": 64}, config(block_tokens=32), 64, id="the pool's block"),
        pytest.param({}, config(block_tokens=32), 32, id="the worker's block"),
        pytest.param({}, config(), DEFAULT_BLOCK_TOKENS, id="the default block"),
        pytest.param({"bytesPerToken": 7}, ConfigTexts(block_tokens=8), 8, id="the worker's block beside a number"),
    ],
)
def test_tokens_per_block(fields: dict[str, Any], texts: ConfigTexts, tokens: int) -> None:
    assert known(kv_size(asked(**fields), texts)).block_tokens == tokens


def test_where_it_comes_from_is_shown() -> None:
    found = known(kv_size(asked(), config()))
    assert found.source == SOURCE
    assert "28 layers" in found.derivation
    assert "bfloat16" in found.derivation


def test_another_config_has_another_digest() -> None:
    digests = {
        known(kv_size(asked(), config())).digest,
        known(kv_size(asked(), config(json.dumps(QWEN | {"note": 1})))).digest,
        known(kv_size(asked(), config(quant_config='{"quantization": {"kv_cache_quant_algo": "FP8"}}'))).digest,
        known(kv_size(asked(bytesPerToken=7), ConfigTexts())).digest,
    }
    assert len(digests) == 4


def test_the_quantisation_beside_the_config_counts() -> None:
    quant = json.dumps({"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}})
    assert known(kv_size(asked(), config(quant_config=quant))).bytes_per_token == 57_344


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        pytest.param(ConfigTexts(problem="no worker runs"), "no worker runs", id="nothing could be read"),
        pytest.param(config("{"), SOURCE, id="no JSON"),
        pytest.param(config(""), SOURCE, id="an empty text"),
        pytest.param(config("[]"), SOURCE, id="a list"),
        pytest.param(config("{}"), "bytesPerToken", id="an empty object"),
        pytest.param(config(quant_config="{"), SOURCE, id="a quantisation that is no JSON"),
        pytest.param(config('{"model_type": "nobody-knows-me"}'), "bytesPerToken", id="an unknown model"),
        pytest.param(config(json.dumps(QWEN | {"num_hidden_layers": 0})), SOURCE, id="zero layers"),
        pytest.param(config(json.dumps(QWEN | {"head_dim": -128})), SOURCE, id="a negative head"),
        pytest.param(config(json.dumps(QWEN | {"head_dim": float("nan")})), SOURCE, id="NaN for a head"),
        pytest.param(config(dtype="float3"), "float3", id="an element type that nobody has"),
    ],
)
def test_what_cannot_be_derived_is_unknown_and_never_a_guess(texts: ConfigTexts, said: str) -> None:
    found = kv_size(asked(), texts)
    assert isinstance(found, KVUnknown)
    assert found.reason == "KVBytesUnknown"
    assert said in found.message


def test_within_what_time_a_problem_may_be_over_by_itself_is_handed_on() -> None:
    found = kv_size(asked(), ConfigTexts(problem="it is awaited", look_again_seconds=5.0))
    assert found == KVUnknown("KVBytesUnknown", "it is awaited", 5.0)
