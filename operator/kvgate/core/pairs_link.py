"""The link of real pods: every prefill → decode pair that runs now must have a measured path that passes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta

from kvgate.core import text
from kvgate.core.evidence import Path
from kvgate.core.extent import in_use
from kvgate.core.judging import Case
from kvgate.core.links import Look, Progress, View
from kvgate.core.moments import lately
from kvgate.core.rates import PathRates, fabric
from kvgate.core.workers import PodRole, WorkerPod, path_weights

SWEPT_LATELY = timedelta(minutes=10)


@dataclass(frozen=True)
class _Counted:
    failed: tuple[str, ...]
    unmeasured: tuple[str, ...]
    passed: int


def worker_paths(view: View) -> Look:
    """Where a sweep took a sample of too many paths, both nodes must have been measured in both directions."""
    case = view.case
    pods = tuple(pod for pod in case.world.pods if _serving(pod))
    paths = tuple(path_weights(pods))
    if not paths or any(not pod.node for pod in pods):
        what = "no prefill and decode pods with a node were seen" if not paths else "a worker pod has no node yet"
        return Look(Progress.UNSEEN, "WorkersNotObserved", what)
    if case.evidence is None or not case.fresh:
        return Look(Progress.WAITING, "WorkerPathsUnmeasured", "there is no fresh evidence; a sweep is due")
    blank = {path.path for path in case.fabric.own.paths if not path.answered}
    counted = _counted(case, tuple(path for path in paths if path not in blank))
    if counted.failed:
        what = f"{len(counted.failed)} of {len(paths)} paths between worker pods do not pass"
        return Look(Progress.FAILED, "WorkerPathsFailed", f"{what}: {text.listed(counted.failed)}")
    if counted.unmeasured:
        what = f"{len(counted.unmeasured)} of {len(paths)} paths between worker pods are not measured"
        told = f"{what}: {text.listed(counted.unmeasured)}"
        return Look(Progress.WAITING, "WorkerPathsUnmeasured", told, sweep=_sweep(view, counted.unmeasured, len(paths)))
    own = sum(1 for path in paths if path in blank)
    apart = f"; {own} from a node to itself are not measured, which DisaggregationAccepted tells" if own else ""
    what = f"{counted.passed} paths between worker pods were measured and pass{apart}"
    return Look(Progress.PASSED, "WorkerPathsPass", what)


def _sweep(view: View, unmeasured: tuple[str, ...], pairs: int) -> str:
    """Why another sweep would give what is missing: it can measure one of the paths, and the last one was before the
    pods ran, or not of late."""
    case = view.case
    possible = {str(path) for path in case.world.nodes.paths} & set(unmeasured)
    if not possible or case.evidence is None:
        return ""
    began = max((entry.time for entry in view.memory.passed), default=view.memory.started_at)
    old = began is None or case.evidence.measured_at <= began
    if not old and lately(case.evidence.measured_at, case.now, SWEPT_LATELY):
        return ""
    return f"{len(possible)} of {pairs} paths between the worker pods that run now are not measured"


def _serving(pod: WorkerPod) -> bool:
    return pod.role in {PodRole.PREFILL, PodRole.DECODE} and not pod.leaving


def _counted(case: Case, paths: tuple[Path, ...]) -> _Counted:
    seen = fabric(case.standing.evidence, paths).paths if case.standing else ()
    failed = tuple(told for path in seen if (told := _failing(case, path)))
    silent = [path.path for path in seen if path.bytes_per_second is None and path.unreachable is None]
    covered = _covered_both_ways(case)
    unmeasured = tuple(str(path) for path in silent if not {path.source, path.destination} <= covered)
    return _Counted(failed, unmeasured, len(seen) - len(failed) - len(unmeasured))


def _covered_both_ways(case: Case) -> frozenset[str]:
    """Nodes that sent to another and received from one, by measured samples; none where every path is meant to have its
    own."""
    if case.standing is None or in_use(case) <= case.pool.spec.fabric.schedule.max_paths:
        return frozenset()
    numbers = (sample for sample in case.standing.evidence.samples if sample.bytes_per_second)
    rated = [sample.path for sample in numbers if not sample.path.same_node]
    return frozenset({path.source for path in rated} & {path.destination for path in rated})


def _failing(case: Case, path: PathRates) -> str:
    """Why the path does not pass, in a few words; empty where it does, or has no number."""
    if path.unreachable is not None:
        return f"{path.path} carries nothing"
    rate, limit = path.bytes_per_second, case.criteria.min_throughput
    if rate is None:
        return ""
    if limit is not None and rate < limit.bytes_per_second:
        return f"{path.path} carries {text.rate(rate)}, minThroughput is {limit}"
    budget, longest = case.criteria.ttft_budget, max(p.tokens for p in case.pool.spec.workload.prompts)
    added = _added(case, rate, longest)
    if added is None or added <= budget.seconds:
        return ""
    return f"{path.path} would add {text.span(added)} at {longest} tokens, ttftBudget is {budget}"


def _added(case: Case, rate: float, tokens: int) -> float | None:
    judged = case.transfer
    if judged is None:
        return None
    derated = rate * case.pool.spec.fabric.probe.load_derating.number
    own = replace(judged, bytes_per_second=derated)
    return case.pool.spec.workload.fixed_overhead.seconds + own.seconds(tokens)
