"""The tables of criteria, one per capability, and the verdict that each gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kvgate.api.pool import ReloadVersusRecompute
from kvgate.api.words import Capability, KVEvents, Outcome
from kvgate.core import evidence_criteria as evidence
from kvgate.core import fabric_criteria as beside
from kvgate.core import own_nodes, text
from kvgate.core import split_criteria as split
from kvgate.core.benchmark_criteria import benchmark_won
from kvgate.core.clearing import as_before, cleared
from kvgate.core.estimate import break_even
from kvgate.core.findings import Concern, Finding, Verdict
from kvgate.core.judging import Case
from kvgate.core.target import TargetProblem
from kvgate.core.world import KVKnown

Criterion = Callable[[Case], Finding]

GROUNDS: tuple[Criterion, ...] = (
    evidence.nodes_matched,
    evidence.evidence_readable,
    evidence.evidence_of_this_pool,
    evidence.evidence_fresh,
)
"""Whether the evidence counts at all. While one of these does not pass, no number is judged: neither Pass nor Fail."""

APART: tuple[Criterion, ...] = (
    evidence.nodes_unchanged,
    evidence.nodes_healthy,
    own_nodes.own_nodes,
    split.kv_size_known,
)
"""What is judged without numbers."""

NUMBERS: tuple[Criterion, ...] = (
    evidence.paths_reachable,
    evidence.paths_covered,
    evidence.pods_covered,
    split.throughput_enough,
    split.within_budget,
    split.load_bearable,
    evidence.no_outlier,
    own_nodes.own_alike,
    evidence.layers_measured,
    evidence.phases_measured,
    evidence.same_thing_measured,
    beside.tools_agree,
    beside.line_rate_reached,
    beside.median_reached,
    beside.sharing_told,
    beside.load_told,
)


def kv_events_healthy(case: Case) -> Finding:
    criteria = case.pool.spec.criteria.routing
    if criteria is not None and criteria.kv_events is KVEvents.IGNORED:
        what = "kvEvents: Ignored, so the router's own record of its decisions is trusted"
        return Finding("kvEvents", Outcome.PASS, "KVEventsIgnored", what, Concern.EVENTS)
    if case.events is not None:
        return case.events.finding
    what = "nobody looked at the workers' KV events: only the operator does, and not while spec.suspend is true"
    return Finding("kvEvents", Outcome.UNKNOWN, "KVEventsNotObserved", what, Concern.EVENTS)


def routing(case: Case) -> tuple[Finding, ...]:
    return (kv_events_healthy(case), *benchmark_won(case))


def reload_beats_recompute(case: Case) -> Finding:
    """Reload pays only above B* = KV bytes × prefill tokens per second / tokens, at each prompt size; typed numbers are
    never a Pass."""
    criteria, kv = case.pool.spec.criteria.kv_storage, case.world.kv
    declared = criteria.reload_versus_recompute if criteria else None
    if declared is None:
        what = "criteria.kvStorage.reloadVersusRecompute is not set; the pool's owner must declare it"
        return Finding("reloadVersusRecompute", Outcome.UNKNOWN, "NotDeclared", what, Concern.STORAGE)
    if not isinstance(kv, KVKnown):
        return split.kv_size_known(case)
    prompts = case.pool.spec.workload.prompts
    sizes = {prompt.tokens: kv.size.bytes_for(prompt.tokens, 1) for prompt in prompts}
    if kv.bytes_per_token <= 0 or min(sizes.values()) <= 0:
        what = "0 KV bytes per token would let any storage pass; supply spec.model.kvCache.bytesPerToken"
        return Finding("reloadVersusRecompute", Outcome.UNKNOWN, "KVBytesUnknown", what, Concern.STORAGE)
    return _reload(declared, sizes)


def _reload(declared: ReloadVersusRecompute, sizes: Mapping[int, int]) -> Finding:
    """`sizes` are the KV bytes of each prompt size."""
    storage, speed = declared.storage_throughput, declared.prefill_tokens_per_second
    limits = {tokens: break_even(count, tokens, speed) for tokens, count in sorted(sizes.items())}
    told = text.listed(tuple(f"{text.rate(limit)} at {tokens} tokens" for tokens, limit in limits.items()))
    what = f"storage is declared at {storage}, break-even is {told}"
    slower = tuple(str(tokens) for tokens, limit in limits.items() if storage.bytes_per_second <= limit)
    if len(slower) == len(limits):
        return Finding("reloadVersusRecompute", Outcome.FAIL, "RecomputeIsFaster", what, Concern.STORAGE)
    declared_only = "declared, not measured: an approver may accept it"
    if slower:
        said = f"{what}; prompts of {text.listed(slower)} tokens are computed anew faster; {declared_only}"
        return Finding("reloadVersusRecompute", Outcome.INCONCLUSIVE, "RecomputeIsFasterForSome", said, Concern.STORAGE)
    said = f"{what}; {declared_only}"
    return Finding("reloadVersusRecompute", Outcome.INCONCLUSIVE, "Declared", said, Concern.STORAGE)


KV_STORAGE: tuple[Criterion, ...] = (reload_beats_recompute,)


def disaggregation(case: Case) -> tuple[Finding, ...]:
    grounds = _each(GROUNDS, case)
    counts = all(finding.outcome is Outcome.PASS for finding in grounds)
    return (*grounds, *_each(APART, case), *((*_numbers(case), _cleared(case)) if counts else ()))


def _cleared(case: Case) -> Finding:
    before = as_before(case)
    failed = before is not None and any(finding.outcome is Outcome.FAIL for finding in _numbers(before))
    return cleared(case, failed=failed)


def _numbers(case: Case) -> tuple[Finding, ...]:
    """Numbers of another transport than the workers use neither pass nor fail anything; those of a probe that lacked
    the processor fail nothing."""
    kind = evidence.same_thing_measured(case)
    if kind.reason == "Unmeasured":
        return (kind,)
    starved = beside.starved_probes(case)
    each = (beside.unless_starved(finding, starved) for finding in _each(NUMBERS, case))
    return tuple(beside.unless_sufficient(finding, case) for finding in each)


TABLES: Mapping[Capability, Callable[[Case], tuple[Finding, ...]]] = {
    Capability.ROUTING: routing,
    Capability.DISAGGREGATION: disaggregation,
    Capability.KV_STORAGE: lambda case: _each(KV_STORAGE, case),
}


def judge(case: Case, capability: Capability) -> Verdict:
    """Every criterion of the capability's table, and what the deployment itself puts in the way."""
    return Verdict((*_target(case, capability), *TABLES[capability](case)))


def _each(criteria: tuple[Criterion, ...], case: Case) -> tuple[Finding, ...]:
    return tuple(criterion(case) for criterion in criteria)


def _target(case: Case, capability: Capability) -> tuple[Finding, ...]:
    target = case.world.target
    if isinstance(target, TargetProblem):
        return (Finding("target", Outcome.ERROR, target.reason, target.message, Concern.TARGET),)
    toggle = target.toggles.get(capability)
    if toggle is None:
        return ()
    return (toggle.refusal, *toggle.findings) if toggle.refusal else toggle.findings


def gated(case: Case) -> tuple[Capability, ...]:
    """The capabilities with a criteria block; the others are none of our business."""
    return tuple(capability for capability in Capability if case.block(capability) is not None)
