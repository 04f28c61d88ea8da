"""The routing A/B as a fence: meant in the status before its Job is made, taken up again after a death, collected."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from kvgate.api.status import BenchmarkRun
from kvgate.api.words import Capability, Outcome
from kvgate.core.ab.evidence import BenchmarkGround
from kvgate.core.benchmark_criteria import chosen, void, workload
from kvgate.core.digests import digest
from kvgate.core.judged import Judged
from kvgate.core.judging import Case
from kvgate.core.moments import later
from kvgate.core.runs import JobState, run_id
from kvgate.core.steps import AbandonBenchmark, CollectBenchmark, StartBenchmark
from kvgate.core.target import TargetView
from kvgate.core.windows import WindowError, window_open

LOOK_AGAIN_SECONDS = 10.0
REST = timedelta(hours=1)
"""After an A/B was begun and proved nothing, before the next."""
LONGEST = timedelta(hours=12)
"""After this an A/B whose Job never came is given up."""
_EVENTS_ALLOW = frozenset({Outcome.PASS, Outcome.INCONCLUSIVE})


@dataclass(frozen=True)
class Benchmarking:
    """What this turn does about the A/B, and the fence that it leaves in the status."""

    step: StartBenchmark | CollectBenchmark | AbandonBenchmark | None = None
    fence: BenchmarkRun | None = None


def benchmarking(case: Case, judged: tuple[Judged, ...], *, may_start: bool) -> Benchmarking:
    """Goes on with the A/B that the status means, or starts one that is due."""
    fence = case.pool.status.benchmark
    if fence is not None:
        return _under_way(case, fence, may_start=may_start)
    ground = case.world.benchmark_ground
    if not may_start or ground is None or not due(case, judged, ground):
        return Benchmarking()
    begun = _begun(case, ground)
    return Benchmarking(StartBenchmark(begun.run_id), begun)


def _begun(case: Case, ground: BenchmarkGround) -> BenchmarkRun:
    target = case.world.target
    toggle = target.toggles.get(Capability.ROUTING) if isinstance(target, TargetView) else None
    return BenchmarkRun(
        run_id=run_id(case.pool.uid, case.now, "ab"),
        started_at=case.now,
        ran_on=ground.ran_on,
        on_live=ground.on_live,
        generation=ground.generation,
        cards=ground.cards,
        target_uid=target.uid if isinstance(target, TargetView) else "",
        projection=digest(toggle.projection) if toggle else "",
        split=target.split if isinstance(target, TargetView) else "",
        workload=workload(case),
    )


def due(case: Case, judged: tuple[Judged, ...], ground: BenchmarkGround) -> bool:
    """Whether an A/B should start now: something to prove, and a deployment on which it can be proved."""
    return (
        not ground.problem
        and not resting(case)
        and _allowed_now(case, on_live=ground.on_live)
        and _events_flow(judged)
        and _rested(case)
        and _wanted(case)
    )


def resting(case: Case) -> bool:
    """Suspended, deleted and doubly claimed pools run nothing, nor does one whose target is not known."""
    unknown = not isinstance(case.world.target, TargetView) or not case.world.target.uid
    gated = case.pool.spec.criteria.routing is not None
    return case.pool.spec.suspend or case.pool.deleted or bool(case.world.claimed_by) or unknown or not gated


def _allowed_now(case: Case, *, on_live: bool) -> bool:
    """What users share is used inside change windows alone; a pool without windows has none to use it in."""
    windows = case.pool.spec.change_windows
    try:
        return not on_live or (bool(windows) and window_open(windows, case.now))
    except WindowError:
        return False


def _events_flow(judged: tuple[Judged, ...]) -> bool:
    """Without KV events the A/B would be void."""
    routing = next((entry for entry in judged if entry.capability is Capability.ROUTING), None)
    found = [f for f in routing.verdict.findings if f.criterion == "kvEvents"] if routing else []
    return bool(found) and all(finding.outcome in _EVENTS_ALLOW for finding in found)


def _rested(case: Case) -> bool:
    last = case.pool.status.last_benchmark_at
    return last is None or case.now >= later(last, REST)


def _wanted(case: Case) -> bool:
    kept = chosen(case)
    if kept is None or void(case, kept):
        return True
    return case.now >= later(kept.measured_at, case.pool.spec.fabric.schedule.interval.delta)


def _under_way(case: Case, fence: BenchmarkRun, *, may_start: bool) -> Benchmarking:
    job = case.world.benchmark_job
    arrived = any(entry.run_id == fence.run_id for entry in case.world.benchmarks)
    if arrived or resting(case):
        return Benchmarking(AbandonBenchmark(fence.run_id), fence) if job else Benchmarking()
    if job is None:
        return _again(case, fence, may_start=may_start)
    kept = fence if fence.job_uid else fence.model_copy(update={"job_uid": job.uid})
    if job.uid != kept.job_uid:
        return Benchmarking(AbandonBenchmark(fence.run_id), kept)
    if job.state is JobState.ENDED:
        return Benchmarking(CollectBenchmark(fence.run_id), kept)
    if not _allowed_now(case, on_live=fence.on_live):
        return Benchmarking(CollectBenchmark(fence.run_id, aborted="the change window closed"), kept)
    return Benchmarking(None, kept)


def _again(case: Case, fence: BenchmarkRun, *, may_start: bool) -> Benchmarking:
    """Nothing runs of what was meant: make its Job under its own name. One that was there and is gone has nothing left
    to collect; and what cannot be started, or changed before it was, is begun anew another time."""
    ground = case.world.benchmark_ground
    lost = bool(fence.job_uid) or case.now >= later(fence.started_at, LONGEST)
    if lost or ground is None or ground.problem or _differs(case, fence, ground):
        return Benchmarking()
    return Benchmarking(StartBenchmark(fence.run_id) if may_start else None, fence)


def _differs(case: Case, fence: BenchmarkRun, ground: BenchmarkGround) -> bool:
    now, then = (ground.generation, ground.cards), (fence.generation, fence.cards)
    return now != then or fence.workload not in {"", workload(case)}
