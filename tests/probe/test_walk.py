"""The walker as a process, with real iperf3 on loopback: what it prints when things go well, and when they do not."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from kvgate.api.words import Phase
from kvgate.core.evidence import FailureKind
from kvgate.probe.iperf3_guard import guard
from kvgate.probe.measured import Expected
from kvgate.probe.plan import LinkTest
from kvgate.probe.results import Reading, Setting, read_logs
from kvgate_probe.budget import Allowance
from kvgate_probe.iperf3_tool import Iperf3, error_in
from kvgate_probe.peers import Address
from kvgate_probe.summary import Summary, decode_summary
from kvgate_probe.wire import DATA_PORTS, Result, Schedule, Step, Trouble, decode_line, encode_schedule
from tests import ports
from tests.probe.matrix import plan_sweep
from tests.processes import commands_in_group

pytestmark = pytest.mark.local
PROBES = Path(__file__).parents[2] / "probes"
PACE = 200_000_000
ASK_SECONDS = 1.0
"""Three of them are silence; the walker's own choice is 5 s each."""
Start = Callable[..., "Walk"]


class Walk:
    """One walker process, the leader of a group of its own."""

    def __init__(self, command: Sequence[str], folder: Path, node: str, env: dict[str, str]) -> None:
        self.node, self.termination_log = node, folder / f"{node}.termination"
        self.output = folder / f"{node}.out"
        with self.output.open("wb") as out:
            arguments = [*command, "--termination-log", str(self.termination_log)]
            self.process = subprocess.Popen(
                arguments, stdout=out, stderr=subprocess.STDOUT, start_new_session=True, env=env
            )

    def wait(self, seconds: float = 60) -> int:
        return self.process.wait(seconds)

    def results(self) -> list[Result]:
        lines = [decode_line(line) for line in self.output.read_text().splitlines()]
        return [line for line in lines if isinstance(line, Result)]

    def summary(self) -> Summary:
        summary = decode_summary(self.termination_log.read_text())
        assert isinstance(summary, Summary)
        return summary

    def group(self) -> list[str]:
        """The commands that still run in the walker's process group."""
        return commands_in_group(self.process.pid)


@contextmanager
def walking(folder: Path) -> Iterator[Start]:
    """Starts walkers; ends what is left of their groups."""
    walks: list[Walk] = []

    def start(
        schedule: Schedule, node: str, port: int, peers: Path, *prefix: str, env: dict[str, str] | None = None
    ) -> Walk:
        path = folder / f"{schedule.run_id}.json"
        path.write_text(encode_schedule(schedule))
        probe = (sys.executable, "-m", "kvgate_probe", "walk", "--schedule", str(path), "--peers", str(peers))
        command = (*prefix, *probe, "--node", node, "--port", str(port), "--bind", "127.0.0.1")
        command += ("--ask-seconds", str(ASK_SECONDS))
        walks.append(Walk(command, folder, node, os.environ | {"PYTHONPATH": str(PROBES)} | (env or {})))
        return walks[-1]

    try:
        yield start
    finally:
        for walk in walks:
            if walk.group():
                os.killpg(walk.process.pid, signal.SIGKILL)
            walk.wait()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    with walking(tmp_path) as starter:
        yield starter


def free_ports(walkers: int = 1) -> int:
    """The first port of one walker's block, or of several in a row."""
    return ports.free_ports(walkers * (DATA_PORTS + 1))


def schedule(seconds: float = 1, run_id: str = "run-1", prefill: str = "p", decode: str = "d") -> Schedule:
    test = LinkTest(duration_seconds=seconds, streams=2, port=7000, paced_bits_per_second=PACE)
    return plan_sweep(run_id, "uid", prefill.split(), decode.split(), test, Phase.ISOLATED).schedule


def peers_file(folder: Path, ports: dict[str, int]) -> Path:
    path = folder / "peers.json"
    path.write_text(json.dumps({node: {"address": "127.0.0.1", "port": port} for node, port in ports.items()}))
    return path


def two_ports() -> dict[str, int]:
    first = free_ports(walkers=2)
    return {"p": first, "d": first + DATA_PORTS + 1}


def read(plan: Schedule, *walks: Walk) -> Reading:
    logs = {walk.node: walk.output.read_text() for walk in walks}
    return read_logs(plan, logs, Setting(datetime.now(UTC), loopback=True))


def until(what: Callable[[], bool], seconds: float = 20) -> None:
    ends = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < ends, "it did not come to pass"
        time.sleep(0.05)


def is_at_a_test(walk: Walk) -> bool:
    return "iperf3" in walk.group()


def test_two_walkers_measure_a_paced_path_over_loopback(tmp_path: Path, start: Start) -> None:
    plan, ports = schedule(), two_ports()
    peers = peers_file(tmp_path, ports)
    walks = [start(plan, node, ports[node], peers) for node in ("p", "d")]
    assert [walk.wait() for walk in walks] == [0, 0]
    reading = read(plan, *walks)
    assert reading.problems == ()
    (sample,) = reading.samples
    assert sample.failure is None
    assert sample.bytes_per_second == pytest.approx(PACE / 8, rel=0.05)
    assert sample.notes[0].startswith("paced, not a link")
    assert [walk.summary().measured for walk in walks] == [1, 1]
    source = walks[0].results()[0]
    assert (source.partner_run, source.attempts, source.local_address) == ("run-1", 1, "127.0.0.1")
    if sys.platform == "linux":
        assert source.interface == "lo"
        assert (sample.interface_bytes or 0) > (sample.bytes_moved or 0)


def test_peers_that_become_known_late_and_by_a_swapped_link(tmp_path: Path, start: Start) -> None:
    plan, ports = schedule(), two_ports()
    known, link = peers_file(tmp_path, ports), tmp_path / "mounted"
    walks = [start(plan, node, ports[node], link) for node in ("p", "d")]
    time.sleep(1)
    link.with_suffix(".new").symlink_to(known)
    link.with_suffix(".new").rename(link)
    assert [walk.wait() for walk in walks] == [0, 0]
    assert read(plan, *walks).samples[0].failure is None


@pytest.mark.parametrize("told", ["p", "d"])
def test_sigterm_during_a_test_leaves_a_clear_error_and_no_process(tmp_path: Path, start: Start, told: str) -> None:
    plan, ports = schedule(20), two_ports()
    peers = peers_file(tmp_path, ports)
    walks = {node: start(plan, node, ports[node], peers) for node in ("p", "d")}
    until(lambda: is_at_a_test(walks["p"]))
    time.sleep(1)
    walks[told].process.terminate()
    assert walks[told].wait(10) == 143
    assert walks[told].group() == []
    assert [result.trouble for result in walks[told].results()] == [Trouble.INTERRUPTED]
    assert walks[told].summary().interrupted
    assert [walk.wait(10) for walk in walks.values()].count(0) == 1
    (sample,) = read(plan, *walks.values()).samples
    assert sample.bytes_per_second is None


@pytest.mark.parametrize("victim", ["p", "d"])
def test_an_end_that_dies_during_a_test_leaves_no_number(tmp_path: Path, start: Start, victim: str) -> None:
    plan, ports = schedule(4), two_ports()
    peers = peers_file(tmp_path, ports)
    walks = {node: start(plan, node, ports[node], peers) for node in ("p", "d")}
    until(lambda: is_at_a_test(walks["p"]))
    time.sleep(1)
    os.killpg(walks[victim].process.pid, signal.SIGKILL)
    other = walks["d" if victim == "p" else "p"]
    assert other.wait(20) == 0
    (sample,) = read(plan, *walks.values()).samples
    assert sample.bytes_per_second is None
    assert sample.failure is not None
    assert sample.failure.kind in {FailureKind.SERVER_LOST, FailureKind.PARTNER_LOST}


def test_a_partner_of_another_run_is_refused(tmp_path: Path, start: Start) -> None:
    ours, theirs, ports = schedule(), schedule(run_id="run-0"), two_ports()
    peers = peers_file(tmp_path, ports)
    walks = [start(ours, "p", ports["p"], peers), start(theirs, "d", ports["d"], peers)]
    assert [walk.wait() for walk in walks] == [0, 0]
    assert [walk.results()[0].trouble for walk in walks] == [Trouble.WRONG_RUN, Trouble.WRONG_RUN]
    (sample,) = read(ours, walks[0]).samples
    assert sample.failure is not None
    assert sample.failure.kind is FailureKind.WRONG_RUN


def test_without_iperf3_both_ends_say_so(tmp_path: Path, start: Start) -> None:
    plan, ports = schedule(), two_ports()
    peers = peers_file(tmp_path, ports)
    bare = {"PATH": str(tmp_path)}
    walks = [start(plan, "p", ports["p"], peers, env=bare), start(plan, "d", ports["d"], peers)]
    assert [walk.wait() for walk in walks] == [0, 0]
    assert [walk.results()[0].trouble for walk in walks] == [Trouble.TOOL_MISSING, Trouble.TOOL_MISSING]


def test_without_a_writable_tmp_both_ends_say_so(tmp_path: Path, start: Start) -> None:
    plan, ports = schedule(), two_ports()
    peers = peers_file(tmp_path, ports)
    sealed = {"TMPDIR": str(tmp_path / "missing")}
    walks = [start(plan, "p", ports["p"], peers, env=sealed), start(plan, "d", ports["d"], peers)]
    assert [walk.wait() for walk in walks] == [0, 0]
    (sample,) = read(plan, *walks).samples
    assert sample.failure is not None
    assert sample.failure.kind is FailureKind.TOOL_FAILED
    assert "mount an emptyDir" in sample.failure.message


@pytest.mark.parametrize(
    ("text", "word"),
    [
        pytest.param("not JSON", "schedule: schedule: not JSON", id="not JSON"),
        pytest.param("{}", "version", id="another document"),
        pytest.param(None, "schedule: No such file", id="no file"),
    ],
)
def test_an_unreadable_schedule_is_one_line_and_exit_code_2(tmp_path: Path, text: str | None, word: str) -> None:
    path, log = tmp_path / "schedule", tmp_path / "log"
    if text is not None:
        path.write_text(text)
    done = run_probe("--schedule", str(path), "--peers", str(tmp_path / "peers"), "--node", "p", log=log)
    assert done.returncode == 2
    assert word in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert word in log.read_text()


def test_a_taken_control_port_is_one_line_and_exit_code_1(tmp_path: Path) -> None:
    path = tmp_path / "schedule"
    path.write_text(encode_schedule(schedule()))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        where = ("--node", "p", "--port", port, "--bind", "127.0.0.1")
        done = run_probe("--schedule", str(path), "--peers", str(tmp_path / "peers"), *where, log=tmp_path / "log")
    assert done.returncode == 1
    assert done.stderr.startswith(f"kvgate_probe: PortInUse: control port {port}")
    assert len(done.stderr.splitlines()) == 1


def run_probe(*arguments: str, log: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kvgate_probe", "walk", *arguments, "--termination-log", str(log)]
    env = os.environ | {"PYTHONPATH": str(PROBES)}
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=30, env=env)


@contextmanager
def iperf3(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["iperf3", *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_a_busy_server_is_tried_again_and_then_called_busy() -> None:
    port = free_ports()
    tool = Iperf3(schedule().steps[0], "127.0.0.1")
    with iperf3("-s", "-p", str(port)), iperf3_client(port):
        ran = asyncio.run(tool.run(Address("127.0.0.1", port), Allowance(1)))
    assert (ran.trouble, ran.attempts) == (Trouble.SERVER_BUSY, 6)
    assert not ran.good


@contextmanager
def iperf3_client(port: int) -> Iterator[None]:
    """A stranger that keeps the server at one test."""
    time.sleep(0.5)
    with iperf3("-c", "127.0.0.1", "-p", str(port), "-t", "30", "-b", "1M"):
        time.sleep(0.5)
        yield


def test_iperf3_that_exits_with_0_where_nothing_listens_is_no_measurement() -> None:
    port = free_ports()
    ran = asyncio.run(Iperf3(schedule().steps[0], "127.0.0.1").run(Address("127.0.0.1", port), Allowance(1)))
    assert "refused" in error_in(ran.document)
    assert not ran.good
    outcome = guard(ran.document, Expected("127.0.0.1", 1, 2))
    assert getattr(outcome, "kind", None) is FailureKind.CONNECT_REFUSED


def test_no_free_port_for_the_server_is_called_so() -> None:
    first = free_ports()
    taken = [socket.create_server(("127.0.0.1", first + offset)) for offset in range(1, DATA_PORTS + 1)]
    try:
        ran = asyncio.run(Iperf3(schedule().steps[0], "127.0.0.1").serve(first, Allowance(1), ""))
    finally:
        for one in taken:
            one.close()
    assert getattr(ran, "trouble", None) is Trouble.PORT_IN_USE


def test_a_test_that_never_ends_is_ended_by_the_walker(tmp_path: Path) -> None:
    stuck = tmp_path / "iperf3"
    stuck.write_text("#!/bin/sh\nexec sleep 600\n")
    stuck.chmod(0o755)
    tool = Iperf3(Step("iperf3", 1, 0.2), "127.0.0.1", None, str(stuck), overhead_seconds=0.3)
    began = time.monotonic()
    ran = asyncio.run(tool.run(Address("127.0.0.1", 9), Allowance(0.2)))
    assert time.monotonic() - began < 5
    assert ran.trouble is Trouble.TOOL_FAILED
    assert "did not end within" in ran.message


@pytest.mark.skipif(shutil.which("unshare") is None or os.geteuid() != 0, reason="needs root and unshare")
def test_iperf3_itself_fails_without_a_writable_tmp_and_the_guard_says_what_to_mount() -> None:
    """The same trap without the walker's own look at the directory: iperf3's document, exit code 0."""
    port = free_ports()
    sealed = f"mount -t tmpfs -o ro tmpfs /tmp && exec iperf3 -c 127.0.0.1 -p {port} -J -t 1"
    with iperf3("-s", "-p", str(port), "-1"):
        time.sleep(0.5)
        done = subprocess.run(
            ["unshare", "-m", "sh", "-c", sealed], capture_output=True, text=True, check=False, timeout=30
        )
    assert error_in(done.stdout)
    outcome = guard(done.stdout, Expected("127.0.0.1", 1, 1))
    assert getattr(outcome, "kind", None) is FailureKind.TOOL_FAILED
