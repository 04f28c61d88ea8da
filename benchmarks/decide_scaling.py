"""How `decide` grows with the paths of a pool."""

from __future__ import annotations

import gc
import sys
import time

from benchmarks.ground import now, pool
from benchmarks.tables import publish
from kvgate.api.words import Memory, Phase
from kvgate.core.decide import decide
from kvgate.core.evidence import Evidence, Layer, Path, Sample
from kvgate.core.kvcache import KVLayout, declared_layout
from kvgate.core.target import TargetView
from kvgate.core.world import KVKnown, Nodes, World

SIDES = (10, 32, 100)
TRIES = 15
GROWTH_LIMIT, LIMIT_SECONDS = 1.2, 0.1


def world(side: int) -> World:
    layout = declared_layout(114_688)
    assert isinstance(layout, KVLayout)
    prefill = tuple(f"p{number}" for number in range(side))
    decode = tuple(f"d{number}" for number in range(side))
    nodes = Nodes(prefill, decode)
    samples = tuple(_sample(path, 298e6 + number) for number, path in enumerate(nodes.paths))
    evidence = Evidence("r", "bench", nodes.paths, samples, now())
    known = KVKnown(layout, layout.bytes_per_token, 16, "declared", "declared", "")
    return World(TargetView("target"), known, nodes, (evidence,))


def _sample(path: Path, rate: float) -> Sample:
    return Sample(
        "r", path, Layer.LINK, "iperf3", "tcp", Memory.HOST, "tcp", Phase.ISOLATED, 4, now(), bytes_per_second=rate
    )


def best(side: int) -> float:
    """Seconds of the fastest of several turns: what the work itself takes, on a machine that others use too."""
    asked, seen, times = pool(5), world(side), []
    for _ in range(TRIES):
        gc.collect()
        started = time.perf_counter()
        decide(asked, seen, now())
        times.append(time.perf_counter() - started)
    return min(times)


def main() -> bool:
    taken = {side * side: best(side) for side in SIDES}
    first, last = min(taken), max(taken)
    growth = (taken[last] / taken[first]) / (last / first)
    publish(
        "decide-scaling",
        "How decide grows",
        f"One turn of `decide` over one sweep, fastest of {TRIES}. "
        f"Limits: {LIMIT_SECONDS * 1000:.0f} ms at {last:,} paths, "
        f"growth at most {GROWTH_LIMIT} × linear from {first:,} to {last:,} (here {growth:.2f} ×).",
        ("paths", "one turn", "per path"),
        [(f"{n:,}", f"{seconds * 1000:.2f} ms", f"{seconds / n * 1e6:.2f} µs") for n, seconds in taken.items()],
    )
    return growth <= GROWTH_LIMIT and taken[last] <= LIMIT_SECONDS


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
