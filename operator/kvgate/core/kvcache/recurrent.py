"""Hybrids: a few attending layers, and many that keep a state of fixed size per request."""

from __future__ import annotations

from dataclasses import replace

from kvgate.core.kvcache import dense
from kvgate.core.kvcache.dtypes import KVDtype
from kvgate.core.kvcache.latent import latent_layer
from kvgate.core.kvcache.layers import NOTHING, Ask, Built, Layer, attention
from kvgate.core.kvcache.layout import Family
from kvgate.core.kvcache.reading import Fields
from kvgate.core.kvcache.words import Reason, shown

_STATE_DTYPES = {"float32": 4, "bfloat16": 2, "float16": 2}
_CONV_BYTES = 2
_LETTERS = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}
_BLOCKS = frozenset(_LETTERS.values())
_ASSUMED_STATE = "the config names no state dtype: 4 B per element assumed"


def _state_width(f: Fields, *names: str) -> tuple[int, tuple[str, ...]]:
    for name in names:
        word = f.word(name)
        if word is not None:
            if word not in _STATE_DTYPES:
                raise f.refuse(Reason.UNKNOWN_DTYPE, name, f"is {shown(word)}, which is not known")
            return _STATE_DTYPES[word], ()
    return 4, (_ASSUMED_STATE,)


def _hybrid(family: Family, kinds: tuple[str, ...], made: dict[str, Layer], s: dense.Shape) -> Built:
    return Built(
        family,
        layers=tuple(made.get(kind, NOTHING) for kind in kinds),
        drafts=(made["attention"],),
        kv_heads=s.kv_heads,
        key_dim=s.key_dim,
        value_dim=s.value_dim,
    )


def nemotron_h(f: Fields, ask: Ask) -> Built:
    """Mamba2 state: heads × head_dim × state size, and the convolution's last (kernel - 1) inputs."""
    kinds = _block_kinds(f)
    s = dense.shape(f, ask)
    width, warnings = _state_width(f, "mamba_ssm_cache_dtype", "mamba_ssm_dtype")
    heads, dim, size = f.need("mamba_num_heads"), f.need("mamba_head_dim"), f.need("ssm_state_size")
    groups, kernel = f.need("n_groups"), f.need("conv_kernel")
    f.ignore("chunk_size", "time_step_limit")
    conv = (heads * dim + 2 * groups * size) * (kernel - 1) * _CONV_BYTES
    mamba = Layer(
        f"{heads} × {dim} × {size} × {width} B state + {conv:,} B convolution",
        state_bytes=heads * dim * size * width + conv,
    )
    made = {"mamba": mamba, "attention": attention(s.kv_heads, s.key_dim, s.value_dim, ask.kv)}
    return replace(_hybrid(Family.MAMBA2, kinds, made, s), warnings=warnings)


def _block_kinds(f: Fields) -> tuple[str, ...]:
    """layers_block_type as words, or hybrid_override_pattern as letters."""
    kinds = f.words("layers_block_type")
    if kinds is None:
        pattern = f.word("hybrid_override_pattern") or ""
        kinds = tuple(_LETTERS.get(letter, letter) for letter in pattern)
    odd = next((kind for kind in kinds if kind not in _BLOCKS), None)
    if not kinds or odd is not None:
        what = "is missing" if odd is None else f"names the kind {shown(odd)}, which is not known"
        raise f.refuse(Reason.UNKNOWN_LAYER_KIND, "hybrid_override_pattern or layers_block_type", what)
    if f.count(*dense.LAYERS) not in {None, len(kinds)}:
        raise f.refuse(Reason.CONTRADICTION, "num_hidden_layers", f"is not the {len(kinds)} layers of the pattern")
    return kinds


def jamba(f: Fields, ask: Ask) -> Built:
    """Mamba1 state in the model's dtype; one attending layer per attn_layer_period."""
    layers = dense.layer_count(f)
    period, offset = f.need("attn_layer_period"), f.get("attn_layer_offset")
    if isinstance(offset, bool) or not isinstance(offset, int) or not 0 <= offset < period:
        raise f.refuse(Reason.BAD_VALUE, "attn_layer_offset", f"is {shown(offset)}, not in 0..{period - 1}")
    s = dense.shape(f, ask)
    inner = f.need("mamba_expand") * f.need(*dense.HIDDEN)
    size, kernel, width = f.need("mamba_d_state"), f.need("mamba_d_conv"), int(ask.served.bytes_each)
    mamba = Layer(
        f"{inner} × ({size} + {kernel - 1}) × {width} B state",
        state_bytes=inner * size * width + inner * (kernel - 1) * width,
    )
    kinds = tuple("attention" if i % period == offset else "mamba" for i in range(layers))
    made = {"mamba": mamba, "attention": attention(s.kv_heads, s.key_dim, s.value_dim, ask.kv)}
    return _hybrid(Family.MAMBA1, kinds, made, s)


def gated_delta(f: Fields, ask: Ask) -> Built:
    """Gated DeltaNet: value heads × key dim × value dim of state, and the convolution's last inputs."""
    layers = dense.layer_count(f)
    kinds, warnings = _gdn_kinds(f, layers)
    s = dense.shape(f, ask)
    width, more = _state_width(f, "mamba_ssm_dtype", "mamba_ssm_cache_dtype")
    keys, values = f.need("linear_num_key_heads"), f.need("linear_num_value_heads")
    key, value, kernel = (
        f.need("linear_key_head_dim"),
        f.need("linear_value_head_dim"),
        f.need("linear_conv_kernel_dim"),
    )
    conv = (2 * keys * key + values * value) * (kernel - 1) * _CONV_BYTES
    linear = Layer(
        f"{values} × {key} × {value} × {width} B state + {conv:,} B convolution",
        state_bytes=values * key * value * width + conv,
    )
    made = {"linear": linear, "attention": attention(s.kv_heads, s.key_dim, s.value_dim, ask.kv)}
    return replace(_hybrid(Family.GDN, kinds, made, s), warnings=warnings + more)


def _gdn_kinds(f: Fields, layers: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """layer_types win over full_attention_interval."""
    named = dense.layer_kinds(f, layers)
    interval = f.count("full_attention_interval")
    by_interval = (
        tuple("attention" if (i + 1) % interval == 0 else "linear" for i in range(layers)) if interval else None
    )
    if named is None:
        if by_interval is None:
            raise f.refuse(Reason.MISSING, "layer_types", "is missing, as is full_attention_interval")
        return by_interval, ()
    kinds = tuple(_gdn_kind(f, kind) for kind in named)
    differs = by_interval is not None and by_interval != kinds
    return kinds, ("layer_types and full_attention_interval differ: layer_types are taken",) if differs else ()


def _gdn_kind(f: Fields, kind: str) -> str:
    if kind in dense.FULL:
        return "attention"
    if kind == "linear_attention":
        return "linear"
    raise dense.unknown_kind(f, kind)


def kimi_linear(f: Fields, ask: Ask) -> Built:
    """KDA state for the layers of kda_layers, latent attention for those of full_attn_layers (counted from 1)."""
    layers = dense.layer_count(f)
    inner = f.sub("linear_attn_config")
    if inner is None:
        raise f.refuse(Reason.MISSING, "linear_attn_config", "is missing")
    full, linear = inner.numbers("full_attn_layers") or (), inner.numbers("kda_layers") or ()
    if sorted(full + linear) != list(range(1, layers + 1)):
        raise inner.refuse(Reason.CONTRADICTION, "full_attn_layers", f"and kda_layers do not share out 1..{layers}")
    heads, dim, kernel = inner.need("num_heads"), inner.need("head_dim"), inner.need("short_conv_kernel_size")
    conv = 3 * (kernel - 1) * heads * dim * _CONV_BYTES
    kda = Layer(
        f"{heads} × {dim} × {dim} × 4 B state + {conv:,} B convolution",
        state_bytes=heads * dim * dim * 4 + conv,
    )
    latent = latent_layer(f, ask)
    return Built(
        Family.KDA_MLA,
        layers=tuple(latent if i in full else kda for i in range(1, layers + 1)),
        drafts=(latent,),
        kv_heads=1,
        key_dim=f.need("kv_lora_rank"),
        value_dim=f.need("kv_lora_rank"),
        is_mla=True,
    )


def short_conv(layers: int, hidden: int, length: int, served: KVDtype) -> Layer:
    width = int(served.bytes_each)
    return Layer(
        f"{hidden} × {length - 1} × {width} B convolution in each of {layers} layers",
        state_bytes=hidden * (length - 1) * width,
    )
