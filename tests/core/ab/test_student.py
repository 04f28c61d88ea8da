"""Student's t against values that scipy 1.17 gives for t.ppf(0.975, n)."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvgate.core.ab.student import t_quantile

SCIPY = {
    1: 12.706204736174694,
    2: 4.302652729749462,
    3: 3.1824463052837078,
    4: 2.7764451051977934,
    5: 2.5705818356363146,
    6: 2.4469118511449692,
    7: 2.3646242515927849,
    8: 2.306004135204166,
    9: 2.262157162798205,
    10: 2.2281388519862735,
    15: 2.131449545559774,
    31: 2.0395134463964077,
    63: 1.9983405425207412,
}


@pytest.mark.parametrize(("degrees", "expected"), SCIPY.items())
def test_the_quantile_is_the_one_that_scipy_gives(degrees: int, expected: float) -> None:
    assert t_quantile(0.975, degrees) == pytest.approx(expected, rel=1e-12)


def test_one_degree_of_freedom_is_cauchys_distribution() -> None:
    assert t_quantile(0.75, 1) == pytest.approx(1)
    assert t_quantile(0.9, 1) == pytest.approx(math.tan(math.pi * 0.4))


@given(st.integers(1, 62), st.floats(0.6, 0.995))
def test_more_blocks_and_less_confidence_make_it_smaller(degrees: int, probability: float) -> None:
    assert t_quantile(probability, degrees + 1) < t_quantile(probability, degrees)
    assert t_quantile(probability, degrees) < t_quantile(probability + 0.004, degrees)


@pytest.mark.parametrize(("probability", "degrees"), [(0.5, 3), (1.0, 3), (0.2, 3), (0.975, 0)])
def test_outside_its_domain_it_refuses(probability: float, degrees: int) -> None:
    with pytest.raises(ValueError, match="needs a probability"):
        t_quantile(probability, degrees)
