"""Latent attention: one compressed vector per token and layer, with or without an indexer, and DeepSeek V4."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from kvgate.core.kvcache import dense
from kvgate.core.kvcache.layers import NOTHING, Ask, Built, Layer, size
from kvgate.core.kvcache.layout import Family
from kvgate.core.kvcache.reading import Fields
from kvgate.core.kvcache.words import Reason, Refusal, shown

_SCALE_GROUP = 128
_SCALE_BYTES = 4
_INDEXED = frozenset({"deepseek_sparse_attention", "indexed_attention"})
_RATIOS = frozenset({0, 4, 128})
_OVERLAPPING_RATIO = 4
_STATE_BYTES = 4
_NOT_CACHED = ("num_key_value_heads", "head_dim", "v_head_dim", "qk_nope_head_dim", *dense.HIDDEN, *dense.HEADS)


def mla(f: Fields, ask: Ask) -> Built:
    layers = dense.layer_count(f)
    layer = latent_layer(f, ask)
    if (kinds := dense.layer_kinds(f, layers)) is not None and not set(kinds) <= dense.FULL:
        raise dense.unknown_kind(f, next(k for k in kinds if k not in dense.FULL))
    return _built(Family.MLA, (layer,) * layers, layer, f)


def latent_layer(f: Fields, ask: Ask, *, sparse: bool = False) -> Layer:
    """(latent + rope) elements; sparse attention keeps FP8 latents with a 4 B scale per 128 and rope in 2 B."""
    f.ignore(*_NOT_CACHED)
    rank, rope = f.need("kv_lora_rank"), f.need("qk_rope_head_dim")
    if ask.kv.name == "fp8_ds_mla" or (sparse and ask.kv.is_fp8):
        scales = _scales(rank)
        return Layer(f"({rank} + {scales} scale B + {rope} × 2 B) × 1 latent", Fraction(rank + scales + 2 * rope))
    if not (ask.kv.is_wide or ask.kv.is_fp8):
        raise Refusal(Reason.UNKNOWN_DTYPE, f"the size of a latent in {ask.kv.name} depends on the engine")
    return Layer(f"({rank} + {rope}) × {size(ask.kv.bytes_each)} latent", Fraction(rank + rope) * ask.kv.bytes_each)


def _scales(elements: int) -> int:
    return _SCALE_BYTES * -(-elements // _SCALE_GROUP)


def dsa(f: Fields, ask: Ask) -> Built:
    """MLA and an indexer's FP8 key per token, in each layer that owns an indexer."""
    layers = dense.layer_count(f)
    kinds = dense.layer_kinds(f, layers)
    if kinds is not None and not set(kinds) <= _INDEXED:
        raise dense.unknown_kind(f, next(k for k in kinds if k not in _INDEXED))
    plain = latent_layer(f, ask, sparse=True)
    dim = f.need("index_head_dim")
    key = dim + _scales(dim)
    indexed = replace(plain, term=f"({plain.term} + {key} B index key)", bytes_per_token=plain.bytes_per_token + key)
    owners = _index_owners(f, layers)
    built = _built(Family.MLA_DSA, tuple(indexed if owns else plain for owns in owners), indexed, f)
    return replace(built, warnings=_engine_dependent(ask, owners.count(False), key))


def _engine_dependent(ask: Ask, sharing: int, key: int) -> tuple[str, ...]:
    said: tuple[str, ...] = ()
    if sharing:
        more = f"{sharing * key:,} B/token"
        said += (f"{sharing} layers share an indexer: an engine that gives each its own cache moves {more} more",)
    if ask.kv.is_fp8:
        said += ("FP8 latents are counted with their scales and rope in 2 B; an engine may keep fewer bytes",)
    return said


def _index_owners(f: Fields, layers: int) -> tuple[bool, ...]:
    """indexer_types, else index_topk_pattern, else every index_topk_freq-th layer after the offset."""
    kinds = f.words("indexer_types") or _pattern_kinds(f)
    if kinds is not None:
        f.ignore("index_topk_pattern", "index_topk_freq", "index_skip_topk_offset")
        if len(kinds) != layers or not set(kinds) <= {"full", "shared"}:
            raise f.refuse(
                Reason.UNKNOWN_LAYER_KIND, "indexer_types", f"is not one of full, shared for {layers} layers"
            )
        return tuple(kind == "full" for kind in kinds)
    every = f.count("index_topk_freq") or 1
    offset = f.count("index_skip_topk_offset", zero_is_absent=True)
    first = 2 if offset is None and "index_skip_topk_offset" not in f else offset or 0
    return tuple(max(i - first + 1, 0) % every == 0 for i in range(layers))


def _pattern_kinds(f: Fields) -> tuple[str, ...] | None:
    pattern = f.get("index_topk_pattern")
    if pattern is None:
        return None
    if isinstance(pattern, str) and set(pattern) <= {"F", "S"}:
        return tuple({"F": "full", "S": "shared"}[letter] for letter in pattern)
    return f.words("index_topk_pattern")


def _built(family: Family, layers: tuple[Layer, ...], draft: Layer, f: Fields) -> Built:
    rank = f.need("kv_lora_rank")
    return Built(family, layers, drafts=(draft,), kv_heads=1, key_dim=rank, value_dim=rank, is_mla=True)


def deepseek_v4(f: Fields, ask: Ask) -> Built:
    """Each layer a window of full entries, and entries compressed 4 or 128 to 1 with a state for the open group.

    compress_ratios is longer than num_hidden_layers: what follows belongs to the speculative layers.
    """
    if not ask.kv.is_wide:
        raise Refusal(Reason.UNKNOWN_DTYPE, f"the size of a DeepSeek V4 entry in {ask.kv.name} depends on the engine")
    layers = dense.layer_count(f)
    ratios = f.numbers("compress_ratios")
    if ratios is None or len(ratios) < layers or not set(ratios) <= _RATIOS:
        raise f.refuse(
            Reason.UNKNOWN_LAYER_KIND, "compress_ratios", f"is not a list of 0, 4 and 128 for {layers} layers"
        )
    if f.count("num_key_value_heads") not in {None, 1}:
        raise f.refuse(Reason.BAD_VALUE, "num_key_value_heads", f"is {shown(f.get('num_key_value_heads'))}, not 1")
    f.ignore("qk_rope_head_dim", "num_key_value_heads", *dense.HIDDEN, *dense.HEADS)
    made = tuple(_v4_layer(f, ask, ratio) for ratio in ratios)
    return Built(
        Family.DSV4, made[:layers], drafts=made[layers:], kv_heads=1, key_dim=f.need("head_dim"), drafts_end=True
    )


def _v4_layer(f: Fields, ask: Ask, ratio: int) -> Layer:
    dim, index = f.need("head_dim"), f.need("index_head_dim")
    entry = dim * ask.kv.bytes_each
    window = Layer(f"{dim} × {size(ask.kv.bytes_each)}", entry, f.need("sliding_window"))
    if not ratio:
        return replace(NOTHING, also=(window,))
    indexed = ratio == _OVERLAPPING_RATIO
    per_token = (entry + (Fraction(index, 2) if indexed else 0)) / ratio
    rows = 2 * ratio * (2 * dim + 2 * index if indexed else dim)
    index_term = f" + {index} × 0.5 B index key" if indexed else ""
    term = f"({dim} × {size(ask.kv.bytes_each)}{index_term}) / {ratio}"
    return Layer(term, per_token, state_bytes=rows * _STATE_BYTES, also=(window,))
