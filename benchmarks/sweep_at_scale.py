"""What one sweep of 1,000 nodes costs the cluster's control plane: a real operator and API server, nodes that are
played, walkers that take the time of their tests and send nothing."""

from __future__ import annotations

import json
import os
import secrets
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.fleet import Document, Fleet, bytes_of
from benchmarks.tables import publish
from kvgate.probe.jobs import LARGEST_SCHEDULE_BYTES, NODE, PEERS, RUN, SCHEDULE_KEY
from kvgate_probe.wire import Schedule, decode_schedule
from tests.cluster import leftovers
from tests.cluster.controlplane import LOOPBACK, start_control_plane
from tests.cluster.leftovers import Ledger, states
from tests.cluster.waiting import eventually
from tests.e2e import documents
from tests.e2e.documents import NAMESPACE
from tests.e2e.running import Operator
from tests.e2e.stage import OPERATOR_USER, REPORT, Stage, deploy
from tests.edge.cluster.yard import printed

SIDE = int(os.environ.get("KVGATE_BENCH_SIDE", "500"))
TEST_SECONDS = int(os.environ.get("KVGATE_BENCH_SECONDS", "10"))
RATE = 10e9
MOST_MEBIBYTES = 300.0
PATIENCE_SECONDS = 600.0
REST_SECONDS = 30.0
POOL = "scale"


@dataclass
class Walks:
    """The walkers' part: each walks once it knows the addresses of its partners, for as long as its rounds take."""

    schedules: dict[str, Schedule] = field(default_factory=dict)
    fleet: Fleet | None = None
    told_at: dict[str, float] = field(default_factory=dict)

    def schedule(self, pod: Document) -> Schedule:
        assert self.fleet is not None
        name = next(v["configMap"]["name"] for v in pod["spec"]["volumes"] if v["name"] == "schedule")
        if name not in self.schedules:
            found = self.fleet.call("GET", f"/api/v1/namespaces/{NAMESPACE}/configmaps/{name}")
            self.schedules[name] = decode_schedule(found["data"][SCHEDULE_KEY])
        return self.schedules[name]

    def ends(self, pod: Document) -> bool:
        name, notes = pod["metadata"]["name"], pod["metadata"].get("annotations", {})
        schedule = self.schedule(pod)
        known = json.loads(notes.get(PEERS, "{}"))
        if name not in self.told_at and set(schedule.packed.partners_of(notes[NODE])) <= known.keys():
            self.told_at[name] = time.monotonic()
        whole = len(self.told_at) >= len(schedule.nodes)
        return whole and time.monotonic() - max(self.told_at.values()) >= len(schedule.rounds) * schedule.round_seconds

    def prints(self, pod: Document) -> str:
        assert self.fleet is not None
        run = pod["metadata"]["labels"][RUN]
        pods = [p for p in self.fleet.pods.values() if p["metadata"]["labels"].get(RUN) == run]
        addresses = {p["metadata"]["annotations"][NODE]: p["status"]["podIP"] for p in pods}
        return printed(self.schedule(pod), pod["metadata"]["annotations"][NODE], addresses, RATE)


@contextmanager
def control_plane() -> Iterator[Stage]:
    leftovers.clear_abandoned()
    ledger = Ledger.open(states() / f"b{secrets.token_hex(3)}")
    try:
        access = start_control_plane(ledger, LOOPBACK)
        stage = Stage(access, ("", ""), "kvgate.dev/probe:bench")
        stage.install()
        stage.watch.start()
        yield stage
        stage.watch.stop()
    finally:
        leftovers.clear(ledger.state)


def pool() -> Document:
    document = documents.pool(POOL, ("", ""), "2s")
    for side in ("prefill", "decode"):
        document["spec"]["fabric"][f"{side}Nodes"] = {"matchLabels": {"pool": side}}
    document["spec"]["fabric"]["probe"] |= {
        "link": {"tool": "iperf3", "streams": 1, "duration": f"{TEST_SECONDS}s"},
        "endpoint": {"tool": "none"},
        "phases": ["Isolated"],
    }
    return document


def database_bytes(stage: Stage) -> int:
    told = stage.access.kubectl("get", "--raw", "/metrics", check=True, timeout_seconds=120).stdout
    return int(
        sum(float(line.split()[-1]) for line in told.splitlines() if line.startswith("apiserver_storage_size_bytes"))
    )


def memory(operator: Operator, what: str = "VmHWM") -> float:
    """Mebibytes: the peak so far, or what is resident now (VmRSS)."""
    assert operator.process is not None
    lines = Path(f"/proc/{operator.process.pid}/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{what}:"))


def processor_seconds(operator: Operator) -> float:
    assert operator.process is not None
    fields = Path(f"/proc/{operator.process.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Seen:
    """Of one sweep: when each stage was reached, in seconds, and what was there then."""

    moments: dict[str, float]
    bytes_of: dict[str, int]
    counts: dict[str, int]
    requests: Counter[str]
    peak: float
    before: float
    processor: float
    rest: tuple[int, float]


def sweep(stage: Stage, fleet: Fleet, walks: Walks, operator: Operator) -> Seen:
    def listed(path: str) -> list[Document]:
        items: list[Document] = fleet.call("GET", path)["items"]
        return items

    jobs_path, core = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs", f"/api/v1/namespaces/{NAMESPACE}"
    before, began, spent = memory(operator, "VmRSS"), time.monotonic(), processor_seconds(operator)
    stored, moments = database_bytes(stage), dict[str, float]()
    mark = stage.access.audit_mark()
    stage.access.apply(pool())

    def reached(what: str, holds: object) -> None:
        assert callable(holds)
        eventually(holds, PATIENCE_SECONDS)
        moments[what] = time.monotonic() - began

    count = 2 * SIDE
    reached("Jobs made", lambda: len(listed(jobs_path)) >= count)
    reached("pods run", lambda: len(fleet.running) >= count)
    reached("all partners told", lambda: len(walks.told_at) >= count)
    at_work = {"Jobs": listed(jobs_path), "pods": listed(f"{core}/pods"), "schedule": listed(f"{core}/configmaps")}
    at_work["schedule"] = [c for c in at_work["schedule"] if SCHEDULE_KEY in c.get("data", {})]
    reached("walked", lambda: len(fleet.ended) >= count)
    key = f"{NAMESPACE}/{POOL}"
    judged = stage.watch.wait_for(
        key, lambda seen: seen.status.sweep is None and seen.status.fabric is not None, PATIENCE_SECONDS
    )
    assert judged is not None, operator.last_words()
    moments["judged"] = time.monotonic() - began
    reports: list[Document] = stage.access.get(REPORT, "-n", NAMESPACE)["items"]
    held = {
        **at_work,
        "reports": reports,
        "pool": [stage.access.get("inferencepools.kvgate.dev", POOL, "-n", NAMESPACE)],
    }
    requests = Counter(
        f"{event.verb} {event.resource}" for event in stage.access.audit_events(mark) if event.user == OPERATOR_USER
    )
    sizes = {name: bytes_of(items) for name, items in held.items()} | {"database": database_bytes(stage) - stored}
    peak, processor = memory(operator), processor_seconds(operator) - spent
    time.sleep(5)
    mark, spent = stage.access.audit_mark(), processor_seconds(operator)
    time.sleep(REST_SECONDS)
    calls = [e for e in stage.access.audit_events(mark) if e.user == OPERATOR_USER and e.resource != "leases"]
    rest = (len(calls), processor_seconds(operator) - spent)
    return Seen(moments, sizes, {n: len(i) for n, i in held.items()}, requests, peak, before, processor, rest)


def main() -> bool:
    labels = {
        f"gpu-{n:04}": {"pool": "prefill" if n < SIDE else "decode", "rack": f"r{n // 16}"} for n in range(2 * SIDE)
    }
    walks = Walks()
    with control_plane() as stage, tempfile.TemporaryDirectory() as directory:
        fleet = Fleet(stage.access, NAMESPACE, labels, walks.prints, walks.ends)
        walks.fleet = fleet
        with fleet.up():
            deploy(stage.access, documents.deployment(POOL))
            operator = stage.operator(Path(directory))
            operator.start()
            try:
                seen = sweep(stage, fleet, walks, operator)
            finally:
                operator.stop()
    (schedule,) = walks.schedules.values()
    tell(seen, schedule)
    return seen.peak <= MOST_MEBIBYTES


def tell(seen: Seen, schedule: Schedule) -> None:
    walk = len(schedule.rounds) * schedule.round_seconds
    moments = [f"{what} {at:.0f} s" for what, at in seen.moments.items()]
    requests = ", ".join(f"{n:,} {what}" for what, n in seen.requests.most_common(10))
    rows = [
        ("nodes", f"{2 * SIDE:,}", ""),
        ("paths of the sample, of those in use", f"{schedule.packed.pairs:,} of {SIDE * SIDE:,}", ""),
        ("rounds", str(len(schedule.rounds)), ""),
        ("reached, from the pool on", "; ".join(moments), ""),
        ("rounds × duration, a part of it", f"{walk:.0f} s", ""),
        ("the operator's requests", f"{sum(seen.requests.values()):,}", ""),
        ("the most of them", requests, ""),
        *(
            (f"bytes of the {name}", f"{seen.bytes_of[name]:,} ({seen.counts[name]:,} objects)", "")
            for name in seen.counts
        ),
        ("the database's growth", f"{seen.bytes_of['database'] / 2**20:.1f} MiB", ""),
        ("the operator's memory before", f"{seen.before:.0f} MiB", ""),
        ("its peak", f"{seen.peak:.0f} MiB", f"{MOST_MEBIBYTES:.0f} MiB"),
        ("its processor time", f"{seen.processor:.1f} s", ""),
        (f"at rest, {REST_SECONDS:g} s", f"{seen.rest[0]} requests, {seen.rest[1]:.1f} s of a processor", ""),
    ]
    publish(
        "sweep-at-scale",
        "A sweep of 1,000 nodes, and the control plane",
        "A real operator with the rights that ship; API server, scheduler and controllers are real, with their own "
        "limits on requests (20 a second for the Job controller). The nodes are played: what a kubelet says of a pod, "
        "its log and its heartbeat; each walker ends when its rounds are over. Bytes are of JSON as it is listed; a "
        f"schedule may have {LARGEST_SCHEDULE_BYTES:,}.",
        ("what", "measured", "limit"),
        rows,
    )


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
