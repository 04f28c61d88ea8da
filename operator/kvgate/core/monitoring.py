"""Watching what is on by the frontends' metrics: one rule each for errors, readiness, cache hits and the TTFT."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property

from kvgate.api.status import HistoryEntry, MetricsBefore, MonitoringStatus
from kvgate.api.words import Capability, KVEvents, LossAction, Outcome
from kvgate.core import memory, text
from kvgate.core.findings import Concern, Finding
from kvgate.core.judging import Case
from kvgate.core.memory import Action
from kvgate.core.metrics_seen import MetricsSeen, Served
from kvgate.core.moments import later
from kvgate.core.split_criteria import added_ttft
from kvgate.core.switching import Held
from kvgate.core.target import Switch, TargetView
from kvgate.core.world import Pool

LINK = "Monitor"
"""What a rollback is told by that no link of the chain asked for."""
CLOSES_WITHIN = timedelta(hours=1)
"""So long after a switch, errors and an unready model close what was switched; later they are a person's to judge."""
LEAST_REQUESTS = 200
ESTIMATES_TOLERATED = 2.0
LEAST_NOTICED_SECONDS = 0.02


def changed_at(history: tuple[HistoryEntry, ...]) -> datetime | None:
    """The last time at which anything was switched: from here on, requests are of the deployment as it is now."""
    return max((entry.time for entry in history), default=None)


def counts_from(pool: Pool, now: datetime) -> datetime | None:
    """From when on the requests since the last switch are to be counted; None once that was too long before."""
    last = changed_at(pool.status.history)
    return last if last is not None and now - last <= CLOSES_WITHIN else None


@dataclass(frozen=True)
class Watch:
    """The metrics of a deployment on which something of ours is on."""

    case: Case
    seen: MetricsSeen
    on: tuple[Capability, ...]

    @property
    def kept(self) -> MonitoringStatus:
        return self.case.pool.status.monitoring or MonitoringStatus()

    @cached_property
    def newest(self) -> HistoryEntry | None:
        """The last of the switches that put on what is on, where kvgate made it."""
        history = self.case.pool.status.history
        entries = [entry for one in self.on for entry in memory.of(history, one)[:1] if entry.action == Action.ENABLED]
        return max(entries, key=lambda entry: entry.time, default=None)

    @property
    def blamed(self) -> Capability | None:
        """What goes off where errors came up: the last that was switched on, and not long ago. While another is being
        switched, it is not known whose the errors are."""
        if self.newest is None or self.case.now - self.newest.time > CLOSES_WITHIN:
            return None
        operation = self.case.pool.status.operation
        other = operation is not None and operation.capability is not self.newest.capability
        return None if other else self.newest.capability

    @cached_property
    def served(self) -> Served | None:
        """What users asked since the last switch; once that is past, what they asked lately."""
        if self.blamed is None:
            return self._users(self.seen.lately)
        changed = changed_at(self.case.pool.status.history)
        return self._users(self.seen.since_change) if self.seen.changed_at == changed else None

    @property
    def lately(self) -> Served | None:
        return self._users(self.seen.lately)

    def _users(self, served: Served | None) -> Served | None:
        serving = self.case.world.serving
        return served.without(serving.own if serving else ()) if served is not None else None

    @property
    def before(self) -> MetricsBefore | None:
        newest = self.newest.capability if self.newest is not None else None
        return next((entry for entry in self.kept.before if entry.capability is newest), None)

    @property
    def unseen_since(self) -> datetime | None:
        if self.seen.asked_at is None:
            return self.kept.unseen_since
        return (self.kept.unseen_since or self.case.now) if self.seen.unseen is not None else None

    @property
    def lost(self) -> bool:
        since, after = self.unseen_since, self.case.pool.spec.monitor.on_metrics_lost.after.delta
        return self.seen.unseen is not None and since is not None and self.case.now >= later(since, after)


def watch(case: Case) -> Watch | None:
    """None where nobody asks a Prometheus, or nothing of ours is on."""
    on = tuple(capability for capability in Capability if _is_on(case, capability))
    return Watch(case, case.world.metrics, on) if case.world.metrics is not None and on else None


def _is_on(case: Case, capability: Capability) -> bool:
    target = case.world.target
    toggle = target.toggles.get(capability) if isinstance(target, TargetView) else None
    ours = memory.left_on(case.pool.status, capability) or bool(memory.baseline_of(case.pool.status, toggle))
    gated = case.block(capability) is not None
    return gated and ours and toggle is not None and bool(toggle.steps) and toggle.switch is Switch.ON


def metrics_arrive(watched: Watch) -> Finding:
    if watched.seen.unseen is None:
        return _finding("metrics", Outcome.PASS, "MetricsArrive", "Prometheus has fresh metrics of the frontends")
    said = watched.seen.unseen.message
    if not watched.lost:
        return _finding("metrics", Outcome.UNKNOWN, "MetricsUnseen", said)
    loss, since = watched.case.pool.spec.monitor.on_metrics_lost, watched.unseen_since
    when = text.moment(since or watched.case.now)
    does = "what is on goes back" if loss.action is LossAction.REVERT else "what is on stays on, unwatched"
    what = f"nothing has been told since {when}, monitor.onMetricsLost.after is {loss.after}: {does}; {said}"
    return _finding("metrics", Outcome.UNKNOWN, "MetricsLost", what)


def errors_as_before(watched: Watch) -> Finding | None:
    """The share of failed requests against the one before the switch, in percentage points."""
    served, before = watched.served, watched.before
    if watched.seen.unseen is not None:
        return None
    if before is None or before.requests < LEAST_REQUESTS:
        count = 0 if before is None else before.requests
        what = f"{count} requests were counted before the switch, {LEAST_REQUESTS} are needed to compare errors with"
        return _finding("errorRate", Outcome.UNKNOWN, "ErrorsNotCompared", what)
    if served is None or served.requests < LEAST_REQUESTS:
        count = 0 if served is None else round(served.requests)
        what = f"{count} requests of users were counted, {LEAST_REQUESTS} are needed to judge errors by"
        return _finding("errorRate", Outcome.UNKNOWN, "TooFewToJudge", what)
    limit, share = watched.case.pool.spec.monitor.max_error_rate_increase, before.failed / before.requests
    what = (
        f"{text.percent(served.failed_share)} of {served.requests:.0f} requests failed until "
        f"{text.moment(served.until)}, {text.percent(share)} of {before.requests} before the switch; "
        f"monitor.maxErrorRateIncrease is {limit}, in percentage points"
    )
    if served.failed_share - share <= limit.fraction:
        return _finding("errorRate", Outcome.PASS, "ErrorsAsBefore", what)
    return _finding("errorRate", Outcome.FAIL, "ErrorsIncreased", f"{what}; {_remedy(watched)}")


def _remedy(watched: Watch) -> str:
    if watched.blamed is not None:
        return f"{watched.blamed} goes off: it was switched on last"
    return "no switch of the last hour is to be taken back, so nothing is: the deployment's owner must look"


def model_ready(watched: Watch) -> Finding | None:
    """As Prometheus saw it behind each frontend; what was so before the switch counts from the switch on."""
    since, longest = watched.seen.unready_since, watched.case.pool.spec.monitor.model_not_ready_for
    if watched.seen.unseen is not None or watched.seen.asked_at is None:
        return None
    if since is not None and watched.newest is not None:
        since = max(since, watched.newest.time)
    if since is None or watched.seen.asked_at - since <= longest.delta:
        return _finding("modelReady", Outcome.PASS, "ModelServed", "every frontend has had the model ready of late")
    what = f"a frontend has not had the model ready since {text.moment(since)}; monitor.modelNotReadyFor is {longest}"
    return _finding("modelReady", Outcome.FAIL, "ModelNotReady", f"{what}; {_remedy(watched)}")


def hits_enough(watched: Watch) -> Finding | None:
    """Cached over all prompt tokens, where routing by KV cache is on and its events are not already at fault."""
    limit, served = watched.case.pool.spec.monitor.min_cache_hit_ratio, watched.lately
    if limit is None or Capability.ROUTING not in watched.on or served is None or not _events_fine(watched.case):
        return None
    share = served.cached_share
    if share is None or served.requests < LEAST_REQUESTS:
        return None
    if beside := beside_benchmark(watched.case, served):
        return _finding("cacheHits", Outcome.UNKNOWN, "HeldForBenchmark", f"the hit ratio is not judged: {beside}")
    what = f"{text.percent(share)} of the prompt tokens of {served.requests:.0f} requests were found cached"
    told = f"{what}; monitor.minCacheHitRatio is {limit}"
    if share >= limit.fraction:
        return _finding("cacheHits", Outcome.PASS, "HitRatioEnough", told)
    why = "KV events are not at fault: the deployment's owner must see how often prompts repeat, and how much is cached"
    return _finding("cacheHits", Outcome.FAIL, "HitRatioLow", f"{told}; {why}. Nothing is switched back")


def beside_benchmark(case: Case, served: Served) -> str:
    """Which routing A/B used the same workers while these requests were served; empty where none did. Its own requests
    are not among them, for no Prometheus sees its frontends, but users found caches and queues that it had filled.
    Errors are judged all the same: an A/B that users feel ends itself, and a rollback waits for nothing."""
    running, since = case.pool.status.benchmark, served.until - timedelta(seconds=served.seconds)
    if running is not None and running.on_live:
        return f"the A/B {running.run_id} has used the same workers since {text.moment(running.started_at)}"
    ended = (one for one in case.world.benchmarks if one.provenance.live and one.measured_at >= since)
    last = next(ended, None)
    if last is None:
        return ""
    return f"the A/B {last.run_id} used the same workers until {text.moment(last.measured_at)}; wait until that is past"


def _events_fine(case: Case) -> bool:
    """Where they are at fault, or cannot be judged, that is told already."""
    if case.events is not None:
        return case.events.finding.outcome is Outcome.PASS
    routing = case.pool.spec.criteria.routing
    return routing is not None and routing.kv_events is KVEvents.IGNORED


def ttft_as_estimated(watched: Watch) -> Finding | None:
    """The rise of the mean TTFT over prompts that vary: an alert, and no word against the measured link."""
    rise, estimate = ttft_rise(watched), estimated_rise(watched.case)
    if rise is None or estimate is None or watched.served is None:
        return None
    if beside := beside_benchmark(watched.case, watched.served):
        return _finding("meanTTFT", Outcome.UNKNOWN, "HeldForBenchmark", f"the mean TTFT is not judged: {beside}")
    limit = max(ESTIMATES_TOLERATED * estimate, LEAST_NOTICED_SECONDS)
    what = f"the mean TTFT is {text.span(abs(rise))} {'above' if rise >= 0 else 'below'} the one before the split"
    told = f"{what}, the estimate is {text.span(estimate)}"
    if rise <= limit:
        return _finding("meanTTFT", Outcome.PASS, "MeanTTFTAsEstimated", told)
    who = "compare the prompts, then the network team must look. Nothing is switched back"
    return _finding(
        "meanTTFT", Outcome.INCONCLUSIVE, "MeanTTFTAboveEstimate", f"{told}; {text.span(limit)} is borne; {who}"
    )


def ttft_rise(watched: Watch) -> float | None:
    """Seconds by which the mean TTFT of all requests lies above the one before the split; None where not comparable."""
    before = next((one for one in watched.kept.before if one.capability is Capability.DISAGGREGATION), None)
    served = watched.served
    if Capability.DISAGGREGATION not in watched.on or before is None or before.mean_ttft_milliseconds is None:
        return None
    if served is None or min(served.requests, before.requests) < LEAST_REQUESTS or served.mean_ttft_seconds is None:
        return None
    return served.mean_ttft_seconds - before.mean_ttft_milliseconds / 1000


def estimated_rise(case: Case) -> float | None:
    """The estimate of the added TTFT, in seconds, as a mean over the workload's prompt sizes by their shares."""
    if case.transfer is None:
        return None
    wait = case.load.wait_seconds if case.load else 0.0
    return sum(share.fraction * added_ttft(case, share.tokens, wait) for share in case.shares)


RULES: tuple[Callable[[Watch], Finding | None], ...] = (
    errors_as_before,
    model_ready,
    hits_enough,
    ttft_as_estimated,
    metrics_arrive,
)
"""Of those that are equally bad, the first is told."""


def findings(watched: Watch) -> tuple[Finding, ...]:
    """What each rule finds; nothing before the first look."""
    if watched.seen.asked_at is None:
        what = "Prometheus has not been asked yet"
        return (_finding("metrics", Outcome.UNKNOWN, "MetricsNotAsked", what),)
    return tuple(found for rule in RULES if (found := rule(watched)) is not None)


def _finding(criterion: str, outcome: Outcome, reason: str, message: str) -> Finding:
    return Finding(criterion, outcome, reason, message, Concern.METRICS)


def awaited(case: Case) -> str:
    """Why nothing is switched on before the metrics are seen; empty where they are, or nobody asks."""
    seen = case.world.metrics
    if seen is None:
        return ""
    if seen.unseen is not None:
        return f"what is switched on must be watched, and cannot: {seen.unseen.message}"
    return "" if seen.lately is not None else "Prometheus is being asked for the errors before the switch"


def asks(pool: Pool) -> bool:
    """Whether a Prometheus should be asked about this pool: something is on, is being switched, or would be but for the
    look at errors."""
    spec = pool.spec
    if spec.monitor.prometheus_ref is None or spec.suspend or pool.deleted:
        return False
    wanted = (entry.enabled or entry.held_by == Held.METRICS for entry in pool.status.capabilities)
    return pool.status.operation is not None or any(wanted)
