"""How large a piece the KV transport moves at a time: what one layer's keys, or its values, take in one block."""

from __future__ import annotations

from kvgate.core.judging import Case
from kvgate.core.kvcache.layout import KVLayout
from kvgate.core.world import KVKnown

USUAL_BYTES = 32_768
"""Of 16 tokens of 8 heads of 128 numbers of 2 bytes: where neither the pool nor the model tells."""


def descriptor_bytes(case: Case) -> int:
    """What the pool says; else by the model, its block and the larger tensor parallelism of both sides."""
    asked, kv = case.pool.spec.fabric.probe.endpoint.descriptor_bytes, case.world.kv
    if asked is not None:
        return asked
    if not isinstance(kv, KVKnown) or not isinstance(kv.size, KVLayout):
        return USUAL_BYTES
    ranks = max(case.pool.spec.model.kv_cache.tensor_parallel.prefill, case.decode_ranks)
    return kv.size.descriptor_bytes(kv.block_tokens, ranks) or USUAL_BYTES
