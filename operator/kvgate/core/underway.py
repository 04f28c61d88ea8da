"""The sweep as a fence: meant in the status before it starts, taken up again after a death, cleared once collected."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from kvgate.api.status import SweepStatus
from kvgate.core.judged import Judged
from kvgate.core.judging import Case
from kvgate.core.moments import later
from kvgate.core.steps import Abandon, Collect, Introduce, Measure
from kvgate.core.sweeping import measurable, sweep_due
from kvgate.core.world import Sweep, WalkerState

LOOK_AGAIN_SECONDS = 2.0
_AT_WORK = frozenset({WalkerState.PENDING, WalkerState.RUNNING})


@dataclass(frozen=True)
class Sweeping:
    """What this turn does about measuring, and the fence that it leaves in the status."""

    step: Measure | Introduce | Collect | Abandon | None = None
    fence: SweepStatus | None = None


def sweeping(case: Case, judged: tuple[Judged, ...], *, may_start: bool) -> Sweeping:
    """Goes on with the sweep that the status means, or starts one that is due."""
    fence = case.pool.status.sweep
    if fence is not None and case.pool.deleted:
        return Sweeping(Abandon(fence.run_id), fence) if case.world.sweep_jobs else Sweeping()
    if fence is not None:
        return _under_way(case, fence, may_start=may_start)
    measure = sweep_due(case, judged) if may_start else None
    if measure is None:
        return Sweeping()
    begun = SweepStatus(run_id=measure.run_id, started_at=case.now, reason=measure.reason)
    return Sweeping(measure, begun)


def _under_way(case: Case, fence: SweepStatus, *, may_start: bool) -> Sweeping:
    sweep = case.world.sweep
    if sweep is None and _arrived(case, fence):
        return Sweeping()
    if sweep is None:
        return _again(case, fence) if may_start else Sweeping(None, fence)
    if not fence.jobs and not _arrived(case, fence):
        return _recorded(case, fence, sweep)
    return Sweeping(next_step(case, sweep), fence)


def _arrived(case: Case, fence: SweepStatus) -> bool:
    return any(evidence.run_id == fence.run_id for evidence in case.world.evidence)


def _again(case: Case, fence: SweepStatus) -> Sweeping:
    """Nothing runs of what was meant: start it under its own name, unless nothing is to be measured any more."""
    paths = measurable(case)
    return Sweeping(Measure(fence.run_id, paths, fence.reason), fence) if paths else Sweeping()


def _recorded(case: Case, fence: SweepStatus, sweep: Sweep) -> Sweeping:
    """The Jobs are remembered once all of them exist; until then, making them is tried again."""
    nodes = {node for path in measurable(case) for node in (path.source, path.destination)}
    if nodes <= {job.node for job in case.world.sweep_jobs} or _overdue(case, sweep):
        kept = fence.model_copy(update={"jobs": case.world.sweep_jobs})
        return Sweeping(next_step(case, sweep), kept)
    return _again(case, fence)


def next_step(case: Case, sweep: Sweep) -> Introduce | Collect | None:
    """Collect once every walker has ended or time is up; introduce whenever somebody has not been told of all."""
    at_work = tuple(walker.node for walker in sweep.walkers if walker.state in _AT_WORK)
    if not at_work:
        return Collect(sweep.run_id)
    if _overdue(case, sweep):
        return Collect(sweep.run_id, late=at_work)
    known = frozenset(walker.node for walker in sweep.walkers if walker.address)
    untold = any(walker.state is WalkerState.RUNNING and not known <= walker.told for walker in sweep.walkers)
    return Introduce(sweep.run_id) if untold else None


def _overdue(case: Case, sweep: Sweep) -> bool:
    timeout: timedelta = case.pool.spec.fabric.schedule.sweep_timeout.delta
    return case.now >= later(sweep.started_at, timeout)
