"""The pools whose sweeps wait for others to end: who is called when one has ended."""

from __future__ import annotations

import threading
from collections.abc import Callable

from kvgate.app.ring import Turn
from kvgate.core.steps import Line


class WaitingLine:
    """The longest waiting is called first, and before it those whose sweep confirms a Fail. Whoever is called leaves
    the line and calls the next, whether it sweeps or not, until one finds that it must wait. Safe from any thread.

    A restart empties it: all pools are looked at then, and stand in line again. Whoever is not called looks by itself.
    """

    def __init__(self, call: Callable[[str], None]) -> None:
        self._call = call
        self._waiting: dict[str, Line] = {}
        self._calls = 0
        self._lock = threading.Lock()

    @property
    def calls(self) -> int:
        """How often somebody was to be called so far."""
        return self._calls

    def after(self, key: str, turn: Turn, calls: int) -> None:
        """A pool had its turn, which began after so many calls. Who comes to stand in line while somebody was called
        may have looked before, and is called itself."""
        ended = turn.pool.status.sweep is not None and turn.decision.status.sweep is None
        stood = self._placed(key, turn.decision.line)
        if turn.decision.line and not stood and calls != self._calls:
            self._call(key)
        if ended or (stood and not turn.decision.line):
            self._call_first()

    def gone(self, key: str) -> None:
        """A pool is no more; its sweep may have been the one that others wait for."""
        self._placed(key, Line.NOWHERE)
        self._call_first()

    def _placed(self, key: str, line: Line) -> bool:
        """Whether the pool stood in line before. It keeps its place."""
        with self._lock:
            stood = key in self._waiting
            if line:
                self._waiting[key] = line
            else:
                self._waiting.pop(key, None)
            return stood

    def _call_first(self) -> None:
        with self._lock:
            self._calls += 1
            front = (key for key, line in self._waiting.items() if line is Line.FRONT)
            first = next(front, None) or next(iter(self._waiting), None)
        if first is not None:
            self._call(first)
