"""`kubectl kvgate audit`: what kvgate did to a pool's deployment and why, in plain words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from kvgate.api.objects import GateApproval
from kvgate.api.status import HistoryEntry
from kvgate.api.words import Capability, Outcome
from kvgate.app.people import reasons
from kvgate.core import text
from kvgate.core.memory import Action
from kvgate.core.world import Pool
from kvgate.edge.cluster.desk import PoolEvent

_THINGS = {
    Capability.ROUTING: "KV routing",
    Capability.DISAGGREGATION: "the prefill/decode split",
    Capability.KV_STORAGE: "external KV storage",
}
_DEEDS = {
    Action.ENABLED: "kvgate switched {thing} on",
    Action.REVERTED: "kvgate switched {thing} back",
    Action.DRIFTED: "another hand took what kvgate had set for {thing}, and kvgate left it so",
    Action.ADOPTED: "kvgate took over {thing}, which was on",
}
_KNOWN = {
    "CriteriaMet": "every criterion passed, an approval stood where one was needed, and nothing delayed it",
    "AdoptedBySpec": "enforcement.adopt is set",
    "EnabledWhilePermitted": "somebody switched it on while the gate permitted it",
    "Overwritten": "another manager wrote another value over it",
    "Removed": "another manager removed it",
    "PoolDeleted": "the pool was being deleted, and rollback.onDelete asks for it",
}
Story = tuple[str, ...]
"""The lines that tell of one transition."""


def transitions(pool: Pool, approvals: Sequence[GateApproval], events: Sequence[PoolEvent]) -> tuple[Story, ...]:
    """Newest first; where nothing was done yet, one story that says so."""
    history = pool.status.history
    if not history:
        nothing = f"kvgate has done nothing to {pool.spec.target_ref.name} for InferencePool {pool.key} yet"
        return ((nothing, *_why(pool)),)
    until = (None, *(entry.time for entry in history))
    spans = zip(history, until, strict=False)
    return tuple(tuple(_story(pool, entry, approvals, _between(events, entry.time, end))) for entry, end in spans)


def _why(pool: Pool) -> Iterable[str]:
    for entry in pool.status.capabilities:
        if entry.held_by:
            yield f"  {entry.name} is held: {reasons.of_held(entry.held_by).means}"


def _story(
    pool: Pool, entry: HistoryEntry, approvals: Sequence[GateApproval], events: Sequence[PoolEvent]
) -> Iterable[str]:
    deed = _DEEDS[Action(entry.action)] if entry.action in tuple(Action) else f"{entry.action}: {{thing}}"
    done = deed.format(thing=_THINGS[entry.capability])
    yield f"{text.moment(entry.time)} {done}: deployment {pool.spec.target_ref.name}, InferencePool {pool.key}"
    why = _KNOWN.get(entry.reason) or reasons.of_finding(entry.reason).means or "see the Events of that time"
    yield f"  because   {entry.reason}: {why}"
    if entry.plan_hash:
        yield f"  plan      {entry.plan_hash}"
    yield from _recorded(entry)
    if entry.action == Action.ENABLED:
        yield from _approved(entry, approvals)
    for event in events:
        yield f"  {event.at} {event.type} {event.reason}: {event.message}"


def _recorded(entry: HistoryEntry) -> Iterable[str]:
    """What the entry itself keeps of the decision; entries of earlier versions keep nothing."""
    if entry.actor:
        yield f"  actor     {entry.actor}"
    told = (*(word for word in entry.findings if not _passes(word)), *_summed(entry.findings))
    for title, words in (("inputs", entry.inputs), ("findings", told), ("patch", entry.patch)):
        for index, word in enumerate(words):
            yield f"  {title if not index else '':<10}{word}"


def _passes(finding: str) -> bool:
    return finding.split()[1:2] == [Outcome.PASS.value]


def _summed(findings: Sequence[str]) -> Iterable[str]:
    """Those that pass, by their criteria alone."""
    passing = [finding.split()[0] for finding in findings if _passes(finding)]
    if passing:
        yield f"{len(passing)} pass: {', '.join(passing)}"


def _approved(entry: HistoryEntry, approvals: Sequence[GateApproval]) -> Iterable[str]:
    """The approvals of that plan that are still there; a deleted one leaves its name in the entry alone."""
    for one in approvals:
        if one.spec.capability is entry.capability and one.spec.plan_hash == entry.plan_hash:
            what = f"{one.metadata.name} by {one.spec.approver} until {text.moment(one.spec.expires_at)}"
            attests = f", attesting {', '.join(one.spec.attestations)}" if one.spec.attestations else ""
            accepts = f", accepting {', '.join(one.spec.accept_inconclusive)}" if one.spec.accept_inconclusive else ""
            yield f"  approved  {what}{attests}{accepts}: {one.spec.reason or 'no reason given'}"


def _between(events: Sequence[PoolEvent], start: datetime, end: datetime | None) -> tuple[PoolEvent, ...]:
    """Events from the transition on until the next one; what has no readable time is in none."""
    return tuple(event for event in events if _within(event.at, start, end))


def _within(written: str, start: datetime, end: datetime | None) -> bool:
    try:
        at = datetime.fromisoformat(written)
    except ValueError:
        return False
    if at.tzinfo is None:
        return False
    return start <= at and (end is None or at < end)
