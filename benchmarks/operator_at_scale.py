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
from kvgate.app.operator.workers import SECONDS_PER_POOL
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
BEGAN = time.monotonic()
WRITES = frozenset({"create", "update", "patch", "delete"})


def looked_at(made: Bench, mark: int) -> set[str]:
    """The pools that the operator has read since."""
    events = made.access.audit_events(mark)
    return {e.name for e in events if (e.user, e.verb, e.resource) == (OPERATOR_USER, "get", "inferencepools")}


def asked_since(made: Bench, mark: int) -> list[str]:
    """The verbs of what the operator has asked since, watches and the Lease apart."""
    mine = (event for event in made.access.audit_events(mark) if event.user == OPERATOR_USER)
    return [event.verb for event in mine if event.resource != "leases" and event.verb != "watch"]


def say(what: str) -> None:
    print(f"{time.monotonic() - BEGAN:4.0f} s  {what}", flush=True)


def restarted(made: Bench, directory: Path) -> tuple[float, list[str]]:
    """Seconds from the start of an operator's process to its first look at the last pool, and all verbs until then."""
    mark, began = made.access.audit_mark(), time.monotonic()
    with running(made.stage, directory):
        eventually(lambda: len(looked_at(made, mark)) == made.count, PATIENCE_SECONDS)
        took = time.monotonic() - began
        time.sleep(10)
        return took, asked_since(made, mark)


def resident(operator: Operator) -> float:
    assert operator.process is not None
    lines = Path(f"/proc/{operator.process.pid}/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:"))


def main() -> bool:
    with bench() as made, tempfile.TemporaryDirectory() as directory:
        for count in range(GROWN_AT_ONCE, POOLS + 1, GROWN_AT_ONCE):
            made.grow(count)
            say(f"{count} pools stand and have their evidence")
        began = time.monotonic()
        with running(made.stage, Path(directory) / "first") as operator:
            eventually(made.settled, PATIENCE_SECONDS)
            first = time.monotonic() - began
            say(f"the first operator judged them all in {first:.0f} s; resident {resident(operator):.0f} MiB")
            time.sleep(20)
            requests, _ = at_rest(made, operator)
            say(f"a minute at rest: {dict(requests)}")
            latencies = change_pools(made)
            most = resident(operator)
            say(f"{len(latencies)} changes: the slowest took {max(latencies):.2f} s; resident {most:.0f} MiB")
        again, verbs = restarted(made, Path(directory) / "second")
    writes = sum(verb in WRITES for verb in verbs)
    looks = len(verbs) / POOLS / (SECONDS_PER_POOL * 5 / 6)
    asked = sum(number for what, number in requests.items() if what.split()[0] != "watch") / 60
    p50, p99 = statistics.median(latencies), statistics.quantiles(latencies, n=100)[98]
    rows = (
        ("requests in a minute at rest, watches and the Lease apart", f"{asked:.2f} per second", "1 per second"),
        (
            f"looks at rest, of {len(verbs) / POOLS:.1f} requests each, averaged over their time",
            f"{looks:.2f} per second",
            "1 per second",
        ),
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
        asked + looks <= MOST_REQUESTS_PER_SECOND
        and most <= MOST_MEBIBYTES
        and p99 <= MOST_P99_SECONDS
        and again <= MOST_RESTART_SECONDS
        and writes == 0
    )


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
