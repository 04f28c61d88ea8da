"""A real operator over 1,000 pools and as many deployments: what it asks at rest, its memory, how soon it answers a
change, and how soon a new one has looked at them all, without a write. KVGATE_LOAD_POOLS asks for another number."""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.operator_load import Bench, at_rest, bench, change_pools, running
from benchmarks.tables import publish
from tests.cluster.waiting import eventually
from tests.e2e.running import Operator
from tests.e2e.stage import OPERATOR_USER

POOLS = int(os.environ.get("KVGATE_LOAD_POOLS", "1000"))
GROWN_AT_ONCE = 50
MOST_REQUESTS_PER_SECOND = 1.0
MOST_MEBIBYTES = 300.0
MOST_P99_SECONDS = 2.0
MOST_RESTART_SECONDS = 60.0
PATIENCE_SECONDS = 600.0
WRITES = frozenset({"create", "update", "patch", "delete"})


def looked_at(made: Bench, mark: int) -> set[str]:
    """The pools that the operator has read since."""
    events = made.access.audit_events(mark)
    return {e.name for e in events if (e.user, e.verb, e.resource) == (OPERATOR_USER, "get", "inferencepools")}


def writes_since(made: Bench, mark: int) -> int:
    mine = (event for event in made.access.audit_events(mark) if event.user == OPERATOR_USER)
    return sum(event.verb in WRITES and event.resource != "leases" for event in mine)


def restarted(made: Bench, directory: Path) -> tuple[float, int]:
    """Seconds from the start of an operator's process to its first look at the last pool, and writes until its rest."""
    mark, began = made.access.audit_mark(), time.monotonic()
    with running(made.stage, directory):
        eventually(lambda: len(looked_at(made, mark)) == made.count, PATIENCE_SECONDS)
        took = time.monotonic() - began
        time.sleep(10)
        return took, writes_since(made, mark)


def resident(operator: Operator) -> float:
    assert operator.process is not None
    lines = Path(f"/proc/{operator.process.pid}/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:"))


def main() -> bool:
    with bench() as made, tempfile.TemporaryDirectory() as directory:
        for count in range(GROWN_AT_ONCE, POOLS + 1, GROWN_AT_ONCE):
            made.grow(count)
        began = time.monotonic()
        with running(made.stage, Path(directory) / "first") as operator:
            eventually(made.settled, PATIENCE_SECONDS)
            first = time.monotonic() - began
            time.sleep(20)
            requests, _ = at_rest(made, operator)
            latencies = change_pools(made)
            most = resident(operator)
        again, writes = restarted(made, Path(directory) / "second")
    asked = sum(number for what, number in requests.items() if what.split()[0] != "watch") / 60
    p50, p99 = statistics.median(latencies), statistics.quantiles(latencies, n=100)[98]
    rows = (
        ("requests at rest, watches and the Lease apart", f"{asked:.2f} per second", "1 per second"),
        ("peak of resident memory", f"{most:.0f} MiB", f"{MOST_MEBIBYTES:.0f} MiB"),
        ("change to judged status, 10 per second, median", f"{p50:.2f} s", "–"),
        ("change to judged status, 10 per second, p99", f"{p99:.2f} s", f"{MOST_P99_SECONDS:g} s"),
        ("a new operator has looked at every pool after", f"{again:.0f} s", f"{MOST_RESTART_SECONDS:g} s"),
        ("writes of that operator", str(writes), "0"),
        ("the first operator had judged every pool after", f"{first:.0f} s", "–"),
    )
    publish(
        "operator-at-scale",
        f"The operator over {POOLS:,} pools",
        f"A real operator with the rights that ship, against a real API server with {POOLS:,} pools that were measured "
        f"and hold, and {POOLS:,} deployments. API server, etcd and operator share the machine.",
        ("what", "measured", "limit"),
        rows,
    )
    return (
        asked <= MOST_REQUESTS_PER_SECOND
        and most <= MOST_MEBIBYTES
        and p99 <= MOST_P99_SECONDS
        and again <= MOST_RESTART_SECONDS
        and writes == 0
    )


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
