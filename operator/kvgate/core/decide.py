"""The whole policy on one page: from a pool, the world and the time to a decision. Pure and total."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import datetime

from kvgate.api.status import MonitoringStatus, Operation, PoolStatus
from kvgate.api.words import Capability
from kvgate.core import statuses
from kvgate.core.audit import decided
from kvgate.core.benchmarking import LOOK_AGAIN_SECONDS as BENCHMARKING_SECONDS
from kvgate.core.benchmarking import Benchmarking, benchmarking
from kvgate.core.conditions import TABLE, Turn, stamped
from kvgate.core.events_listening import LOOK_AGAIN_SECONDS as LISTENING_SECONDS
from kvgate.core.events_listening import Listens, asking, listening
from kvgate.core.judged import Judged, judge_capability
from kvgate.core.judging import Case
from kvgate.core.kstatus import summary
from kvgate.core.leaving import guarded
from kvgate.core.memory import of_this_target
from kvgate.core.monitoring_memory import monitored, remembering
from kvgate.core.operations import Ledger, settle
from kvgate.core.steps import AskWorkers, Collect, Decided, Decision, Line, Prepare, Step, Verify
from kvgate.core.sweeping import next_sweep_in, requested
from kvgate.core.switching import Held, Move
from kvgate.core.target import TargetView
from kvgate.core.underway import LOOK_AGAIN_SECONDS, RETRY_SECONDS, Sweeping, sweeping
from kvgate.core.verdicts import gated
from kvgate.core.verification import LOOK_AGAIN_SECONDS as VERIFYING_SECONDS
from kvgate.core.world import KVUnknown, Pool, World

SOON_SECONDS = 1.0
IDLE_SECONDS = 300.0
LONGEST_WRITING_SECONDS = 60.0


def decide(pool: Pool, world: World, now: datetime) -> Decision:
    """What to do about the pool, and the status that says so."""
    if isinstance(world.target, TargetView):
        pool = replace(pool, status=of_this_target(pool.status, world.target.uid))
    case = Case(pool, world, world.evidence[0] if world.evidence else None, now)
    previous = Case(pool, world, world.evidence[1], now) if len(world.evidence) > 1 else None
    judged = tuple(judge_capability(case, capability, previous) for capability in gated(case))
    ledger = settle(case, judged)
    still = ledger.operation is None
    sweep = sweeping(case, judged, may_start=still and pool.status.benchmark is None)
    ab = benchmarking(case, judged, may_start=still and sweep.fence is None)
    at_rest = still and sweep.fence is None and ab.fence is None and pool.status.benchmark is None
    heard = listening(case, may_start=at_rest)
    turn = Turn(case, judged, ledger, measuring=sweep.fence is not None, wait=sweep.wait)
    steps = (*ledger.steps, *((sweep.step,) if sweep.step else ()), *((ab.step,) if ab.step else ()), *_asked(turn))
    steps = (*steps, heard.step) if heard.step else steps
    line = sweep.wait.line if sweep.wait else Line.NOWHERE
    guard = guarded(case, judged, ledger, steps)
    status, within = _status(turn, sweep, ab, heard), _watched_within(turn)
    return Decision(guard, status, _requeue_after(turn, sweep), line, within, _audit(turn, status, guard))


def _audit(turn: Turn, status: PoolStatus, steps: tuple[Step, ...]) -> tuple[Decided, ...]:
    after = zip(turn.judged, status.capabilities, strict=True)
    found = (decided(turn.case, entry, told, steps) for entry, told in after)
    return tuple(one for one in found if one is not None)


def _status(turn: Turn, sweep: Sweeping, ab: Benchmarking, heard: Listens) -> PoolStatus:
    case, pool = turn.case, turn.case.pool
    said = (*((kind, tell(turn)) for kind, tell in TABLE.items()), *summary(turn))
    return PoolStatus(
        observed_generation=pool.generation,
        claimed=not case.world.claimed_by,
        permitted=tuple(entry.capability for entry in turn.judged if _permitted(entry, case)),
        capabilities=tuple(statuses.capability(entry, turn.ledger) for entry in turn.judged),
        fabric=statuses.fabric(case),
        kv_cache=statuses.kv_cache(case),
        estimates=statuses.estimates(case),
        longest_prompt_within_budget=statuses.longest_prompt_within_budget(case),
        routing=statuses.routing(case),
        target=statuses.target(turn),
        last_handled_measure_at=_handled(case, sweep),
        last_sweep_at=_last_sweep(case, sweep),
        sweep=sweep.fence,
        sweeps=pool.status.sweeps + _begun(case, sweep),
        events_probe=heard.fence,
        last_events_probe_at=_last_listened(case, heard),
        benchmark=ab.fence,
        last_benchmark_at=_last_benchmark(case, ab),
        operation=turn.ledger.operation,
        verifications=statuses.verifications(turn),
        monitoring=_monitoring(turn),
        history=turn.ledger.history,
        conditions=stamped(said, pool.status.conditions, pool.generation, case.now),
    )


def _monitoring(turn: Turn) -> MonitoringStatus | None:
    if turn.case.world.metrics is None:
        named = turn.case.pool.spec.monitor.prometheus_ref is not None
        return turn.case.pool.status.monitoring if named else None
    on, operation = [entry.capability for entry in turn.judged if entry.on], turn.ledger.operation
    if operation is not None and operation.step == Move.ENABLE:
        on.append(operation.capability)
    return remembering(turn.case, monitored(turn.case).status, _begins(turn), on)


def _begins(turn: Turn) -> Capability | None:
    """What is meant to be switched on from this turn on."""
    before, now = turn.case.pool.status.operation, turn.ledger.operation
    if now is None or now.step != Move.ENABLE or (before is not None and before.id == now.id):
        return None
    return now.capability


def _asked(turn: Turn) -> tuple[Step, ...]:
    """The prompts that are to be put to the deployment now; none while it is being patched. A patch that is refused
    changes nothing there."""
    operation = turn.ledger.operation
    refused = bool(turn.case.world.patch_problem) and operation == turn.case.pool.status.operation
    if operation is not None and not refused:
        return ()
    steps: list[Step] = []
    if turn.case.events is not None and turn.case.events.canaries and turn.case.pool.status.benchmark is None:
        steps.append(AskWorkers(turn.case.events.canaries))
    for entry in turn.judged:
        if entry.chain and entry.chain.exam:
            steps.append(Verify(entry.capability, entry.chain.exam))
        if entry.preparation and entry.preparation.exam and entry.ruling.held is Held.BASELINE:
            steps.append(Prepare(entry.capability, entry.preparation.exam))
    return tuple(steps)


def _permitted(entry: Judged, case: Case) -> bool:
    return entry.permitted and not case.pool.spec.suspend and not case.pool.deleted


def _handled(case: Case, sweep: Sweeping) -> str:
    """A request is handled once a sweep for it is meant: the fence outlives a death."""
    taken = case.pool.status.sweep is None and sweep.fence is not None and requested(case)
    return case.pool.measure_requested_at if taken else case.pool.status.last_handled_measure_at


def _begun(case: Case, sweep: Sweeping) -> bool:
    """Whether a sweep is meant from this turn on; one that the memory counted already is not counted twice."""
    fence = sweep.fence
    return case.pool.status.sweep is None and fence is not None and fence.number == case.pool.status.sweeps


def _last_sweep(case: Case, sweep: Sweeping) -> datetime | None:
    """When the last sweep that ran was over: told once, as soon as there is something to collect."""
    last, fence = case.pool.status.last_sweep_at, sweep.fence
    if not isinstance(sweep.step, Collect) or fence is None or (last is not None and last >= fence.started_at):
        return last
    return max(case.now, fence.started_at)


def _last_listened(case: Case, heard: Listens) -> datetime | None:
    begins = case.pool.status.events_probe is None and heard.fence is not None
    return case.now if begins else case.pool.status.last_events_probe_at


def _last_benchmark(case: Case, ab: Benchmarking) -> datetime | None:
    begins = case.pool.status.benchmark is None and ab.fence is not None
    return case.now if begins else case.pool.status.last_benchmark_at


def _requeue_after(turn: Turn, sweep: Sweeping) -> float:
    looks = [entry.chain.look_again_seconds for entry in turn.judged if entry.chain]
    looks += [LISTENING_SECONDS] if turn.case.pool.status.events_probe is not None else []
    looks += [BENCHMARKING_SECONDS] if turn.case.pool.status.benchmark is not None else []
    looks += [_watched_within(turn)]
    looks += [VERIFYING_SECONDS for e in turn.judged if e.ruling.held in {Held.BASELINE, Held.METRICS}]
    return min(_unverified_after(turn.case, turn.ledger, sweep), *looks, IDLE_SECONDS)


def _watched_within(turn: Turn) -> float:
    """How long events, metrics and a worker's configuration that has not come may go unlooked at, whatever fails."""
    metrics = turn.case.world.metrics is not None and any(entry.on for entry in turn.judged)
    if asking(turn.case):
        return LISTENING_SECONDS
    watched = turn.case.events is not None or metrics
    kv = turn.case.world.kv
    awaited = kv.look_again_seconds if isinstance(kv, KVUnknown) else math.inf
    return min(awaited, turn.case.pool.spec.monitor.interval.seconds if watched else math.inf)


def _written_again_in(case: Case, operation: Operation) -> float:
    """What is accepted and does not show, as where another hand holds the field too, is written ever less often."""
    age = (case.now - operation.started_at).total_seconds()
    return min(LONGEST_WRITING_SECONDS, max(SOON_SECONDS, age / 10))


def _unverified_after(case: Case, ledger: Ledger, sweep: Sweeping) -> float:
    if ledger.operation is not None and not ledger.recorded:
        return _written_again_in(case, ledger.operation)
    if ledger.recorded:
        return SOON_SECONDS
    if sweep.fence is not None:
        return LOOK_AGAIN_SECONDS
    if sweep.retries or (sweep.wait and sweep.wait.line):
        return RETRY_SECONDS
    due = sweep.wait.until - case.now if sweep.wait and sweep.wait.until else next_sweep_in(case)
    return max(SOON_SECONDS, min(IDLE_SECONDS, due.total_seconds())) if due else IDLE_SECONDS
