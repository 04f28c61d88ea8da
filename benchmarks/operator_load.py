"""What the operator costs an API server at rest, and how soon a change is answered: a real operator over 1, 10 and 100
pools that were measured and hold."""

from __future__ import annotations

import secrets
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kubernetes import client, watch

from benchmarks.tables import publish
from kvgate.api.wire import GROUP, VERSION
from kvgate.api.words import Memory, Phase
from kvgate.core.evidence import Evidence, Layer, Sample
from kvgate.core.evidence import Path as FabricPath
from kvgate.edge.cluster import collecting
from kvgate.edge.cluster.client import Client
from kvgate.edge.cluster.reading import read_all
from tests.cluster import leftovers
from tests.cluster.access import Access
from tests.cluster.controlplane import LOOPBACK, start_control_plane
from tests.cluster.leftovers import Ledger, states
from tests.cluster.waiting import eventually
from tests.e2e import documents
from tests.e2e.documents import NAMESPACE, Document
from tests.e2e.running import Operator
from tests.e2e.stage import OPERATOR_USER, Stage, deploy, is_settled
from tests.edge.cluster.yard import set_ready

COUNTS = (1, 10, 100)
NODES = ("n1", "n2")
QUIET_SECONDS = 60.0
HEARTBEAT_SECONDS = 10.0
CHANGES_PER_SECOND, CHANGES = 10.0, 300
BYTES_PER_SECOND = 298e6
MOST_MEBIBYTES = 150.0
MOST_P99_SECONDS = 2.0
SETTLED_SECONDS = 180.0


@dataclass
class Bench:
    """An API server with kvgate's kinds and roles, two nodes that no kubelet plays, and pools with their evidence."""

    access: Access
    stage: Stage
    count: int = 0

    def grow(self, count: int) -> None:
        """Up to so many pools, each with a deployment of its own and one sweep's evidence that was just collected."""
        names = [f"bench-{number:03}" for number in range(self.count, count)]
        deploy(self.access, *map(documents.deployment, names))
        self.access.apply(*(documents.pool(name, NODES, "2s") for name in names))
        writer = Client(self.access.api_client().configuration, "kvgate-bench")
        for name in names:
            pool = read_all(writer, NAMESPACE, name, None)
            collecting.store(writer, pool, _evidence(pool.uid, pool.objects.nodes))
        self.count = count

    def settled(self) -> bool:
        seen = self.stage.watch.pools()
        return len(seen) == self.count and all(pool.current and is_settled(pool.status) for pool in seen.values())


def _evidence(pool_uid: str, nodes: Any) -> Evidence:
    path, now = FabricPath(*NODES), datetime.now(UTC).replace(microsecond=0)
    sample = Sample(
        run_id="bench",
        path=path,
        layer=Layer.LINK,
        tool="iperf3",
        operation="tcp-stream",
        memory=Memory.HOST,
        transport="tcp",
        phase=Phase.ISOLATED,
        streams=4,
        measured_at=now,
        bytes_per_second=BYTES_PER_SECOND,
        seconds=2.0,
    )
    identities = tuple(node.identity for node in nodes)
    return Evidence("bench", pool_uid, (path,), (sample,), now, nodes=identities)


@contextmanager
def bench() -> Iterator[Bench]:
    leftovers.clear_abandoned()
    ledger = Ledger.open(states() / f"b{secrets.token_hex(3)}")
    try:
        access = start_control_plane(ledger, LOOPBACK)
        stage = Stage(access, NODES, "kvgate.dev/probe:bench")
        stage.install()
        for name in NODES:
            labels = {"kubernetes.io/hostname": name}
            access.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}})
        stage.watch.start()
        with hearts(access):
            yield Bench(access, stage)
        stage.watch.stop()
    finally:
        leftovers.clear(ledger.state)


@contextmanager
def hearts(access: Access) -> Iterator[None]:
    """The nodes say that they are Ready as often as kubelets would: no controller takes them for dead."""
    stop = threading.Event()

    def beat() -> None:
        while True:
            for name in NODES:
                set_ready(access, name, "True")
            if stop.wait(HEARTBEAT_SECONDS):
                return

    beating = threading.Thread(target=beat, daemon=True)
    beating.start()
    try:
        yield
    finally:
        stop.set()
        beating.join(10)


@contextmanager
def running(stage: Stage, directory: Path) -> Iterator[Operator]:
    directory.mkdir()
    operator = stage.operator(directory)
    operator.start()
    try:
        yield operator
    finally:
        operator.stop()


@dataclass
class Answers:
    """Which generation of each pool was seen judged, and when, in the order of time."""

    access: Access
    judged: dict[str, list[tuple[int, float]]] = field(default_factory=dict)
    stop: threading.Event = field(default_factory=threading.Event)

    def follow(self) -> None:
        pools = client.CustomObjectsApi(self.access.api_client())
        while not self.stop.is_set():
            events = watch.Watch().stream(  # type: ignore[no-untyped-call]
                *(pools.list_namespaced_custom_object, GROUP, VERSION, NAMESPACE, "inferencepools"), timeout_seconds=5
            )
            for event in events:
                document: Document = event["object"]
                generation = document.get("status", {}).get("observedGeneration", -1)
                self.judged.setdefault(document["metadata"]["name"], []).append((generation, time.monotonic()))

    def at(self, name: str, generation: int) -> float | None:
        """When a status was first seen that was judged for this generation or a later one."""
        return next((at for judged, at in self.judged.get(name, ()) if judged >= generation), None)


def change_pools(made: Bench) -> list[float]:
    """Seconds from each change of a spec to the first status that was judged for it."""
    answers = Answers(made.access)
    follower = threading.Thread(target=answers.follow, daemon=True)
    follower.start()
    time.sleep(2)
    pools = client.CustomObjectsApi(made.access.api_client())
    begun, changed = time.monotonic(), []
    for number in range(CHANGES):
        time.sleep(max(0.0, begun + number / CHANGES_PER_SECOND - time.monotonic()))
        name = f"bench-{number % made.count:03}"
        body = {"spec": {"criteria": {"disaggregation": {"ttftBudget": f"{2000 + number}ms"}}}}
        sent = time.monotonic()
        written: Any = pools.patch_namespaced_custom_object(GROUP, VERSION, NAMESPACE, "inferencepools", name, body)
        changed.append((name, written["metadata"]["generation"], sent))
    eventually(lambda: None not in {answers.at(name, generation) for name, generation, _ in changed}, SETTLED_SECONDS)
    answers.stop.set()
    follower.join(10)
    return [(answers.at(name, generation) or 0.0) - sent for name, generation, sent in changed]


def at_rest(made: Bench, operator: Operator) -> tuple[Counter[str], float]:
    """The operator's requests in a quiet minute without the Lease's, by verb and kind; and its memory in MiB."""
    mark = made.access.audit_mark()
    time.sleep(QUIET_SECONDS)
    mine = (event for event in made.access.audit_events(mark) if event.user == OPERATOR_USER)
    requests = Counter(f"{event.verb} {event.resource}" for event in mine if event.resource != "leases")
    assert operator.process is not None
    return requests, _resident_mebibytes(operator.process.pid)


def _resident_mebibytes(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS:"))


def main() -> bool:
    rows, within = [], True
    with bench() as made, tempfile.TemporaryDirectory() as directory:
        for count in COUNTS:
            made.grow(count)
            with running(made.stage, Path(directory) / str(count)) as operator:
                eventually(made.settled, SETTLED_SECONDS)
                time.sleep(20)
                requests, mebibytes = at_rest(made, operator)
                latencies = change_pools(made) if count == COUNTS[-1] else []
                after = _resident_mebibytes(operator.process.pid) if operator.process else 0.0
            writes = sum(n for what, n in requests.items() if what.split()[0] in {"create", "update", "patch"})
            told = ", ".join(f"{n} {what}" for what, n in sorted(requests.items())) or "none"
            rows.append(
                (str(count), f"{sum(requests.values()) / count:.2f}", str(writes), told, f"{mebibytes:.0f} MiB")
            )
            within = within and writes == 0 and max(mebibytes, after) <= MOST_MEBIBYTES
    p50, p99 = statistics.median(latencies), statistics.quantiles(latencies, n=100)[98]
    within = within and p99 <= MOST_P99_SECONDS
    publish(
        "operator-load",
        "The operator at rest, and how soon it answers",
        "A real operator with the rights that ship, against a real API server. At rest: one minute without any change, "
        "the Lease's renewals apart, over pools that were measured and hold. Limit: no write, and "
        f"{MOST_MEBIBYTES:.0f} MiB at 100 pools. Then {CHANGES} changes of a budget, {CHANGES_PER_SECOND:g} per second "
        f"over 100 pools: from the change to a status that was judged for it, median {p50:.2f} s, p99 {p99:.2f} s "
        f"(limit {MOST_P99_SECONDS:g} s); resident memory after it {after:.0f} MiB.",
        ("pools", "requests ÷ pool and minute", "writes", "requests in the minute", "resident memory"),
        rows,
    )
    return within


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
