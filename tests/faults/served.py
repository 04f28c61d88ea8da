"""One life of a pool that the operator serves as a process: SIGKILL ends it again and again, and it is started anew."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from kvgate.app.operator.main import LEASE_NAME
from tests.e2e.running import Operator
from tests.e2e.watching import PoolWatch, Seen
from tests.edge.cluster.yard import Yard
from tests.faults.doubtful import Doubtful
from tests.faults.played import Played
from tests.faults.service import operator

NEVER = float("inf")
FAULTY_SECONDS = 40.0
"""Of each half of a life. Then nothing fails any more: the waits after failures in a row grow to a minute."""
LONGEST_SECONDS = 200.0
"""For each of the two halves of a life."""
STILL_SECONDS = 2.0


@dataclass(kw_only=True)
class Served(Played):
    """What happened to one pool. The process is killed at each of the moments that are left, told in seconds from its
    start, and wherever the plan says so."""

    watch: PoolWatch
    operator: Operator
    left: list[float] = field(default_factory=list)
    _dies_at: float = NEVER

    def start(self) -> None:
        """A process that need not wait for the Lease of the one before it, which has ended."""
        self.yard.kubectl("delete", "lease", LEASE_NAME, "--ignore-not-found")
        self.operator.start(wait=False)
        self._next()

    def doom(self, *moments: float) -> None:
        """Let the process that runs die at the first of them, counted from now."""
        self.left = list(moments)
        self._next()

    def _next(self) -> None:
        self._dies_at = time.monotonic() + self.left.pop(0) if self.left else NEVER

    @property
    def gone(self) -> bool:
        return self.status is not None and self.seen() is None

    @property
    def is_doomed(self) -> bool:
        return self._dies_at != NEVER

    def strike(self) -> None:
        """From any thread: nothing that the process meant to do happens any more."""
        if self.operator.process is not None:
            self.operator.process.kill()

    def until(self, holds: Callable[[], bool]) -> None:
        began = time.monotonic()
        self.plan.over = False
        while not holds():
            seconds = time.monotonic() - began
            assert seconds < LONGEST_SECONDS, f"{self.story()}\n{self.operator.last_words()}"
            self.plan.over = seconds > FAULTY_SECONDS
            self._go_on()
            self.attend()

    def _go_on(self) -> None:
        if time.monotonic() >= self._dies_at:
            self.strike()
        if self.operator.has_died():
            self.deaths += 1
            self.start()
        self._look()

    def _look(self) -> None:
        seen = self.seen()
        self.status = seen.status if seen is not None and seen.current else self.status
        self.faults = [line for line in self.watch.broken() if line.startswith(f"{self.yard.key}:")]

    def seen(self) -> Seen | None:
        return self.watch.latest(self.yard.key)

    def come_to_rest(self) -> None:
        """Until the process that runs has come up, and neither the status nor the target has changed for a while."""
        began = since = time.monotonic()
        held = None
        while time.monotonic() - since < STILL_SECONDS:
            assert time.monotonic() - began < LONGEST_SECONDS, self.story()
            self.plan.over = True
            self._go_on()
            self.attend()
            if not self.operator.ready() or held != self._held():
                held, since = self._held(), time.monotonic()

    def _held(self) -> tuple[Seen | None, int]:
        return self.seen(), self.generation()


@contextmanager
def served(yard: Yard, proxy: Doubtful, directory: Path) -> Iterator[Served]:
    """One that was not started yet. Whatever happens, its process ends here."""
    watch = PoolWatch(yard.access.api_client())
    life = Served(yard, proxy.doubts, watch=watch, operator=operator(yard, proxy.address, directory))
    proxy.kill = life.strike
    watch.start()
    try:
        yield life
    finally:
        if life.operator.process is not None:
            life.operator.kill()
        watch.stop()


def moments(draw: random.Random, count: int, longest_seconds: float) -> list[float]:
    return [draw.uniform(0, longest_seconds) for _ in range(count)]
