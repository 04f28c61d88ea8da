"""Paths that the newest sweep meant to measure and could not look at: that neither confirms an older failure of theirs,
nor clears it."""

from __future__ import annotations

from dataclasses import replace

from kvgate.api.words import Outcome
from kvgate.core import text
from kvgate.core.apart import failing
from kvgate.core.evidence import FAULTS_OF_THE_PATH, Evidence, Path
from kvgate.core.findings import Concern, Finding
from kvgate.core.judging import Case

NOT_CLEARED = "FailureNotCleared"


def as_before(case: Case) -> Case | None:
    """The case with the last answers of older sweeps, as far as they count, for such paths; None where there are none
    of them."""
    newest, left = case.evidence, frozenset(_unlooked(case))
    if newest is None or not left:
        return None
    older = tuple(_without(sweep, left - answered(sweep)) for sweep in case.world.evidence)
    return replace(case, evidence=_without(newest, left), world=replace(case.world, evidence=older))


def _without(sweep: Evidence, paths: frozenset[Path]) -> Evidence:
    """The sweep as if it had never meant to measure these."""
    planned = tuple(path for path in sweep.planned if path not in paths)
    return replace(sweep, planned=planned, samples=tuple(s for s in sweep.samples if s.path not in paths))


def uncleared(case: Case) -> tuple[Path, ...]:
    """Those of such paths that older answers put among the dead and the slowest."""
    before, unlooked = as_before(case), frozenset(_unlooked(case))
    return tuple(path for path in failing(before) if path in unlooked) if before else ()


def cleared(case: Case, *, failed: bool) -> Finding:
    """`failed` says whether the case fails as before."""
    paths = uncleared(case) if failed else ()
    if not paths:
        what = "no path that failed before went unmeasured in the last sweep"
        return Finding("cleared", Outcome.PASS, "NoFailureLeft", what, Concern.FABRIC)
    what = f"path {text.listed(tuple(map(str, paths)))} failed before, and the last sweep could not look at it"
    why = f"{what}, which neither confirms that nor clears it; the next sweep measures it again"
    return Finding("cleared", Outcome.INCONCLUSIVE, "FailureNotCleared", why, Concern.FABRIC)


def unlooked_once(case: Case) -> tuple[Path, ...]:
    """Those of the uncleared paths of which the sweep before the newest still gave an answer: worth another one now."""
    newest = case.evidence
    older = (e for e in case.world.evidence if newest and e is not newest and e.measured_at <= newest.measured_at)
    last = next(older, None)
    told = answered(last) if last else frozenset[Path]()
    return tuple(path for path in uncleared(case) if path in told)


def answered(sweep: Evidence) -> frozenset[Path]:
    """The paths of which this sweep itself says what they carry, or that they carry nothing."""
    told = (s for s in sweep.samples if s.failure is None or s.failure.kind in FAULTS_OF_THE_PATH)
    return frozenset(sample.path for sample in told)


def _unlooked(case: Case) -> tuple[Path, ...]:
    planned = frozenset(case.evidence.planned) if case.evidence else frozenset()
    return tuple(path for path in case.unanswered if path in planned)
