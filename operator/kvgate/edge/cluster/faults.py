"""Why a step of each pool could not be done, in memory alone: the looks after it tell it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

from kvgate.core.moments import lately
from kvgate.edge.errors import MeasureError


class Faults:
    """The last fault by the pool's uid, told for a while."""

    def __init__(self, clock: Callable[[], datetime], told_for: timedelta) -> None:
        self._clock, self._told_for = clock, told_for
        self._kept: dict[str, tuple[datetime, str]] = {}

    @contextmanager
    def noted(self, uid: str) -> Iterator[None]:
        """While a step is done: a MeasureError is kept and raised on, and a step that succeeds ends what was kept."""
        try:
            yield
        except MeasureError as error:
            self._kept[uid] = (self._clock(), str(error))
            raise
        self._kept.pop(uid, None)

    def of(self, uid: str, *, stays: bool = False) -> str:
        """Empty where there is none; one that `stays` is told for as long as nothing succeeds."""
        at, why = self._kept.get(uid, (self._clock(), ""))
        if why and not stays and not lately(at, self._clock(), self._told_for):
            self.forget(uid)
            return ""
        return why

    def forget(self, uid: str) -> None:
        self._kept.pop(uid, None)
