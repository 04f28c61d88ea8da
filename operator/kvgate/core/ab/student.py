"""Student's t: the quantile that a bound on the mean of a few blocks needs."""

from __future__ import annotations

import math
from functools import lru_cache

_HALVINGS = 200


@lru_cache(maxsize=256)
def t_quantile(probability: float, degrees: int) -> float:
    """The t below which `probability` (0.5 to 1, both excluded) of the distribution lies, for 1 or more degrees.

    Abramowitz and Stegun 26.7.3 and 26.7.4 give the distribution as a finite sum; it is inverted by halving.
    Raises ValueError outside its domain.
    """
    if not 0.5 < probability < 1 or degrees < 1:
        raise ValueError("needs a probability between 0.5 and 1, and at least one degree of freedom")
    low, high = 0.0, math.pi / 2
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if (1 + _between(middle, degrees)) / 2 < probability:
            low = middle
        else:
            high = middle
    return math.sqrt(degrees) * math.tan((low + high) / 2)


def _between(angle: float, degrees: int) -> float:
    """The probability that |T| stays below √degrees · tan(angle)."""
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = degrees % 2 == 1
    term, total = (cosine if odd else 1.0), 0.0
    for step in range(2 + odd, degrees + 1, 2):
        total += term
        term *= (step - 1) / step * cosine * cosine
    return 2 / math.pi * (angle + sine * total) if odd else sine * total
