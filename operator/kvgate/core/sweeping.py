"""Whether a sweep is due, over which paths, and why; and what keeps one that is due from starting now."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from kvgate.core import text
from kvgate.core.evidence import Path
from kvgate.core.evidence_criteria import POD_NODES
from kvgate.core.findings import Finding
from kvgate.core.judged import Judged
from kvgate.core.judging import CLOCK_TOLERANCE, Case
from kvgate.core.moments import later
from kvgate.core.runs import run_id
from kvgate.core.steps import Line, Measure
from kvgate.core.switching import Move

_VOID = frozenset({"NodeNotCovered", "EvidenceOfAnotherPool", "EvidenceOfAnotherRun", "EvidenceExpired"})
ASK = "the annotation kvgate.dev/measure-requested-at asks for one at once"


@dataclass(frozen=True)
class Wait:
    """Why a sweep that is due does not start: until a moment, or until other pools' sweeps have ended."""

    message: str
    until: datetime | None = None
    line: Line = Line.NOWHERE


def sweep_due(case: Case, judged: tuple[Judged, ...]) -> Measure | None:
    """The sweep that should start now; None while suspended, and while there is nothing to measure."""
    paths = measurable(case)
    if not judged or not paths:
        return None
    reason = _reason(case, judged)
    return Measure(run_id(case.pool.uid, case.now), paths, reason) if reason else None


def measurable(case: Case) -> tuple[Path, ...]:
    """The paths that a sweep may measure now: none of a node to itself, none while the pool rests."""
    if case.pool.spec.suspend or case.pool.deleted or case.world.claimed_by:
        return ()
    return tuple(path for path in case.world.nodes.paths if not path.same_node)


def _reason(case: Case, judged: tuple[Judged, ...]) -> str:
    if case.evidence is None:
        return "no evidence yet"
    if case.outdated:
        return "the evidence of the last verdict is gone"
    if requested(case):
        return f"asked for by annotation at {case.pool.measure_requested_at}"
    if _confirms(judged):
        return "the last sweep failed: a second one confirms it or clears it"
    age = case.now - case.evidence.measured_at
    interval = case.pool.spec.fabric.schedule.interval
    if age >= interval.delta or case.from_the_future:
        return f"the last sweep is {text.span(age.total_seconds())} old, interval is {interval}"
    paired = next((entry.chain.sweep for entry in judged if entry.chain and entry.chain.sweep), "")
    void = next((f.reason for e in judged for f in e.verdict.findings if _voids(f)), "")
    return paired or (f"the last sweep does not count: {void}" if void else "")


def _confirms(judged: tuple[Judged, ...]) -> bool:
    return any(entry.ruling.move is Move.SWEEP_AGAIN for entry in judged)


def _voids(finding: Finding) -> bool:
    """Whether a new sweep would give what this finding lacks."""
    return finding.reason in _VOID and finding.criterion != POD_NODES


def requested(case: Case) -> bool:
    """Whether a person asked for a sweep that no turn has handled yet."""
    asked = case.pool.measure_requested_at
    return bool(asked) and asked != case.pool.status.last_handled_measure_at


def wait(case: Case, judged: tuple[Judged, ...]) -> Wait | None:
    """What a due sweep waits for. The operator's minInterval holds neither what a person asked for nor the second
    sweep after a Fail, which goes before all others; its maxConcurrentSweeps holds every sweep."""
    confirms = _confirms(judged)
    begins = None if confirms or requested(case) else _earliest(case)
    if begins is not None and case.now < begins:
        least = text.span(case.world.least_sweep_interval.total_seconds())
        what = f"the next sweep may begin at {text.moment(begins)}: the operator's probe.minInterval is {least}"
        return Wait(f"{what}, and {ASK}", until=begins)
    if case.world.sweep_waits:
        what = f"the sweep of this pool waits for its turn: {case.world.sweep_waits}"
        return Wait(what, line=Line.FRONT if confirms else Line.BACK)
    return None


def _earliest(case: Case) -> datetime | None:
    """When the least time after the last sweep that ran is over; None before the first."""
    ended = [evidence.measured_at for evidence in case.world.evidence if evidence.pool_uid == case.pool.uid]
    gone = case.outdated.measured_at if case.outdated else None
    told = (*ended, case.pool.status.last_sweep_at, gone)
    past = [moment for moment in told if moment is not None and moment - case.now <= CLOCK_TOLERANCE]
    return later(max(past), case.world.least_sweep_interval) if past else None


def next_sweep_in(case: Case) -> timedelta | None:
    """How long until the next scheduled sweep is due and may begin; None before the first."""
    if case.evidence is None:
        return None
    due = later(case.evidence.measured_at, case.pool.spec.fabric.schedule.interval.delta)
    return max(max(due, _earliest(case) or due) - case.now, timedelta(0))
