"""Models whose windowed layers differ from their full ones: Gemma 3n and 4, MiMo V2, Llama 4."""

from __future__ import annotations

from dataclasses import replace

from kvgate.core.kvcache import dense
from kvgate.core.kvcache.layers import Ask, Built, Layer, attention
from kvgate.core.kvcache.layout import Family
from kvgate.core.kvcache.reading import Fields
from kvgate.core.kvcache.words import Reason


def gemma3n(f: Fields, ask: Ask) -> Built:
    """The last num_kv_shared_layers layers reuse an earlier cache."""
    built = dense.build(f, ask)
    return replace(built, layers=_shared(f, built.layers))


def gemma4(f: Fields, ask: Ask) -> Built:
    """Full layers have KV heads and a head dimension of their own; layers may be overridden one by one."""
    s = dense.shape(f, ask)
    kinds = dense.layer_kinds(f, dense.layer_count(f))
    if kinds is None:
        raise f.refuse(Reason.MISSING, "layer_types", "is missing")
    windows = tuple(dense.window_of(f, kind) for kind in (*kinds[:-1], "full_attention"))
    shapes = _per_layer_shapes(f, s, windows) or _global_shapes(f, s, windows)
    layers = tuple(
        attention(x.kv_heads, x.key_dim, x.value_dim, ask.kv, w) for x, w in zip(shapes, windows, strict=True)
    )
    widest = max(shapes, key=lambda x: x.kv_heads * x.key_dim)
    return Built(
        family=dense.window_family(windows) or Family.GQA,
        layers=_shared(f, layers),
        drafts=(attention(widest.kv_heads, widest.key_dim, widest.value_dim, ask.kv),),
        kv_heads=min(x.kv_heads for x in shapes),
        key_dim=s.key_dim,
        value_dim=s.value_dim,
    )


def _global_shapes(f: Fields, s: dense.Shape, windows: tuple[int | None, ...]) -> tuple[dense.Shape, ...]:
    dim = f.need("global_head_dim")
    given = f.count("num_global_key_value_heads")
    own_heads = f.get("attention_k_eq_v") is not False
    wide = dense.Shape(s.heads, given if given and own_heads else s.kv_heads, dim, dim)
    return tuple(wide if w is None else s for w in windows)


def _per_layer_shapes(f: Fields, s: dense.Shape, windows: tuple[int | None, ...]) -> tuple[dense.Shape, ...] | None:
    """Overrides keyed by layer number, written as "5" or "05"."""
    overrides = f.sub("per_layer_config")
    if overrides is None:
        return None
    f.ignore("global_head_dim", "num_global_key_value_heads", "attention_k_eq_v")
    shapes = [s] * len(windows)
    for i in range(len(windows)):
        found = [inner for name in {str(i), f"{i:02d}"} if (inner := overrides.sub(name)) is not None]
        for inner in found:
            dim = inner.count("head_dim") or s.key_dim
            shapes[i] = dense.Shape(s.heads, inner.count("num_key_value_heads") or s.kv_heads, dim, dim)
    return tuple(shapes)


def _shared(f: Fields, layers: tuple[Layer, ...]) -> tuple[Layer, ...]:
    shared = f.count("num_kv_shared_layers", zero_is_absent=True) or 0
    if shared >= len(layers):
        raise f.refuse(Reason.CONTRADICTION, "num_kv_shared_layers", "leaves no layer with a cache")
    return dense.without_cache(layers, shared)


def mimo_v2(f: Fields, ask: Ask) -> Built:
    """hybrid_layer_pattern: 1 is windowed with swa_ dimensions, 0 is full; keys and values differ in width."""
    pattern = f.per_layer("hybrid_layer_pattern", dense.layer_count(f))
    if pattern is None or not set(pattern) <= {0, 1}:
        raise f.refuse(Reason.UNKNOWN_WINDOW_PATTERN, "hybrid_layer_pattern", "is missing or not of 0 and 1")
    heads, swa_heads = f.need("num_key_value_heads"), f.need("swa_num_key_value_heads")
    key, value = f.need("head_dim"), f.need("v_head_dim")
    f.ignore("attention_chunk_size", *dense.HIDDEN, *dense.HEADS)
    full = attention(heads, key, value, ask.kv)
    window = f.need("sliding_window", "sliding_window_size")
    local = attention(swa_heads, f.need("swa_head_dim"), f.need("swa_v_head_dim"), ask.kv, window)
    return Built(
        family=Family.ASYMMETRIC_SWA,
        layers=tuple(local if windowed else full for windowed in pattern),
        drafts=(max(full, replace(local, window_tokens=None), key=lambda layer: layer.bytes_per_token),),
        kv_heads=min(heads, swa_heads),
        key_dim=key,
        value_dim=value,
    )


def llama4(f: Fields, ask: Ask) -> Built:
    """Layers without rope (no_rope_layers 0, by default every 4th) are full, the others keep one chunk."""
    s = dense.shape(f, ask)
    windows = _chunks(f, dense.layer_count(f))
    return Built(
        family=Family.CHUNKED if any(windows) else Family.GQA,
        layers=tuple(attention(s.kv_heads, s.key_dim, s.value_dim, ask.kv, w) for w in windows),
        drafts=(attention(s.kv_heads, s.key_dim, s.value_dim, ask.kv),),
        kv_heads=s.kv_heads,
        key_dim=s.key_dim,
        value_dim=s.value_dim,
    )


def _chunks(f: Fields, layers: int) -> tuple[int | None, ...]:
    kinds = dense.layer_kinds(f, layers)
    if kinds is not None:
        f.ignore("attention_chunk_size", "no_rope_layers")
        return tuple(dense.window_of(f, kind) for kind in kinds)
    chunk = f.count("attention_chunk_size")
    if chunk is None:
        return (None,) * layers
    ropes = f.per_layer("no_rope_layers", layers) if f.get("no_rope_layers") else None
    if ropes is None:
        return dense.every_nth_full(layers, f.count("no_rope_layer_interval") or 4, chunk)
    return tuple(chunk if rope else None for rope in ropes)
