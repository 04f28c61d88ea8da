"""Whole verdicts: one fault of each kind among criteria that pass, and what must hold of all of them."""

from __future__ import annotations

import dataclasses
import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvgate.api.words import Capability, Outcome
from kvgate.core.evidence import Evidence, FailureKind, Sample
from kvgate.core.findings import Concern, Finding, Verdict
from kvgate.core.judging import Case
from kvgate.core.target import FabricClass, TargetProblem
from kvgate.core.verdicts import APART, GROUNDS, NUMBERS, gated, judge
from kvgate.core.world import KVUnknown
from tests.core.cases import (
    GOOD,
    NOW,
    PATHS,
    case,
    endpoint,
    everywhere,
    evidence,
    failed,
    identities,
    kv,
    layout,
    nodes,
    sample,
    target,
    toggle,
)

SPLIT, STORAGE, ROUTING = Capability.DISAGGREGATION, Capability.KV_STORAGE, Capability.ROUTING


def split(seen: Case) -> Verdict:
    return judge(seen, SPLIT)


def told(verdict: Verdict) -> tuple[Outcome, str]:
    return verdict.outcome, verdict.decisive.reason


def test_a_whole_and_fresh_sweep_of_a_fabric_that_is_good_enough_passes() -> None:
    verdict = split(case())
    assert {finding.outcome for finding in verdict.findings} == {Outcome.PASS}


def test_every_criterion_of_the_split_is_in_its_verdict() -> None:
    assert len({finding.criterion for finding in split(case()).findings}) == len((*GROUNDS, *APART, *NUMBERS)) + 1


ALL_REBOOTED = nodes(identities=tuple(dataclasses.replace(one, boot_id="again") for one in identities()))
REBOOTED = nodes(identities=identities(d1=dataclasses.replace(identities()[2], boot_id="again")))


@pytest.mark.parametrize(
    ("seen", "outcome", "reason"),
    [
        pytest.param(case(on=nodes(())), Outcome.ERROR, "NoNodesMatched", id="no node matches"),
        pytest.param(
            case(evidence_problem="spoilt"), Outcome.ERROR, "EvidenceUnreadable", id="a report that is spoilt"
        ),
        pytest.param(case(pool_uid="other"), Outcome.ERROR, "EvidenceOfAnotherPool", id="another pool's sweep"),
        pytest.param(case(measured=None), Outcome.UNKNOWN, "NotMeasured", id="no sweep"),
        pytest.param(case(now=NOW.replace(year=2027)), Outcome.UNKNOWN, "EvidenceExpired", id="an old sweep"),
        pytest.param(case(now=NOW.replace(year=2025)), Outcome.ERROR, "ClockSkew", id="a sweep from the future"),
        pytest.param(case(on=REBOOTED), Outcome.UNKNOWN, "NodeNotCovered", id="a node that booted again"),
        pytest.param(
            case(measured=evidence([*everywhere(paths=PATHS[1:]), failed(PATHS[0], FailureKind.NO_ROUTE)])),
            Outcome.FAIL,
            "Unreachable",
            id="a dead path",
        ),
        pytest.param(
            case(measured=evidence(everywhere(paths=PATHS[1:]))),
            Outcome.INCONCLUSIVE,
            "CoverageTooLow",
            id="a path without an answer",
        ),
        pytest.param(case(size=KVUnknown("KVBytesUnknown", "x")), Outcome.UNKNOWN, "KVBytesUnknown", id="no KV size"),
        pytest.param(
            case({"criteria.disaggregation.minThroughput": "1GB/s"}), Outcome.FAIL, "ThroughputTooLow", id="too slow"
        ),
        pytest.param(
            case({"criteria.disaggregation.ttftBudget": "1s"}), Outcome.FAIL, "TTFTBudgetExceeded", id="too late"
        ),
        pytest.param(
            case({"workload.peakRequestsPerSecond": None}), Outcome.UNKNOWN, "PeakRateUnknown", id="no peak rate"
        ),
        pytest.param(
            case({"criteria.disaggregation.maxUtilization": "1%"}), Outcome.FAIL, "PathOversubscribed", id="too full"
        ),
        pytest.param(
            case(
                {"criteria.disaggregation.slowestPercentOfPaths": 50},
                measured=evidence([*everywhere(paths=PATHS[1:]), sample(PATHS[0], GOOD / 3)]),
            ),
            Outcome.INCONCLUSIVE,
            "PathOutlier",
            id="one path far behind",
        ),
        pytest.param(
            case({"fabric.probe.endpoint.tool": "nixl"}), Outcome.INCONCLUSIVE, "EndpointUnmeasured", id="no endpoint"
        ),
        pytest.param(
            case({"fabric.probe.phases": ["Isolated", "Concurrent"]}),
            Outcome.INCONCLUSIVE,
            "PhaseUnmeasured",
            id="no second phase",
        ),
        pytest.param(
            case(deployment=TargetProblem("TargetNotFound", "gone")), Outcome.ERROR, "TargetNotFound", id="no target"
        ),
    ],
)
def test_one_fault_decides_the_verdict(seen: Case, outcome: Outcome, reason: str) -> None:
    assert told(split(seen)) == (outcome, reason)


@pytest.mark.parametrize(
    "seen",
    [
        pytest.param(case(now=NOW.replace(year=2027)), id="expired"),
        pytest.param(case(pool_uid="other"), id="of another pool"),
        pytest.param(case(on=ALL_REBOOTED), id="of nodes as they were before they booted"),
    ],
)
def test_evidence_that_does_not_count_can_close_nothing(seen: Case) -> None:
    dead = evidence([failed(path, FailureKind.NO_ROUTE) for path in PATHS])
    assert split(dataclasses.replace(seen, evidence=dead)).outcome is not Outcome.FAIL


def test_what_the_deployment_puts_in_the_way_is_part_of_the_verdict() -> None:
    refusal = Finding("toggle", Outcome.ERROR, "NotToggleable", "a fixed role", Concern.TARGET)
    doubt = Finding("gpus", Outcome.INCONCLUSIVE, "GPUsUnknown", "accept it", Concern.TARGET)
    verdict = split(case(deployment=target(toggles={SPLIT: toggle(refusal=refusal, findings=(doubt,))})))
    assert told(verdict) == (Outcome.ERROR, "NotToggleable")
    assert verdict.inconclusive_reasons == {"GPUsUnknown"}


@pytest.mark.parametrize(
    ("block", "reasons"),
    [
        pytest.param({}, ["KVEventsNotObserved", "BenchmarkNotConfigured"], id="nothing configured"),
        pytest.param({"kvEvents": "Ignored"}, ["KVEventsIgnored", "BenchmarkNotConfigured"], id="events ignored"),
        pytest.param(
            {"kvEvents": "Ignored", "benchmark": {"targetRef": {"name": "staging"}}},
            ["KVEventsIgnored", "BenchmarkNotRun"],
            id="an A/B asked for, and none ended yet",
        ),
    ],
)
def test_routing_is_unknown_until_it_was_compared(block: dict[str, object], reasons: list[str]) -> None:
    verdict = judge(case({"criteria.routing": block}), ROUTING)
    assert [finding.reason for finding in verdict.findings] == reasons
    assert verdict.outcome is Outcome.UNKNOWN


def declared(throughput: str) -> dict[str, object]:
    return {
        "criteria.kvStorage.reloadVersusRecompute": {
            "storageThroughput": throughput,
            "prefillTokensPerSecond": 10_000,
        }
    }


NO_BYTES = dataclasses.replace(kv(), bytes_per_token=0)
WITH_STATE = dataclasses.replace(kv(), size=dataclasses.replace(layout(), state_bytes=150_000_000))
"""A recurrent state of 150 MB beside the cache: break-even 16.1 GB/s at 100 tokens, 1.65 GB/s at 3,000."""


@pytest.mark.parametrize(
    ("seen", "outcome", "reason"),
    [
        pytest.param(case({"criteria.kvStorage": {}}), Outcome.UNKNOWN, "NotDeclared", id="nothing declared"),
        pytest.param(case(declared("1146MB/s")), Outcome.FAIL, "RecomputeIsFaster", id="below 1146.88 MB/s"),
        pytest.param(case(declared("1146.88MB/s")), Outcome.FAIL, "RecomputeIsFaster", id="exactly at break-even"),
        pytest.param(case(declared("1147MB/s")), Outcome.INCONCLUSIVE, "Declared", id="declared is never a Pass"),
        pytest.param(
            case({**declared("2GB/s"), "workload.prompts": [{"tokens": 100}, {"tokens": 3000}]}, size=WITH_STATE),
            Outcome.INCONCLUSIVE,
            "RecomputeIsFasterForSome",
            id="a state that short prompts do not earn back",
        ),
        pytest.param(
            case({**declared("1.2GB/s"), "workload.prompts": [{"tokens": 100}, {"tokens": 3000}]}, size=WITH_STATE),
            Outcome.FAIL,
            "RecomputeIsFaster",
            id="below break-even at every size",
        ),
        pytest.param(
            case(declared("9GB/s"), size=KVUnknown("KVBytesUnknown", "x")),
            Outcome.UNKNOWN,
            "KVBytesUnknown",
            id="no size",
        ),
        pytest.param(
            case(declared("1MB/s"), size=NO_BYTES), Outcome.UNKNOWN, "KVBytesUnknown", id="zero bytes pass nothing"
        ),
    ],
)
def test_storage_is_judged_by_what_is_declared(seen: Case, outcome: Outcome, reason: str) -> None:
    """Break-even: 114,688 B per token × 10,000 tokens/s = 1146.88 MB/s."""
    assert told(judge(seen, STORAGE)) == (outcome, reason)


@pytest.mark.parametrize(
    ("blocks", "expected"),
    [
        pytest.param({"criteria": {}}, (), id="no block, nothing gated"),
        pytest.param({}, (SPLIT,), id="one block"),
        pytest.param({"criteria": {"routing": {}, "kvStorage": {}}}, (ROUTING, STORAGE), id="the others"),
    ],
)
def test_only_a_capability_with_criteria_is_gated(blocks: dict[str, object], expected: tuple[Capability, ...]) -> None:
    assert gated(case(blocks)) == expected


MINIMUM = {"criteria.disaggregation.minThroughput": "100MB/s", "criteria.disaggregation.maxUtilization": "30%"}
RATES = st.floats(5e7, 1.2e9)


def measured(samples: list[Sample]) -> Case:
    return case(MINIMUM, measured=evidence(samples))


@given(st.lists(RATES, min_size=8, max_size=8), st.integers(0, 7), st.floats(1, 20))
def test_more_throughput_turns_no_pass_into_fail(rates: list[float], index: int, factor: float) -> None:
    layers = [*((sample, one) for one in PATHS), *((endpoint, one) for one in PATHS)]
    slower = [layer(one, rate) for (layer, one), rate in zip(layers, rates, strict=True)]
    faster = list(slower)
    faster[index] = dataclasses.replace(slower[index], bytes_per_second=rates[index] * factor)
    before, after = measured(slower), measured(faster)
    for criterion in (*GROUNDS, *APART, *NUMBERS):
        if criterion(before).outcome is not Outcome.FAIL:
            assert criterion(after).outcome is not Outcome.FAIL, criterion.__name__
    if split(before).outcome is Outcome.PASS:
        assert split(after).outcome in {Outcome.PASS, Outcome.INCONCLUSIVE}


@given(
    st.permutations([*everywhere(), *(endpoint(one, GOOD / 2) for one in PATHS[:3])]), st.randoms(use_true_random=False)
)
def test_the_order_of_the_samples_and_nodes_changes_nothing(samples: list[Sample], shuffler: Random) -> None:
    planned = list(PATHS)
    shuffler.shuffle(planned)
    straight = evidence([*everywhere(), *(endpoint(one, GOOD / 2) for one in PATHS[:3])])
    shuffled = evidence(samples, planned=tuple(planned), nodes=tuple(reversed(straight.nodes)))
    assert split(case(measured=shuffled)) == split(case(measured=straight))


LOST = st.sampled_from([math.nan, math.inf, -1.0, 0.0, None])


@given(st.integers(0, 3), LOST)
def test_one_path_without_a_believable_number_never_passes(index: int, lost: float | None) -> None:
    samples = list(everywhere())
    samples[index] = failed(PATHS[index], FailureKind.INTERRUPTED) if lost is None else sample(PATHS[index], lost)
    assert split(case(measured=evidence(samples))).outcome is not Outcome.PASS


@given(st.sets(st.sampled_from(PATHS), max_size=3))
def test_a_sweep_that_misses_a_path_never_passes(kept: set[object]) -> None:
    swept: Evidence = evidence(sample(one) for one in PATHS if one in kept)
    assert split(case(measured=swept)).outcome is not Outcome.PASS


def test_a_slow_tcp_link_fails_nothing_for_workers_that_use_rdma() -> None:
    slow = case(measured=evidence(everywhere(1e6)), deployment=target(FabricClass.INFINIBAND))
    verdict = judge(slow, Capability.DISAGGREGATION)
    assert (verdict.outcome, verdict.decisive.reason) == (Outcome.INCONCLUSIVE, "Unmeasured")
