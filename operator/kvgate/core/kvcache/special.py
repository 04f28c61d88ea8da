"""Models with a plan per block or a second kind of key: NAS, cross attention, encoders, MiniMax M3."""

from __future__ import annotations

from dataclasses import replace

from kvgate.core.kvcache import dense
from kvgate.core.kvcache.layers import NOTHING, Ask, Built, attention
from kvgate.core.kvcache.layout import Family
from kvgate.core.kvcache.reading import Fields
from kvgate.core.kvcache.words import Reason


def nas(f: Fields, ask: Ask) -> Built:
    """Each block says how many heads share one KV head, or that it does not attend at all."""
    heads = f.need(*dense.HEADS)
    dim = dense.head_dim(f, heads)
    blocks = f.items("block_configs")
    f.ignore("num_key_value_heads")
    layers = dense.layer_count(f)
    if blocks is None or len(blocks) != layers:
        raise f.refuse(Reason.CONTRADICTION, "block_configs", f"does not list {layers} blocks")
    counts = tuple(_block_kv_heads(f.below(block, "block_configs", strict=False), heads) for block in blocks)
    attending = [count for count in counts if count]
    if not attending:
        raise f.refuse(Reason.NO_ATTENTION, "block_configs", "has no block that attends")
    return Built(
        Family.NAS,
        layers=tuple(attention(count, dim, dim, ask.kv) if count else NOTHING for count in counts),
        drafts=(attention(max(attending), dim, dim, ask.kv),),
        kv_heads=min(attending),
        key_dim=dim,
        value_dim=dim,
    )


def _block_kv_heads(block: Fields, heads: int) -> int:
    inner = block.sub("attention")
    if inner is None:
        raise block.refuse(Reason.MISSING, "attention", "is missing")
    if inner.flag("no_op") or inner.flag("replace_with_linear"):
        inner.ignore("n_heads_in_group")
        return 0
    group = inner.need("n_heads_in_group")
    if heads % group:
        raise inner.refuse(Reason.CONTRADICTION, "n_heads_in_group", f"{group} does not divide {heads} heads")
    return heads // group


def mllama(f: Fields, ask: Ask) -> Built:
    """Cross-attention layers keep one entry per vision token, none per text token."""
    s = dense.shape(f, ask)
    layers = dense.layer_count(f)
    crossing = set(f.numbers("cross_attention_layers") or ())
    if not crossing or max(crossing) >= layers:
        raise f.refuse(Reason.CONTRADICTION, "cross_attention_layers", f"does not lie within {layers} layers")
    one = attention(s.kv_heads, s.key_dim, s.value_dim, ask.kv)
    per_vision_token = len(crossing) * one.bytes_per_token
    return Built(
        Family.CROSS,
        layers=tuple(NOTHING if i in crossing else one for i in range(layers)),
        drafts=(one,),
        kv_heads=s.kv_heads,
        key_dim=s.key_dim,
        value_dim=s.value_dim,
        encoder_bytes_per_token=per_vision_token,
        warnings=(f"text alone is counted: each vision token adds {float(per_vision_token):,.0f} B",),
    )


def whisper(f: Fields, ask: Ask) -> Built:
    """Self attention per decoder token; cross attention over all encoder positions once per request."""
    layers = f.need("decoder_layers", most=2048)
    heads, width = f.need("decoder_attention_heads"), f.need("d_model")
    positions = f.need("max_source_positions")
    f.ignore(
        "is_encoder_decoder", "num_hidden_layers", "encoder_layers", "encoder_attention_heads", "num_attention_heads",
        "encoder_ffn_dim", "decoder_ffn_dim", "encoder_layerdrop", "decoder_layerdrop", "hidden_size",
    )  # fmt: skip
    if width % heads:
        raise f.refuse(Reason.CONTRADICTION, "d_model", f"{width} is not a multiple of {heads} heads")
    one = attention(heads, width // heads, width // heads, ask.kv)
    cross = int(one.bytes_per_token * positions)
    layer = replace(one, term=f"{one.term}, and the same for {positions} encoder positions", state_bytes=cross)
    return Built(
        Family.ENCODER_DECODER,
        layers=(layer,) * layers,
        drafts=(one,),
        kv_heads=heads,
        key_dim=width // heads,
        value_dim=width // heads,
        warnings=("a request is counted with all its encoder positions",),
    )


def minimax_m3(f: Fields, ask: Ask) -> Built:
    """Grouped attention; each sparse layer keeps one more index key per token, in the model's dtype."""
    layers = dense.layer_count(f)
    sparse, dim = _sparse_layers(f, layers)
    f.ignore("layer_types", "index_head_dim", "sliding_window")
    s = dense.shape(f, ask)
    one = attention(s.kv_heads, s.key_dim, s.value_dim, ask.kv)
    key = dim * ask.served.bytes_each
    indexed = replace(one, term=f"({one.term} + {float(key):g} B index key)", bytes_per_token=one.bytes_per_token + key)
    built = Built(
        Family.SPARSE_GQA if any(sparse) else Family.GQA,
        layers=tuple(indexed if flag else one for flag in sparse),
        drafts=(indexed if any(sparse) else one,),
        kv_heads=s.kv_heads,
        key_dim=s.key_dim,
        value_dim=s.value_dim,
        copied_bytes_per_token=sum(sparse) * key,
    )
    if any(sparse):
        return built
    return replace(built, warnings=("no sparse layers in the config: no index keys counted",))


def _sparse_layers(f: Fields, layers: int) -> tuple[tuple[bool, ...], int]:
    inner = f.sub("sparse_attention_config")
    if inner is not None and inner.flag("use_sparse_attention"):
        return _sparse_by_section(inner, layers)
    kinds = dense.layer_kinds(f, layers) or ("full_attention",) * layers
    odd = next((k for k in kinds if k not in dense.FULL and k != "minimax_m3_sparse"), None)
    if odd is not None:
        raise dense.unknown_kind(f, odd)
    sparse = tuple(kind == "minimax_m3_sparse" for kind in kinds)
    return sparse, f.need("index_head_dim") if any(sparse) else 0


def _sparse_by_section(inner: Fields, layers: int) -> tuple[tuple[bool, ...], int]:
    often = inner.per_layer("sparse_attention_freq", layers)
    silent = inner.per_layer("sparse_disable_index_value", layers)
    if often is None or silent is None:
        raise inner.refuse(Reason.MISSING, "sparse_attention_freq", "or sparse_disable_index_value is missing")
    if any(on and not off for on, off in zip(often, silent, strict=True)):
        raise inner.refuse(Reason.UNKNOWN_LAYER_KIND, "sparse_disable_index_value", "leaves index values in the cache")
    return tuple(bool(on) for on in often), inner.need("sparse_index_dim")
