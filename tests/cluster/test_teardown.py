"""A cluster that ends, is interrupted or is killed leaves the machine as it was; each test brings up its own."""

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cluster import machine
from tests.cluster.binaries import binary
from tests.cluster.leftovers import Kind, Ledger
from tests.cluster.processes import Process
from tests.cluster.waiting import eventually

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parents[2]
PENDING_SECONDS = 20.0
HOLD_A_POD = """\
apiVersion: v1
kind: Pod
metadata: {name: holds}
spec:
  automountServiceAccountToken: false
  terminationGracePeriodSeconds: 600
  containers:
    - name: holds
      image: kvgate.dev/probe:test
      imagePullPolicy: Never
      command: [python3, -c, "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(9999)"]
      volumeMounts: [{name: memory, mountPath: /tmp}]
  volumes: [{name: memory, emptyDir: {medium: Memory}}]
"""


@dataclass(frozen=True)
class Bench:
    """One cluster of one node, run by the command line as a person would."""

    state: Path

    def begin(self, command: str) -> subprocess.Popen[str]:
        options = ("--rates=1000mbit",) if command == "up" else ()
        argv = [sys.executable, "-m", "tests.cluster", command, f"--state={self.state}", *options]
        return subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def run(self, command: str) -> str:
        """Returns what it printed for a shell to take; its other words are for the person."""
        process = self.begin(command)
        out, err = process.communicate(timeout=100)
        assert process.returncode == 0, err
        return out

    def kubectl(self, *args: str, text: str | None = None) -> str:
        argv = [str(binary("kubectl")), f"--kubeconfig={self.state / 'admin.kubeconfig'}", *args]
        return subprocess.run(argv, input=text, capture_output=True, text=True, check=True, timeout=60).stdout

    def has_started_a_node(self) -> bool:
        return self.state.exists() and (self.state / "n1.log").exists()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path / "s")
    yield made
    made.run("down")


@pytest.fixture
def nothing_is_left(bench: Bench) -> Callable[[], None]:
    """Looks at the machine now, and again when it is called."""
    before, foreign = machine.look(), machine.processes_in_other_namespaces()

    def check() -> None:
        def left() -> object:
            processes = machine.processes_in_other_namespaces() - foreign, machine.processes_that_name(str(bench.state))
            return [*filter(None, (machine.added(before, machine.look()), *processes))]

        try:
            eventually(lambda: not left(), PENDING_SECONDS)
        except AssertionError:
            pytest.fail(f"left behind: {left()}")
        assert not bench.state.exists()

    return check


def test_a_cluster_that_is_taken_down_with_a_pod_that_will_not_end_leaves_nothing(
    bench: Bench, nothing_is_left: Callable[[], None]
) -> None:
    before, foreign = machine.look(), machine.processes_in_other_namespaces()
    said = bench.run("up")
    bench.kubectl("create", "-f", "-", text=HOLD_A_POD)
    bench.kubectl("wait", "--for=condition=Ready", "--timeout=30s", "pod/holds")
    while_up = machine.added(before, machine.look())
    containers = machine.processes_in_other_namespaces() - foreign
    bench.run("down")

    assert said == f"export KUBECONFIG={bench.state / 'admin.kubeconfig'}\n"
    assert while_up.keys() >= {"namespaces", "routes", "links", "cgroups"}, "the look does not see what it should"
    assert containers, "the look does not see what it should"
    nothing_is_left()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["by Ctrl-C", "by SIGTERM"])
def test_a_start_that_is_interrupted_clears_what_it_had_made(
    bench: Bench, nothing_is_left: Callable[[], None], number: int
) -> None:
    starting = bench.begin("up")
    eventually(bench.has_started_a_node, 60)
    starting.send_signal(number)
    _, err = starting.communicate(timeout=60)

    assert (starting.returncode, err.strip().splitlines()[-1]) == (130, "interrupted: what was started is ended")
    nothing_is_left()


def test_a_start_that_is_killed_leaves_what_down_then_clears(bench: Bench, nothing_is_left: Callable[[], None]) -> None:
    starting = bench.begin("up")
    eventually(bench.has_started_a_node, 60)
    starting.kill()
    starting.communicate(timeout=60)
    still_there = [process for process in _started(bench.state) if process.runs()]
    bench.run("down")

    assert still_there, "the killed run had started nothing yet: this test proves nothing"
    nothing_is_left()


def test_a_start_that_is_killed_does_not_hinder_the_next(bench: Bench, nothing_is_left: Callable[[], None]) -> None:
    starting = bench.begin("up")
    eventually(bench.has_started_a_node, 60)
    starting.kill()
    starting.communicate(timeout=60)
    first = _started(bench.state)
    bench.run("up")

    assert not [process for process in first if process.runs()]
    assert "n1" in bench.kubectl("get", "nodes")
    bench.run("down")
    nothing_is_left()


def _started(state: Path) -> list[Process]:
    entries = Ledger(state).entries()
    return [Process(int(e.name), e.start_ticks) for e in entries if e.kind is Kind.PROCESS]
