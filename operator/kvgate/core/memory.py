"""What is read back from a pool's own status: epochs, baselines, history. Verdicts are never read back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import datetime, timedelta
from enum import StrEnum

from kvgate.api.status import BaselineEntry, CapabilityStatus, HistoryEntry, PoolStatus
from kvgate.api.words import Capability
from kvgate.core.moments import later
from kvgate.core.target import Toggle

LOOP_WINDOW = timedelta(hours=24)
LONGEST_BACKOFF = timedelta(hours=24)
LONGEST_HISTORY = 10
KEPT_PER_CAPABILITY = 3
"""Entries that no other capability's may push out: the newest rollback, the enable and the rollback before it."""
RAISES_EPOCH = frozenset({Capability.DISAGGREGATION, Capability.KV_STORAGE})


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


def of_this_target(status: PoolStatus, uid: str) -> PoolStatus:
    """The memory without what was about another deployment of the same name: baseline, operation, permissions,
    and what was measured of it."""
    if status.target is None or not uid or status.target.uid in {"", uid}:
        return status
    fresh = status.target.model_copy(update={"uid": uid, "baseline": ()})
    forgotten = {"target": fresh, "operation": None, "permitted": (), "verifications": (), "monitoring": None}
    return status.model_copy(update=forgotten)


def left_on(status: PoolStatus, capability: Capability) -> bool:
    """Whether the last thing that we did or took over left the capability on."""
    return any(entry.action in {Action.ENABLED, Action.ADOPTED} for entry in of(status.history, capability)[:1])


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
    newest = of(status.history, capability, Action.REVERTED)[:1]
    if not newest:
        return None
    before = max(len(recent_rollbacks(status, capability, now)) - 1, 0)
    doubled: timedelta = min(cooldown, LONGEST_BACKOFF) * 2**before
    return later(newest[0].time, max(cooldown, min(doubled, LONGEST_BACKOFF)))


def with_entry(history: tuple[HistoryEntry, ...], entry: HistoryEntry) -> tuple[HistoryEntry, ...]:
    """Newest first; of too many the oldest goes whose capability has enough others."""
    longer = [entry, *history]
    while len(longer) > LONGEST_HISTORY:
        counts = Counter(kept.capability for kept in longer)
        crowded = [index for index, kept in enumerate(longer) if counts[kept.capability] > KEPT_PER_CAPABILITY]
        del longer[crowded[-1]]
    return tuple(longer)
