"""Whether round-robin itself was healthy: a gain over a sick baseline proves nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import fmean

from kvgate.api.words import Outcome
from kvgate.core import text
from kvgate.core.ab.errors import errors_of
from kvgate.core.ab.experiment import Arm, Experiment, Limits, Request, cached_ratio, wait_seconds
from kvgate.core.findings import Concern, Finding

LEAST_COMPLETED = 0.99
MOST_RISE = 1.25
MOST_IMBALANCE = 1.25
MOST_UNEXPLAINED = 0.25


def errors_few(experiment: Experiment, limits: Limits) -> Finding:
    share = errors_of(experiment.counted(Arm.ROUND_ROBIN))
    what = f"{share.failed} of {share.counted} requests failed ({text.percent(share.fraction)})"
    limit = f"at most maxErrorRateIncrease, {text.percent(limits.most_added_errors)}, may"
    return _told(f"{what}, {limit}", healthy=share.fraction <= limits.most_added_errors)


def completed(experiment: Experiment, _: Limits) -> Finding:
    runs = experiment.of(Arm.ROUND_ROBIN)
    offered = sum(run.offered for run in runs)
    answered = sum(1 for run in runs for request in run.requests if request.fault is None)
    share = answered / offered if offered else 0.0
    what = f"{answered} of {offered} offered requests were answered, at least {text.percent(LEAST_COMPLETED)} must be"
    return _told(what, healthy=share >= LEAST_COMPLETED)


def steady(experiment: Experiment, _: Limits) -> Finding:
    """A queue that grows shows as waits that grow from the first third of each run to the last."""
    runs = [run.counted for run in experiment.of(Arm.ROUND_ROBIN)]
    first = _mean([r for counted in runs for r in counted[: len(counted) // 3]], experiment.timeout_seconds)
    last = _mean([r for counted in runs for r in counted[-(len(counted) // 3) :]], experiment.timeout_seconds)
    if first <= 0:
        return _told("too few requests to compare the first third of a run with the last", healthy=False)
    what = f"mean TTFT of the last third was {last / first:.2f} × that of the first, at most {MOST_RISE} × may be"
    return _told(what, healthy=last <= MOST_RISE * first)


def balanced(experiment: Experiment, _: Limits) -> Finding:
    """A worker's share is an equal one."""
    served = Counter(request.worker for request in experiment.answered(Arm.ROUND_ROBIN))
    total, workers = sum(served.values()), len(experiment.before.workers)
    if not total or not workers or "" in served:
        return _told("not every answer named its worker; the frontend must answer nvext worker_id", healthy=False)
    busiest = max(served.values()) * workers / total
    what = f"the busiest worker got {busiest:.2f} × its share, at most {MOST_IMBALANCE} × may be"
    return _told(what, healthy=busiest <= MOST_IMBALANCE)


def explained(experiment: Experiment, _: Limits) -> Finding:
    """Mean TTFT must be what the hits and misses of each worker, asked alone, add up to: else something queues."""
    known = {entry.worker: entry for entry in experiment.calibration}
    if set(experiment.before.workers) - known.keys() or any(k.miss_seconds <= 0 for k in known.values()):
        return _told("not every worker's TTFT with and without a cached prompt was measured", healthy=False)
    hit = fmean(entry.hit_seconds for entry in known.values())
    miss = fmean(entry.miss_seconds for entry in known.values())
    counted = experiment.counted(Arm.ROUND_ROBIN)
    ratio = cached_ratio(counted)
    expected, found = ratio * hit + (1 - ratio) * miss, _mean(counted, experiment.timeout_seconds)
    what = (
        f"mean TTFT was {text.span(found)}; {text.percent(ratio)} cached at {text.span(hit)} and the rest at "
        f"{text.span(miss)} make {text.span(expected)}, ±{text.percent(MOST_UNEXPLAINED)} is allowed"
    )
    return _told(what, healthy=abs(found - expected) <= MOST_UNEXPLAINED * expected)


def _mean(requests: Sequence[Request], timeout_seconds: float) -> float:
    return fmean(wait_seconds(request, timeout_seconds) for request in requests) if requests else 0.0


def _told(what: str, *, healthy: bool) -> Finding:
    if healthy:
        return Finding("abBaseline", Outcome.PASS, "BaselineHealthy", f"round-robin: {what}", Concern.BENCHMARK)
    why = f"round-robin itself is not healthy: {what}; lower benchmark.requestsPerSecond or repair the deployment"
    return Finding("abBaseline", Outcome.ERROR, "BaselineUnhealthy", why, Concern.BENCHMARK)
