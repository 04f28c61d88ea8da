"""Failures between real walkers in network namespaces: a link down, packets dropped or refused, a clock off."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest

from kvgate.api.words import Phase
from kvgate.core.evidence import FailureKind
from kvgate.edge.lab import LabNode, lab
from kvgate.edge.localjobs import Host, Walked, run_walkers
from kvgate.probe.plan import LinkTest
from kvgate.probe.results import Reading, Setting, read_logs
from kvgate_probe.wire import DATA_PORTS, Schedule
from tests.edge.rooted import as_root
from tests.probe.matrix import plan_sweep

pytestmark = [
    pytest.mark.local,
    pytest.mark.skipif(sys.platform != "linux", reason="network namespaces are Linux's"),
    as_root,
]
RATE, PORT = 300_000_000, 5201
OFF_SECONDS = 600


@pytest.fixture(scope="module")
def nodes() -> Iterator[Mapping[str, LabNode]]:
    with lab(dict.fromkeys(("p", "d1", "d2", "d3"), RATE)) as made:
        yield {node.name: node for node in made}


@dataclass(frozen=True)
class Strayed(Host):
    """A host whose clock is off: Python's own is shifted, as a machine without NTP has it."""

    folder: Path = field(default=Path())

    @property
    def entry(self) -> tuple[str, ...]:
        return (*super().entry, "env", f"PYTHONPATH={self.folder}")


def host(node: LabNode) -> Host:
    return Host(node.name, node.address, PORT, node.namespace)


def schedule(decode: list[str], seconds: float) -> Schedule:
    test = LinkTest(duration_seconds=seconds, streams=2, port=PORT)
    return plan_sweep("run", "uid", ["p"], decode, test, Phase.ISOLATED).schedule


def read(plan: Schedule, hosts: list[Host], walked: Walked, began_at: datetime | None = None) -> Reading:
    known = {host.node: frozenset({host.address}) for host in hosts}
    return read_logs(plan, walked.logs, Setting(datetime.now(UTC), known, began_at=began_at))


def kinds(reading: Reading) -> dict[str, FailureKind | None]:
    """Why there is no number, by path; None where there is one."""
    return {str(sample.path): sample.failure.kind if sample.failure else None for sample in reading.samples}


def nothing_listens(node: LabNode) -> bool:
    """No port of a walker is taken any more."""
    ports = range(PORT, PORT + DATA_PORTS + 1)
    listing = ["ip", "netns", "exec", node.namespace, "ss", "-Hltn"]
    told = subprocess.run(listing, capture_output=True, text=True, check=True).stdout
    return not any(f":{port} " in told for port in ports)


def at_a_test(namespace: str) -> bool:
    listing = ["ip", "netns", "exec", namespace, "ss", "-Htn", "state", "established"]
    told = subprocess.run(listing, capture_output=True, text=True, check=False).stdout
    return any(f":{port} " in told for port in range(PORT + 1, PORT + DATA_PORTS + 1))


def test_a_node_whose_link_goes_down_amid_its_test_is_named_and_the_others_are_measured(
    nodes: Mapping[str, LabNode],
) -> None:
    plan, lost = schedule(["d1", "d2"], 4), nodes["d1"]
    hosts = [host(nodes[name]) for name in ("p", "d1", "d2")]

    def cut() -> None:
        ends = time.monotonic() + 40
        while not at_a_test(lost.namespace) and time.monotonic() < ends:
            time.sleep(0.1)
        subprocess.run(("ip", "-n", lost.namespace, "link", "set", "eth0", "down"), check=True)

    cutting = threading.Thread(target=cut)
    cutting.start()
    try:
        walked = run_walkers(plan, hosts, 80)
    finally:
        cutting.join()
        subprocess.run(("ip", "-n", lost.namespace, "link", "set", "eth0", "up"), check=True)
    found = kinds(read(plan, hosts, walked))
    assert walked.problems == ()
    assert found["p→d2"] is None
    assert found["p→d1"] in {FailureKind.PARTNER_LOST, FailureKind.SERVER_LOST, FailureKind.STALLED_FLOW}
    assert all(nothing_listens(node) for node in nodes.values())


def rule(namespace: str, line: str) -> None:
    table = f"table inet walls {{ chain input {{ type filter hook input priority 0; {line}\n}}\n}}\n"
    subprocess.run(("ip", "netns", "exec", namespace, "nft", "-f", "-"), input=table, text=True, check=True)


def test_packets_that_are_dropped_are_told_from_a_connection_that_is_refused_and_from_a_silent_node(
    nodes: Mapping[str, LabNode],
) -> None:
    """As a NetworkPolicy drops, and as a firewall refuses: d1 takes the control port alone, d2 too, d3 nothing."""
    data = f"tcp dport {PORT + 1}-{PORT + DATA_PORTS}"
    walls = {"d1": f"{data} drop", "d2": f"{data} reject with tcp reset", "d3": f"ip saddr {nodes['p'].address} drop"}
    plan, hosts = schedule(list(walls), 2), [host(node) for node in nodes.values()]
    for name, line in walls.items():
        rule(nodes[name].namespace, line)
    try:
        walked = run_walkers(plan, hosts, 100)
    finally:
        for name in walls:
            delete = ("ip", "netns", "exec", nodes[name].namespace, "nft", "delete", "table", "inet", "walls")
            subprocess.run(delete, check=True)
    assert walked.problems == ()
    assert kinds(read(plan, hosts, walked)) == {
        "p→d1": FailureKind.CONNECT_TIMEOUT,
        "p→d2": FailureKind.CONNECT_REFUSED,
        "p→d3": FailureKind.PARTNER_SILENT,
    }
    assert all(nothing_listens(node) for node in nodes.values())


@pytest.mark.parametrize(
    ("off_seconds", "noted"),
    [
        pytest.param(
            OFF_SECONDS, ("clock of d1: more than 5 min ahead; evidence ages by ours",), id="10 minutes ahead"
        ),
        pytest.param(
            -OFF_SECONDS, ("clock of d1: more than 5 min behind; evidence ages by ours",), id="10 minutes behind"
        ),
    ],
)
def test_a_node_whose_clock_is_off_is_measured_and_its_evidence_ages_by_ours(
    off_seconds: int, noted: tuple[str, ...], nodes: Mapping[str, LabNode], tmp_path: Path
) -> None:
    shift = f"import time\nreal = time.time\ntime.time = lambda: real() + ({off_seconds})\n"
    (tmp_path / "sitecustomize.py").write_text(shift)
    plan, off = schedule(["d1"], 1), nodes["d1"]
    hosts = [host(nodes["p"]), Strayed(off.name, off.address, PORT, off.namespace, tmp_path)]
    began_at = datetime.now(UTC)
    walked = run_walkers(plan, hosts, 40)
    reading = read(plan, hosts, walked, began_at)
    (sample,) = reading.samples
    assert (walked.problems, sample.failure, reading.problems) == ((), None, noted)
    assert abs((datetime.now(UTC) - sample.measured_at).total_seconds()) < 60
