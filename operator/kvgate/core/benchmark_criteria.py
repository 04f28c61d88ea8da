"""Criteria on the routing A/B: which one counts now, and what it says."""

from __future__ import annotations

from datetime import datetime

from kvgate.api.pool import RoutingCriteria
from kvgate.api.words import Capability, Mode, Outcome
from kvgate.core import text
from kvgate.core.ab.evidence import BenchmarkEvidence
from kvgate.core.ab.experiment import Limits
from kvgate.core.ab.judgement import judge
from kvgate.core.digests import digest
from kvgate.core.findings import Concern, Finding, worst
from kvgate.core.judging import CLOCK_TOLERANCE, Case
from kvgate.core.moments import later
from kvgate.core.target import TargetView

TOPOLOGY_CHANGED, WORKLOAD_CHANGED = "TopologyChanged", "WorkloadChanged"
VOID = frozenset({Outcome.ERROR, Outcome.UNKNOWN})


def benchmark_won(case: Case) -> tuple[Finding, ...]:
    """What the newest A/B that counts says; where none does, why not."""
    kept = chosen(case)
    if case.world.benchmark_problem:
        what = f"{case.world.benchmark_problem}; run the A/B again"
        return (Finding("benchmark", Outcome.ERROR, "BenchmarkUnreadable", what, Concern.BENCHMARK),)
    if kept is None:
        return (missing(case),)
    return judge(kept.experiment, limits(case))


def chosen(case: Case) -> BenchmarkEvidence | None:
    """The newest A/B that is fresh and of this deployment. One that is void gives way to an older one that is not."""
    counting = [entry for entry in case.world.benchmarks if ground(case, entry).outcome is Outcome.PASS]
    told = [entry for entry in counting if not void(case, entry)]
    return next(iter(told or counting), None)


def void(case: Case, entry: BenchmarkEvidence) -> bool:
    """Whether it could not look: an aborted run, or one whose arms proved nothing."""
    return worst(finding.outcome for finding in judge(entry.experiment, limits(case))) in VOID


def limits(case: Case) -> Limits:
    criteria = case.pool.spec.criteria.routing or RoutingCriteria()
    return Limits(
        least_improvement=criteria.min_ttft_improvement.fraction,
        most_added_errors=criteria.max_error_rate_increase.fraction,
        enforce=case.pool.spec.mode is Mode.ENFORCE,
    )


def missing(case: Case) -> Finding:
    if case.world.benchmarks:
        return ground(case, case.world.benchmarks[0])
    criteria = case.pool.spec.criteria.routing
    benchmark = criteria.benchmark if criteria else None
    if benchmark is None or (benchmark.target_ref is None and not benchmark.allow_live):
        what = "criteria.routing.benchmark names no targetRef, so KV routing was never compared with round-robin"
        return Finding("benchmark", Outcome.UNKNOWN, "BenchmarkNotConfigured", what, Concern.BENCHMARK)
    what = f"no A/B of KV routing against round-robin has ended yet{_on_its_way(case)}"
    return Finding("benchmark", Outcome.UNKNOWN, "BenchmarkNotRun", what, Concern.BENCHMARK)


def _on_its_way(case: Case) -> str:
    run, ground = case.pool.status.benchmark, case.world.benchmark_ground
    if run is not None:
        job = case.world.benchmark_job
        trouble = f": {job.trouble}" if job and job.trouble else ""
        return f"; one runs on {run.ran_on} since {text.moment(run.started_at)}{trouble}"
    return f"; none can begin: {ground.problem}" if ground and ground.problem else ""


def expires_at(case: Case, entry: BenchmarkEvidence) -> datetime:
    return later(entry.measured_at, case.pool.spec.fabric.evidence_ttl.delta)


def ground(case: Case, entry: BenchmarkEvidence) -> Finding:
    """Whether one A/B counts at all: its age, and whether the deployment is still the one that it speaks of."""
    ended = f"the A/B {entry.run_id} ended at {text.moment(entry.measured_at)}"
    if entry.pool_uid != case.pool.uid:
        what = f"the A/B {entry.run_id} was run for another pool; run it again"
        return Finding("benchmark", Outcome.ERROR, "BenchmarkOfAnotherPool", what, Concern.BENCHMARK)
    if entry.measured_at - case.now > CLOCK_TOLERANCE:
        what = f"{ended}, ahead of this clock; correct the clocks and run it again"
        return Finding("benchmark", Outcome.ERROR, "BenchmarkFromTheFuture", what, Concern.BENCHMARK)
    if case.now >= expires_at(case, entry):
        what = f"{ended}, older than evidenceTTL {case.pool.spec.fabric.evidence_ttl}; it is due again"
        return Finding("benchmark", Outcome.UNKNOWN, "BenchmarkExpired", what, Concern.BENCHMARK)
    return _still(case, entry, ended)


def _still(case: Case, entry: BenchmarkEvidence, ended: str) -> Finding:
    """Whether workload and deployment are those that the A/B speaks of."""
    if case.world.trace is not None and case.world.trace.problem:
        what = f"whether {ended[4:]} was of the workload that is asked for now is not known: {case.world.trace.problem}"
        return Finding("benchmark", Outcome.UNKNOWN, "TraceNotFound", what, Concern.BENCHMARK)
    if entry.subject.workload and workload(case) not in {"", entry.subject.workload}:
        what = f"since {ended[4:]} the workload changed: benchmark.trace's content or the prompts; it is due again"
        return Finding("benchmark", Outcome.UNKNOWN, "WorkloadChanged", what, Concern.BENCHMARK)
    changed = changes(case, entry)
    if changed:
        what = f"since {ended[4:]} the deployment's {text.listed(changed)} changed; it is due again"
        return Finding("benchmark", Outcome.UNKNOWN, "TopologyChanged", what, Concern.BENCHMARK)
    return Finding("benchmark", Outcome.PASS, "BenchmarkCounts", ended, Concern.BENCHMARK)


def workload(case: Case) -> str:
    """Digest of what an A/B would send now: the trace, or the prompt sizes that the built-in workload is made of. Empty
    where no A/B is asked for, or its trace is not known."""
    criteria = case.pool.spec.criteria.routing
    asked = criteria.benchmark if criteria else None
    if asked is None or (asked.target_ref is None and not asked.allow_live):
        return ""
    if asked.trace is not None:
        return case.world.trace.digest if case.world.trace is not None else ""
    return digest(";".join(prompt.model_dump_json(by_alias=True) for prompt in case.pool.spec.workload.prompts))


def changes(case: Case, entry: BenchmarkEvidence) -> tuple[str, ...]:
    """What of the target is not as it was; nothing where the target is not known."""
    target, then = case.world.target, entry.subject
    if not isinstance(target, TargetView) or not target.uid:
        return ()
    toggle = target.toggles.get(Capability.ROUTING)
    same = (
        ("identity", then.target_uid == target.uid),
        ("plan", toggle is None or then.projection == digest(toggle.projection)),
        ("split", then.split == target.split),
    )
    return tuple(what for what, holds in same if not holds)
