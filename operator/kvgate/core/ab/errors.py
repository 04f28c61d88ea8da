"""Whether KV routing adds errors: the difference of two shares, with Newcombe's interval."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

from kvgate.api.words import Outcome
from kvgate.core import text
from kvgate.core.ab.experiment import Arm, Experiment, Limits, Request
from kvgate.core.findings import Concern, Finding

FEWEST_COUNTED = 800
"""Per arm: below it, not even two arms without an error bound the difference to half a percentage point."""
_Z = NormalDist().inv_cdf(0.975)


@dataclass(frozen=True)
class Share:
    """`failed` of `counted` requests."""

    failed: int
    counted: int

    @property
    def fraction(self) -> float:
        return self.failed / self.counted if self.counted else 0.0


def errors_of(requests: tuple[Request, ...]) -> Share:
    return Share(sum(1 for request in requests if request.fault is not None), len(requests))


def wilson(share: Share) -> tuple[float, float]:
    """Wilson's 95 % score interval; everything where nothing was counted."""
    if not share.counted:
        return 0.0, 1.0
    count, fraction, square = share.counted, share.fraction, _Z * _Z
    centre = (fraction + square / (2 * count)) / (1 + square / count)
    spread = fraction * (1 - fraction) / count + square / (4 * count * count)
    reach = _Z * math.sqrt(spread) / (1 + square / count)
    return max(0.0, centre - reach), min(1.0, centre + reach)


def newcombe(first: Share, second: Share) -> tuple[float, float]:
    """The 95 % interval of first − second as fractions: Newcombe (1998), method 10."""
    (low_1, high_1), (low_2, high_2) = wilson(first), wilson(second)
    difference = first.fraction - second.fraction
    below = math.hypot(first.fraction - low_1, high_2 - second.fraction)
    above = math.hypot(high_1 - first.fraction, second.fraction - low_2)
    return max(-1.0, difference - below), min(1.0, difference + above)


def errors_bearable(experiment: Experiment, limits: Limits) -> Finding:
    kv, round_robin = (errors_of(experiment.counted(arm)) for arm in (Arm.KV, Arm.ROUND_ROBIN))
    low, high = newcombe(kv, round_robin)
    what = (
        f"{kv.failed} of {kv.counted} requests failed with KV routing, {round_robin.failed} of {round_robin.counted} "
        f"with round-robin: {_points(low)} to {_points(high)} points added (95% interval), "
        f"maxErrorRateIncrease is {_points(limits.most_added_errors)}"
    )
    if low > limits.most_added_errors:
        return Finding("addedErrors", Outcome.FAIL, "ErrorRateIncreased", what, Concern.BENCHMARK)
    if min(kv.counted, round_robin.counted) < FEWEST_COUNTED:
        why = f"{what}; {FEWEST_COUNTED} counted requests per arm are needed: raise benchmark.blocks"
        return Finding("addedErrors", Outcome.INCONCLUSIVE, "TooFewRequests", why, Concern.BENCHMARK)
    if high <= limits.most_added_errors:
        return Finding("addedErrors", Outcome.PASS, "ErrorsBearable", what, Concern.BENCHMARK)
    why = f"{what}: raise benchmark.blocks, or let an approver accept it"
    return Finding("addedErrors", Outcome.INCONCLUSIVE, "ErrorRateUncertain", why, Concern.BENCHMARK)


def _points(fraction: float) -> str:
    return text.percent(fraction) if abs(fraction) >= 0.0005 or fraction == 0 else f"{fraction * 100:.2f}%"
