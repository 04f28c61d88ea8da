"""What is read back from a pool's own status: epochs, baselines, history. Verdicts are never read back."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from enum import StrEnum

from kvgate.api.status import BaselineEntry, CapabilityStatus, HistoryEntry, PoolStatus
from kvgate.api.words import Capability
from kvgate.core.target import Toggle

LOOP_WINDOW = timedelta(hours=24)
LONGEST_BACKOFF = timedelta(hours=24)
LONGEST_HISTORY = 10


class Action(StrEnum):
    """What kvgate did, as it stands in the history."""

    ENABLED = "Enabled"
    REVERTED = "Reverted"
    DRIFTED = "Drifted"
    ADOPTED = "Adopted"


def remembered(status: PoolStatus, capability: Capability) -> CapabilityStatus:
    """What was last written about the capability; a fresh one if nothing was."""
    found = (entry for entry in status.capabilities if entry.name is capability)
    return next(found, CapabilityStatus(name=capability))


def baseline_of(status: PoolStatus, toggle: Toggle | None) -> tuple[BaselineEntry, ...]:
    """How the gated fields of this capability stood before our first write; empty when we never wrote."""
    if toggle is None or status.target is None:
        return ()
    ours = {(step.component, step.env) for step in toggle.steps}
    return tuple(entry for entry in status.target.baseline if (entry.component, entry.env) in ours)


def of(history: Iterable[HistoryEntry], capability: Capability, *actions: Action) -> tuple[HistoryEntry, ...]:
    """The entries about one capability, newest first; all actions if none is named."""
    wanted = set(actions) or set(Action)
    return tuple(entry for entry in history if entry.capability is capability and entry.action in wanted)


def recent_rollbacks(status: PoolStatus, capability: Capability, now: datetime) -> tuple[HistoryEntry, ...]:
    rolled = of(status.history, capability, Action.REVERTED)
    return tuple(entry for entry in rolled if now - entry.time < LOOP_WINDOW)


def cooled_down_at(status: PoolStatus, capability: Capability, cooldown: timedelta, now: datetime) -> datetime | None:
    """When enabling may be tried again: the cool-down after the last rollback, doubled for each one before it."""
    rollbacks = recent_rollbacks(status, capability, now)
    if not rollbacks:
        return None
    wait: timedelta = min(cooldown * 2 ** (len(rollbacks) - 1), LONGEST_BACKOFF)
    return rollbacks[0].time + wait


def with_entry(history: tuple[HistoryEntry, ...], entry: HistoryEntry) -> tuple[HistoryEntry, ...]:
    return (entry, *history)[:LONGEST_HISTORY]
