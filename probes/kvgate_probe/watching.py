"""Counts what a running process writes, and ends it before that is more than it may be."""

from __future__ import annotations

import asyncio
import contextlib
from asyncio.subprocess import Process
from pathlib import Path

EVERY_SECONDS = 0.05


class Watch:
    """What a process has written so far, by the kernel's count; None where the system does not tell."""

    def __init__(self, process: Process, most_bytes: int | None) -> None:
        self._process, self._most = process, most_bytes
        self._began = asyncio.get_running_loop().time()
        self.written: int | None = None
        self.seconds = 0.0
        self.stopped = False

    async def run(self) -> None:
        """Until the process has ended. It is ended here once another look might find too much."""
        while self._process.returncode is None:
            before = self.written or 0
            self._look()
            if self._most is not None and self.written is not None and 2 * self.written - before >= self._most:
                self._stop()
                return
            await asyncio.sleep(EVERY_SECONDS)

    def _look(self) -> None:
        written = written_by(self._process.pid)
        if written is not None:
            self.written, self.seconds = written, asyncio.get_running_loop().time() - self._began

    def _stop(self) -> None:
        self.stopped = True
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()


def written_by(pid: int, proc: Path = Path("/proc")) -> int | None:
    """Bytes that the process has handed to the kernel, to sockets among others."""
    with contextlib.suppress(OSError, ValueError):
        for line in (proc / str(pid) / "io").read_text(encoding="ascii").splitlines():
            name, _, count = line.partition(":")
            if name == "wchar":
                return int(count)
    return None
