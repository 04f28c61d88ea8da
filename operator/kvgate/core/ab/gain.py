"""How much sooner the first token comes with KV routing: a paired t-bound on the log ratios of the blocks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import fmean, stdev

from kvgate.api.words import Outcome
from kvgate.core import text
from kvgate.core.ab.experiment import Experiment, Limits
from kvgate.core.ab.student import t_quantile
from kvgate.core.findings import Concern, Finding

CONFIDENCE = 0.975
ROUNDING = 1e-12
NOISY = 0.10
"""Standard deviation of a block's log ratio above which more blocks, not more gain, is what is missing."""


@dataclass(frozen=True)
class Gain:
    """Mean and standard deviation of ln(KV / round-robin) over the blocks, and half of the two-sided 95 % interval."""

    mean: float
    deviation: float
    half_width: float
    blocks: int

    @property
    def improvement(self) -> float:
        """The share by which the mean time to first token falls; negative where it rises."""
        return -math.expm1(self.mean)

    @property
    def low(self) -> float:
        return -math.expm1(self.mean + self.half_width)

    @property
    def high(self) -> float:
        return -math.expm1(self.mean - self.half_width)


def differences(experiment: Experiment) -> tuple[float, ...]:
    """ln(KV / round-robin) of the runs' mean times to first token, per block. A failure counts as the timeout."""
    timeout = experiment.timeout_seconds
    return tuple(
        math.log(kv.mean_wait_seconds(timeout) / round_robin.mean_wait_seconds(timeout))
        for round_robin, kv in experiment.pairs
    )


def gain(experiment: Experiment) -> Gain | None:
    """None below two whole blocks, for one difference has no spread. Blocks, never requests, are the sample."""
    found = differences(experiment)
    if len(found) < 2:
        return None
    spread = stdev(found)
    half_width = t_quantile(CONFIDENCE, len(found) - 1) * spread / math.sqrt(len(found))
    return Gain(fmean(found), spread, half_width, len(found))


def gain_enough(experiment: Experiment, limits: Limits) -> Finding:
    """Pass once the bound, and Fail once the estimate itself, is on its side of the least improvement."""
    found = gain(experiment)
    if found is None:
        what = "fewer than two whole blocks; run it again"
        return Finding("ttftGain", Outcome.ERROR, "BenchmarkIncomplete", what, Concern.BENCHMARK)
    limit = math.log1p(-limits.least_improvement) if limits.least_improvement < 1 else -math.inf
    what = told(found, limits)
    if found.mean + found.half_width <= limit:
        return Finding("ttftGain", Outcome.PASS, "GainProven", what, Concern.BENCHMARK)
    if found.mean > limit + ROUNDING:
        return Finding("ttftGain", Outcome.FAIL, "GainTooSmall", f"{what}; round-robin stays", Concern.BENCHMARK)
    if found.deviation > NOISY:
        spread = f"blocks differ by a standard deviation of {found.deviation:.3f} in ln TTFT, above {NOISY:.2f}"
        why = f"{what}; {spread}: quieten the deployment, or raise benchmark.blocks"
        return Finding("ttftGain", Outcome.INCONCLUSIVE, "TooNoisy", why, Concern.BENCHMARK)
    why = f"{what}: raise benchmark.blocks, or let an approver accept it"
    return Finding("ttftGain", Outcome.INCONCLUSIVE, "GainUncertain", why, Concern.BENCHMARK)


def told(found: Gain, limits: Limits) -> str:
    span = f"{text.percent(found.low)} to {text.percent(found.high)}"
    least = text.percent(limits.least_improvement)
    return (
        f"mean TTFT {text.percent(found.improvement)} shorter with KV routing (95% interval {span}, {found.blocks} "
        f"blocks), minTTFTImprovement is {least}"
    )
