"""What the benchmarks on links share: a pool over lab nodes, and its sweep by the real walker."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime

from kvgate.api.pool import PoolSpec
from kvgate.api.status import PoolStatus
from kvgate.core.evidence import Evidence, NodeIdentity, Path
from kvgate.core.steps import Measure
from kvgate.core.world import Pool
from kvgate.edge.lab import LabNode
from kvgate.edge.localsweep import LocalSweep
from kvgate.edge.nodes import NodeView
from kvgate.edge.objects import Objects


def pool(seconds: float, streams: int = 4, endpoint: Mapping[str, object] | None = None) -> Pool:
    """A pool that asks for link tests of that length, and of the KV transport as told."""
    spec = PoolSpec.model_validate(
        {
            "targetRef": {"name": "bench"},
            "model": {"name": "bench", "kvCache": {"bytesPerToken": 114_688}},
            "workload": {"prompts": [{"tokens": 3216}], "peakRequestsPerSecond": "0.2"},
            "fabric": {
                "probe": {
                    "link": {"duration": f"{seconds}s", "streams": streams},
                    "endpoint": dict(endpoint or {"tool": "none"}),
                    "phases": ["Isolated"],
                }
            },
            "criteria": {"disaggregation": {"ttftBudget": "2s"}},
        }
    )
    return Pool("bench", "bench", "bench", 1, spec, PoolStatus(), now())


def sweep(asked: Pool, sources: Sequence[LabNode], destinations: Sequence[LabNode]) -> tuple[Evidence, float]:
    """The evidence of one sweep of the lab, and the seconds that the whole of it took."""
    nodes = tuple(
        NodeView(NodeIdentity(node.name), {}, (node.address,), node.namespace) for node in (*sources, *destinations)
    )
    paths = tuple(Path(source.name, destination.name) for source in sources for destination in destinations)
    started = time.monotonic()
    measure = LocalSweep(now, lambda _: nullcontext(lambda done, planned: None))
    piece = asked.spec.fabric.probe.endpoint.descriptor_bytes
    evidence = measure(asked, Objects(nodes=nodes), Measure("bench", paths, "", descriptor_bytes=piece))
    return evidence, time.monotonic() - started


def now() -> datetime:
    return datetime.now(UTC)
