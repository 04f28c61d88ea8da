"""Holds the Lease, or waits for it: whoever asks is told whether this process may act now."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Protocol

from kvgate.app.operator.election import LEASE_SECONDS, RENEW_SECONDS, RETRY_SECONDS, Move, Sighting, next_move
from kvgate.app.operator.logs import say
from kvgate.dynamo.document import shown
from kvgate.edge.errors import EdgeError, WriteConflictError
from kvgate.edge.leases import LeaseRecord


class NotLeadingError(Exception):
    """Another may be acting by now: what was begun is left as it stands."""


class LeaseStore(Protocol):
    """Where the Lease lies; each call ends within 5 s."""

    def read(self) -> LeaseRecord | None: ...

    def create(self, record: LeaseRecord, now: datetime) -> LeaseRecord: ...

    def replace(self, record: LeaseRecord, now: datetime) -> LeaseRecord: ...


class Leadership:
    """`step` is called by one thread, again and again; `holds` by any. `monotonic` is in seconds."""

    def __init__(
        self, store: LeaseStore, identity: str, monotonic: Callable[[], float], clock: Callable[[], datetime]
    ) -> None:
        self.identity = identity
        self._store = store
        self._monotonic = monotonic
        self._clock = clock
        self._sighting = Sighting(None, monotonic())
        self._stale = True
        self._acts_until = -1.0
        self._answered_until = -1.0
        self._led = False
        self._told_of = ""

    def holds(self) -> bool:
        """Whether this process may act. Turns false by itself when no renewal gets through, whatever hangs."""
        return self._monotonic() < self._acts_until

    def answered(self) -> bool:
        """Whether the API server answered within the time that a Lease stands, holder or not."""
        return self._monotonic() < self._answered_until

    def require(self) -> None:
        if not self.holds():
            raise NotLeadingError

    def step(self) -> None:
        """Renew, take or look, once."""
        try:
            self._try()
            self._answered_until = self._monotonic() + LEASE_SECONDS
        except WriteConflictError:
            self._stale = True
        except EdgeError as error:
            self._stale = True
            say(logging.WARNING, "the lease cannot be reached", reason=str(error), holds=str(self.holds()).lower())
        self._tell()

    def run(self, stop: threading.Event, beat: Callable[[], None]) -> None:
        """Until `stop`."""
        while not stop.is_set():
            self.step()
            beat()
            stop.wait(RETRY_SECONDS)

    def release(self) -> None:
        """Let the Lease go, so that the next one need not wait. Call it when nothing acts any more."""
        if not self.holds():
            return
        self._acts_until = -1.0
        record = self._sighting.record
        try:
            if record is not None and record.holder == self.identity:
                self._store.replace(replace(record, holder=""), self._clock())
        except EdgeError as error:
            say(logging.WARNING, "the lease could not be released and will expire", reason=str(error))
        self._tell()

    def _try(self) -> None:
        """A holder renews on the version that it wrote last, and reads only when that was refused."""
        sent = self._monotonic()
        if self._stale or not self.holds():
            self._sighting = self._sighting.seen_again(self._store.read(), sent)
            self._stale = False
        move = next_move(self.identity, self._sighting, sent)
        if move is Move.WAIT:
            self._acts_until = -1.0
            self._tell_of_holder()
            return
        written = self._write(move)
        self._sighting = self._sighting.seen_again(written, sent)
        self._acts_until = sent + RENEW_SECONDS

    def _write(self, move: Move) -> LeaseRecord:
        now = self._clock()
        record = self._sighting.record
        if move is Move.CREATE or record is None:
            return self._store.create(LeaseRecord(self.identity, LEASE_SECONDS, 0), now)
        if move is Move.RENEW:
            return self._store.replace(record, now)
        taken = LeaseRecord(self.identity, LEASE_SECONDS, record.transitions + 1, record.version)
        return self._store.replace(taken, now)

    def _tell_of_holder(self) -> None:
        """A standby by mistake is noticed by whoever reads its log: the holder is called as its pod is."""
        holder = self._sighting.record.holder if self._sighting.record else ""
        if holder != self._told_of:
            self._told_of = holder
            say(logging.INFO, "another process holds the lease", holder=shown(holder))

    def _tell(self) -> None:
        holds = self.holds()
        if holds != self._led:
            self._led = holds
            say(logging.INFO, "leading: this process acts" if holds else "not leading", identity=self.identity)
