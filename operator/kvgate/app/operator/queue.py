"""The delay queue between event handlers and workers: a lock and a wait around the schedule's rules."""

from __future__ import annotations

import threading
from collections.abc import Callable

from kvgate.app.operator.schedule import Schedule

SWEEP_EVERY_TAKES = 1000


class DelayQueue:
    """Keys to be worked on, deduplicated; safe from any thread. `clock` gives seconds that never go back."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._schedule = Schedule()
        self._changed = threading.Condition()
        self._closed = False
        self._takes = 0

    def __len__(self) -> int:
        with self._changed:
            return len(self._schedule)

    def add(self, key: str, after_seconds: float = 0.0) -> None:
        """Have the key worked on in so many seconds, or sooner when that was asked for already."""
        with self._changed:
            self._schedule.add(key, self._clock() + after_seconds)
            self._changed.notify()

    def take(self, wait_seconds: float) -> str | None:
        """The next due key, to be given back with `done`; None when there was none in that time, or after `close`."""
        with self._changed:
            until = self._clock() + wait_seconds
            while not self._closed:
                now = self._clock()
                key = self._schedule.take(now)
                if key is not None:
                    self._tidy(now)
                    return key
                if now >= until:
                    break
                due = self._schedule.next_due()
                self._changed.wait(min(until, until if due is None else due) - now)
            return None

    def done(self, key: str, rest_seconds: float = 0.0) -> None:
        """The key's turn is over; whatever asks for it, its next one begins no sooner than after this rest."""
        with self._changed:
            self._schedule.done(key, self._clock() + rest_seconds)
            self._changed.notify()

    def close(self) -> None:
        """Nobody gets a key from now on."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _tidy(self, now: float) -> None:
        self._takes += 1
        if self._takes % SWEEP_EVERY_TAKES == 0:
            self._schedule.forget_rests(now)
