"""What a pool's criteria ask, and beside it what the status says was seen: for people, nothing is judged here."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kvgate.api.pool import CriteriaBlock, DisaggregationCriteria, KVStorageCriteria, PoolSpec, RoutingCriteria
from kvgate.api.status import ApprovalStatus, Estimate, PoolStatus
from kvgate.api.words import Approval, Capability, KVEvents
from kvgate.core import text
from kvgate.core.memory import remembered

UNSEEN = "nothing seen"


@dataclass(frozen=True)
class Asked:
    """One criterion: its name in the spec, what it asks, and what was seen, each with its unit."""

    criterion: str
    asked: str
    seen: str = UNSEEN


def asked(spec: PoolSpec, status: PoolStatus, capability: Capability) -> tuple[Asked, ...]:
    """The criteria of one capability in the order of the spec; empty where it is not gated."""
    criteria = spec.criteria
    match capability:
        case Capability.ROUTING if criteria.routing:
            lines = _routing(criteria.routing, status)
            block: CriteriaBlock = criteria.routing
        case Capability.DISAGGREGATION if criteria.disaggregation:
            lines, block = _split(criteria.disaggregation, spec, status), criteria.disaggregation
        case Capability.KV_STORAGE if criteria.kv_storage:
            lines, block = _storage(criteria.kv_storage, status), criteria.kv_storage
        case _:
            return ()
    return (*lines, *_approval(block.approval, block.attestations, status, capability))


def measured(spec: PoolSpec, status: PoolStatus) -> tuple[Asked, ...]:
    """What is asked of the evidence itself: that it is fresh and covers the paths."""
    return tuple(_evidence(spec, status))


def _split(block: DisaggregationCriteria, spec: PoolSpec, status: PoolStatus) -> Iterable[Asked]:
    layers = "; ".join(_judged(status)) or UNSEEN
    share = f"of the slowest {block.slowest_percent_of_paths}% of paths"
    if block.min_throughput is not None:
        yield Asked("minThroughput", f"at least {block.min_throughput}, {share}", layers)
    if block.min_share_of_line_rate is not None:
        yield Asked("minShareOfLineRate", f"at least {block.min_share_of_line_rate} of the line rate", layers)
    if block.min_share_of_median is not None:
        yield Asked("minShareOfMedian", f"at least {block.min_share_of_median} of the median path", layers)
    for estimate in status.estimates:
        yield Asked("ttftBudget", f"{estimate.prompt_tokens} tokens within {block.ttft_budget}", _added(estimate))
    if not status.estimates:
        yield Asked("ttftBudget", f"at most {block.ttft_budget}")
    peak = spec.workload.peak_requests_per_second
    load = f"at {peak} requests/s" if peak is not None else "workload.peakRequestsPerSecond is not set"
    yield Asked("maxUtilization", f"at most {block.max_utilization}", load)
    yield Asked("minCoverage", f"at least {block.min_coverage} of the paths", _coverage(status))
    yield from _evidence(spec, status)


def _judged(status: PoolStatus) -> Iterable[str]:
    for name, layer in status.fabric.layers if status.fabric else ():
        if layer.judged_bytes_per_second is not None:
            yield f"{name} {text.rate(layer.judged_bytes_per_second)}"


def _added(estimate: Estimate) -> str:
    waiting = estimate.queue_milliseconds
    queue = f", {text.span(waiting / 1000)} of it waiting" if waiting else ""
    moved = f"{text.size(estimate.kv_bytes)} add {text.span(estimate.added_ttft_milliseconds / 1000)}{queue}"
    return f"{moved}: {estimate.outcome}"


def _coverage(status: PoolStatus) -> str:
    layers = status.fabric.layers if status.fabric else ()
    return "; ".join(f"{one.measured} of {one.paths} by {one.tool or 'no tool'}" for _, one in layers) or UNSEEN


def _evidence(spec: PoolSpec, status: PoolStatus) -> Iterable[Asked]:
    fabric, ttl = status.fabric, spec.fabric.evidence_ttl
    if fabric is None or fabric.measured_at is None or fabric.expires_at is None:
        yield Asked("evidenceTTL", f"not older than {ttl}")
        return
    when = f"measured {text.moment(fabric.measured_at)}, holds until {text.moment(fabric.expires_at)}"
    yield Asked("evidenceTTL", f"not older than {ttl}", f"{when}, report {fabric.report}")


def _routing(block: RoutingCriteria, status: PoolStatus) -> Iterable[Asked]:
    seen = status.routing
    gain = UNSEEN
    if seen is not None and seen.improvement_percent is not None:
        bounds = f" (95% interval {seen.low_percent}% to {seen.high_percent}%)" if seen.low_percent else ""
        gain = f"{seen.improvement_percent}%{bounds}, report {seen.benchmark}"
    yield Asked("minTTFTImprovement", f"at least {block.min_ttft_improvement} against round-robin", gain)
    limit = f"at most {block.max_error_rate_increase} more failures"
    yield Asked("maxErrorRateIncrease", limit, f"report {seen.benchmark}" if seen and seen.benchmark else UNSEEN)
    yield Asked("kvEvents", block.kv_events.value, _events(block, status))


def _events(block: RoutingCriteria, status: PoolStatus) -> str:
    if block.kv_events is KVEvents.IGNORED:
        return "not looked at"
    seen = status.routing.events if status.routing else None
    if seen is None or seen.expected_workers is None:
        return UNSEEN
    applied = "the router applies them" if seen.applied else "the router does not apply them"
    if seen.applied is None:
        applied = "whether the router applies them is not known"
    return f"{seen.publishing_workers or 0} of {seen.expected_workers} workers publish; {applied}"


def _storage(block: KVStorageCriteria, status: PoolStatus) -> Iterable[Asked]:
    declared = block.reload_versus_recompute
    if declared is None:
        yield Asked("reloadVersusRecompute", "storageThroughput and prefillTokensPerSecond", "not declared")
        return
    for estimate in status.estimates:
        need = estimate.break_even_bytes_per_second
        wanted = "an estimate" if need is None else f"more than {text.rate(need)}"
        told = f"{declared.storage_throughput} declared, never measured"
        yield Asked("reloadVersusRecompute", f"{estimate.prompt_tokens} tokens: {wanted}", told)
    if not status.estimates:
        yield Asked("reloadVersusRecompute", "more than recomputing gives", f"{declared.storage_throughput} declared")


def _approval(
    needed: Approval, attestations: tuple[str, ...], status: PoolStatus, capability: Capability
) -> Iterable[Asked]:
    yield Asked("approval", needed.value, standing(remembered(status, capability).approval))
    if attestations:
        yield Asked("attestations", ", ".join(attestations), "see the approval")


def standing(approval: ApprovalStatus) -> str:
    """The state of an approval, and whose word it is."""
    by = f" by {approval.approver} ({approval.name})" if approval.name else ""
    return f"{approval.state}{by}"
