"""Whether a tool got the processor that it asked for: what its host, its cgroup and its own threads tell."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from asyncio.subprocess import Process
from dataclasses import dataclass
from pathlib import Path

from kvgate_probe.wire import Load

EVERY_SECONDS = 0.25
PROC, CGROUP = Path("/proc"), Path("/sys/fs/cgroup")
CPU_STATS = ("cpu.stat", "cpu/cpu.stat", "cpu,cpuacct/cpu.stat")
"""Where a pod finds its own cgroup's: version 2, and version 1 under either name."""


@dataclass(frozen=True)
class _Host:
    """Ticks since boot."""

    every: int
    idle: int
    stolen: int


class Meter:
    """Looks at one process until it has ended; the last look counts."""

    def __init__(self, process: Process, proc: Path = PROC, cgroup: Path = CGROUP) -> None:
        self._process, self._proc, self._cgroup = process, proc, cgroup
        self._host, self._held = host_ticks(proc), throttled_seconds(cgroup)
        self._began, self._ended = time.monotonic(), time.monotonic()
        self._used: float | None = None
        self._waited: float | None = None
        self._task = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        while self._process.returncode is None:
            self._look()
            await asyncio.sleep(EVERY_SECONDS)

    def _look(self) -> None:
        ran, waited = thread_times(self._process.pid, self._proc)
        if ran is not None and ran >= (self._used or 0.0):
            self._used, self._waited, self._ended = ran, waited, time.monotonic()

    def stop(self) -> Load:
        """Call before the process is ended: afterwards nothing is left of its threads."""
        self._look()
        self._task.cancel()
        wall = time.monotonic() - self._began
        busy, stolen = _between(self._host, host_ticks(self._proc))
        held = throttled_seconds(self._cgroup)
        seen = max(self._ended - self._began, 1e-6)
        return Load(
            busy=busy,
            stolen=stolen,
            cores=None if self._used is None else self._used / seen,
            waited=None if self._waited is None else min(1.0, self._waited / seen),
            throttled=None if held is None or self._held is None or wall <= 0 else min(1.0, (held - self._held) / wall),
        )


def host_ticks(proc: Path = PROC) -> _Host | None:
    with contextlib.suppress(OSError, ValueError, IndexError):
        ticks = [int(field) for field in (proc / "stat").read_text(encoding="ascii").splitlines()[0].split()[1:9]]
        return _Host(sum(ticks), ticks[3] + ticks[4], ticks[7])
    return None


def thread_times(pid: int, proc: Path = PROC) -> tuple[float | None, float | None]:
    """Seconds that the threads of a process have run, and have waited for a processor while they could run."""
    ran = waited = 0.0
    try:
        for task in os.scandir(proc / str(pid) / "task"):
            fields = (Path(task.path) / "schedstat").read_text(encoding="ascii").split()
            ran, waited = ran + int(fields[0]) / 1e9, waited + int(fields[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return None, None
    return ran, waited


def throttled_seconds(cgroup: Path = CGROUP) -> float | None:
    """How long this cgroup's limit has held it so far."""
    for name in CPU_STATS:
        with contextlib.suppress(OSError, ValueError):
            told = dict(line.split() for line in (cgroup / name).read_text(encoding="ascii").splitlines())
            if "throttled_usec" in told:
                return int(told["throttled_usec"]) / 1e6
            if "throttled_time" in told:
                return int(told["throttled_time"]) / 1e9
    return None


def _between(before: _Host | None, after: _Host | None) -> tuple[float | None, float | None]:
    if before is None or after is None or after.every <= before.every:
        return None, None
    whole = after.every - before.every
    idle, stolen = after.idle - before.idle, after.stolen - before.stolen
    return min(1.0, max(0.0, 1 - idle / whole)), min(1.0, max(0.0, stolen / whole))
