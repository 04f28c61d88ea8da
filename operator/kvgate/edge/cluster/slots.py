"""Who sweeps now, over all of an operator's pools, and the one lock under which a further sweep may begin."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta

from kvgate.api.quantities import PositiveDuration
from kvgate.api.status import PoolStatus
from kvgate.core.moments import lately, later
from kvgate.core.text import listed
from kvgate.core.world import Pool
from kvgate.dynamo.document import Document, at, text
from kvgate.edge.errors import WriteConflictError

SETTING = "the operator's probe.maxConcurrentSweeps"
KNOWN_FOR = timedelta(seconds=30)
"""How long the word of a list of all pools stands that others sweep; what this process writes is known at once."""
GRACE = timedelta(minutes=10)
"""A fence counts no longer than its sweep may last and this much more: by then its Jobs' own deadlines have ended all
walkers, though nobody may be able to take its turns."""
LONGEST_SWEEP = timedelta(hours=3)


@dataclass(frozen=True)
class _Fence:
    """A sweep that a pool's status means, and until when it counts."""

    key: str
    until: datetime


class SweepSlots:
    """The truth is what the statuses mean. `pools` lists every pool as it is stored; one process at a time uses this,
    the Lease's holder, from many threads."""

    def __init__(self, pools: Callable[[], Iterable[Document]], clock: Callable[[], datetime]) -> None:
        self._pools = pools
        self._clock = clock
        self._begin = threading.Lock()
        self._reading = threading.Lock()
        self._guard = threading.Lock()
        self._fences: dict[str, _Fence] = {}
        self._read_at: datetime | None = None
        self._news: dict[str, _Fence | None] | None = None
        """While a list is under way, by UID, what this process wrote since, and None of pools that went: the list may
        lack it, or hold it still."""

    def waits(self, pool: Pool, most: int) -> str:
        """Which other pools' sweeps fill the limit; empty while a sweep of this pool may begin, as far as is known:
        `begin` makes sure."""
        with self._reading:
            old = self._read_at is not None and not lately(self._read_at, self._clock(), KNOWN_FOR)
            if self._read_at is None or (old and len(self._others(pool.uid)) >= most):
                self._read()
        return _told(self._others(pool.uid), most)

    @contextmanager
    def begin(self, pool: Pool, most: int) -> Iterator[None]:
        """While a fence is written that was not there: nobody else can begin meanwhile, and the others are counted
        anew. Raises WriteConflictError when they fill the limit."""
        with self._begin:
            with self._reading:
                self._read()
            if waits := _told(self._others(pool.uid), most):
                raise WriteConflictError(f"InferencePool {pool.key}: {waits}")
            yield

    def wrote(self, pool: Pool, status: PoolStatus) -> None:
        """This process has written the pool's status."""
        timeout = pool.spec.fabric.schedule.sweep_timeout.delta
        fence = None if status.sweep is None else _Fence(pool.key, _until(status.sweep.started_at, timeout))
        self._learn(pool.uid, fence)

    def forget(self, uid: str) -> None:
        """The pool is gone, and its sweep with it."""
        self._learn(uid, None)

    def gone(self, key: str) -> None:
        """There is no pool of this key. One that went before this process had read it is known by the list alone."""
        with self._guard:
            known = [uid for uid, fence in self._fences.items() if fence.key == key]
        for uid in known:
            self._learn(uid, None)

    def _learn(self, uid: str, fence: _Fence | None) -> None:
        with self._guard:
            self._fences = _with(self._fences, {uid: fence})
            if self._news is not None:
                self._news[uid] = fence

    def _read(self) -> None:
        news: dict[str, _Fence | None] = {}
        with self._guard:
            self._news = news
        try:
            found = {text(at(body, "metadata", "uid")): fence for body in self._pools() if (fence := _fence_of(body))}
            with self._guard:
                self._fences, self._read_at = _with(found, news), self._clock()
        finally:
            with self._guard:
                self._news = None

    def _others(self, uid: str) -> tuple[str, ...]:
        now = self._clock()
        with self._guard:
            standing = [fence.key for other, fence in self._fences.items() if other != uid and now < fence.until]
        return tuple(sorted(standing))


def _with(fences: dict[str, _Fence], news: Mapping[str, _Fence | None]) -> dict[str, _Fence]:
    merged = {**fences, **news}
    return {uid: fence for uid, fence in merged.items() if fence is not None}


def _told(others: tuple[str, ...], most: int) -> str:
    if len(others) < most:
        return ""
    who = f"pool {others[0]} sweeps" if len(others) == 1 else f"pools {listed(others)} sweep"
    return f"{who} now, and {SETTING} is {most}"


def _fence_of(body: Document) -> _Fence | None:
    """None also where it cannot be read: no operator of this version goes on with such a sweep."""
    started, timeout = at(body, "status", "sweep", "startedAt"), at(body, "spec", "fabric", "schedule", "sweepTimeout")
    key = f"{text(at(body, 'metadata', 'namespace'))}/{text(at(body, 'metadata', 'name'))}"
    try:
        moment = datetime.fromisoformat(text(started))
        return None if moment.tzinfo is None else _Fence(key, _until(moment, _span(timeout)))
    except ValueError:
        return None


def _span(timeout: object) -> timedelta:
    try:
        return PositiveDuration.parse(text(timeout)).delta
    except ValueError:
        return LONGEST_SWEEP


def _until(started_at: datetime, timeout: timedelta) -> datetime:
    return later(later(started_at, timeout), GRACE)
