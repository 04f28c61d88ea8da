"""Who may act: the rules of the Lease, on values, by a clock that the caller reads."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from kvgate.edge.leases import LeaseRecord

LEASE_SECONDS = 15.0
"""Another may act when the Lease was seen unchanged for so long."""
RENEW_SECONDS = 10.0
"""The holder stops acting when its last renewal that succeeded was sent so long ago. A write begun before that ends
within its own 5 s, so before another may begin."""
RETRY_SECONDS = 2.0
"""How often the holder renews and others look."""


class Move(StrEnum):
    CREATE = "create"
    RENEW = "renew"
    TAKE = "take"
    WAIT = "wait"


@dataclass(frozen=True)
class Sighting:
    """A Lease and when, on our own clock, it was first seen so. Its holder's clock is never compared with ours."""

    record: LeaseRecord | None
    since_seconds: float

    def seen_again(self, record: LeaseRecord | None, now_seconds: float) -> Sighting:
        return self if record == self.record else Sighting(record, now_seconds)


def next_move(identity: str, sighting: Sighting, now_seconds: float) -> Move:
    record = sighting.record
    if record is None:
        return Move.CREATE
    if record.holder == identity:
        return Move.RENEW
    expired = now_seconds - sighting.since_seconds >= max(record.duration_seconds, LEASE_SECONDS)
    return Move.TAKE if not record.holder or expired else Move.WAIT
