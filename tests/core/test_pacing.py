"""Nodes that serve: how much a path is asked for, and what a test that got all of it is worth."""

from __future__ import annotations

import dataclasses

import pytest

from kvgate.api.words import Capability, Outcome
from kvgate.core import fabric_criteria as criteria
from kvgate.core.evidence import Sample
from kvgate.core.judging import Case
from kvgate.core.pacing import MARGIN, pace, required
from kvgate.core.target import Switch, TargetView
from kvgate.core.verdicts import judge
from kvgate.core.workers import PodRole
from tests.core.cases import GOOD, case, everywhere, evidence, pods, sample
from tests.core.worlds import SPLIT, toggle

PAYLOAD = 3008 * 114_688
"""Bytes of KV cache of 3,000 tokens in whole blocks."""
RUNNING = (*pods(PodRole.PREFILL, "p1", "p2"), *pods(PodRole.DECODE, "d1", "d2"))


def serving(changes: dict[str, object] | None = None, *samples: Sample, switch: Switch = Switch.ON) -> Case:
    on = TargetView("target-uid", toggles={SPLIT: toggle(SPLIT, switch)})
    return case(changes, measured=evidence(samples or None), deployment=on, workers=RUNNING)


@pytest.mark.parametrize(
    ("changes", "least"),
    [
        pytest.param({"workload.peakRequestsPerSecond": None}, PAYLOAD / 2, id="the budget alone: bytes over seconds"),
        pytest.param(
            {"workload.peakRequestsPerSecond": None, "criteria.disaggregation.minThroughput": "4Gbit/s"},
            500e6,
            id="a minimum that is more than the budget needs",
        ),
        pytest.param(
            {"workload.peakRequestsPerSecond": None, "fabric.probe.loadDerating": "0.5"},
            PAYLOAD,
            id="twice of it where half is left under load",
        ),
        pytest.param(
            {"workload.peakRequestsPerSecond": "2", "criteria.disaggregation.ttftBudget": "10m"},
            2 * PAYLOAD * 1.25 / 2 / 0.7,
            id="the utilization of the busiest node",
        ),
    ],
)
def test_what_must_be_carried(changes: dict[str, object], least: float) -> None:
    assert required(serving(changes)) == pytest.approx(least, rel=1e-6)


def test_exactly_what_must_be_carried_passes_and_a_hundredth_less_fails() -> None:
    least = required(serving())
    assert least is not None
    for rate, outcome in ((least * 1.0001, Outcome.PASS), (least * 0.99, Outcome.FAIL)):
        assert judge(serving({}, *everywhere(rate)), Capability.DISAGGREGATION).outcome is outcome


def test_the_sweep_of_nodes_that_serve_asks_for_a_fifth_more_than_is_needed() -> None:
    served = serving()
    least = required(served)
    assert least is not None
    assert pace(served) == pytest.approx(MARGIN * least)
    assert least < GOOD / 1.2


@pytest.mark.parametrize(
    "held",
    [
        pytest.param(serving(switch=Switch.OFF), id="the split is off"),
        pytest.param(case(), id="no pod has a node"),
        pytest.param(dataclasses.replace(serving(), evidence=None), id="nothing was measured yet"),
        pytest.param(serving({"workload.fixedOverhead": "5s"}), id="no rate keeps the budget"),
    ],
)
def test_elsewhere_a_sweep_measures_all_that_a_path_carries(held: Case) -> None:
    assert pace(held) is None


def at_pace(rate: float, asked: float) -> tuple[Sample, ...]:
    return everywhere(rate, paced_bytes_per_second=asked)


def test_a_path_that_got_what_it_asked_for_passes_and_is_compared_with_none() -> None:
    """One path was measured whole before: those that were asked for less are no outliers, and nobody's fault."""
    asked = 240e6
    first, *rest = at_pace(asked * 0.98, asked)
    mixed = serving({}, sample(first.path, 2.5e9), *rest)
    found = {finding.criterion: finding for finding in judge(mixed, SPLIT).findings}
    assert found["outlier"].outcome is Outcome.PASS
    assert mixed.trials is None or not mixed.suspects
    assert found["minThroughput"].outcome is found["ttftBudget"].outcome is Outcome.PASS


def test_a_path_that_did_not_get_it_fails_as_ever() -> None:
    slow = serving({}, *at_pace(60e6, 220e6))
    assert judge(slow, SPLIT).outcome is Outcome.FAIL
    assert not slow.fabric.paths[0].at_least


def test_what_serving_moved_meanwhile_is_capacity_of_the_path() -> None:
    asked = serving({}, *everywhere(100e6, paced_bytes_per_second=220e6, serving_bytes_per_second=130e6))
    assert asked.judged_bytes_per_second == 230e6
    assert judge(asked, SPLIT).outcome is not Outcome.FAIL
    assert criteria.load_told(asked).reason == "NotSlowerUnderLoad"
    alone = serving({}, *everywhere(100e6, paced_bytes_per_second=220e6))
    assert judge(alone, SPLIT).outcome is Outcome.FAIL
