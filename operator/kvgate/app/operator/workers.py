"""The threads that turn the ring: each takes a due pool, gives it one turn, and says when to look again."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from kvgate.app.operator.auditing import audited
from kvgate.app.operator.backoff import backoff_seconds
from kvgate.app.operator.leadership import NotLeadingError
from kvgate.app.operator.line import WaitingLine
from kvgate.app.operator.logs import confess, say
from kvgate.app.operator.meters import Meters
from kvgate.app.operator.queue import DelayQueue
from kvgate.app.ring import Clock, Ground, Turn, turn
from kvgate.core.resting import rest_seconds, stands
from kvgate.edge.errors import EdgeError, PoolGoneError, WriteConflictError

REST_SECONDS = 0.2
"""The least time between two turns of a pool, whatever asks for them."""
REST_AFTER_FAILURE_SECONDS = 1.0
SOONEST_SECONDS, LATEST_SECONDS = 0.2, 6 * 3600.0
"""Bounds of what the ring may ask for: never at once for ever, and never not again."""
SECONDS_PER_POOL = 15.0
"""A look asks nine things of the API server. One pool's every so many seconds is less than one request a second."""
WAIT_SECONDS = 1.0
USUAL_CONFLICTS = 3
"""So many in a row are no news: a cache that lags, or a person who edits."""


@dataclass(frozen=True)
class Next:
    """When the pool's next turn is due at the latest, and how soon one may begin whatever happens."""

    after_seconds: float | None
    rest_seconds: float = REST_SECONDS


@dataclass(frozen=True)
class Office:
    """What workers share. `fraction` gives a random number from 0 to 1, `monotonic` seconds that never go back."""

    queue: DelayQueue
    ground: Ground
    clock: Clock
    leads: Callable[[], bool]
    gone: Callable[[str], None]
    fraction: Callable[[], float] = random.random
    meters: Meters = field(default_factory=Meters)
    monotonic: Callable[[], float] = time.monotonic
    pools: Callable[[], int] = lambda: 1
    """How many there are: the more, the longer each is left alone while it is at rest."""


class Workers:
    """Turns of all pools. A pool is with one worker at a time: the queue sees to that."""

    def __init__(self, office: Office) -> None:
        self._office = office
        self._failures: dict[str, int] = {}
        self._line = WaitingLine(office.queue.add)

    def run(self, stop: threading.Event, beat: Callable[[], None]) -> None:
        """One worker's life: until `stop`, and never beyond an error of one pool."""
        office = self._office
        while not stop.is_set():
            beat()
            if not office.leads():
                stop.wait(WAIT_SECONDS)
                continue
            key = office.queue.take(WAIT_SECONDS)
            if key is not None:
                self.serve(key)

    def serve(self, key: str) -> None:
        """One turn of a pool that was taken from the queue, which gets it back."""
        after = self._turn(key)
        if after.after_seconds is not None:
            self._office.queue.add(key, after.after_seconds)
        self._office.queue.done(key, after.rest_seconds)

    def _turn(self, key: str) -> Next:
        office = self._office
        began, calls = office.monotonic(), self._line.calls
        try:
            done = turn(office.ground, key, office.clock, audited)
            self._line.after(key, done, calls)
            after_seconds = min(max(self._rest_of(done), SOONEST_SECONDS), LATEST_SECONDS)
        except NotLeadingError:
            return Next(0.0)
        except PoolGoneError:
            self._failures.pop(key, None)
            self._line.gone(key)
            office.gone(key)
            office.meters.gone(key)
            return Next(None)
        except Exception as error:  # noqa: BLE001  a fault in one pool's turn must not end the others'
            after = self._failed(key, error)
            office.meters.turned(key, office.monotonic() - began, failures=self._failures[key])
            return after
        self._failures.pop(key, None)
        office.meters.turned(key, office.monotonic() - began)
        return Next(after_seconds)

    def _rest_of(self, done: Turn) -> float:
        """A status that was written and would be judged the same brings no turn of its own. Of those that looked
        together, as after a start, each looks again at a time of its own."""
        wrote = done.decision.status != done.pool.status
        if wrote and not stands(done.pool, done.world, done.decision, done.at):
            return SOONEST_SECONDS
        share = self._office.pools() * SECONDS_PER_POOL * (1 - self._office.fraction() / 3)
        return rest_seconds(done.pool, done.world, done.decision, done.at, min(share, LATEST_SECONDS))

    def _failed(self, key: str, error: Exception) -> Next:
        failures = self._failures.get(key, 0) + 1
        self._failures[key] = failures
        seconds = backoff_seconds(failures, self._office.fraction())
        if not isinstance(error, EdgeError):
            confess("the turn failed by a fault of kvgate's", error, pool=key, failures=failures)
        else:
            usual = isinstance(error, WriteConflictError) and failures <= USUAL_CONFLICTS
            level = logging.DEBUG if usual else logging.WARNING
            seconds = min(seconds, max(error.within_seconds, REST_AFTER_FAILURE_SECONDS))
            say(level, "the turn failed", pool=key, reason=str(error), failures=failures, again=round(seconds, 1))
        return Next(seconds, REST_AFTER_FAILURE_SECONDS)
