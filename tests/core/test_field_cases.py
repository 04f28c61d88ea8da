"""What went wrong in the field, as evidence, with the verdict that each must get."""

from __future__ import annotations

import dataclasses
from datetime import timedelta

import pytest

from kvgate.api.words import Capability, Memory, Outcome, Phase
from kvgate.core import evidence_criteria as criteria
from kvgate.core.evidence import FailureKind
from kvgate.core.judging import Case
from kvgate.core.statuses import bound_by
from kvgate.core.target import FabricClass
from kvgate.core.verdicts import judge
from tests.core.cases import NOW, PATHS, case, endpoint, everywhere, evidence, failed, kv, nodes, path, sample, target

LLAMA_8B = kv(131_072)
GBIT = 1e9 / 8


def split(seen: Case) -> list[tuple[Outcome, str]]:
    return [(f.outcome, f.reason) for f in judge(seen, Capability.DISAGGREGATION).findings]


def test_a_transport_that_fell_back_to_tcp_binds_whatever_the_link_carries() -> None:
    """655,360,000 B in 1803.4 ms through UCX without RDMA, on a link for which iperf3 says 94 Gbit/s."""
    rate = 655_360_000 / 1.8034
    seen = case(
        {"criteria.disaggregation.minThroughput": "10GB/s", "workload.prompts": [{"tokens": 5000}]},
        measured=evidence([*everywhere(94 * GBIT), *(endpoint(one, rate) for one in PATHS)]),
        size=LLAMA_8B,
    )
    assert seen.judged_bytes_per_second == pytest.approx(2.91 * GBIT, rel=0.01)
    assert bound_by(seen) == "endpoint"
    assert (Outcome.FAIL, "ThroughputTooLow") in split(seen)
    assert seen.transfer is not None
    assert seen.transfer.seconds(5000) == pytest.approx(1.8034, rel=0.002)


def test_host_memory_says_nothing_of_gpu_memory_over_rdma() -> None:
    host = evidence([endpoint(one, 47e9, transport="rc") for one in PATHS])
    assert (Outcome.INCONCLUSIVE, "MemoryKindUnmeasured") in split(
        case(measured=host, deployment=target(FabricClass.INFINIBAND))
    )
    gpu = evidence([endpoint(one, 15e9, transport="rc", memory=Memory.GPU) for one in PATHS])
    seen = case(measured=gpu, deployment=target(FabricClass.INFINIBAND))
    assert seen.judged_bytes_per_second == 120 * GBIT


def test_pairs_that_share_one_interface_are_judged_by_what_they_carry_at_once() -> None:
    """48 and 24 GB/s alone, 6 GB/s each when eight pairs run."""
    alone = [sample("p1→d1", 48e9), sample("p1→d2", 24e9), sample("p2→d1", 48e9), sample("p2→d2", 48e9)]
    beside = [sample(one, 6e9, phase=Phase.CONCURRENT, slot=n % 2) for n, one in enumerate(PATHS)]
    assert case(measured=evidence([*alone, *beside])).judged_bytes_per_second == 6e9


def test_a_cold_first_transfer_is_no_measure_of_the_path() -> None:
    runs = [0.164, 10.09, 10.06, 9.96, 10.07, 10.05, 10.0, 9.91, 9.95, 9.96]
    seen = case(measured=evidence([endpoint("p1→d1", run * 1e9) for run in runs]))
    assert seen.fabric.paths[0].bytes_per_second == 9.96e9


def test_the_gate_does_not_blame_a_link_for_what_it_adds_not() -> None:
    """70.3 MB at 50 GB/s are 1.4 ms, fifty at once 70 ms: a TTFT of 6.5 s has another cause."""
    seen = case({"workload.prompts": [{"tokens": 1000}]}, measured=evidence(everywhere(50e9)), size=kv(70_272))
    assert seen.transfer is not None
    assert seen.transfer.seconds(1000) == pytest.approx(1.41e-3, rel=0.01)
    assert not any(outcome is Outcome.FAIL for outcome, _ in split(seen))


def test_the_worst_path_in_use_is_told_where_the_mean_would_hide_it() -> None:
    """All within racks at 45 GB/s, one path from prefill to decode at 2: the mean says 40."""
    fast = [endpoint(one, 45e9) for one in PATHS]
    seen = case(
        {"criteria.disaggregation.slowestPercentOfPaths": 50},
        measured=evidence([*fast[1:], endpoint("p1→d1", 2e9)]),
    )
    assert criteria.no_outlier(seen).reason == "PathOutlier"
    assert "path p1→d1 alone" in criteria.no_outlier(seen).message


@pytest.mark.parametrize(
    ("ahead", "reason"),
    [
        pytest.param(timedelta(minutes=7), "ClockSkew", id="7 minutes in the future is flagged, not fresh for ever"),
        pytest.param(timedelta(milliseconds=60), "EvidenceFresh", id="60 ms in the future is a clock"),
        pytest.param(timedelta(hours=-25), "EvidenceFresh", id="25 h old is within 48 h"),
        pytest.param(timedelta(hours=-48), "EvidenceExpired", id="48 h old is not"),
    ],
)
def test_the_age_of_evidence_goes_by_one_clock(ahead: timedelta, reason: str) -> None:
    assert criteria.evidence_fresh(case(measured=evidence(measured_at=NOW + ahead))).reason == reason


def test_a_node_that_was_drained_is_not_missed_and_what_failed_on_it_is_no_fault() -> None:
    drained = [failed(one, FailureKind.INTERRUPTED) for one in PATHS if one.destination == "d2"]
    swept = evidence([*drained, *everywhere(paths=[one for one in PATHS if one.destination == "d1"])])
    assert (Outcome.PASS, "PathsCovered") in split(case(on=nodes(decode=("d1",)), measured=swept))
    assert not any(outcome is Outcome.FAIL for outcome, _ in split(case(measured=swept)))


def test_both_ends_in_one_pod_are_loopback_and_accepted_for_no_path() -> None:
    short_cut = dataclasses.replace(sample("a→a", 62 * GBIT), interface="lo")
    seen = case(on=nodes(("a",), ("a",)), measured=evidence([short_cut], planned=(path("a→a"),)))
    assert seen.judged_bytes_per_second is None


def test_a_filtered_port_is_inconclusive_and_never_zero() -> None:
    seen = case(measured=evidence([*everywhere(paths=PATHS[1:]), failed("p1→d1", FailureKind.CONNECT_TIMEOUT)]))
    assert (Outcome.INCONCLUSIVE, "CoverageTooLow") in split(seen)
    assert seen.worst_bytes_per_second is not None
    assert seen.worst_bytes_per_second > 0


def test_evidence_of_another_run_is_refused() -> None:
    stale = dataclasses.replace(everywhere()[0], run_id="run-41")
    assert (Outcome.ERROR, "EvidenceOfAnotherRun") in split(case(measured=evidence([stale, *everywhere()[1:]])))
