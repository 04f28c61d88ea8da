"""Two nodes and two others over one shaped trunk: what they share is found, named and judged by real measurements."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from kvgate.api.words import Phase
from kvgate.core import fabric_criteria as criteria
from kvgate.core.evidence import Path, Sample
from kvgate.edge.lab import LabNode, lab
from kvgate.edge.localjobs import Host, run_walkers
from kvgate.probe.plan import LinkTest
from kvgate.probe.results import Setting, read_logs
from kvgate_probe.wire import Pair, Schedule
from tests.core.cases import PATHS, RUN, case, evidence, identities, nodes

pytestmark = [
    pytest.mark.local,
    pytest.mark.skipif(sys.platform != "linux", reason="network namespaces are Linux's"),
    pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs root"),
]
TRUNK = 400_000_000
ACCESS = 1_000_000_000
RACK = "topology.kubernetes.io/rack"
TEST = LinkTest(duration_seconds=5, streams=4, port=5201)


def ip(*arguments: str) -> None:
    subprocess.run(("ip", *arguments), check=True, capture_output=True, timeout=30)


@pytest.fixture(scope="module")
def fabric() -> Iterator[dict[str, LabNode]]:
    """p1 and p2 on one switch, d1 and d2 on another, each on 1 Gbit/s; 400 Mbit/s between the switches."""
    with lab(dict.fromkeys(("p1", "p2", "d1", "d2"), ACCESS)) as made:
        by_name = {node.name: node for node in made}
        switch = made[0].switch
        ip("-n", switch, "link", "add", "br1", "type", "bridge")
        ip("-n", switch, "link", "add", "t0", "type", "veth", "peer", "name", "t1")
        for port, bridge in (("t0", "br0"), ("t1", "br1"), (by_name["d1"].port, "br1"), (by_name["d2"].port, "br1")):
            ip("-n", switch, "link", "set", port, "master", bridge)
        for device in ("br1", "t0", "t1"):
            ip("-n", switch, "link", "set", device, "up")
        for port in ("t0", "t1"):
            shaped = ("root", "tbf", "rate", f"{TRUNK}bit", "burst", "256kb", "latency", "50ms")
            command = ("tc", "-n", switch, "qdisc", "add", "dev", port, *shaped)
            subprocess.run(command, check=True, capture_output=True, timeout=30)
        yield by_name


def measured(fabric: dict[str, LabNode], phase: Phase, rounds: tuple[tuple[Path, ...], ...]) -> tuple[Sample, ...]:
    pairs = tuple(tuple(Pair(path.source, path.destination) for path in paths) for paths in rounds)
    schedule = Schedule(RUN, "uid", "iperf3", pairs, TEST.duration_seconds, TEST.streams, TEST.port, phase.value)
    hosts = [Host(node.name, node.address, TEST.port, node.namespace) for node in fabric.values()]
    walked = run_walkers(schedule, hosts, 100)
    assert walked.problems == ()
    addresses = {node.name: frozenset({node.address}) for node in fabric.values()}
    read = read_logs(schedule, walked.logs, Setting(datetime.now(UTC), addresses))
    assert [sample.failure for sample in read.samples] == [None] * sum(map(len, rounds))
    return read.samples


def test_the_trunk_is_found_named_and_judged(fabric: dict[str, LabNode]) -> None:
    one, two, three, four = PATHS
    alone = measured(fabric, Phase.ISOLATED, ((one,), (two,), (three,), (four,)))
    beside = measured(fabric, Phase.CONCURRENT, ((one, four), (two, three)))
    assert all(sample.slot is None for sample in alone)
    assert len({sample.slot for sample in beside}) == 2
    placed = tuple(
        dataclasses.replace(node, labels=((RACK, "a" if node.name.startswith("p") else "b"),)) for node in identities()
    )
    seen = case(
        {"fabric.probe.phases": ["Isolated", "Concurrent"]},
        measured=evidence((*alone, *beside), nodes=placed),
        on=nodes(identities=placed),
    )
    (link,) = seen.shared_links
    assert link.name == "what traffic from rack a to rack b shares"
    assert set(link.at_once) in ({one, four}, {two, three})
    assert link.together == pytest.approx(TRUNK / 8, rel=0.2)
    assert link.oversubscription > 1.5
    assert criteria.sharing_told(seen).reason == "LinksShared"
    assert seen.judged_bytes_per_second is not None
    assert seen.judged_bytes_per_second < 0.75 * TRUNK / 8
    assert [uplink.traffic_share for uplink in seen.uplinks] == [1.0]
