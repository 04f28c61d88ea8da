"""Models whose layers all keep keys and values: MHA, GQA, MQA, with or without sliding windows."""

from __future__ import annotations

from dataclasses import dataclass

from kvgate.core.kvcache.layers import NOTHING, Ask, Built, Layer, WindowRule, attention, head_family
from kvgate.core.kvcache.layout import Family
from kvgate.core.kvcache.reading import MOST_LAYERS, Fields
from kvgate.core.kvcache.words import Reason, Refusal, shown

LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
HEADS = ("num_attention_heads", "n_head", "n_heads")
HIDDEN = ("hidden_size", "n_embd", "d_model")
KV_HEADS = ("num_key_value_heads", "n_head_kv", "num_kv_heads", "num_attention_groups")
HEAD_DIM = ("head_dim", "kv_channels", "hidden_size_per_head", "attention_head_dim")

FULL = frozenset({"full_attention", "attention"})
SLIDING = frozenset({"sliding_attention"})
CHUNKED = frozenset({"chunked_attention"})


@dataclass(frozen=True)
class Shape:
    heads: int
    kv_heads: int
    key_dim: int
    value_dim: int


def build(f: Fields, ask: Ask) -> Built:
    return of_shape(f, ask, shape(f, ask))


def of_shape(f: Fields, ask: Ask, s: Shape) -> Built:
    windows = layer_windows(f, ask)
    layers = tuple(attention(s.kv_heads, s.key_dim, s.value_dim, ask.kv, w) for w in windows)
    return Built(
        family=window_family(windows) or head_family(s.kv_heads, s.heads),
        layers=layers,
        drafts=(attention(s.kv_heads, s.key_dim, s.value_dim, ask.kv),),
        kv_heads=s.kv_heads,
        key_dim=s.key_dim,
        value_dim=s.value_dim,
    )


def layer_count(f: Fields) -> int:
    return f.need(*LAYERS, most=MOST_LAYERS)


def shape(f: Fields, ask: Ask) -> Shape:
    heads = f.need(*HEADS)
    dim = head_dim(f, heads, required=ask.row.own_head_dim)
    return Shape(heads, kv_head_count(f, heads, mha_by_default=ask.row.mha_by_default), dim, dim)


def kv_head_count(f: Fields, heads: int, *, mha_by_default: bool) -> int:
    given = f.count(*KV_HEADS)
    if given is None:
        if mha_by_default or any(name in f for name in KV_HEADS):
            return heads
        raise f.refuse(Reason.MISSING, KV_HEADS[0], "is missing")
    if given > heads:
        raise f.refuse(Reason.CONTRADICTION, KV_HEADS[0], f"is {given}, more than the {heads} heads")
    return given


def head_dim(f: Fields, heads: int, *, required: bool = False) -> int:
    """An explicit positive head dimension wins; null and 0 mean hidden_size / heads."""
    given = f.count(*HEAD_DIM, zero_is_absent=True)
    f.ignore(*HIDDEN)
    if given is not None:
        return given
    if required and not any(name in f for name in HEAD_DIM):
        raise f.refuse(Reason.MISSING, HEAD_DIM[0], "is missing")
    hidden = f.need(*HIDDEN)
    if hidden % heads:
        raise f.refuse(Reason.CONTRADICTION, HIDDEN[0], f"{hidden} is not a multiple of {heads} heads")
    return hidden // heads


def window_family(windows: tuple[int | None, ...]) -> Family | None:
    if all(w is None for w in windows):
        return None
    return Family.HYBRID_SWA if any(w is None for w in windows) else Family.ALL_SWA


def layer_windows(f: Fields, ask: Ask) -> tuple[int | None, ...]:
    """For each layer the tokens its window holds, None where it is full."""
    layers = layer_count(f)
    kinds = layer_kinds(f, layers)
    if kinds is not None:
        f.ignore("sliding_window", "use_sliding_window", "sliding_window_pattern", "full_attention_interval")
        return tuple(window_of(f, kind) for kind in kinds)
    return _by_rule(f, ask, layers)


def layer_kinds(f: Fields, layers: int) -> tuple[str, ...] | None:
    kinds = f.words("layer_types")
    if kinds is not None and len(kinds) != layers:
        raise f.refuse(Reason.CONTRADICTION, "layer_types", f"has {len(kinds)} entries for {layers} layers")
    return kinds


def window_of(f: Fields, kind: str) -> int | None:
    if kind in FULL:
        return None
    if kind in SLIDING:
        return f.need("sliding_window")
    if kind in CHUNKED:
        return f.need("attention_chunk_size")
    raise unknown_kind(f, kind)


def unknown_kind(f: Fields, kind: str) -> Refusal:
    return f.refuse(Reason.UNKNOWN_LAYER_KIND, "layer_types", f"names the kind {shown(kind)}, which is not known")


def _by_rule(f: Fields, ask: Ask, layers: int) -> tuple[int | None, ...]:
    window, rule = f.count("sliding_window"), ask.row.windows
    if f.get("use_sliding_window") is False:
        window = None
    if rule is WindowRule.AFTER_MAX_WINDOW_LAYERS and not f.flag("use_sliding_window"):
        window = None
    if window is None:
        return _without_window(f, rule, layers)
    if rule is WindowRule.EVERY:
        return (window,) * layers
    if rule is WindowRule.AFTER_MAX_WINDOW_LAYERS:
        first = f.need("max_window_layers")
        return tuple(window if i >= first else None for i in range(layers))
    if rule is WindowRule.ALTERNATE:
        return every_nth_full(layers, 2, window)
    if rule is WindowRule.PATTERN:
        return every_nth_full(layers, _pattern(f, ask), window)
    raise f.refuse(Reason.UNKNOWN_WINDOW_PATTERN, "sliding_window", "is set and no layer_types say for which layers")


def _without_window(f: Fields, rule: WindowRule, layers: int) -> tuple[int | None, ...]:
    if rule in {WindowRule.ALTERNATE, WindowRule.PATTERN}:
        raise f.refuse(Reason.MISSING, "sliding_window", "is missing")
    return (None,) * layers


def _pattern(f: Fields, ask: Ask) -> int:
    pattern = f.count("sliding_window_pattern") or ask.row.default_pattern
    if pattern is None:
        raise f.refuse(Reason.UNKNOWN_WINDOW_PATTERN, "sliding_window_pattern", "is missing, as are layer_types")
    return pattern


def every_nth_full(layers: int, nth: int, window: int) -> tuple[int | None, ...]:
    return tuple(None if (i + 1) % nth == 0 else window for i in range(layers))


def without_cache(layers: tuple[Layer, ...], shared: int) -> tuple[Layer, ...]:
    """The last `shared` layers reuse an earlier layer's cache and own none."""
    return layers[: len(layers) - shared] + (NOTHING,) * shared
