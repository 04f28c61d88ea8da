"""KV bytes from a GGUF file's metadata, given as JSON: no config.json, counts as lists with zeros in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kvgate.core.kvcache.dense import Shape
from kvgate.core.kvcache.layers import NOTHING, Ask, Built, Layer, attention, head_family
from kvgate.core.kvcache.layout import Family
from kvgate.core.kvcache.reading import MOST_LAYERS, Fields
from kvgate.core.kvcache.recurrent import short_conv
from kvgate.core.kvcache.words import JSON, Reason, Refusal, shown

_ARCHITECTURES = frozenset({"llama", "qwen2", "qwen2moe", "qwen3", "qwen3moe", "lfm2"})
_ARITHMETIC = (
    "attention.layer_norm_rms_epsilon",
    "attention.layer_norm_epsilon",
    "attention.causal",
    "feed_forward_length",
    "expert_shared_feed_forward_length",
)
_BLOCKS = ".block_count"


def is_gguf(metadata: Mapping[str, JSON]) -> bool:
    return any(key.endswith(_BLOCKS) for key in metadata)


def fields_of(metadata: Mapping[str, JSON]) -> Fields:
    """The keys of the one architecture, without its prefix."""
    prefixes = sorted(key.removesuffix(_BLOCKS) for key in metadata if key.endswith(_BLOCKS))
    name = metadata.get("general.architecture", prefixes[0])
    if len(prefixes) != 1 or name != prefixes[0] or name not in _ARCHITECTURES:
        raise Refusal(Reason.UNKNOWN_MODEL_TYPE, f"the GGUF architecture {shown(prefixes[0])} is not known")
    start = f"{name}."
    own = {key.removeprefix(start): value for key, value in metadata.items() if key.startswith(start)}
    return Fields(own, f"GGUF {name}")


def build(f: Fields, ask: Ask) -> Built:
    """One entry of attention.head_count_kv per layer, or one for all; 0 is a short convolution (LFM2 only)."""
    layers = f.need("block_count", most=MOST_LAYERS)
    counts = _kv_counts(f, layers)
    s = _shape(f, max(counts))
    f.ignore(*_ARITHMETIC)
    conv, warnings = _convolution(f, ask, counts)
    return Built(
        Family.SHORT_CONV if 0 in counts else head_family(s.kv_heads, s.heads),
        layers=tuple(attention(n, s.key_dim, s.value_dim, ask.kv) if n else conv for n in counts),
        drafts=(attention(s.kv_heads, s.key_dim, s.value_dim, ask.kv),),
        kv_heads=min(n for n in counts if n),
        key_dim=s.key_dim,
        value_dim=s.value_dim,
        warnings=warnings,
    )


def _kv_counts(f: Fields, layers: int) -> tuple[int, ...]:
    if not isinstance(f.get("attention.head_count_kv"), Sequence):
        count = f.count("attention.head_count_kv") or f.need("attention.head_count")
        return (count,) * layers
    counts = f.per_layer("attention.head_count_kv", layers) or ()
    if not any(counts):
        raise f.refuse(Reason.NO_ATTENTION, "attention.head_count_kv", "is 0 in every layer")
    return counts


def _shape(f: Fields, kv_heads: int) -> Shape:
    heads = f.count("attention.head_count") or kv_heads
    width = f.count("embedding_length")
    by_width = width // heads if width and width % heads == 0 and "attention.head_count" in f else None
    key = f.count("attention.key_length") or by_width
    value = f.count("attention.value_length") or by_width or key
    if key is None or value is None:
        raise f.refuse(Reason.MISSING, "attention.key_length", "is missing")
    return Shape(heads, kv_heads, key, value)


def _convolution(f: Fields, ask: Ask, counts: tuple[int, ...]) -> tuple[Layer, tuple[str, ...]]:
    length, width = f.count("shortconv.l_cache"), f.count("embedding_length")
    if 0 not in counts:
        return NOTHING, ()
    if f.where != "GGUF lfm2":
        raise f.refuse(Reason.UNKNOWN_LAYER_KIND, "attention.head_count_kv", "is 0 in some layer")
    if length is None or width is None:
        return NOTHING, ("the short convolutions' state is not in the metadata and not counted",)
    return short_conv(counts.count(0), width, length, ask.served), ()
