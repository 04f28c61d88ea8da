"""Plain attention in other spellings: GPT-2's names, Falcon, MPT, DBRX, ChatGLM, MiniMax M2."""

from __future__ import annotations

from kvgate.core.kvcache import dense
from kvgate.core.kvcache.layers import Ask, Built
from kvgate.core.kvcache.reading import Fields
from kvgate.core.kvcache.words import Reason, shown


def falcon(f: Fields, ask: Ask) -> Built:
    """New decoder architecture: its own KV heads. Else one KV head when multi_query, which is said or refused."""
    heads = f.need(*dense.HEADS)
    dim = dense.head_dim(f, heads)
    if f.flag("new_decoder_architecture"):
        kv_heads = dense.kv_head_count(f, heads, mha_by_default=False)
        f.ignore("multi_query")
    else:
        kv_heads = 1 if f.need_flag("multi_query") else heads
        f.ignore(*dense.KV_HEADS)
    return dense.of_shape(f, ask, dense.Shape(heads, kv_heads, dim, dim))


def gpt_bigcode(f: Fields, ask: Ask) -> Built:
    heads = f.need(*dense.HEADS)
    dim = dense.head_dim(f, heads)
    kv_heads = 1 if f.need_flag("multi_query") else heads
    return dense.of_shape(f, ask, dense.Shape(heads, kv_heads, dim, dim))


def attn_config(f: Fields, ask: Ask) -> Built:
    heads = f.need(*dense.HEADS)
    dim = dense.head_dim(f, heads)
    inner = f.below(f.get("attn_config") or {}, "attn_config", strict=False)
    kv_heads = _kv_of_attn_config(inner, heads, mha_by_default=ask.row.mha_by_default)
    return dense.of_shape(f, ask, dense.Shape(heads, kv_heads, dim, dim))


def _kv_of_attn_config(inner: Fields, heads: int, *, mha_by_default: bool) -> int:
    kind = inner.word("attn_type")
    if kind == "multiquery_attention":
        inner.ignore("kv_n_heads")
        return 1
    if kind not in {None, "multihead_attention", "grouped_query_attention"}:
        raise inner.refuse(Reason.UNKNOWN_LAYER_KIND, "attn_type", f"is {shown(kind)}, which is not known")
    kv_heads = inner.count("kv_n_heads")
    if kv_heads is None and not (mha_by_default and kind != "grouped_query_attention"):
        raise inner.refuse(Reason.MISSING, "kv_n_heads", "is missing")
    return kv_heads or heads


def chatglm(f: Fields, ask: Ask) -> Built:
    heads = f.need(*dense.HEADS)
    dim = dense.head_dim(f, heads)
    kv_heads = f.need("multi_query_group_num") if f.need_flag("multi_query_attention") else heads
    f.ignore("multi_query_group_num")
    return dense.of_shape(f, ask, dense.Shape(heads, kv_heads, dim, dim))


def minimax_m2(f: Fields, ask: Ask) -> Built:
    """attn_type_list must be all 1 (softmax attention); 0 would be lightning attention."""
    kinds = f.per_layer("attn_type_list", dense.layer_count(f))
    if kinds is not None and set(kinds) != {1}:
        raise f.refuse(Reason.UNKNOWN_LAYER_KIND, "attn_type_list", "names layers that are not softmax attention")
    return dense.build(f, ask)
