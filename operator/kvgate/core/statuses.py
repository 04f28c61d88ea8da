"""The sections of a pool's status, each from one turn."""

from __future__ import annotations

import math
from collections.abc import Sequence

from kvgate.api.status import (
    ApprovalStatus,
    CapabilityStatus,
    Estimate,
    FabricStatus,
    KVCacheStatus,
    LatencyStatus,
    LayerStatus,
    PathRate,
    RoutingStatus,
    SampleStatus,
    SharedLinkStatus,
    StratumStatus,
    SuspectStatus,
    TargetStatus,
    Verification,
)
from kvgate.api.words import Outcome
from kvgate.core.benchmark_status import benchmark_status
from kvgate.core.conditions import Turn
from kvgate.core.estimate import Transfer, break_even, longest_prompt, recompute_seconds
from kvgate.core.evidence import Layer, Path
from kvgate.core.extent import sample_of
from kvgate.core.faults import Suspect
from kvgate.core.faults_told import explained, named
from kvgate.core.judged import Judged
from kvgate.core.judging import Case
from kvgate.core.latency import latencies
from kvgate.core.operations import Ledger
from kvgate.core.rates import PathRates, judged, lower_percentile
from kvgate.core.sharing import SharedLink
from kvgate.core.split_criteria import added_ttft
from kvgate.core.target import Switch, TargetView
from kvgate.core.topology import UNLABELLED
from kvgate.core.verification import remembered, resting
from kvgate.core.world import KVKnown

MOST_NAMED = 32


def capability(entry: Judged, ledger: Ledger) -> CapabilityStatus:
    unreadable = entry.toggle is None or entry.toggle.switch is Switch.UNREADABLE
    return CapabilityStatus(
        name=entry.capability,
        outcome=entry.outcome,
        plan_hash=entry.plan_hash,
        proposed_at=entry.proposed_at,
        epoch=ledger.epochs[entry.capability],
        enabled=entry.remembered.enabled if unreadable else entry.on,
        held_by=entry.ruling.held,
        inconclusive=tuple(sorted(entry.verdict.inconclusive_reasons))[:MOST_NAMED],
        approval=ApprovalStatus(state=entry.standing.state, name=entry.standing.name, approver=entry.standing.approver),
    )


def fabric(case: Case) -> FabricStatus | None:
    if case.evidence is None or case.evidence.pool_uid != case.pool.uid:
        return None
    if case.outdated:
        return case.outdated
    layers = {layer: _layer(case, layer) for layer in Layer if case.has_layer(layer)}
    return FabricStatus(
        link=layers.get(Layer.LINK),
        endpoint=layers.get(Layer.ENDPOINT),
        bound_by=bound_by(case),
        latency=_latency(case),
        measured_at=case.evidence.measured_at,
        expires_at=case.expires_at,
        report=case.evidence.report,
        sample=_sample(case),
        strata=_strata(case),
        suspects=tuple(_suspect(suspect, case) for suspect in case.suspects[:MOST_LISTED]),
        shared_links=tuple(_shared(link) for link in case.shared_links[:MOST_LISTED]),
    )


MOST_LISTED = 10


def _latency(case: Case) -> LatencyStatus | None:
    found = latencies(case.fabric)
    if found is None:
        return None
    return LatencyStatus(
        round_trip_microseconds=_millionths(found.median.round_trip),
        loaded_round_trip_microseconds=_millionths(found.median.loaded),
        worst_loaded_round_trip_microseconds=_millionths(found.worst_loaded),
        set_up_milliseconds=None if found.median.set_up is None else milliseconds(found.median.set_up),
    )


def _millionths(seconds: float | None) -> int | None:
    return None if seconds is None else min(round(seconds * 1e6), LARGEST_WHOLE_NUMBER)


def _sample(case: Case) -> SampleStatus | None:
    found = sample_of(case)
    if found is None:
        return None
    return SampleStatus(paths_in_use=found.in_use, covered=found.covered, never_covered=found.never)


def _strata(case: Case) -> tuple[StratumStatus, ...]:
    """What each topological class of paths carries; nothing where no label tells any apart."""
    if not case.places.labels:
        return ()
    groups: dict[str, list[PathRates]] = {}
    for path in case.fabric.paths:
        groups.setdefault(case.places.stratum(path.path), []).append(path)
    told = tuple(_stratum(name, paths, case) for name, paths in sorted(groups.items()))
    return () if tuple(groups) == (UNLABELLED,) else told


def _stratum(name: str, paths: Sequence[PathRates], case: Case) -> StratumStatus:
    rates = [(path.path, rate) for path in paths if (rate := path.bytes_per_second) is not None]
    weighted = [(rate, case.fabric.weight(path)) for path, rate in rates]
    return StratumStatus(
        name=name,
        paths=len(paths),
        measured=len(rates),
        judged_bytes_per_second=_whole(lower_percentile(weighted, case.criteria.slowest_percent_of_paths)),
        worst=_worst(rates),
    )


def _suspect(suspect: Suspect, case: Case) -> SuspectStatus:
    tests = explained(suspect, case.trials) if case.trials else ""
    return SuspectStatus(name=named(suspect), settled=suspect.settled, paths=len(suspect.bad), tests=tests)


def _shared(link: SharedLink) -> SharedLinkStatus:
    return SharedLinkStatus(
        name=link.name,
        paths=len(link.paths),
        together_bytes_per_second=round(link.together),
        alone_bytes_per_second=round(link.alone),
    )


def bound_by(case: Case) -> str:
    """Which layer is the smaller one on the judged paths."""
    both = [path for path in case.fabric.measured if path.link is not None and path.endpoint is not None]
    if not both:
        return next((layer.value for layer in Layer if case.has_layer(layer)), "")
    slower = sum(1 for path in both if (path.endpoint or 0.0) < (path.link or 0.0))
    return (Layer.ENDPOINT if slower * 2 > len(both) else Layer.LINK).value


def _layer(case: Case, layer: Layer) -> LayerStatus:
    rates = [(path.path, rate) for path in case.fabric.paths if (rate := path.of(layer)) is not None]
    values = case.fabric.ordered[layer]
    tools = sorted({sample.tool for sample in case.numbers if sample.layer is layer})
    return LayerStatus(
        tool=",".join(tools),
        paths=len(case.fabric.paths),
        measured=len(rates),
        worst=_worst(rates),
        judged_bytes_per_second=_whole(judged(case.fabric, case.criteria.slowest_percent_of_paths, layer)),
        median_bytes_per_second=_whole(lower_percentile(values, 50)),
    )


def _worst(rates: Sequence[tuple[Path, float]]) -> PathRate | None:
    if not rates:
        return None
    path, rate = min(rates, key=lambda pair: (pair[1], pair[0]))
    return PathRate(source=path.source, destination=path.destination, bytes_per_second=round(rate))


def _whole(rate: float | None) -> int | None:
    return None if rate is None else round(rate)


def kv_cache(case: Case) -> KVCacheStatus | None:
    kv = case.world.kv
    if not isinstance(kv, KVKnown):
        return None
    return KVCacheStatus(
        bytes_per_token=kv.bytes_per_token, block_tokens=kv.block_tokens, source=kv.source, derivation=kv.derivation
    )


def estimates(case: Case) -> tuple[Estimate, ...]:
    if case.transfer is None or case.pool.spec.criteria.disaggregation is None:
        return ()
    return tuple(_estimate(case, case.transfer, prompt.tokens) for prompt in case.pool.spec.workload.prompts)


def _estimate(case: Case, transfer: Transfer, tokens: int) -> Estimate:
    budget = case.criteria.ttft_budget
    wait = case.load.wait_seconds if case.load else None
    total = added_ttft(case, tokens, wait or 0.0)
    kv_bytes, prefill = transfer.kv_bytes(tokens), _prefill_tokens_per_second(case)
    return Estimate(
        prompt_tokens=tokens,
        kv_bytes=min(kv_bytes, LARGEST_WHOLE_NUMBER),
        added_ttft_milliseconds=milliseconds(total),
        queue_milliseconds=None if wait is None else milliseconds(wait),
        budget_milliseconds=milliseconds(budget.seconds),
        link_milliseconds=_alone(case, Layer.LINK, kv_bytes),
        endpoint_milliseconds=_alone(case, Layer.ENDPOINT, kv_bytes),
        recompute_milliseconds=None if prefill is None else milliseconds(recompute_seconds(tokens, prefill)),
        break_even_bytes_per_second=None if prefill is None else _counted(break_even(kv_bytes, tokens, prefill)),
        bound_by=bound_by(case),
        outcome=Outcome.PASS if total <= budget.seconds else Outcome.FAIL,
    )


def _alone(case: Case, layer: Layer, kv_bytes: int) -> int | None:
    """Milliseconds at what one layer of the judged path carries."""
    rate = judged(case.fabric, case.criteria.slowest_percent_of_paths, layer)
    return None if rate is None else milliseconds(kv_bytes / (rate * case.pool.spec.fabric.probe.load_derating.number))


def _prefill_tokens_per_second(case: Case) -> float | None:
    storage = case.pool.spec.criteria.kv_storage
    declared = storage.reload_versus_recompute if storage else None
    return declared.prefill_tokens_per_second if declared else None


def _counted(value: float) -> int:
    return min(round(value), LARGEST_WHOLE_NUMBER)


LARGEST_WHOLE_NUMBER = 2**53
"""The API server keeps 64 bits, and JSON readers no more than this exactly."""

LONGEST_WAIT_MILLISECONDS = LARGEST_WHOLE_NUMBER
"""What stands in the status for a wait without end: JSON has no infinity."""


def milliseconds(seconds: float) -> int:
    whole = seconds * 1000
    return LONGEST_WAIT_MILLISECONDS if math.isinf(whole) else min(round(whole), LONGEST_WAIT_MILLISECONDS)


def longest_prompt_within_budget(case: Case) -> int | None:
    if case.transfer is None or case.pool.spec.criteria.disaggregation is None:
        return None
    overhead = case.pool.spec.workload.fixed_overhead.seconds
    return longest_prompt(case.transfer, case.criteria.ttft_budget.seconds - overhead)


def routing(case: Case) -> RoutingStatus | None:
    rate, seen = case.world.observed_requests_per_second, benchmark_status(case)
    more: dict[str, object] = {} if rate is None else {"observed_requests_per_second": f"{rate:.3g}"}
    if case.events is not None:
        more["events"] = case.events.status
    return (seen or RoutingStatus()).model_copy(update=more) if more else seen


def target(turn: Turn) -> TargetStatus | None:
    seen, before = turn.case.world.target, turn.case.pool.status.target
    if not isinstance(seen, TargetView):
        return before
    return TargetStatus(uid=seen.uid, router_mode=seen.router_mode, split=seen.split, baseline=turn.ledger.baseline)


def verifications(turn: Turn) -> tuple[Verification, ...]:
    """What was measured before each switch and passed after it; nothing of a capability of which nothing is known."""
    kept = (_verification(turn, entry) for entry in turn.judged)
    return tuple(memory for memory in kept if memory != Verification(capability=memory.capability))


def _verification(turn: Turn, entry: Judged) -> Verification:
    if entry.chain is not None:
        return entry.chain.memory
    if entry.preparation is not None:
        return entry.preparation.memory
    memory = remembered(turn.case.pool.status, entry.capability)
    off = entry.toggle is not None and entry.toggle.switch is Switch.OFF
    return resting(memory) if off else memory
