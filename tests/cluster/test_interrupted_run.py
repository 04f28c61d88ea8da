"""A pytest run that is interrupted or killed while its control plane is up."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cluster import leftovers, machine, processes
from tests.cluster.binaries import binary
from tests.cluster.cache import cache_root
from tests.cluster.leftovers import Kind, Ledger
from tests.cluster.processes import Process
from tests.cluster.waiting import eventually

pytestmark = pytest.mark.api

ROOT = Path(__file__).parents[2]
WAITS = """\
import pathlib, time
import pytest

@pytest.mark.api
def test_waits(control_plane):
    pathlib.Path({reached!r}).touch()
    time.sleep(100)
"""


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache whose binaries are the real ones, so that the other runs of this machine are not looked at."""
    binary("kube-apiserver")
    cache = tmp_path / "c"
    cache.mkdir()
    (cache / "bin").symlink_to(cache_root() / "bin")
    monkeypatch.setenv("KVGATE_CACHE", str(cache))
    return cache


@pytest.fixture
def run_that_waits(own_cache: Path, tmp_path: Path) -> subprocess.Popen[str]:
    reached = tmp_path / "reached"
    test = tmp_path / "test_waits.py"
    test.write_text(WAITS.format(reached=str(reached)))
    argv = [sys.executable, "-m", "pytest", "-p", "tests.cluster.fixtures", "-c", "pyproject.toml", "--rootdir=.", test]
    process = subprocess.Popen(
        [str(part) for part in argv],
        cwd=ROOT,
        env={**os.environ, "KVGATE_CACHE": str(own_cache)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    eventually(reached.exists, 60)
    return process


def started_below(cache: Path) -> list[Process]:
    entries = [entry for state in (cache / "run").iterdir() if state.is_dir() for entry in Ledger(state).entries()]
    return [Process(int(entry.name), entry.start_ticks) for entry in entries if entry.kind is Kind.PROCESS]


def states_below(cache: Path) -> list[Path]:
    return [path for path in (cache / "run").iterdir() if path.is_dir()]


@pytest.mark.parametrize(
    "number", [pytest.param(signal.SIGINT, id="Ctrl-C"), pytest.param(signal.SIGTERM, id="SIGTERM")]
)
def test_a_run_that_is_interrupted_ends_its_control_plane(
    run_that_waits: subprocess.Popen[str], own_cache: Path, number: int
) -> None:
    started = started_below(own_cache)
    run_that_waits.send_signal(number)
    run_that_waits.communicate(timeout=60)

    assert len(started) == 4
    assert not [process for process in started if process.runs()]
    assert states_below(own_cache) == []


def test_what_a_killed_run_left_is_cleared_by_the_next(run_that_waits: subprocess.Popen[str], own_cache: Path) -> None:
    started, states = started_below(own_cache), states_below(own_cache)
    run_that_waits.kill()
    run_that_waits.communicate(timeout=60)
    orphaned = [process for process in started if process.runs()]
    cleared = leftovers.clear_abandoned()

    assert len(orphaned) == 4
    assert cleared == states
    assert not [process for process in started if process.runs()]
    assert machine.processes_that_name(str(states[0])) == []


def test_a_run_that_lives_is_left_alone_by_the_next(run_that_waits: subprocess.Popen[str], own_cache: Path) -> None:
    started = started_below(own_cache)
    cleared = leftovers.clear_abandoned()
    alive = [process for process in started if process.runs()]
    run_that_waits.send_signal(signal.SIGINT)
    run_that_waits.communicate(timeout=60)

    assert cleared == []
    assert alive == started


def sleeper(ledger: Ledger) -> Process:
    return ledger.start("sleeper", sys.executable, "-c", "import time; time.sleep(60)")


def ended_by(clear: Callable[[Path], None], ledger: Ledger, process: Process) -> bool:
    clear(ledger.state)
    return not process.runs()


def test_a_pid_that_another_program_has_by_now_is_left_alone(own_cache: Path) -> None:
    bystander = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        ledger = Ledger.open(own_cache / "run/reused")
        ledger.note(Kind.PROCESS, str(bystander.pid), start_ticks=1)
        leftovers.clear(ledger.state)

        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_a_process_started_just_before_the_kill_and_not_yet_noted_is_found_by_its_mark(own_cache: Path) -> None:
    ledger = Ledger.open(own_cache / "run/unnoted")
    process = sleeper(ledger)
    eventually(lambda: process in processes.marked(leftovers.MARK, str(ledger.state)))
    (ledger.state / "ledger.jsonl").unlink()

    assert ended_by(leftovers.clear, ledger, process)


def test_a_ledger_whose_last_line_was_cut_short_is_read_up_to_it(own_cache: Path) -> None:
    ledger = Ledger.open(own_cache / "run/cut")
    process = sleeper(ledger)
    with (ledger.state / "ledger.jsonl").open("a") as lines:
        lines.write('{"kind": "proc')

    assert ended_by(leftovers.clear, ledger, process)
