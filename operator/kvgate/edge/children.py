"""Child processes that are ended with us: asked first, then made to, and by the kernel where we are killed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence

_PATIENCE_SECONDS = 5.0

Child = subprocess.Popen[bytes]


def dying_with_us() -> tuple[str, ...]:
    """What stands before a command so that the kernel ends it politely when this process is killed."""
    return ("setpriv", "--pdeathsig", "TERM") if sys.platform == "linux" and shutil.which("setpriv") else ()


def end(children: Sequence[Child]) -> None:
    """First ask, then insist. Each child leads a group of its own, whose rest is killed where the child failed."""
    running = [child for child in children if child.poll() is None]
    for child in running:
        _signal(child, signal.SIGTERM)
    ends = time.monotonic() + _PATIENCE_SECONDS
    for child in running:
        try:
            child.wait(max(0.0, ends - time.monotonic()))
        except subprocess.TimeoutExpired:
            _signal(child, signal.SIGKILL)
            child.wait()
    for child in children:
        if child.returncode:
            _signal(child, signal.SIGKILL)


def _signal(child: Child, number: signal.Signals) -> None:
    try:
        os.killpg(child.pid, number)
    except ProcessLookupError:
        return
