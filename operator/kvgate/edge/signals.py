"""Turns a polite request to end into an exception, so that what a block made is taken down again."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

_POLITE = (signal.SIGTERM, signal.SIGHUP)


@contextmanager
def orderly_end() -> Iterator[None]:
    """In the main thread SIGTERM and SIGHUP raise SystemExit within the block, its code 128 + the signal."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, _leave) for number in _POLITE}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    del frame
    raise SystemExit(128 + number)
