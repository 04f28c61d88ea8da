"""Added errors: Newcombe's interval against published values, and what it decides."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvgate.api.words import Outcome
from kvgate.core.ab.errors import Share, errors_bearable, newcombe, wilson
from kvgate.core.ab.experiment import Arm
from tests.core.ab.trials import LIMITS, but, experiment, failing


@pytest.mark.parametrize(
    ("first", "second", "low", "high"),
    [
        pytest.param(Share(56, 70), Share(48, 80), 0.0524, 0.3339, id="56 of 70 and 48 of 80"),
        pytest.param(Share(9, 10), Share(3, 10), 0.1705, 0.8090, id="9 of 10 and 3 of 10"),
        pytest.param(Share(5, 56), Share(0, 29), -0.0381, 0.1926, id="5 of 56 and none of 29"),
        pytest.param(Share(0, 10), Share(0, 20), -0.1611, 0.2775, id="none of 10 and none of 20"),
        pytest.param(Share(10, 10), Share(0, 10), 0.6075, 1.0, id="all and none"),
    ],
)
def test_the_interval_is_the_published_one(first: Share, second: Share, low: float, high: float) -> None:
    """Newcombe, Statistics in Medicine 17 (1998) 873, table II, method 10."""
    assert newcombe(first, second) == pytest.approx((low, high), abs=6e-5)


def test_nothing_counted_says_nothing() -> None:
    assert wilson(Share(0, 0)) == (0.0, 1.0)
    assert newcombe(Share(0, 0), Share(0, 0)) == (-1.0, 1.0)


@pytest.mark.parametrize(
    ("kv_every", "round_robin_every", "outcome", "reason"),
    [
        pytest.param(0, 0, Outcome.PASS, "ErrorsBearable", id="no errors"),
        pytest.param(65, 65, Outcome.INCONCLUSIVE, "ErrorRateUncertain", id="the same errors in both arms"),
        pytest.param(20, 0, Outcome.FAIL, "ErrorRateIncreased", id="one in twenty with KV"),
        pytest.param(0, 20, Outcome.PASS, "ErrorsBearable", id="KV takes errors away"),
    ],
)
def test_the_interval_decides(kv_every: int, round_robin_every: int, outcome: Outcome, reason: str) -> None:
    found = experiment()
    runs = []
    for run in found.runs:
        every = kv_every if run.arm is Arm.KV else round_robin_every
        spoilt = but(run.arm, failing(), lambda number, n=every: bool(n) and number % n == n - 1)  # type: ignore[misc]
        runs.append(next(r for r in spoilt.runs if (r.block, r.arm) == (run.block, run.arm)))
    finding = errors_bearable(experiment(runs=tuple(runs)), LIMITS)
    assert (finding.outcome, finding.reason) == (outcome, reason)


def test_eight_hundred_counted_requests_are_needed_and_the_discarded_are_not_among_them() -> None:
    assert errors_bearable(experiment(blocks=7), LIMITS).reason == "TooFewRequests"
    assert errors_bearable(experiment(blocks=8), LIMITS).reason == "ErrorsBearable"


def test_few_requests_can_still_fail() -> None:
    spoilt = but(Arm.KV, failing(), lambda number: number % 10 == 0)
    two = [run for run in spoilt.runs if run.block < 2]
    assert errors_bearable(experiment(blocks=2, runs=tuple(two)), LIMITS).outcome is Outcome.FAIL


def test_the_message_holds_counts_interval_and_limit() -> None:
    said = errors_bearable(experiment(), LIMITS).message
    assert "0 of 832 requests failed with KV routing" in said
    assert "-0.46% to 0.46% points" in said or "-0.5% to 0.5% points" in said
    assert "maxErrorRateIncrease is 0.5%" in said


SHARES = st.integers(1, 2000).flatmap(lambda count: st.builds(Share, st.integers(0, count), st.just(count)))


@given(SHARES, SHARES)
def test_the_interval_holds_its_estimate_and_turns_with_its_arms(first: Share, second: Share) -> None:
    low, high = newcombe(first, second)
    assert low - 1e-12 <= first.fraction - second.fraction <= high + 1e-12
    back_low, back_high = newcombe(second, first)
    assert (back_low, back_high) == pytest.approx((-high, -low))


@given(SHARES)
def test_more_of_the_same_narrows_it(share: Share) -> None:
    more = Share(share.failed * 4, share.counted * 4)
    (low, high), (lower, higher) = wilson(share), wilson(more)
    assert higher - lower < high - low
