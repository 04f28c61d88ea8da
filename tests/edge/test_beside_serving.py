"""A path whose nodes serve, beside TCP of others on one shaped link: what flows beside a test counts as carried, and a
path that is fine idle and slow under load is told with both figures."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path as FilePath

import pytest
import yaml
from rich.console import Console

from kvgate.api.words import Phase
from kvgate.app.demo import sample
from kvgate.app.output import Report
from kvgate.app.reconcile import reconcile_directory
from kvgate.core.evidence import Path, Sample
from kvgate.core.rates import carried, reached_pace
from kvgate.core.steps import Measure
from kvgate.edge.lab import LabNode, lab, shape
from kvgate.edge.localjobs import Host, run_walkers
from kvgate.probe.plan import LinkTest, plan_phases
from kvgate.probe.results import Setting, read_logs
from kvgate_probe.wire import Result, decode_line
from tests.edge.rooted import as_root

pytestmark = [
    pytest.mark.local,
    pytest.mark.skipif(sys.platform != "linux", reason="network namespaces are Linux's"),
    as_root,
]
LINK = 400_000_000
SERVES = 160_000_000
"""Bits per second of payload that play the KV bytes of users."""
PORT = "6001"
MOVED = re.compile(r"^(\d+) .*sec +[\d.]+ \w?Bytes +([\d.]+) Kbits/sec", re.MULTILINE)


@pytest.fixture
def nodes() -> Iterator[tuple[LabNode, ...]]:
    with lab({"p": LINK, "d": LINK}) as made:
        yield made


@dataclass(frozen=True)
class Serving:
    """What iperf3's server, at the receiving end, says that arrived."""

    log: FilePath

    def bytes_per_second(self, since: float, until: float) -> float:
        """The mean of the half seconds that lie within; the server stamps them with whole seconds."""
        told = [(int(at), float(kbits)) for at, kbits in MOVED.findall(self.log.read_text())]
        within = [kbits for at, kbits in told if since + 0.5 < at < until - 0.5]
        assert within, f"no interval between {since} and {until} in {told}"
        return sum(within) / len(within) * 1000 / 8


@contextmanager
def serving(nodes: tuple[LabNode, ...], log: FilePath, bits_per_second: int = SERVES) -> Iterator[Serving]:
    """TCP of others from the first node to the second, by one stream that asks for no more than a rate."""
    source, destination = nodes
    listens = ("nsenter", f"--net=/run/netns/{destination.namespace}", "iperf3", "-s", "-1", "-p", PORT)
    told = ("-i", "0.5", "-f", "k", "--forceflush", "--timestamps=%s ")
    sends = ("nsenter", f"--net=/run/netns/{source.namespace}", "iperf3", "-c", destination.address, "-p", PORT)
    with log.open("wb") as out, subprocess.Popen((*listens, *told), stdout=out) as server:
        try:
            until(lambda: "listening" in log.read_text(), "iperf3 listens")
            paced = (*sends, "-b", str(bits_per_second), "-t", "60")
            with subprocess.Popen(paced, stdout=subprocess.DEVNULL) as client:
                try:
                    until(lambda: len(MOVED.findall(log.read_text())) > 1, "serving traffic flows")
                    yield Serving(log)
                    assert client.poll() is None
                finally:
                    client.kill()
        finally:
            server.kill()


def until(reached: Callable[[], bool], what: str) -> None:
    ends = time.monotonic() + 20
    while not reached():
        assert time.monotonic() < ends, f"not in 20 s: {what}"
        time.sleep(0.05)


def measured(nodes: tuple[LabNode, ...], pace: float | None = None) -> tuple[Sample, Result]:
    step = Measure("run", (Path("p", "d"),), "due", pace_bytes_per_second=pace)
    plan = plan_phases(step, "uid", LinkTest(3, 1, 5201), (Phase.ISOLATED,))
    walked = run_walkers(plan.schedule, [Host(n.name, n.address, 5201, n.namespace) for n in nodes], 60)
    assert walked.problems == ()
    addresses = {node.name: frozenset({node.address}) for node in nodes}
    (found,) = read_logs(plan.schedule, walked.logs, Setting(datetime.now(UTC), addresses)).samples
    results = [result for line in walked.logs["d"].splitlines() if isinstance(result := decode_line(line), Result)]
    return found, results[0]


def test_what_serves_beside_a_test_is_added_back(nodes: tuple[LabNode, ...], tmp_path: FilePath) -> None:
    quiet, _ = measured(nodes)
    assert quiet.serving_bytes_per_second == 0
    with serving(nodes, tmp_path / "serving") as beside:
        paced, record = measured(nodes, pace=20e6)
        assert reached_pace(paced)
        assert paced.bytes_per_second == pytest.approx(20e6, rel=0.05), "no more than its pace"
        sent = beside.bytes_per_second(record.started_at, record.ended_at)
        assert sent == pytest.approx(SERVES / 8, rel=0.15), "serving keeps its rate beside a paced test"
        assert paced.serving_bytes_per_second == pytest.approx(sent, rel=0.25)

        flooding, record = measured(nodes)
        sent = beside.bytes_per_second(record.started_at, record.ended_at)
        assert flooding.serving_bytes_per_second == pytest.approx(sent, rel=0.25)
    assert (quiet.bytes_per_second or 0) > 0.9 * LINK / 8 > 1.05 * (flooding.bytes_per_second or 0)
    assert carried(flooding) == pytest.approx(LINK / 8, rel=0.15), "together they fill the link"


def test_a_path_that_is_fine_idle_and_slow_under_load_is_told_with_both_figures(
    nodes: tuple[LabNode, ...], tmp_path: FilePath
) -> None:
    folder = tmp_path / "gate"
    folder.mkdir()
    assert under_load(reconciled(folder, nodes)) == "no path is known to carry less under load"
    shape(nodes[0], 120_000_000)
    with serving(nodes, tmp_path / "serving", 60_000_000):
        told = under_load(reconciled(folder, nodes))
    figures = re.fullmatch(
        r"path p→d carries ([\d.]+) MB/s \S+ Mbit/s\), ([\d.]+) MB/s \S+ Mbit/s\) of it by serving, "
        r"and carried ([\d.]+) MB/s \S+ Mbit/s\) idle; what was measured under load is judged",
        told,
    )
    assert figures, told
    loaded, of_it, idle = map(float, figures.groups())
    assert loaded == pytest.approx(15, rel=0.2)
    assert 0.2 * loaded < of_it < 0.6 * loaded
    assert idle == pytest.approx(0.95 * LINK / 8e6, rel=0.08)


def reconciled(folder: FilePath, made: tuple[LabNode, ...]) -> Report:
    """One pool over both nodes, measured now because somebody asks."""
    (folder / "nodes.yaml").write_text(yaml.safe_dump_all([played(node) for node in made]))
    pool = yaml.safe_load(sample("pool.yaml"))
    pool["metadata"]["annotations"] = {"kvgate.dev/measure-requested-at": datetime.now(UTC).isoformat()}
    pool["spec"]["fabric"]["probe"]["link"] |= {"duration": "3s", "streams": 1}
    pool["spec"]["criteria"] = {"disaggregation": {"ttftBudget": "10m"}}
    (folder / "pool.yaml").write_text(yaml.safe_dump(pool))
    for name in ("config.yaml", "deployment.yaml"):
        (folder / name).write_text(sample(name))
    (report,) = reconcile_directory(folder, lambda _: None, lambda: datetime.now(UTC), Console(stderr=True))
    return report


def played(made: LabNode) -> dict[str, object]:
    metadata = {
        "name": made.name,
        "labels": {"link": "qwen3", "pool": "prefill" if made.name == "p" else "decode"},
        "annotations": {"local.kvgate.dev/network-namespace": made.namespace},
    }
    addresses = [{"type": "InternalIP", "address": made.address}]
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": {"addresses": addresses}}


def under_load(report: Report) -> str:
    (told,) = (finding.message for _, finding in report.explanation.findings if finding.criterion == "underLoad")
    return told
