"""Criteria that compare: two tools, the line rate, the fleet's median, idle and busy; and probes that were starved."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from datetime import timedelta

import pytest

from kvgate.api.words import Capability, Outcome
from kvgate.core import fabric_criteria as criteria
from kvgate.core.evidence import Evidence, Sample
from kvgate.core.evidence_criteria import no_outlier
from kvgate.core.findings import Finding
from kvgate.core.judging import Case
from kvgate.core.verdicts import judge
from kvgate.core.workers import PodRole
from tests.core.cases import GOOD, NOW, PATHS, case, endpoint, everywhere, evidence, nodes, pods, sample

LINE = "criteria.disaggregation.minShareOfLineRate"
MEDIAN = "criteria.disaggregation.minShareOfMedian"
MINIMUM = "criteria.disaggregation.minThroughput"


def found(finding: Finding) -> tuple[Outcome, str]:
    return finding.outcome, finding.reason


def with_first(*samples: Sample) -> Case:
    return case(measured=evidence([*everywhere(paths=PATHS[1:]), *samples]))


@pytest.mark.parametrize(
    ("seen", "outcome", "reason"),
    [
        pytest.param(case(), Outcome.PASS, "ToolsAgree", id="one tool agrees with itself"),
        pytest.param(case(measured=None), Outcome.UNKNOWN, "NotMeasured", id="no sweep yet"),
        pytest.param(
            with_first(endpoint("p1→d1", 200e6), endpoint("p1→d1", 100e6, tool="nixl")),
            Outcome.PASS,
            "ToolsAgree",
            id="exactly twice apart",
        ),
        pytest.param(
            with_first(endpoint("p1→d1", 284.98e9), endpoint("p1→d1", 0.324e9, tool="nixl")),
            Outcome.INCONCLUSIVE,
            "ToolsDisagree",
            id="880 times apart, as was reported of raw UCX and nixlbench",
        ),
        pytest.param(
            with_first(sample("p1→d1", 1e9), endpoint("p1→d1", 0.4e9)),
            Outcome.PASS,
            "ToolsAgree",
            id="a transport that is slower than its link contradicts nothing: it binds",
        ),
        pytest.param(
            with_first(sample("p1→d1", 1e9), endpoint("p1→d1", 2.1e9)),
            Outcome.INCONCLUSIVE,
            "ToolsDisagree",
            id="a transport that outdoes its own link",
        ),
        pytest.param(
            with_first(sample("p1→d1", 1e9), endpoint("p1→d1", 40e9, transport="rc")),
            Outcome.PASS,
            "ToolsAgree",
            id="RDMA outdoes TCP, as it should",
        ),
    ],
)
def test_tools_agree(seen: Case, outcome: Outcome, reason: str) -> None:
    assert found(criteria.tools_agree(seen)) == (outcome, reason)


def test_of_tools_that_disagree_both_are_told_and_the_lower_counts_however_often_the_other_spoke() -> None:
    many = [endpoint("p1→d1", 20e9) for _ in range(5)]
    seen = with_first(*many, endpoint("p1→d1", 0.3e9, tool="nixl"))
    message = criteria.tools_agree(seen).message
    for part in ("p1→d1", "nixl says 300.0 MB/s", "ucx_get 20.0 GB/s"):
        assert part in message
    assert seen.fabric.paths[0].endpoint == 0.3e9


def within(changes: Mapping[str, object]) -> Case:
    """Two nodes of both roles, all measured, and both worker pods on one of them."""
    on = nodes(("a", "b"), ("a", "b"))
    workers = (*pods(PodRole.PREFILL, "a"), *pods(PodRole.DECODE, "a"))
    samples = [sample(str(one), GOOD, line_rate_bytes_per_second=10 * GOOD) for one in on.paths]
    return case(changes, on=on, workers=workers, measured=evidence(samples, planned=on.paths))


def lined(rate: float, line: float | None) -> Evidence:
    return evidence(everywhere(rate, line_rate_bytes_per_second=line))


@pytest.mark.parametrize(
    ("seen", "outcome", "reason"),
    [
        pytest.param(case(measured=lined(1.0, 1e9)), Outcome.PASS, "NoLineRateAsked", id="nothing asked for"),
        pytest.param(
            case({LINE: "92%"}, measured=lined(1.15e9, 1.25e9)), Outcome.PASS, "LineRateReached", id="exactly 92 %"
        ),
        pytest.param(
            case({LINE: "92%"}, measured=lined(1.14e9, 1.25e9)), Outcome.FAIL, "BelowLineRate", id="just below 92 %"
        ),
        pytest.param(
            case({LINE: "92%"}, measured=lined(11.5e9, 12.5e9)),
            Outcome.PASS,
            "LineRateReached",
            id="the same share of a faster interface",
        ),
        pytest.param(
            case({LINE: "92%"}, measured=lined(GOOD, None)),
            Outcome.INCONCLUSIVE,
            "LineRateUnknown",
            id="an interface that tells no speed",
        ),
        pytest.param(case({LINE: "92%"}, measured=None), Outcome.UNKNOWN, "NotMeasured", id="no sweep yet"),
        pytest.param(within({LINE: "92%"}), Outcome.PASS, "LineRateReached", id="every worker pair stays on a node"),
    ],
)
def test_line_rate_reached(seen: Case, outcome: Outcome, reason: str) -> None:
    assert found(criteria.line_rate_reached(seen)) == (outcome, reason)


def test_where_every_worker_pair_stays_on_a_node_no_wire_is_an_outlier() -> None:
    assert found(no_outlier(within({}))) == (Outcome.PASS, "PathsAlike")


def uneven(first: float) -> Evidence:
    return evidence([sample("p1→d1", first), *everywhere(200e6, PATHS[1:])])


@pytest.mark.parametrize(
    ("seen", "outcome", "reason"),
    [
        pytest.param(case(measured=uneven(1e6)), Outcome.PASS, "NoMedianAsked", id="nothing asked for"),
        pytest.param(case({MEDIAN: "80%"}, measured=uneven(160e6)), Outcome.PASS, "MedianReached", id="exactly 80 %"),
        pytest.param(case({MEDIAN: "80%"}, measured=uneven(159e6)), Outcome.FAIL, "BelowMedian", id="just below 80 %"),
        pytest.param(case({MEDIAN: "80%"}, measured=None), Outcome.UNKNOWN, "NotMeasured", id="no sweep yet"),
        pytest.param(within({MEDIAN: "80%"}), Outcome.PASS, "MedianReached", id="every worker pair stays on a node"),
    ],
)
def test_median_reached(seen: Case, outcome: Outcome, reason: str) -> None:
    assert found(criteria.median_reached(seen)) == (outcome, reason)


def test_who_is_at_fault_ends_the_message() -> None:
    seen = case({MEDIAN: "80%"}, measured=uneven(1e6))
    assert "at fault: path p1→d1 alone (bad: p1→d1 1.0 MB/s" in criteria.median_reached(seen).message


def busy(now: float, serving: float | None, idle: float) -> Case:
    """p1→d1 beside serving traffic, after a sweep in which it was idle."""
    loaded = evidence([sample("p1→d1", now, serving_bytes_per_second=serving), *everywhere(paths=PATHS[1:])])
    before = evidence(everywhere(idle), run_id="run-0", measured_at=NOW - timedelta(hours=20))
    before = dataclasses.replace(before, samples=tuple(dataclasses.replace(s, run_id="run-0") for s in before.samples))
    plain = case(measured=loaded)
    return dataclasses.replace(plain, world=dataclasses.replace(plain.world, evidence=(loaded, before)))


@pytest.mark.parametrize(
    ("seen", "reason"),
    [
        pytest.param(busy(2e9, 1e9, 10e9), "SlowerUnderLoad", id="3 of 10 GB/s under load"),
        pytest.param(busy(2e9, 3e9, 10e9), "NotSlowerUnderLoad", id="half of it, with what serving moves"),
        pytest.param(busy(2e9, None, 10e9), "NotSlowerUnderLoad", id="slow without load is another matter"),
        pytest.param(case(), "NotSlowerUnderLoad", id="never measured under load"),
    ],
)
def test_load_told(seen: Case, reason: str) -> None:
    assert found(criteria.load_told(seen)) == (Outcome.PASS, reason)


def test_both_figures_are_told() -> None:
    message = criteria.load_told(busy(2e9, 1e9, 10e9)).message
    for part in ("p1→d1 carries 3.0 GB/s", "1.0 GB/s", "10.0 GB/s", "idle", "under load is judged"):
        assert part in message


def starving(rate: float, starved: str = "p1 got 40% of the 1 CPU that it asked for") -> Case:
    return case({MINIMUM: "100MB/s"}, measured=evidence(everywhere(rate, starved=starved)))


def reasons(seen: Case) -> set[tuple[Outcome, str]]:
    return {found(finding) for finding in judge(seen, Capability.DISAGGREGATION).findings}


def test_a_starved_probe_fails_nothing_and_is_named() -> None:
    seen = reasons(starving(10e6))
    assert (Outcome.INCONCLUSIVE, "ProbeStarved") in seen
    assert not any(outcome is Outcome.FAIL for outcome, _ in seen)
    told = next(f for f in judge(starving(10e6), Capability.DISAGGREGATION).findings if f.criterion == "minThroughput")
    for part in ("ThroughputTooLow", "40%", "p1→d1", "administrator", "10.0 MB/s"):
        assert part in told.message


def test_enough_is_enough_even_from_a_starved_probe() -> None:
    assert judge(starving(GOOD), Capability.DISAGGREGATION).outcome is Outcome.PASS


def test_the_same_number_of_a_probe_with_its_processor_fails() -> None:
    assert (Outcome.FAIL, "ThroughputTooLow") in reasons(starving(10e6, ""))
