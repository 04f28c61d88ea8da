"""The fence around foreign writes: an operation is recorded first, and settled by what the next look shows."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from datetime import datetime

from kvgate.api.status import BaselineEntry, HistoryEntry, Operation
from kvgate.api.words import Capability, Mode
from kvgate.core import memory
from kvgate.core.audit import recorded
from kvgate.core.drift import overwritten, removed
from kvgate.core.judged import Judged
from kvgate.core.judging import Case
from kvgate.core.memory import Action
from kvgate.core.steps import Enable, Recommend, Revert, Step
from kvgate.core.switching import Move, Stands
from kvgate.core.target import Switch, TargetView

_WRITES = frozenset({Move.ENABLE, Move.REVERT})
"""Moves that an operation carries out, which is named by its move."""


@dataclass(frozen=True)
class Ledger:
    """What this turn leaves behind: history, baseline, epochs, and the operation in flight."""

    history: tuple[HistoryEntry, ...]
    baseline: tuple[BaselineEntry, ...]
    operation: Operation | None
    epochs: dict[Capability, int] = field(default_factory=dict)
    steps: tuple[Step, ...] = ()
    refused_since: datetime | None = None
    """Since when reverts have been refused that take turns."""
    recorded: frozenset[Capability] = frozenset()
    """Capabilities whose last operation was settled in this turn: the next turn judges them anew."""


def settle(case: Case, judged: tuple[Judged, ...]) -> Ledger:
    """First what the last operation came to, then at most one new operation."""
    status = case.pool.status
    baseline = status.target.baseline if status.target else ()
    epochs = {entry.capability: entry.remembered.epoch for entry in judged}
    ledger = _of_gated(case, judged, Ledger(status.history, baseline, status.operation, epochs))
    for entry in judged:
        ledger = _record(case, entry, ledger)
    if case.pool.spec.suspend or case.pool.spec.mode is not Mode.ENFORCE or case.world.claimed_by:
        for entry in judged:
            ledger = _dropped(entry, ledger) if _mine(entry, ledger) else ledger
        return replace(ledger, steps=_recommendations(case, judged))
    way = _giving_way(case, judged, ledger)
    ledger = _given(way, ledger) if way else ledger
    for entry in sorted(judged, key=lambda entry: (entry.ruling.move is not Move.REVERT, entry is way)):
        ledger = ledger if _waits_for_routing(entry, judged, ledger) else _begin(case, entry, ledger)
    return ledger


def _waits_for_routing(entry: Judged, judged: tuple[Judged, ...], ledger: Ledger) -> bool:
    """Whether routing's revert is due as well, and begins in the next turn only. The A/B for which routing is switched
    back is one of the deployment as it is split now: were the split written back first, it would tell nothing any
    more, and routing would stay on."""
    due = {e.capability for e in judged if e.ruling.move is Move.REVERT} & ledger.recorded
    return Capability.ROUTING in due - {entry.capability} and not _mine(entry, ledger)


def _giving_way(case: Case, judged: tuple[Judged, ...], ledger: Ledger) -> Judged | None:
    """Whose operation in flight lets a revert of another capability go first: an enable, for nothing unverified delays
    closing, and a revert that was refused, so that two that are wanted take turns. What may have been written and was
    not seen yet stays in flight."""
    mine = next((entry for entry in judged if _mine(entry, ledger)), None)
    if mine is None or not any(entry.ruling.move is Move.REVERT for entry in judged if entry is not mine):
        return None
    refused = mine.ruling.move is Move.REVERT and bool(case.world.patch_problem)
    return mine if mine.ruling.move is Move.ENABLE or refused else None


def _given(way: Judged, ledger: Ledger) -> Ledger:
    reverting = ledger.operation if way.ruling.move is Move.REVERT else None
    return replace(_dropped(way, ledger), refused_since=reverting.started_at if reverting else None)


def _of_gated(case: Case, judged: tuple[Judged, ...], ledger: Ledger) -> Ledger:
    """An operation on a capability that is no longer gated is nobody's; what it never wrote needs no baseline."""
    operation, target = ledger.operation, case.world.target
    if operation is None or operation.capability in {entry.capability for entry in judged}:
        return ledger
    toggle = target.toggles.get(operation.capability) if isinstance(target, TargetView) else None
    unwritten = memory.baseline_of(case.pool.status, toggle) if toggle and toggle.switch is Switch.OFF else ()
    return replace(ledger, operation=None, baseline=tuple(e for e in ledger.baseline if e not in unwritten))


def _mine(judged: Judged, ledger: Ledger) -> bool:
    return ledger.operation is not None and ledger.operation.capability is judged.capability


def _record(case: Case, judged: Judged, ledger: Ledger) -> Ledger:
    """What happened since the last turn to this capability, as the deployment shows it."""
    operation = ledger.operation if ledger.operation and ledger.operation.capability is judged.capability else None
    switch = judged.toggle.switch if judged.toggle else Switch.UNREADABLE
    if operation and operation.step == Move.ENABLE and switch is Switch.ON:
        return _ended(case, judged, ledger, Action.ENABLED, "CriteriaMet")
    if operation and operation.step == Move.ENABLE and operation.id == case.world.patch_landed:
        return _taken_at_once(case, judged, ledger, switch)
    if operation and operation.step == Move.REVERT and switch is Switch.OFF:
        return _rolled_back(case, judged, ledger)
    if operation is None and switch is Switch.ON and (_unrecorded(judged) or _newly_stored(judged)) and judged.toggle:
        adopted = replace(ledger, baseline=ledger.baseline + judged.toggle.off_values)
        return _noted(case, judged, adopted, Action.ADOPTED, "EnabledWhilePermitted")
    if operation is None and overwritten(case, judged.capability, judged.toggle):
        return _lost_field(case, judged, ledger, switch)
    released = operation is None and switch is Switch.OFF and case.pool.spec.mode is not Mode.ENFORCE
    return _without_baseline(judged, ledger) if released else ledger


def _newly_stored(judged: Judged) -> bool:
    """Storage that its owner has just switched on while the gate permitted it."""
    storage = judged.capability is Capability.KV_STORAGE
    return storage and judged.stands is Stands.ON_OURS and not judged.remembered.enabled


def _unrecorded(judged: Judged) -> bool:
    """On and ours because it was permitted, and not in our books yet."""
    named = judged.toggle is not None and bool(judged.toggle.off_values)
    return judged.stands is Stands.ON_OURS and not judged.baseline and named


def _lost_field(case: Case, judged: Judged, ledger: Ledger, switch: Switch) -> Ledger:
    """Another hand's field is no longer ours to put back; where it took half, the other half still is."""
    if case.pool.spec.suspend:
        return ledger
    kept = ledger if switch is Switch.MIXED else _without_baseline(judged, ledger)
    told = any(entry.action == Action.DRIFTED for entry in memory.of(ledger.history, judged.capability)[:1])
    if told:
        return kept
    return _noted(case, judged, kept, Action.DRIFTED, "Removed" if removed(judged.toggle) else "Overwritten")


def _taken_at_once(case: Case, judged: Judged, ledger: Ledger, switch: Switch) -> Ledger:
    """It was written, and gone before it was seen: written again at every look, it would be a fight."""
    if switch not in {Switch.OFF, Switch.MIXED}:
        return ledger
    ended = _ended(case, judged, ledger, Action.ENABLED, "CriteriaMet")
    return _lost_field(case, judged, ended, switch)


def _ended(case: Case, judged: Judged, ledger: Ledger, action: Action, reason: str) -> Ledger:
    return _noted(case, judged, replace(ledger, operation=None), action, reason)


def _rolled_back(case: Case, judged: Judged, ledger: Ledger) -> Ledger:
    raised = ledger.epochs[judged.capability] + (judged.capability in memory.RAISES_EPOCH)
    epochs = ledger.epochs | {judged.capability: raised}
    cleared = replace(_without_baseline(judged, ledger), epochs=epochs)
    why = ledger.operation.reason if ledger.operation else ""
    return _ended(case, judged, cleared, Action.REVERTED, why or judged.closing_reason)


def _noted(case: Case, judged: Judged, ledger: Ledger, action: Action, reason: str) -> Ledger:
    entry = HistoryEntry(
        time=case.now, action=action, capability=judged.capability, reason=reason, plan_hash=judged.plan_hash
    )
    settled = ledger.recorded | {judged.capability}
    history = memory.with_entry(ledger.history, recorded(case, judged, entry))
    return replace(ledger, history=history, recorded=settled)


def _without_baseline(judged: Judged, ledger: Ledger) -> Ledger:
    return replace(ledger, baseline=tuple(entry for entry in ledger.baseline if entry not in judged.baseline))


def _begin(case: Case, judged: Judged, ledger: Ledger) -> Ledger:
    """At most one operation per target at a time; one that is no longer wanted is dropped."""
    mine = _mine(judged, ledger)
    if judged.capability in ledger.recorded or (ledger.operation is not None and not mine):
        return ledger
    if judged.toggle is None or not judged.toggle.steps:
        return ledger
    if judged.ruling.move is Move.ADOPT:
        adopted = replace(ledger, baseline=ledger.baseline + judged.toggle.off_values)
        return _noted(case, judged, adopted, Action.ADOPTED, "AdoptedBySpec")
    if judged.ruling.move not in _WRITES:
        return _dropped(judged, ledger) if mine else ledger
    return _started(case, judged, ledger, judged.ruling.move)


def _dropped(judged: Judged, ledger: Ledger) -> Ledger:
    off = judged.toggle is not None and judged.toggle.switch is Switch.OFF
    never_written = off and ledger.operation is not None and ledger.operation.step == Move.ENABLE
    kept = _without_baseline(judged, ledger) if never_written else ledger
    return replace(kept, operation=None)


def _started(case: Case, judged: Judged, ledger: Ledger, step: Move) -> Ledger:
    operation = ledger.operation
    if operation is None or operation.step != step or operation.plan_hash != judged.plan_hash:
        operation = _operation(case, judged, step, ledger.refused_since or case.now)
    off = judged.toggle is not None and judged.toggle.switch is Switch.OFF
    kept = () if step is Move.ENABLE and off else _restorable(judged)
    held = kept or _first_baseline(judged, step)
    baseline = (
        ledger.baseline if kept and kept == judged.baseline else _without_baseline(judged, ledger).baseline + held
    )
    steps = (*ledger.steps, _patch(judged, operation, held))
    return replace(ledger, operation=operation, baseline=baseline, steps=steps)


def _restorable(judged: Judged) -> tuple[BaselineEntry, ...]:
    """The baseline, with the off value for an entry whose value does not switch off: the switched-on one would be
    written again and again, and what a status holds that no deployment did is somebody's forgery."""
    if judged.toggle is None:
        return judged.baseline
    words = judged.toggle.off_words
    off = {(entry.component, entry.env): entry for entry in judged.toggle.off_values}
    return tuple(
        entry if not entry.present or entry.value in words else off.get((entry.component, entry.env), entry)
        for entry in judged.baseline
    )


def _first_baseline(judged: Judged, step: Move) -> tuple[BaselineEntry, ...]:
    """How the fields stand before they are written, also where another hand wrote them since they were last looked at;
    what is on and was never ours to write goes back to off."""
    if judged.toggle is None:
        return ()
    return judged.toggle.baseline if step is Move.ENABLE else judged.toggle.off_values


def _patch(judged: Judged, operation: Operation, baseline: tuple[BaselineEntry, ...]) -> Step:
    if operation.step == Move.REVERT:
        return Revert(judged.capability, baseline, operation.id, judged.closing_reason)
    steps = judged.toggle.steps if judged.toggle else ()
    return Enable(judged.capability, steps, operation.id)


def _operation(case: Case, judged: Judged, step: Move, since: datetime) -> Operation:
    seed = f"{case.pool.uid}/{judged.capability}/{step}/{judged.plan_hash}/{case.now.isoformat()}"
    return Operation(
        id=hashlib.sha256(seed.encode()).hexdigest()[:12],
        capability=judged.capability,
        plan_hash=judged.plan_hash,
        step=step,
        reason=judged.closing_reason if step is Move.REVERT else "",
        started_at=since,
    )


def _recommendations(case: Case, judged: tuple[Judged, ...]) -> tuple[Step, ...]:
    """The patch for a person; none while the pool rests, or where an older pool speaks for the target."""
    resting = case.pool.spec.suspend or case.pool.deleted or case.world.claimed_by
    if case.pool.spec.mode is not Mode.RECOMMEND or resting:
        return ()
    wanted = [e for e in judged if e.verdict.settled and e.toggle and e.toggle.steps and e.toggle.switch is Switch.OFF]
    return tuple(Recommend(entry.capability, entry.toggle.steps) for entry in wanted if entry.toggle)
