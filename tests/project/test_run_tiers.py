"""What becomes of the commands that `make test` starts, above all when someone stops it."""

from __future__ import annotations

import fcntl
import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

import run_tiers
import tiers
from tiers import Counts, Row, Tier

LINGERING = """
import fcntl, pathlib, subprocess, sys
held = open(sys.argv[1], "w")
fcntl.flock(held, fcntl.LOCK_EX)
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], pass_fds=[held.fileno()])
"""
TEARING_DOWN = """
import pathlib, sys, time
try:
    pathlib.Path(sys.argv[1]).write_text("up")
    time.sleep(600)
finally:
    pathlib.Path(sys.argv[1]).write_text("torn down")
"""


def _runner() -> run_tiers.Runner:
    return run_tiers.Runner(run_tiers.child_environment())


def _until(path: Path, seconds: float = 20.0) -> str:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if path.exists() and (text := path.read_text()):
            return text
        time.sleep(0.02)
    raise TimeoutError(path)


def _is_held(path: Path) -> bool:
    """Whether a living process still holds the lock that was taken on the file."""
    with path.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def test_the_exit_code_is_the_commands() -> None:
    assert _runner().run([sys.executable, "-c", "raise SystemExit(7)"]) == 7


def test_what_a_command_left_running_is_ended(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    _runner().run([sys.executable, "-c", LINGERING, str(lock)])
    deadline = time.monotonic() + 10
    while _is_held(lock) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _is_held(lock)


def test_a_stop_lets_the_command_tear_down_and_starts_no_other(tmp_path: Path) -> None:
    runner, state = _runner(), tmp_path / "state"

    def stop_when_up() -> None:
        _until(state)
        runner.stop(signal.SIGINT, None)

    stopper = threading.Thread(target=stop_when_up)
    stopper.start()
    with pytest.raises(run_tiers.StoppedError):
        runner.run([sys.executable, "-c", TEARING_DOWN, str(state)])
    stopper.join()
    assert state.read_text() == "torn down"
    with pytest.raises(run_tiers.StoppedError):
        runner.run([sys.executable, "-c", ""])


def test_the_virtual_environments_commands_come_first() -> None:
    first = run_tiers.child_environment()["PATH"].split(os.pathsep)[0]
    assert Path(first) == run_tiers.SCRIPTS


@pytest.mark.parametrize(
    ("body", "bad"),
    [
        pytest.param("assert mark.exists() or mark.touch()", False, id="what passes at the second try is good"),
        pytest.param("assert False", True, id="what fails twice is not"),
    ],
)
def test_a_failed_test_with_a_real_clock_runs_again(
    body: str, bad: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = local dynamo api cluster\n", "utf-8")
    lines = (
        "import pathlib, pytest",
        f"mark = pathlib.Path({str(tmp_path / 'mark')!r})",
        "pytestmark = pytest.mark.api",
    )
    tests = ("def test_good(): pass", f"def test_other(): {body}")
    (tmp_path / "test_it.py").write_text("\n".join([*lines, *tests]) + "\n", "utf-8")
    monkeypatch.setattr(run_tiers, "ROOT", tmp_path)
    row = run_tiers.Lane(_runner(), strict=True, rows=[])._test(Tier.API)
    assert row.bad is bad
    assert row.counts == (Counts(1, 1) if bad else Counts(2))
    assert "api: once more test_other" in capfd.readouterr().out


def test_both_lanes_run_and_are_shown(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    def ran(lane: run_tiers.Lane, tier: Tier) -> Row:
        lane.runner.run([sys.executable, "-c", f"print('output of {tier}')"], lane.output)
        return Row(tier, 1.0, Counts(1))

    monkeypatch.setattr(run_tiers.Lane, "_tier", ran)
    monkeypatch.setattr(tiers, "refusal", lambda *_: "")
    rows: list[Row] = []
    run_tiers.run_all(_runner(), None, rows, strict=True)
    assert {row.tier for row in rows} == set(Tier)
    shown = capfd.readouterr().out
    assert [tier for tier in Tier if f"output of {tier}" not in shown] == []
