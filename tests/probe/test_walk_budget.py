"""The limit on a sweep's bytes, kept by walkers as processes with real iperf3 on loopback."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvgate.api.words import Phase
from kvgate.core.evidence import FailureKind, Sample
from kvgate.probe.plan import LinkTest
from kvgate_probe.budget import Allowance
from kvgate_probe.iperf3_tool import Iperf3
from kvgate_probe.peers import Address
from kvgate_probe.wire import DATA_PORTS, Role, Schedule, Trouble
from tests.probe.matrix import plan_sweep
from tests.probe.test_walk import Start, Walk, free_ports, iperf3, peers_file, read, schedule, walking

pytestmark = pytest.mark.local
MB = 1_000_000
PACE = 25 * MB
"""Bytes per second that each test is paced to: 200 Mbit/s."""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    with walking(tmp_path) as starter:
        yield starter


def plan(decode: str, most_bytes: int | None, prefill: str = "p") -> Schedule:
    test = LinkTest(duration_seconds=3, streams=2, port=7000, paced_bits_per_second=PACE * 8, most_bytes=most_bytes)
    return plan_sweep("run-1", "uid", prefill.split(), decode.split(), test, Phase.ISOLATED).schedule


def walk(sweep: Schedule, folder: Path, start: Start, *, speed: str = "") -> tuple[dict[str, Sample], list[Walk]]:
    """The samples by destination, once every walker has gone through the sweep."""
    nodes = sorted({end for test in sweep.tests() for end in (test.pair.source, test.pair.destination)})
    first = free_ports(walkers=len(nodes))
    ports = {node: first + number * (DATA_PORTS + 1) for number, node in enumerate(nodes)}
    peers = peers_file(folder, ports)
    walks = [start(sweep, node, ports[node], peers) for node in nodes]
    assert [one.wait(120) for one in walks] == [0] * len(nodes)
    reading = read(sweep, *walks)
    assert reading.problems == ()
    return {f"{sample.path}": sample for sample in reading.samples}, walks


def sent(walks: list[Walk]) -> int:
    """What all sources have sent, by their own records."""
    records = [result for one in walks for result in one.results() if result.role is Role.SOURCE]
    return sum(result.sent_bytes or 0 for result in records)


def test_a_sweep_whose_bytes_suffice_is_as_long_as_planned(tmp_path: Path, start: Start) -> None:
    samples, walks = walk(plan("d1 d2", None), tmp_path, start)
    assert [sample.seconds for sample in samples.values()] == pytest.approx([3, 3], abs=0.3)
    for sample in samples.values():
        assert sample.bytes_sent == pytest.approx(3 * PACE, rel=0.1)
        assert not any("maxBytesPerSweep" in note for note in sample.notes)
    assert sent(walks) == sum(sample.bytes_sent or 0 for sample in samples.values())


def test_tests_are_made_shorter_so_that_every_path_gets_its_number(tmp_path: Path, start: Start) -> None:
    """Two tests of 3 s would send 150 MB. The first is a short one, for nothing tells the rate of loopback."""
    most = 95 * MB
    samples, walks = walk(plan("d1 d2", most), tmp_path, start)
    assert [sample.seconds for sample in samples.values()] == pytest.approx([1, 2], abs=0.2)
    for sample in samples.values():
        assert sample.failure is None
        assert sample.bytes_per_second == pytest.approx(PACE, rel=0.05)
    assert [sample.notes[1] for sample in samples.values()] == [
        "tested for 1 of 3 s, for the operator's probe.maxBytesPerSweep",
        "tested for 2 of 3 s, for the operator's probe.maxBytesPerSweep",
    ]
    assert sent(walks) <= most


def test_a_path_for_which_not_a_second_is_left_is_not_measured_and_says_so_with_numbers(
    tmp_path: Path, start: Start
) -> None:
    most = 40 * MB
    samples, walks = walk(plan("d1 d2 d3", most), tmp_path, start)
    first, *others = samples.values()
    assert first.bytes_per_second == pytest.approx(PACE, rel=0.05)
    assert [sample.failure and sample.failure.kind for sample in others] == [FailureKind.BYTE_BUDGET_SPENT] * 2
    for sample in others:
        assert sample.failure is not None
        assert "of the 40000000 bytes of this sender are sent and a second may take" in sample.failure.message
        assert sample.bytes_sent is None
    assert 0.9 * PACE <= sent(walks) <= most
    receivers = [result.trouble for one in walks for result in one.results() if result.role is Role.DESTINATION]
    assert receivers.count(Trouble.BYTE_BUDGET_SPENT) == 2


def test_two_senders_keep_together_to_what_one_sweep_may_send(tmp_path: Path, start: Start) -> None:
    most = 140 * MB
    samples, walks = walk(plan("d1 d2", most, prefill="p1 p2"), tmp_path, start)
    assert all(sample.failure is None for sample in samples.values())
    assert 0.5 * most <= sent(walks) <= most


def test_a_test_that_nobody_could_foretell_is_ended_before_it_has_sent_too_much(tmp_path: Path, start: Start) -> None:
    """A second of it would send 25 MB, and 10 are allowed: the walker looks at the kernel's count meanwhile."""
    most = 10 * MB
    samples, walks = walk(plan("d1", most), tmp_path, start)
    (sample,) = samples.values()
    assert sample.failure is not None
    assert sample.failure.kind is FailureKind.BYTE_BUDGET_SPENT
    assert "at most 10000000 were left" in sample.failure.message
    assert sample.bytes_sent == sent(walks)
    assert 0.3 * most <= sent(walks) <= 1.5 * most


def test_the_kernels_count_is_what_iperf3_says_it_has_sent() -> None:
    port = free_ports()
    tool = Iperf3(schedule().steps[0], "127.0.0.1", PACE * 8)
    with iperf3("-s", "-p", str(port), "-1"):
        time.sleep(0.5)
        ran = asyncio.run(tool.run(Address("127.0.0.1", port), Allowance(2, 1000 * MB)))
    told = json.loads(ran.document)["end"]["sum_sent"]["bytes"]
    assert ran.sent_bytes is not None
    assert told <= ran.sent_bytes <= 1.02 * told
    assert ran.sent_seconds == pytest.approx(2, abs=0.2)
