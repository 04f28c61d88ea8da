"""Whether another hand took a field of ours, whether rollbacks repeat, and what opens the gate again."""

from __future__ import annotations

from datetime import datetime

from kvgate.api.status import HistoryEntry
from kvgate.api.words import Capability, Mode
from kvgate.core import memory
from kvgate.core.judging import Case
from kvgate.core.memory import Action
from kvgate.core.moments import later
from kvgate.core.planhash import plan_hash
from kvgate.core.target import Deed, Switch, Toggle


def overwritten(case: Case, capability: Capability, toggle: Toggle | None) -> bool:
    """Whether another hand switched off what we hold on: ours by baseline, off, and no operation in flight.

    Outside Enforce nobody holds it on.
    """
    operation = case.pool.status.operation
    busy = operation is not None and operation.capability is capability
    ours = bool(memory.baseline_of(case.pool.status, toggle))
    held = ours and not busy and case.pool.spec.mode is Mode.ENFORCE
    return held and toggle is not None and toggle.switch in {Switch.OFF, Switch.MIXED}


def drifted(case: Case, capability: Capability, toggle: Toggle | None, digest: str) -> bool:
    """Held as Drifted until the plan changes or a newer approval comes.

    The split drifts at once; routing is re-applied once in a cool-down before it counts.
    """
    if toggle is not None and toggle.switch is Switch.ON:
        return False
    entries = memory.of(case.pool.status.history, capability, Action.DRIFTED)
    if overwritten(case, capability, toggle):
        return not _reapplicable(case, capability, case.now, entries)
    newest = memory.of(case.pool.status.history, capability)[:1]
    if not newest or newest[0].action != Action.DRIFTED or newest[0].plan_hash != digest:
        return False
    again = _reapplicable(case, capability, newest[0].time, entries[1:])
    return not again and not newer_approval(case, capability, digest, newest[0].time)


def rests_until(case: Case, capability: Capability, digest: str) -> datetime | None:
    """Until when fields that another hand took are left alone even by a changed plan: no hand that changes the manifest
    again and again is fought. None where nothing was taken, and after a newer approval."""
    entries = memory.of(case.pool.status.history, capability, Action.DRIFTED, Action.ENABLED)
    taken = [entry for entry in entries if entry.action == Action.DRIFTED]
    if not taken or newer_approval(case, capability, digest, taken[0].time):
        return None
    again = [entry for entry in entries[: entries.index(taken[-1])] if entry.action == Action.ENABLED]
    last = again[:1] if capability is Capability.ROUTING else taken[:1]
    return later(last[0].time, case.pool.spec.rollback.cooldown.delta) if last else None


def removed(toggle: Toggle | None) -> bool:
    """Whether what was taken was removed, all of it, rather than given another value."""
    hands = toggle.hands if toggle else ()
    return bool(hands) and all(hand.deed is Deed.REMOVED for hand in hands)


def _reapplicable(case: Case, capability: Capability, at: datetime, earlier: tuple[HistoryEntry, ...]) -> bool:
    cooldown = case.pool.spec.rollback.cooldown.delta
    return capability is Capability.ROUTING and all(at - entry.time >= cooldown for entry in earlier)


def looping(case: Case, capability: Capability, digest: str, *, settled: bool) -> bool:
    """A second rollback within 24 h; neither the plan changed since, its epoch aside, nor did an approval come."""
    rolled = memory.recent_rollbacks(case.pool.status, capability, case.now)
    if len(rolled) < 2 or newer_approval(case, capability, digest, rolled[0].time):
        return False
    epoch = memory.remembered(case.pool.status, capability).epoch - (capability in memory.RAISES_EPOCH)
    return not settled or plan_hash(case, capability, epoch) in {"", rolled[0].plan_hash}


def newer_approval(case: Case, capability: Capability, digest: str, than: datetime) -> bool:
    """Whether an approval of this plan, not expired, came after that time."""
    return any(
        given.created_at > than and given.spec.plan_hash == digest and given.spec.expires_at > case.now
        for given in case.world.approvals
        if given.spec.capability is capability and given.spec.pool_ref.uid == case.pool.uid
    )
