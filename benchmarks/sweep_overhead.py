"""What a sweep takes beyond its tests: whole time over rounds × duration, on 2 × 2 namespaces."""

from __future__ import annotations

import sys

from benchmarks.ground import pool, sweep
from benchmarks.tables import publish
from kvgate.edge.lab import lab

LIMIT = 1.25
SECONDS = (5.0, 10.0)
ROUNDS = 2


def main() -> bool:
    rows, within = [], True
    with lab(dict.fromkeys(("p1", "p2", "d1", "d2"), 10**9)) as nodes:
        for seconds in SECONDS:
            evidence, taken = sweep(pool(seconds), nodes[:2], nodes[2:])
            measured = sum(1 for sample in evidence.samples if sample.bytes_per_second is not None)
            ratio = taken / (ROUNDS * seconds)
            within = within and ratio <= LIMIT and measured == 4
            rows.append((f"{seconds:g} s", str(ROUNDS), f"{measured} of 4", f"{taken:.2f} s", f"{ratio:.3f}"))
    publish(
        "sweep-overhead",
        "The sweep's own time",
        f"Two prefill and two decode nodes, each on a link of 1 Gbit/s, walked by real walkers with real iperf3; "
        f"start-up, rendezvous and reading included. Limit: {LIMIT}.",
        ("test", "rounds", "paths measured", "whole sweep", "÷ (rounds × duration)"),
        rows,
    )
    return within


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
