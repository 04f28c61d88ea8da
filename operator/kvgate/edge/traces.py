"""The trace that a pool's A/B is to send, in the ConfigMap that it names: known by the digest of its bytes."""

from __future__ import annotations

import hashlib

from kvgate.api.pool import PoolSpec
from kvgate.api.wire import KeyRef
from kvgate.core.ab.evidence import TraceSeen
from kvgate.core.world import Pool
from kvgate.edge.objects import Objects


def trace_of(spec: PoolSpec) -> KeyRef | None:
    """Where the pool says that its trace is; None where it names none."""
    criteria = spec.criteria.routing
    trace = criteria.benchmark.trace if criteria else None
    return trace.config_map_key_ref if trace is not None else None


def trace_seen(pool: Pool, objects: Objects, *, needed: bool) -> TraceSeen | None:
    """None where the pool names no trace, and where one that is not there is not `needed`."""
    ref = trace_of(pool.spec)
    if ref is None:
        return None
    key = (pool.namespace, ref.name)
    text, packed = objects.config_maps.get(key, {}).get(ref.key), objects.binaries.get(key, {}).get(ref.key)
    found = text.encode() if text is not None else packed
    if found is not None:
        return TraceSeen(hashlib.sha256(found).hexdigest())
    what = f"ConfigMap {pool.namespace}/{ref.name}, key {ref.key}, does not exist"
    remedy = "the pool's owner must create it or correct spec.criteria.routing.benchmark.trace"
    return TraceSeen(problem=f"{what}; {remedy}") if needed else None
