"""Two nodes and two others over one shaped trunk: `kvgate reconcile` measures paths alone and at once, finds what they
share, names it and judges it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path as FilePath

import pytest
import yaml
from rich.console import Console

from kvgate.api.words import Phase
from kvgate.app.demo import sample
from kvgate.app.output import Report
from kvgate.app.reconcile import reconcile_directory
from kvgate.core.evidence import Evidence, Path
from kvgate.edge.files import objects_of, read_sources
from kvgate.edge.lab import LabNode, lab
from kvgate.probe.reports import read_reports
from tests.edge.rooted import as_root

pytestmark = [
    pytest.mark.local,
    pytest.mark.skipif(sys.platform != "linux", reason="network namespaces are Linux's"),
    as_root,
]
TRUNK = 400_000_000 / 8
ACCESS = 1_000_000_000
PAYLOAD = 0.95
"""Of the bytes on the wire; the rest are headers of Ethernet, IP and TCP."""
RACK = "topology.kubernetes.io/rack"
RACKS = {"p1": "a", "p2": "a", "d1": "b", "d2": "b"}
EVERY = tuple(Path(a, b) for a in ("p1", "p2") for b in ("d1", "d2"))


def ip(*arguments: str) -> None:
    subprocess.run(("ip", *arguments), check=True, capture_output=True, timeout=30)


@pytest.fixture(scope="module")
def fabric() -> Iterator[tuple[LabNode, ...]]:
    """p1 and p2 on one switch, d1 and d2 on another, each on 1 Gbit/s; 400 Mbit/s between the switches."""
    with lab(dict.fromkeys(RACKS, ACCESS)) as made:
        by_name = {node.name: node for node in made}
        switch = made[0].switch
        ip("-n", switch, "link", "add", "br1", "type", "bridge")
        ip("-n", switch, "link", "add", "t0", "type", "veth", "peer", "name", "t1")
        for port, bridge in (("t0", "br0"), ("t1", "br1"), (by_name["d1"].port, "br1"), (by_name["d2"].port, "br1")):
            ip("-n", switch, "link", "set", port, "master", bridge)
        for device in ("br1", "t0", "t1"):
            ip("-n", switch, "link", "set", device, "up")
        for port in ("t0", "t1"):
            shaped = ("root", "tbf", "rate", f"{round(TRUNK * 8)}bit", "burst", "256kb", "latency", "50ms")
            command = ("tc", "-n", switch, "qdisc", "add", "dev", port, *shaped)
            subprocess.run(command, check=True, capture_output=True, timeout=30)
        yield made


def played(made: LabNode, labels: Mapping[str, str]) -> dict[str, object]:
    role = "prefill" if made.name.startswith("p") else "decode"
    metadata = {
        "name": made.name,
        "labels": {"link": "qwen3", "pool": role, **labels},
        "annotations": {"local.kvgate.dev/network-namespace": made.namespace},
    }
    addresses = [{"type": "InternalIP", "address": made.address}]
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": {"addresses": addresses}}


def reconciled(folder: FilePath, made: tuple[LabNode, ...], *, labelled: bool) -> tuple[Report, Evidence]:
    """One pool over all four nodes that asks for both phases, and the sweep as its FabricReport keeps it."""
    nodes = [played(node, {RACK: RACKS[node.name]} if labelled else {}) for node in made]
    (folder / "nodes.yaml").write_text(yaml.safe_dump_all(nodes))
    pool = yaml.safe_load(sample("pool.yaml"))
    pool["spec"]["fabric"]["probe"] |= {"phases": ["Isolated", "Concurrent"]}
    pool["spec"]["fabric"]["probe"]["link"] |= {"duration": "5s"}
    pool["spec"]["workload"] |= {"peakRequestsPerSecond": "0.001"}
    pool["spec"]["criteria"] = {"disaggregation": {"ttftBudget": "10m"}}
    (folder / "pool.yaml").write_text(yaml.safe_dump(pool))
    for name in ("config.yaml", "deployment.yaml"):
        (folder / name).write_text(sample(name))
    errors = Console(stderr=True)
    (report,) = reconcile_directory(folder, lambda _: None, lambda: datetime.now(UTC), errors)
    kept = objects_of(read_sources(sorted((folder / ".kvgate" / "reports").glob("*.yaml"))))
    (evidence,), bad = read_reports(kept.reports, report.pool.uid)
    assert bad == ()
    return report, evidence


def rates(evidence: Evidence, phase: Phase) -> dict[Path, float]:
    return {s.path: s.bytes_per_second or 0.0 for s in evidence.samples if s.phase is phase}


def test_the_trunk_is_found_named_and_judged(fabric: tuple[LabNode, ...], tmp_path: FilePath) -> None:
    report, evidence = reconciled(tmp_path, fabric, labelled=True)
    assert [s.failure for s in evidence.samples] == [None] * 8
    alone, beside = rates(evidence, Phase.ISOLATED), rates(evidence, Phase.CONCURRENT)
    assert alone.keys() == beside.keys() == set(EVERY)
    for path in EVERY:
        assert alone[path] == pytest.approx(PAYLOAD * TRUNK, rel=0.05), "alone, a path has the whole trunk"
    slots = {s.path: s.slot for s in evidence.samples if s.phase is Phase.CONCURRENT}
    assert slots == {path: slots[EVERY[0]] if path in (EVERY[0], EVERY[3]) else slots[EVERY[1]] for path in EVERY}
    assert None not in slots.values()
    assert slots[EVERY[0]] != slots[EVERY[1]]
    for pair in ((EVERY[0], EVERY[3]), (EVERY[1], EVERY[2])):
        assert sum(beside[path] for path in pair) == pytest.approx(PAYLOAD * TRUNK, rel=0.12), "at once, they share it"
    fabric_status = report.status.fabric
    assert fabric_status is not None
    (link,) = fabric_status.shared_links
    assert link.name == "what traffic from rack a to rack b shares"
    assert link.paths == 4
    assert link.together_bytes_per_second == pytest.approx(PAYLOAD * TRUNK, rel=0.12)
    assert link.alone_bytes_per_second == pytest.approx(2 * PAYLOAD * TRUNK, rel=0.05)
    reasons = {finding.criterion: finding.reason for _, finding in report.explanation.findings}
    assert (reasons["sharing"], reasons["phases"]) == ("LinksShared", "PhasesMeasured")
    assert fabric_status.link is not None
    assert fabric_status.link.judged_bytes_per_second == pytest.approx(min(beside.values()), abs=1)
