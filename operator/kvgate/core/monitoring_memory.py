"""What is kept of the frontends' metrics: numbers before each switch, and a snapshot that changes only with its verdict
or once in an hour, so that watching does not rewrite the status at every look."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta

from kvgate.api.status import MetricsBefore, MonitoringStatus
from kvgate.api.words import Capability
from kvgate.core.findings import Finding, Verdict
from kvgate.core.judging import Case
from kvgate.core.metrics_seen import Served
from kvgate.core.monitoring import Watch, beside_benchmark, estimated_rise, findings, ttft_rise, watch

STANDS_FOR = timedelta(hours=1)


@dataclass(frozen=True)
class Watched:
    """What the metrics say in this turn, and what is kept of it. `finding` is None where nothing is watched."""

    finding: Finding | None
    status: MonitoringStatus | None


def monitored(case: Case) -> Watched:
    """The decisive finding, told by the snapshot's message while its verdict stands."""
    watched, kept = watch(case), case.pool.status.monitoring
    if watched is None:
        before = kept.before if kept is not None and case.world.metrics is not None else ()
        return Watched(None, MonitoringStatus(before=before) if before else None)
    found = Verdict(findings(watched)).decisive
    if watched.seen.asked_at is None:
        return Watched(found, kept)
    status = _snapshot(watched, found).model_copy(update={"unseen_since": watched.unseen_since})
    return Watched(Finding(found.criterion, found.outcome, found.reason, status.message, found.concern), status)


def _snapshot(watched: Watch, found: Finding) -> MonitoringStatus:
    kept, now = watched.kept, watched.case.now
    if kept.judged_at is not None and kept.reason == found.reason and now - kept.judged_at < STANDS_FOR:
        return kept
    served, rise, estimate = watched.served, ttft_rise(watched), estimated_rise(watched.case)
    return MonitoringStatus(
        before=kept.before,
        judged_at=now.replace(microsecond=0),
        reason=found.reason,
        message=found.message,
        requests=round(served.requests) if served else None,
        error_percent=f"{served.failed_share * 100:.2f}" if served and served.requests else "",
        cached_token_ratio=_ratio(served.cached_share if served else None),
        mean_ttft_milliseconds=_milliseconds(served),
        observed_to_estimated=_ratio(rise / estimate if rise is not None and estimate else None),
    )


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _milliseconds(served: Served | None) -> int | None:
    mean = served.mean_ttft_seconds if served is not None else None
    return None if mean is None else min(round(mean * 1000), 10**12)


def remembering(
    case: Case, kept: MonitoringStatus | None, begins: Capability | None, on: Iterable[Capability]
) -> MonitoringStatus | None:
    """With the numbers before the switch that `begins` in this turn; those of what is off and stays off are dropped."""
    status = kept or MonitoringStatus()
    wanted = set(on) | ({begins} if begins is not None else set())
    held = tuple(one for one in status.before if one.capability in wanted and one.capability is not begins)
    fresh = _before(case, begins) if begins is not None else None
    if fresh is not None:
        held = (*held, fresh)
    found = status.model_copy(update={"before": held})
    return None if found == MonitoringStatus() else found


def _before(case: Case, capability: Capability) -> MetricsBefore | None:
    seen, serving = case.world.metrics, case.world.serving
    if seen is None or seen.lately is None:
        return None
    served = seen.lately.without(serving.own if serving is not None else ())
    beside = bool(beside_benchmark(case, served))
    return MetricsBefore(
        capability=capability,
        until=served.until.replace(microsecond=0),
        seconds=round(served.seconds),
        requests=round(served.requests),
        failed=round(served.failed),
        mean_ttft_milliseconds=None if beside else _milliseconds(served),
    )
