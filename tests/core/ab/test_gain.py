"""The paired t-bound: what passes, what fails, and what lies between."""

from __future__ import annotations

import math
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvgate.api.words import Outcome
from kvgate.core.ab.experiment import Arm, Fault, Limits
from kvgate.core.ab.gain import differences, gain, gain_enough
from tests.core.ab.trials import LIMITS, but, experiment, failing, having, with_ratios

EIGHT = (-1, 1, -1, 1, -1, 1, -1, 1)


def spread(improvement: float, deviation: float) -> tuple[float, ...]:
    """Eight log ratios with exactly this mean and sample standard deviation."""
    step = deviation * math.sqrt(7 / 8)
    return tuple(math.log1p(-improvement) + sign * step for sign in EIGHT)


@pytest.mark.parametrize(
    ("logs", "outcome", "reason"),
    [
        pytest.param(spread(0.30, 0.05), Outcome.PASS, "GainProven", id="30% with quiet blocks"),
        pytest.param(spread(0.30, 0.09), Outcome.PASS, "GainProven", id="30% with a spread of 0.09"),
        pytest.param(spread(0.25, 0.09), Outcome.INCONCLUSIVE, "GainUncertain", id="25%, and the bound falls short"),
        pytest.param(spread(0.25, 0.15), Outcome.INCONCLUSIVE, "TooNoisy", id="25% with noisy blocks"),
        pytest.param(spread(0.199, 0.01), Outcome.FAIL, "GainTooSmall", id="an estimate just short of 20%"),
        pytest.param(spread(0.199, 0.3), Outcome.FAIL, "GainTooSmall", id="an estimate short of 20%, however noisy"),
        pytest.param(
            spread(0.20, 0.001), Outcome.INCONCLUSIVE, "GainUncertain", id="20% at the middle of its interval"
        ),
        pytest.param(spread(-1.5, 0.05), Outcome.FAIL, "GainTooSmall", id="two and a half times slower"),
    ],
)
def test_the_bound_decides(logs: tuple[float, ...], outcome: Outcome, reason: str) -> None:
    finding = gain_enough(with_ratios(logs), LIMITS)
    assert (finding.outcome, finding.reason) == (outcome, reason)


def test_the_message_holds_the_gain_its_interval_and_the_limit() -> None:
    said = gain_enough(with_ratios(spread(0.30, 0.05)), LIMITS).message
    assert "30.0% shorter" in said or "30% shorter" in said
    assert "27.0% to 32.9%" in said
    assert "8 blocks" in said
    assert "minTTFTImprovement is 20%" in said


def test_mean_deviation_and_half_width_are_those_of_the_log_ratios() -> None:
    found = gain(with_ratios(spread(0.30, 0.08)))
    assert found is not None
    assert found.mean == pytest.approx(math.log(0.7))
    assert found.deviation == pytest.approx(0.08)
    assert found.half_width == pytest.approx(2.364624251592784 * 0.08 / math.sqrt(8))
    assert found.improvement == pytest.approx(0.3)
    assert found.low < 0.3 < found.high


def test_a_ratio_is_that_of_the_means_and_not_of_single_requests() -> None:
    uneven = but(Arm.KV, having(first_token_seconds=1.0), lambda number: number == 129)
    expected = (103 * (0.5 - 0.4 * 0.896) + 1.0) / 104 / (0.5 - 0.4 * 0.48)
    assert differences(uneven) == pytest.approx([math.log(expected)] * 8)


def test_a_failure_counts_as_the_timeout() -> None:
    one = but(Arm.KV, failing(Fault.TIMEOUT), lambda number: number == 129)
    expected = (103 * (0.5 - 0.4 * 0.896) + 30.0) / 104 / (0.5 - 0.4 * 0.48)
    assert differences(one) == pytest.approx([math.log(expected)] * 8)


def test_the_first_fifth_is_not_counted() -> None:
    slow_start = but(None, having(first_token_seconds=29.0), lambda number: number < 26)
    assert differences(slow_start) == pytest.approx(differences(experiment()))


def test_one_block_has_no_bound() -> None:
    assert gain(experiment(blocks=1)) is None
    assert gain_enough(experiment(blocks=1), LIMITS).reason == "BenchmarkIncomplete"


def test_all_of_the_time_can_not_be_gained() -> None:
    assert gain_enough(experiment(), Limits(1.0, 0.005)).outcome is Outcome.FAIL


LOGS = st.lists(st.floats(-2, 2), min_size=2, max_size=6).map(tuple)


@given(LOGS, st.floats(0, 0.9), st.floats(0, 0.5))
@settings(max_examples=40)
def test_asking_for_more_never_turns_a_failure_into_a_pass(logs: tuple[float, ...], least: float, more: float) -> None:
    order = (Outcome.PASS, Outcome.INCONCLUSIVE, Outcome.FAIL)
    asked = [Limits(min(0.99, least + extra), 0.005) for extra in (0.0, more)]
    found = [gain_enough(with_ratios(logs), limits).outcome for limits in asked]
    assert order.index(found[0]) <= order.index(found[1])


@given(LOGS, st.floats(0.001, 0.5))
@settings(max_examples=40)
def test_being_faster_in_every_block_never_turns_a_pass_into_anything_else(logs: tuple[float, ...], by: float) -> None:
    faster = tuple(log - by for log in logs)
    if gain_enough(with_ratios(logs), LIMITS).outcome is Outcome.PASS:
        assert gain_enough(with_ratios(faster), LIMITS).outcome is Outcome.PASS


@given(st.randoms(use_true_random=False))
@settings(max_examples=20)
def test_the_order_in_which_runs_and_requests_are_told_changes_nothing(shuffler: Random) -> None:
    sound = experiment(blocks=3)
    runs = list(sound.runs)
    shuffler.shuffle(runs)
    turned = tuple(replace(run, requests=tuple(reversed(run.requests))) for run in runs)
    assert differences(replace(sound, runs=turned)) == pytest.approx(differences(sound))
