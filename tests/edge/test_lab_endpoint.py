"""Link and endpoint in one meeting, between namespaces on shaped links: real iperf3, then real ucx_perftest."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from kvgate.api.words import Phase
from kvgate.core.evidence import FailureKind, Layer, Sample
from kvgate.edge.lab import LabNode, lab
from kvgate.edge.localjobs import Host, run_walkers
from kvgate.probe.plan import LinkTest
from kvgate.probe.results import Setting, read_logs
from kvgate_probe.wire import Schedule, Step
from tests.edge.rooted import as_root
from tests.probe.matrix import plan_sweep

pytestmark = [
    pytest.mark.local,
    pytest.mark.skipif(sys.platform != "linux", reason="network namespaces are Linux's"),
    as_root,
    pytest.mark.skipif(shutil.which("ucx_perftest") is None, reason="needs ucx-utils"),
]
NIXL = shutil.which("nixl-python")
"""Leads into NIXL's own environment."""
RATE = 500_000_000
PAYLOAD_SHARE = 1448 / 1514
SINGLE, READ = Step("iperf3", 1, 2), Step("ucx_get", 1, 2, piece_bytes=32_768)
HUNGRY = """
import time
while True:
    until = time.monotonic() + 0.07
    while time.monotonic() < until: pass
    time.sleep(0.03)
"""
V6 = "fd00:6b76:{number}::{host}"


@pytest.fixture(scope="module")
def nodes() -> Iterator[tuple[LabNode, ...]]:
    with lab({"p": RATE, "d": RATE}) as made:
        for number, node in enumerate(made, start=1):
            address = V6.format(number=os.getpid() % 9999, host=number)
            in_node = ("ip", "-n", node.namespace, "address", "add", f"{address}/64", "dev", "eth0", "nodad")
            subprocess.run(in_node, check=True)
        yield made


def schedule(*further: Step, seconds: float = 2, most_bytes: int | None = None) -> Schedule:
    test = LinkTest(duration_seconds=seconds, streams=4, port=5201, most_bytes=most_bytes)
    return replace(plan_sweep("run", "uid", ["p"], ["d"], test, Phase.ISOLATED).schedule, further=further)


def walk(nodes: tuple[LabNode, ...], plan: Schedule, addresses: tuple[str, ...] = ()) -> tuple[Sample, ...]:
    ends = zip(nodes, addresses or tuple(node.address for node in nodes), strict=True)
    hosts = [Host(node.name, address, 5201, node.namespace) for node, address in ends]
    walked = run_walkers(plan, hosts, 60)
    assert walked.problems == ()
    known = {host.node: frozenset({host.address}) for host in hosts}
    return read_logs(plan, walked.logs, Setting(datetime.now(UTC), known)).samples


def test_a_pair_meets_once_for_the_link_with_many_streams_and_one_and_for_the_endpoint(
    nodes: tuple[LabNode, ...],
) -> None:
    many, one, read = walk(nodes, schedule(SINGLE, READ))
    assert [(s.layer, s.tool, s.streams) for s in (many, one, read)] == [
        (Layer.LINK, "iperf3", 4),
        (Layer.LINK, "iperf3", 1),
        (Layer.ENDPOINT, "ucx_get", 1),
    ]
    for sample in (many, one, read):
        assert sample.failure is None
        assert sample.bytes_per_second == pytest.approx(RATE / 8 * PAYLOAD_SHARE, rel=0.08)
        assert (sample.interface_bytes or 0) >= (sample.bytes_moved or 0) > 0
        assert (sample.ip_version, sample.mtu, sample.interface) == (4, 1500, "eth0")
        assert sample.round_trip_seconds is not None
        assert 0 < sample.round_trip_seconds < 0.05
    assert (many.congestion, many.segment_bytes) == (one.congestion, 1448)
    assert many.congestion in {"cubic", "bbr", "reno"}
    assert (read.operation, read.transport, read.lanes) == ("get", "tcp", ("tcp/eth0",))
    assert read.set_up_seconds is not None
    assert 0 < read.set_up_seconds < 10


@pytest.mark.skipif(NIXL is None, reason="needs NIXL: .ci/bootstrap test")
@pytest.mark.parametrize("operation", ["read", "write"])
def test_the_real_nixl_moves_blocks_whose_data_arrive(
    operation: str, nodes: tuple[LabNode, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KVGATE_NIXL_PYTHON", str(NIXL))
    link, moved = walk(nodes, schedule(Step("nixl", 1, 3, piece_bytes=32_768, operation=operation)))
    assert (link.failure, moved.failure) == (None, None)
    assert (moved.layer, moved.operation, moved.transport) == (Layer.ENDPOINT, operation, "tcp")
    assert (moved.sums_equal, moved.lanes) == (True, ("tcp/eth0",))
    assert moved.bytes_per_second == pytest.approx(RATE / 8 * PAYLOAD_SHARE, rel=0.15)
    assert moved.set_up_seconds is not None


def test_the_endpoint_is_measured_over_ipv6_too(nodes: tuple[LabNode, ...]) -> None:
    addresses = tuple(V6.format(number=os.getpid() % 9999, host=number) for number in (1, 2))
    link, read = walk(nodes, schedule(READ), addresses)
    assert (link.ip_version, read.ip_version) == (6, 6)
    assert (link.failure, read.failure) == (None, None)
    assert read.bytes_per_second == pytest.approx(RATE / 8 * PAYLOAD_SHARE, rel=0.1)


def test_what_is_read_stays_within_the_sweeps_bytes(nodes: tuple[LabNode, ...]) -> None:
    most = 160_000_000
    link, read = walk(nodes, schedule(replace(READ, seconds=4), most_bytes=most))
    moved = [sample.bytes_moved for sample in (link, read) if sample.failure is None]
    assert sum(filter(None, moved)) <= most
    assert (link.failure, read.failure) == (None, None)
    assert read.seconds == pytest.approx(1, abs=0.8)
    assert "for the operator's probe.maxBytesPerSweep" in str(read.notes)


def test_the_versions_and_the_round_trip_under_load_come_from_the_real_tools(nodes: tuple[LabNode, ...]) -> None:
    link, read = walk(nodes, schedule(READ))
    assert (link.tool_version[:6], read.tool_version[:4]) == ("iperf ", "UCX ")
    assert link.loaded_round_trip_seconds is not None
    assert link.round_trip_seconds is not None
    assert link.loaded_round_trip_seconds > link.round_trip_seconds
    assert read.piece_bytes == 32_768


def test_two_addresses_of_one_host_are_no_path_between_two_nodes(nodes: tuple[LabNode, ...]) -> None:
    """Both walkers stand in one namespace, whose kernel delivers by loopback whatever the addresses are."""
    node, second = nodes[0], "10.99.99.2"
    change = ("ip", "-n", node.namespace, "address")
    subprocess.run((*change, "add", f"{second}/32", "dev", "eth0"), check=True)
    try:
        plan = schedule(READ)
        hosts = [Host("p", node.address, 5201, node.namespace), Host("d", second, 5401, node.namespace)]
        walked = run_walkers(plan, hosts, 60)
        samples = read_logs(plan, walked.logs, Setting(datetime.now(UTC))).samples
    finally:
        subprocess.run((*change, "del", f"{second}/32", "dev", "eth0"), check=True)
    assert len(samples) == 2
    refusals = {FailureKind.WRONG_HOST, FailureKind.COUNTERS_STILL, FailureKind.TOOL_FAILED}
    assert all(sample.failure is not None and sample.failure.kind in refusals for sample in samples), samples
    assert samples[0].failure is not None
    assert samples[0].failure.kind is not FailureKind.TOOL_FAILED


def test_probes_that_lack_the_processor_at_both_ends_are_starved_and_not_slow(nodes: tuple[LabNode, ...]) -> None:
    """Walkers and tools on one core, of which a program of real-time priority takes seven tenths."""
    allowed = os.sched_getaffinity(0)
    core = min(allowed)
    hungry = subprocess.Popen(("chrt", "-f", "1", "taskset", "-c", str(core), sys.executable, "-c", HUNGRY))
    os.sched_setaffinity(0, {core})
    try:
        (link,) = walk(nodes, schedule(seconds=3))
    finally:
        os.sched_setaffinity(0, allowed)
        hungry.kill()
        hungry.wait()
    assert "waited for a processor" in link.starved
    assert {"p:", "d:"} <= set(link.starved.split())


def test_a_black_hole_for_full_packets_is_no_slow_path(nodes: tuple[LabNode, ...]) -> None:
    """The switch's port to the source drops what is larger than its MTU, and nobody is told. Segments leave one by one:
    a bundle that the wire would cut is let through by a virtual port, whatever its size."""
    source = nodes[0]
    resize = ("ip", "-n", source.switch, "link", "set", source.port, "mtu")
    widen = ("ip", "-n", source.namespace, "link", "set", "eth0", "gso_max_segs", "65535", "mtu")
    other = ("ip", "-n", nodes[1].namespace, "link", "set", "eth0", "gso_max_segs", "65535", "mtu")
    for node in nodes:
        whole = ("ip", "-n", node.namespace, "link", "set", "eth0", "mtu", "4000", "gso_max_segs", "1")
        subprocess.run(whole, check=True)
    try:
        link, read = walk(nodes, schedule(replace(READ, seconds=3), seconds=3))
    finally:
        for command in (widen, other, resize):
            subprocess.run((*command, "1500"), check=True)
    assert link.failure is not None
    assert link.failure.kind in {FailureKind.STALLED_FLOW, FailureKind.SERVER_LOST}
    assert read.failure is not None
