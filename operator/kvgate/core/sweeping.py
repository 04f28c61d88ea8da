"""Whether a sweep is due, over which paths, and why; and what keeps one that is due from starting now."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from kvgate.api.status import SweepStatus
from kvgate.api.words import SweepExtent
from kvgate.core import text
from kvgate.core.apart import apart
from kvgate.core.clearing import NOT_CLEARED, unlooked_once
from kvgate.core.descriptors import descriptor_bytes
from kvgate.core.evidence_criteria import POD_NODES
from kvgate.core.extent import at_once, chosen, how_many, jitter, sample_of, too_few, uses
from kvgate.core.findings import Finding
from kvgate.core.judged import Judged
from kvgate.core.judging import CLOCK_TOLERANCE, Case
from kvgate.core.moments import later
from kvgate.core.pacing import pace
from kvgate.core.runs import run_id
from kvgate.core.steps import Line, Measure
from kvgate.core.switching import Move
from kvgate.core.windows import WindowError, next_opening, window_open

_NOT_COVERED = "NodeNotCovered"
_VOID = frozenset({_NOT_COVERED, "EvidenceOfAnotherPool", "EvidenceOfAnotherRun", "EvidenceExpired"})
ASK = "the annotation kvgate.dev/measure-requested-at asks for one at once"


@dataclass(frozen=True)
class Wait:
    """Why a sweep that is due does not start: until a moment, which may be the opening of a change window, or until
    other pools' sweeps have ended."""

    message: str
    until: datetime | None = None
    line: Line = Line.NOWHERE
    window: bool = False


def sweep_due(case: Case, judged: tuple[Judged, ...]) -> Measure | None:
    """The sweep that should start now; None while suspended, and while there is nothing to measure."""
    if not judged or not how_many(case):
        return None
    reason = _reason(case, judged)
    if not reason:
        return None
    begun = SweepStatus(
        run_id=run_id(case.pool.uid, case.now),
        started_at=case.now,
        reason=reason,
        extent=_extent(case, judged),
        number=case.pool.status.sweeps,
    )
    return measuring(case, begun)


def measuring(case: Case, meant: SweepStatus) -> Measure:
    """The step that starts the sweep which the status means; its paths stay what they are while nothing changes."""
    paths = chosen(case, meant.extent, meant.number, meant.started_at)
    limits, in_use = at_once(case), how_many(case) + sum(not uses(case, path) for path in paths)
    prefill = frozenset(case.world.nodes.prefill)
    return Measure(
        run_id=meant.run_id,
        paths=paths,
        reason=meant.reason,
        extent=meant.extent,
        number=meant.number,
        at_once=limits,
        in_use=in_use,
        prefill=prefill,
        apart=apart(case),
        descriptor_bytes=descriptor_bytes(case),
        pace_bytes_per_second=pace(case),
    )


def _extent(case: Case, judged: tuple[Judged, ...]) -> SweepExtent:
    if requested(case) or case.from_the_future:
        return SweepExtent.ALL
    return SweepExtent.AGAIN if _confirms(judged) else SweepExtent.DUE


def _reason(case: Case, judged: tuple[Judged, ...]) -> str:
    if case.evidence is None:
        return "no evidence yet"
    if case.outdated:
        return "the evidence of the last verdict is gone"
    if requested(case):
        return f"asked for by annotation at {case.pool.measure_requested_at}"
    if _confirms(judged):
        return "the last sweep failed: a second one confirms it or clears it"
    return _too_old(case) or _lacking(case, judged)


def _too_old(case: Case) -> str:
    if case.from_the_future:
        return "the last sweep is dated ahead of this clock"
    age = case.now - _renewed_at(case)
    interval = case.pool.spec.fabric.schedule.interval
    if age < interval.delta + jitter(case):
        return ""
    return f"the last sweep is {text.span(age.total_seconds())} old, interval is {interval}"


def _lacking(case: Case, judged: tuple[Judged, ...]) -> str:
    """What no evidence tells though a sweep could: of a verification's pods, of nodes, of paths."""
    paired = next((entry.chain.sweep for entry in judged if entry.chain and entry.chain.sweep), "")
    if (left := unlooked_once(case)) and any(f.reason == NOT_CLEARED for e in judged for f in e.verdict.findings):
        return f"the last sweep could not look at {text.counted(len(left), 'path')} that failed before"
    void = next((f.reason for e in judged for f in e.verdict.findings if _voids(case, f)), "")
    return paired or (f"the last sweep does not count: {void}" if void else _left_out(case))


def _left_out(case: Case) -> str:
    """Why a sweep is due where all paths in use fit one, and no sweep that counts meant to measure some of them."""
    if case.standing is None or sample_of(case) is not None:
        return ""
    left = how_many(case) - sum(uses(case, path) for path in frozenset(case.standing.evidence.planned))
    return f"no sweep that counts covers {left} of the paths in use" if left else ""


def _renewed_at(case: Case) -> datetime:
    """Since when the interval counts: the oldest number that counts, or the last sweep where samples take turns."""
    if case.evidence is None:
        raise ValueError("nothing was measured yet")
    newest = case.evidence.measured_at
    if case.standing is None or case.standing.since >= newest or sample_of(case) is not None:
        return newest
    told = (sample for sample in case.standing.evidence.samples if uses(case, sample.path))
    return min((sample.measured_at for sample in told), default=newest)


def _confirms(judged: tuple[Judged, ...]) -> bool:
    return any(entry.ruling.move is Move.SWEEP_AGAIN for entry in judged)


def _voids(case: Case, finding: Finding) -> bool:
    """Whether a new sweep would give what this finding lacks, at once and not as one of many to come."""
    if finding.reason == _NOT_COVERED and too_few(case):
        return False
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
    if not confirms and not requested(case) and (closed := _closed(case)):
        return closed
    if case.world.sweep_waits:
        what = f"the sweep of this pool waits for its turn: {case.world.sweep_waits}"
        return Wait(what, line=Line.FRONT if confirms else Line.BACK)
    return None


def _closed(case: Case) -> Wait | None:
    """Where sweeps keep to change windows: until the next one opens. Windows that cannot be read hold nothing up here,
    for TargetResolved tells of them."""
    windows = case.pool.spec.change_windows
    try:
        if not case.pool.spec.fabric.schedule.only_in_change_windows or window_open(windows, case.now):
            return None
        opens = next_opening(windows, case.now)
    except WindowError:
        return None
    when = f"at {text.moment(opens)}" if opens else "never: the pool's owner must correct spec.changeWindows"
    what = f"the next sweep may begin when a change window opens, {when}, for schedule.onlyInChangeWindows is true"
    return Wait(f"{what}; {ASK}", until=opens, window=True)


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
    due = later(_renewed_at(case), case.pool.spec.fabric.schedule.interval.delta + jitter(case))
    return max(max(due, _earliest(case) or due) - case.now, timedelta(0))
