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
