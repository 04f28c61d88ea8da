"""Bounds of medians: known ranks, known differences, and coverage over distributions of every shape."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvgate.core.medians import Interval, median_rise, rank_below

RANKS = {
    "5 samples: no order statistic is sure enough": (5, None),
    "6 samples: the smallest, by 1/64": (6, 1),
    "8 samples: still the smallest": (8, 1),
    "9 samples: the second": (9, 2),
    "27 samples, as after the warm-up is dropped": (27, 8),
    "30 samples: the tenth, as in tables of the sign test": (30, 10),
    "no sample": (0, None),
}


@pytest.mark.parametrize(("count", "rank"), RANKS.values(), ids=RANKS)
def test_the_rank_of_the_lower_bound_is_that_of_the_sign_test(count: int, rank: int | None) -> None:
    assert rank_below(count, 0.025) == rank


def test_the_rise_of_a_shifted_sample_is_the_shift_within_its_bounds() -> None:
    before = [float(value) for value in range(30)]
    after = [value + 100 for value in before]
    assert median_rise(before, after) == Interval(100.0, 100 + 9 - 20, 100 + 20 - 9)


def test_too_few_samples_have_no_bound() -> None:
    assert median_rise([1.0] * 5, [2.0] * 30) is None
    assert median_rise([1.0] * 30, [2.0] * 5) is None


def test_outliers_do_not_move_the_bounds() -> None:
    before, after = [10.0] * 30, [10.0] * 24 + [1e9] * 6
    assert median_rise(before, after) == Interval(0.0, 0.0, 0.0)


samples = st.lists(st.floats(0, 1e9, allow_nan=False), min_size=6, max_size=60)


@given(samples, samples)
def test_the_bounds_hold_the_value_between_them(before: list[float], after: list[float]) -> None:
    found = median_rise(before, after)
    assert found is not None
    assert found.low <= found.value <= found.high


@given(samples, samples)
def test_a_fall_is_a_rise_read_backwards(before: list[float], after: list[float]) -> None:
    forth, back = median_rise(before, after), median_rise(after, before)
    assert forth is not None
    assert back is not None
    assert (forth.low, forth.high) == (-back.high, -back.low)


SHAPES: dict[str, tuple[Callable[[Random], float], float]] = {
    "uniform": (lambda random: random.uniform(0, 2), 1.0),
    "exponential, a long tail": (lambda random: random.expovariate(1), 0.6931471805599453),
    "two humps": (lambda random: random.choice((random.uniform(0, 1), random.uniform(1, 9))), 1.0),
    "lognormal": (lambda random: random.lognormvariate(0, 1), 1.0),
}


@pytest.mark.parametrize(("draw", "middle"), SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("count", [27, 30])
def test_each_bound_holds_in_at_least_95_of_100_trials(
    draw: Callable[[Random], float], middle: float, count: int
) -> None:
    """The after side is a normal one of another spread and median, so nothing but the medians is alike."""
    random, low_missed, high_missed, trials = Random(7), 0, 0, 2000
    for _ in range(trials):
        found = median_rise([draw(random) for _ in range(count)], [random.gauss(5, 0.3) for _ in range(count)])
        assert found is not None
        low_missed += found.low > 5 - middle
        high_missed += found.high < 5 - middle
    assert low_missed <= 0.05 * trials
    assert high_missed <= 0.05 * trials
