"""The sweep as a fence: meant in the status before it starts, taken up again after a death, cleared once collected."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from kvgate.api.status import SweepStatus
from kvgate.core.extent import how_many
from kvgate.core.judged import Judged
from kvgate.core.judging import Case
from kvgate.core.moments import later
from kvgate.core.steps import Abandon, Collect, Introduce, Measure
from kvgate.core.sweeping import Wait, measuring, sweep_due, wait
from kvgate.core.world import Sweep, WalkerState

LOOK_AGAIN_SECONDS = 2.0
RETRY_SECONDS = 60.0
"""After a sweep could not be started, or while it waits for its turn and nobody calls it sooner."""
MAKING_PATIENCE = timedelta(minutes=5)
"""How long Jobs that are refused are tried again while others of the same sweep exist, and hold other pools up."""
STUCK_PATIENCE = timedelta(minutes=1)
"""How long a walker that finds no device on its node is waited for: a pod that held it may just be going."""
_AT_WORK = frozenset({WalkerState.PENDING, WalkerState.RUNNING})


@dataclass(frozen=True)
class Sweeping:
    """What this turn does about measuring, the fence that it leaves in the status, and what a due sweep waits for.

    `retries` says that one is due and could not be started, or may not be.
    """

    step: Measure | Introduce | Collect | Abandon | None = None
    fence: SweepStatus | None = None
    wait: Wait | None = None
    retries: bool = False


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
    if case.world.sweep_problem:
        return Sweeping(retries=True)
    waits = wait(case, judged)
    if waits is not None:
        return Sweeping(wait=waits)
    begun = SweepStatus(
        run_id=measure.run_id,
        started_at=case.now,
        reason=measure.reason,
        extent=measure.extent,
        number=measure.number,
    )
    return Sweeping(measure, begun)


def _under_way(case: Case, fence: SweepStatus, *, may_start: bool) -> Sweeping:
    sweep = case.world.sweep
    if sweep is None and _arrived(case, fence):
        return Sweeping()
    if sweep is None:
        return _again(case, fence, may_start=may_start)
    if not fence.jobs and not _arrived(case, fence):
        return _recorded(case, fence, sweep)
    return Sweeping(next_step(case, sweep), fence)


def _arrived(case: Case, fence: SweepStatus) -> bool:
    return any(evidence.run_id == fence.run_id for evidence in case.world.evidence)


def _again(case: Case, fence: SweepStatus, *, may_start: bool) -> Sweeping:
    """Nothing runs of what was meant: start it under its own name. Where nothing is to be measured any more, its time
    is up or it may not be started, the fence falls, so that others get their turn."""
    if not how_many(case) or _overdue(case, fence.started_at):
        return Sweeping()
    if case.world.sweep_problem:
        return Sweeping(retries=True)
    return Sweeping(measuring(case, fence) if may_start else None, fence)


def _recorded(case: Case, fence: SweepStatus, sweep: Sweep) -> Sweeping:
    """The Jobs are remembered once all of them exist; until then, making them is tried again, but not for ever. Where
    not one may be made, the sweep is cleared away, so that the fence falls and others get their turn."""
    if case.world.sweep_problem and not case.world.sweep_jobs:
        return Sweeping(Abandon(fence.run_id), fence)
    measure = measuring(case, fence)
    if _seats(measure) <= {(job.node, job.companion) for job in case.world.sweep_jobs} or _given_up(case, fence):
        kept = fence.model_copy(update={"jobs": case.world.sweep_jobs})
        return Sweeping(next_step(case, sweep), kept)
    return Sweeping(measure, fence)


def _seats(measure: Measure) -> frozenset[tuple[str, bool]]:
    """A walker for each node, and a companion where a path does not leave its node."""
    first = ((node, False) for path in measure.paths for node in (path.source, path.destination))
    return frozenset((*first, *((path.source, True) for path in measure.paths if path.same_node)))


def _given_up(case: Case, fence: SweepStatus) -> bool:
    tried = case.now >= later(fence.started_at, MAKING_PATIENCE)
    return _overdue(case, fence.started_at) or (bool(case.world.sweep_problem) and tried)


def next_step(case: Case, sweep: Sweep) -> Introduce | Collect | None:
    """Collect once every walker has ended, or will not start, or time is up; introduce whenever somebody has not been
    told of a partner."""
    patient = case.now < later(sweep.started_at, STUCK_PATIENCE)
    at_work = tuple(str(w) for w in sweep.walkers if w.state in _AT_WORK and (patient or not w.stuck))
    overdue = _overdue(case, sweep.started_at)
    if overdue or not at_work:
        return Collect(sweep.run_id, late=at_work, patient=not overdue)
    untold = any(walker.state is WalkerState.RUNNING and walker.untold for walker in sweep.walkers)
    return Introduce(sweep.run_id) if untold else None


def _overdue(case: Case, started_at: datetime) -> bool:
    timeout: timedelta = case.pool.spec.fabric.schedule.sweep_timeout.delta
    return case.now >= later(started_at, timeout)
