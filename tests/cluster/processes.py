"""Starts programs in sessions of their own and ends them by pid, never mistaking a reused pid for ours."""

import os
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")


@dataclass(frozen=True)
class Process:
    """A pid with the kernel's start time (clock ticks since boot), which tells it from a later one of that number."""

    pid: int
    start_ticks: int

    def runs(self) -> bool:
        return start_ticks(self.pid) == self.start_ticks


def start_ticks(pid: int) -> int | None:
    """When the process started, in clock ticks since boot; None when there is none or nothing of it still runs."""
    entry = PROC / str(pid)
    try:
        state, *fields = (entry / "stat").read_text().rpartition(")")[2].split()
        ended = state in {"Z", "X"} and len(list((entry / "task").iterdir())) <= 1
    except OSError:
        return None
    return None if ended else int(fields[18])


def this_process() -> Process:
    ticks = start_ticks(os.getpid())
    assert ticks is not None
    return Process(os.getpid(), ticks)


def start(argv: Sequence[str | Path], log: Path, environment: Mapping[str, str]) -> Process:
    """Start a program detached from the terminal's Ctrl-C, with both outputs appended to `log`."""
    with log.open("ab") as output:
        child = subprocess.Popen(
            [str(part) for part in argv],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **environment},
            start_new_session=True,
        )
    child.returncode = 0  # it outlives this object on purpose: it is ended, and reaped, by its pid
    return Process(child.pid, start_ticks(child.pid) or 0)


def ending(process: Process) -> str:
    """How a process of ours ended: " with status 1", " by signal 9"; empty where that cannot be told any more."""
    try:
        pid, status = os.waitpid(process.pid, os.WNOHANG)
    except ChildProcessError:
        return ""
    code = os.waitstatus_to_exitcode(status)
    return f" by signal {-code}" if code < 0 else f" with status {code}" if pid else ""


def kill(processes: Iterable[Process]) -> None:
    """Kill what still runs and return when it is gone. Nothing here holds data that a gentler end would save."""
    named = list(processes)
    running = [process for process in named if process.runs()]
    for process in running:
        _kill(process.pid)
    _wait_until_gone(running, 10.0)
    for process in named:
        _reap(process.pid)
    _let_parents_reap(running, 1.0)


def marked(variable: str, value: str) -> list[Process]:
    """Every process whose environment holds `variable=value`: the children of what we started are found so too."""
    wanted = f"{variable}={value}".encode()
    found = []
    for entry in PROC.iterdir():
        if entry.name.isdigit() and wanted in _environment(entry):
            ticks = start_ticks(int(entry.name))
            found += [Process(int(entry.name), ticks)] if ticks is not None else []
    return found


def _environment(entry: Path) -> list[bytes]:
    try:
        return (entry / "environ").read_bytes().split(b"\0")
    except OSError:
        return []


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _wait_until_gone(processes: Sequence[Process], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while running := [process.pid for process in processes if process.runs()]:
        if time.monotonic() >= deadline:
            raise TimeoutError(f"processes {running} still run {seconds:.0f} s after they were killed")
        time.sleep(0.02)


def _let_parents_reap(processes: Sequence[Process], seconds: float) -> None:
    """Give whoever started these the time to take note, lest their zombies fall to a process 1 that never does."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and any((PROC / str(process.pid)).exists() for process in processes):
        time.sleep(0.02)


def _reap(pid: int) -> None:
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return
