"""Walkers as local processes: progress told, limits kept, nothing left running, and every end of it said."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from kvgate.api.words import Phase
from kvgate.edge.errors import MeasureError
from kvgate.edge.localjobs import Host, run_walkers
from kvgate.probe.plan import LinkTest, SweepPlan
from kvgate.probe.results import Setting, read_logs
from kvgate_probe.wire import DATA_PORTS
from tests.ports import free_ports
from tests.probe.matrix import plan_sweep
from tests.processes import commands_in_group

pytestmark = pytest.mark.local
PACE = 100_000_000


def sweep(seconds: float = 1, prefill: str = "p", decode: str = "d") -> SweepPlan:
    test = LinkTest(duration_seconds=seconds, streams=1, port=5201, paced_bits_per_second=PACE)
    return plan_sweep("run", "uid", prefill.split(), decode.split(), test, Phase.ISOLATED)


def hosts(plan: SweepPlan) -> list[Host]:
    first = free_ports(len(plan.nodes) * (DATA_PORTS + 1))
    return [Host(node, "127.0.0.1", first + number * (DATA_PORTS + 1)) for number, node in enumerate(plan.nodes)]


def walkers() -> dict[str, int]:
    """Node → pid of this process's own walkers."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_text().split("\0")
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
        if parent == os.getpid() and "kvgate_probe" in words:
            found[words[words.index("--node") + 1]] = int(folder.name)
    return found


def test_a_sweep_over_loopback_is_paced_and_labelled() -> None:
    plan, told = sweep(prefill="p q", decode="d"), []
    walked = run_walkers(plan.schedule, hosts(plan), 60, lambda done, planned: told.append((done, planned)))
    assert walked.problems == ()
    assert sorted(walked.logs) == ["d", "p", "q"]
    reading = read_logs(plan.schedule, walked.logs, Setting(datetime.now(UTC), loopback=True))
    assert [str(sample.path) for sample in reading.samples] == ["p→d", "q→d"]
    for sample in reading.samples:
        assert sample.bytes_per_second == pytest.approx(PACE / 8, rel=0.05)
        assert sample.notes[0] == "paced, not a link: both ends are on one host"
    assert told == sorted(told)
    assert {planned for _, planned in told} == {2}
    assert told[-1] == (2, 2)


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="reads /proc to see what runs")
def test_walkers_at_work_after_the_limit_are_ended_and_named() -> None:
    plan, groups = sweep(seconds=60), {}
    began = time.monotonic()
    walked = run_walkers(plan.schedule, hosts(plan), 3, lambda *_: groups.update(walkers()))
    assert time.monotonic() - began < 12
    assert sorted(walked.problems) == [
        "walker of d: not done after 3 s, ended",
        "walker of p: not done after 3 s, ended",
    ]
    assert len(groups) == 2
    assert [commands_in_group(pid) for pid in groups.values()] == [[], []]
    (sample,) = read_logs(plan.schedule, walked.logs, Setting(datetime.now(UTC), loopback=True)).samples
    assert sample.failure is not None


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="reads /proc to see what runs")
def test_a_killed_walker_is_named_and_takes_its_iperf3_along() -> None:
    plan = sweep(seconds=30)
    seen: dict[str, int] = {}

    def kill(done: int, planned: int) -> None:
        del done, planned
        seen.update({} if seen else _at_a_test())

    def _at_a_test() -> dict[str, int]:
        found = walkers()
        if "p" in found and "iperf3" in commands_in_group(found["p"]):
            os.kill(found["p"], signal.SIGKILL)
            return found
        return {}

    walked = run_walkers(plan.schedule, hosts(plan), 6, kill)
    assert any(problem.startswith("walker of p: exit code -9") for problem in walked.problems)
    assert [commands_in_group(pid) for pid in seen.values()] == [[], []]


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="reads /proc to see what runs")
def test_sigterm_ends_the_walkers_before_it_ends_us() -> None:
    plan, groups = sweep(seconds=60), {}

    def look(done: int, planned: int) -> None:
        del done, planned
        groups.update(walkers())

    timer = threading.Timer(2, os.kill, (os.getpid(), signal.SIGTERM))
    timer.start()
    with pytest.raises(SystemExit) as caught:
        run_walkers(plan.schedule, hosts(plan), 30, look)
    timer.join()
    assert caught.value.code == 128 + signal.SIGTERM
    assert len(groups) == 2
    assert [commands_in_group(pid) for pid in groups.values()] == [[], []]
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_a_taken_port_is_a_problem_of_that_walker_in_its_own_words() -> None:
    plan = sweep()
    there = hosts(plan)
    with socket.create_server(("127.0.0.1", there[0].port)):
        walked = run_walkers(plan.schedule, there, 8)
    named = [problem for problem in walked.problems if problem.startswith(f"walker of {there[0].node}: exit code 1")]
    assert len(named) == 1
    assert "PortInUse" in named[0]


def test_a_tool_that_cannot_be_started_is_a_measure_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    plan = sweep()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MeasureError, match="cannot be started"):
        run_walkers(plan.schedule, [Host("p", "10.0.0.1", 5201, "no-such-namespace")], 5)


def test_the_logs_are_lines_of_json() -> None:
    plan = sweep()
    walked = run_walkers(plan.schedule, hosts(plan), 30)
    assert all(json.loads(line)["runID"] == "run" for log in walked.logs.values() for line in log.splitlines())
