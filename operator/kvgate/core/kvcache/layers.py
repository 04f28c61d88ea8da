"""What one layer keeps in the cache, and what a builder hands over for a whole model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction

from kvgate.core.kvcache.dtypes import KVDtype
from kvgate.core.kvcache.layout import Family
from kvgate.core.kvcache.reading import Fields
from kvgate.core.kvcache.words import Reason, Refusal


@dataclass(frozen=True)
class Layer:
    """`bytes_per_token` up to `window_tokens` (None: without bound), and `state_bytes` once per request."""

    term: str
    bytes_per_token: Fraction = Fraction(0)
    window_tokens: int | None = None
    state_bytes: int = 0
    also: tuple[Layer, ...] = ()


NOTHING = Layer("")


class WindowRule(Enum):
    """Which layers are windowed when the config gives no layer_types; None: a window then has no known pattern."""

    NONE = "none"
    EVERY = "every layer"
    AFTER_MAX_WINDOW_LAYERS = "layers from max_window_layers on, when use_sliding_window"
    ALTERNATE = "every second layer full"
    PATTERN = "every sliding_window_pattern-th layer full"


@dataclass(frozen=True)
class Ask:
    """What the caller wants to know beside the config: the cache's dtype, and the type's own defaults."""

    kv: KVDtype
    served: KVDtype
    row: Row


@dataclass(frozen=True)
class Built:
    """A model's layers. `drafts`: what each speculative layer adds; the last repeats unless `drafts_end`."""

    family: Family
    layers: tuple[Layer, ...]
    drafts: tuple[Layer, ...]
    kv_heads: int | None
    key_dim: int | None = None
    value_dim: int | None = None
    is_mla: bool = False
    drafts_end: bool = False
    encoder_bytes_per_token: Fraction = Fraction(0)
    copied_bytes_per_token: Fraction = Fraction(0)
    warnings: tuple[str, ...] = ()


Builder = Callable[[Fields, Ask], Built]


@dataclass(frozen=True)
class Row:
    """How one model_type is read. `mha_by_default`: no KV head count means one per head.

    `own_head_dim`: head_dim must be given, as the type's default is not hidden_size / heads.
    """

    build: Builder
    windows: WindowRule = WindowRule.NONE
    mha_by_default: bool = False
    own_head_dim: bool = False
    default_pattern: int | None = None


def attention(heads: int, key_dim: int, value_dim: int, kv: KVDtype, window: int | None = None) -> Layer:
    """One layer of keys and values: heads × (key + value elements) × bytes per element."""
    if kv.name == "fp8_ds_mla":
        raise Refusal(Reason.UNKNOWN_DTYPE, "fp8_ds_mla is a format for latent attention, which this model has not")
    return Layer(
        f"{heads} KV heads × ({key_dim} + {value_dim}) × {size(kv.bytes_each)}",
        heads * (key_dim + value_dim) * kv.bytes_each,
        window,
    )


def size(each: Fraction) -> str:
    return f"{float(each):g} B"


def head_family(kv_heads: int, heads: int) -> Family:
    if kv_heads == heads:
        return Family.MHA
    return Family.MQA if kv_heads == 1 else Family.GQA
