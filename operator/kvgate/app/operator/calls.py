"""The requests to the API server that are under way: each is timed, and one that does not end is noticed."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from dataclasses import dataclass

HANGING_SECONDS = 45.0
"""Nine times what a request may take; its timeouts bound the wait for each byte, not the whole."""


@dataclass(frozen=True)
class _Call:
    method: str
    resource: str
    began: float


class Calls:
    """Safe from any thread. `monotonic` is in seconds; `ended` is told method, resource, HTTP status and seconds of
    each request, and 0 for the status of one without an answer."""

    def __init__(
        self, monotonic: Callable[[], float], ended: Callable[[str, str, int, float], None] = lambda *_: None
    ) -> None:
        self._monotonic = monotonic
        self._ended = ended
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._open: dict[int, _Call] = {}

    def begun(self, method: str, resource: str) -> Callable[[int], None]:
        """What is returned is to be called with the HTTP status when the request ends, however it does."""
        call, number = _Call(method, resource, self._monotonic()), next(self._numbers)
        with self._lock:
            self._open[number] = call

        def end(status: int) -> None:
            with self._lock:
                del self._open[number]
            self._ended(method, resource, status, self._monotonic() - call.began)

        return end

    def hanging(self) -> tuple[str, ...]:
        """The requests that have been under way for longer than any may, as method and resource."""
        now = self._monotonic()
        with self._lock:
            late = [call for call in self._open.values() if now - call.began > HANGING_SECONDS]
        return tuple(dict.fromkeys(f"{call.method} {call.resource}" for call in late))
