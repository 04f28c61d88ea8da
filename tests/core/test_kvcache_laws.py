"""Laws over generated configs: never raises, never free, never less for more tokens."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kvgate.core.kvcache import KVBytesUnknown, KVLayout, kv_layout, parse_config
from kvgate.core.kvcache.table import ROWS, WRAPPERS

MODELS = json.loads((Path(__file__).parents[1] / "data" / "model-configs.json").read_text(encoding="utf-8"))
CONFIGS: list[dict[str, Any]] = [entry["config"] for entry in MODELS.values()]


def keys_of(value: Any) -> set[str]:
    if isinstance(value, Mapping):
        return set(value).union(*(keys_of(inner) for inner in value.values()))
    return set().union(*(keys_of(item) for item in value)) if isinstance(value, list) else set()


KEYS = [*sorted(keys_of(CONFIGS)), "kv_sharing", "per_layer_config", "x.block_count", "llama.block_count"]
WORDS = sorted(ROWS) + sorted(WRAPPERS) + [
    "bfloat16", "fp8", "float32", "auto", "M*-E",
    "full_attention", "sliding_attention", "linear_attention", "attention",
]  # fmt: skip

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=0, max_value=130)
    | st.floats()
    | st.sampled_from(WORDS)
    | st.text(max_size=8)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=6), inner, max_size=5)
        | st.integers(0, 130).flatmap(lambda n: st.just([n] * 4))
    ),
    max_leaves=12,
)
OBJECTS = st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=6), VALUES, max_size=12)


@st.composite
def mutated(draw: st.DrawFn) -> dict[str, Any]:
    """A published config with some of its keys, at any depth, removed, replaced or added."""
    config: dict[str, Any] = json.loads(json.dumps(draw(st.sampled_from(CONFIGS))))
    for _ in range(draw(st.integers(0, 4))):
        places = [config, *(inner for inner in config.values() if isinstance(inner, dict))]
        place = draw(st.sampled_from(places))
        key = draw(st.sampled_from(sorted(place)) | st.sampled_from(KEYS)) if place else draw(st.sampled_from(KEYS))
        if draw(st.booleans()):
            place.pop(key, None)
        else:
            place[key] = draw(VALUES)
    return config


def check(result: KVLayout | KVBytesUnknown) -> None:
    if isinstance(result, KVBytesUnknown):
        assert result.message.isprintable()
        assert result.message.endswith("supply spec.model.kvCache.bytesPerToken")
        return
    whole = (result.bytes_per_token, result.state_bytes, result.encoder_bytes_per_token, result.copied_bytes_per_token)
    assert all(type(number) is int and number >= 0 for number in whole)
    assert all(type(w.bytes_per_token) is int and w.bytes_per_token > 0 < w.tokens for w in result.windows)
    assert result.bytes_per_token > 0 or result.windows
    assert result.bytes_for(1, 1) > result.state_bytes
    assert result.replication(8) >= 1
    assert result.derivation.isprintable()


ASKED = st.fixed_dictionaries(
    {},
    optional={
        "dtype": st.sampled_from(["auto", "fp8", "bfloat16", "nvfp4", "fp8_ds_mla"]) | st.text(max_size=5),
        "quant_config": OBJECTS | st.just({"quantization": {"kv_cache_quant_algo": "FP8"}}),
        "speculative_layers": st.integers(-2, 300),
        "window_cap": st.booleans(),
    },
)


@settings(max_examples=200, deadline=None)
@given(config=OBJECTS, asked=ASKED)
def test_any_object_gives_a_layout_or_an_unknown(config: dict[str, Any], asked: dict[str, Any]) -> None:
    check(kv_layout(config, **asked))


@settings(max_examples=300, deadline=None)
@given(config=mutated(), asked=ASKED)
def test_any_spoilt_config_gives_a_layout_or_an_unknown(config: dict[str, Any], asked: dict[str, Any]) -> None:
    check(kv_layout(config, **asked))


@settings(max_examples=100, deadline=None)
@given(kind=st.sampled_from(sorted(ROWS)), config=OBJECTS)
def test_any_object_under_a_known_type_gives_a_layout_or_an_unknown(kind: str, config: dict[str, Any]) -> None:
    check(kv_layout({**config, "model_type": kind}))


@settings(max_examples=300, deadline=None)
@given(text=st.text() | VALUES.map(json.dumps))
def test_any_text_is_an_object_or_an_unknown(text: str) -> None:
    assert isinstance(parse_config(text), Mapping | KVBytesUnknown)


KNOWN = [result for config in CONFIGS if isinstance(result := kv_layout(config), KVLayout)]
LAYOUTS = st.sampled_from(KNOWN)


@given(layout=LAYOUTS, tokens=st.integers(0, 10**6), more=st.integers(0, 10**5), block=st.integers(1, 1024))
def test_more_tokens_never_weigh_less(layout: KVLayout, tokens: int, more: int, block: int) -> None:
    assert layout.bytes_for(tokens, block) <= layout.bytes_for(tokens + more, block)
    assert layout.bytes_for(tokens, 1) <= layout.bytes_for(tokens, block)


@given(layout=LAYOUTS, ranks=st.integers(1, 512), more=st.integers(0, 512))
def test_more_ranks_never_pull_less(layout: KVLayout, ranks: int, more: int) -> None:
    assert 1 <= layout.replication(ranks) <= layout.replication(ranks + more)


@given(config=st.sampled_from(CONFIGS), tokens=st.integers(1, 10**6))
def test_moving_windows_whole_never_weighs_less(config: dict[str, Any], tokens: int) -> None:
    capped, whole = kv_layout(config), kv_layout(config, window_cap=False)
    if isinstance(capped, KVLayout) and isinstance(whole, KVLayout):
        assert capped.bytes_for(tokens, 16) <= whole.bytes_for(tokens, 16)
        assert whole.windows == ()
    else:
        assert capped == whole


@given(config=st.sampled_from(CONFIGS), name=st.text(min_size=1, max_size=20).filter(lambda n: n not in ROWS))
def test_a_model_type_without_a_row_is_always_unknown(config: dict[str, Any], name: str) -> None:
    renamed = {**config, "model_type": name}
    if isinstance(text := renamed.get("text_config"), dict):
        renamed["text_config"] = {**text, "model_type": name}
    assert isinstance(kv_layout(renamed), KVBytesUnknown)


@given(
    config=st.sampled_from(CONFIGS), key=st.from_regex(r"(kv|cache|window|mamba|attention)_[a-z]{6}", fullmatch=True)
)
def test_a_foreign_key_that_sounds_like_the_cache_never_goes_unnoticed(config: dict[str, Any], key: str) -> None:
    assert isinstance(kv_layout({**config, key: 7}), KVBytesUnknown)
