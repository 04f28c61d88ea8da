"""How often the routing A/B passes at a true gain: simulated experiments, judged by the code that judges real ones."""

from __future__ import annotations

import math
import random
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

from benchmarks.tables import publish
from kvgate.api.words import Outcome
from kvgate.core.ab.experiment import Arm, Calibration, Experiment, Identity, Limits, Request, Run, Workload
from kvgate.core.ab.judgement import judge
from kvgate.core.findings import worst

EXPERIMENTS = 2000
BLOCKS, PER_RUN, FAMILIES = 8, 130, 10
WORKERS = ("w1", "w2")
HIT, MISS, PROMPT = 0.1, 0.5, 1000
LIMITS = Limits(least_improvement=0.2, most_added_errors=0.005)
MOST_FALSE, LEAST_POWER = 0.035, 0.90
QUIET = 0.095

Noise = Callable[[random.Random], float]
"""One block's deviation, in units of its standard deviation."""


def normal(rng: random.Random) -> float:
    return rng.gauss(0, 1)


def heavy(rng: random.Random) -> float:
    """Student's t with 5 degrees of freedom, scaled to a variance of 1."""
    chi = sum(rng.gauss(0, 1) ** 2 for _ in range(5))
    return rng.gauss(0, 1) / math.sqrt(chi / 5) / math.sqrt(5 / 3)


@dataclass(frozen=True)
class Truth:
    """What is true in a row of simulated experiments."""

    improvement: float
    deviation: float
    shape: str
    noise: Noise


TRUTHS = (
    Truth(0.20, QUIET, "normal", normal),
    Truth(0.20, 0.05, "normal", normal),
    Truth(0.20, QUIET, "heavy tails", heavy),
    Truth(0.30, QUIET, "normal", normal),
    Truth(0.30, 0.05, "normal", normal),
    Truth(0.30, QUIET, "heavy tails", heavy),
)


def pattern(arm: Arm) -> tuple[Request, ...]:
    """One run without block noise; the waits of its requests scatter by themselves, the same in both arms."""
    rng = random.Random(7)
    return tuple(_request(number, arm, rng.lognormvariate(0, 0.25)) for number in range(PER_RUN))


def _request(number: int, arm: Arm, scatter: float) -> Request:
    first = number < FAMILIES
    cached = 0 if first else 480 if arm is Arm.ROUND_ROBIN else 896
    return Request(
        family=number % FAMILIES,
        arrival_seconds=number / 4,
        prompt_tokens=PROMPT,
        repeated_tokens=0 if first else 960,
        first_token_seconds=(MISS - (MISS - HIT) * 0.48) * scatter,
        cached_tokens=cached,
        overlap_tokens=cached if arm is Arm.KV else None,
        worker=WORKERS[number % 2],
    )


PATTERNS = {arm: pattern(arm) for arm in Arm}


def run(block: int, arm: Arm, factor: float) -> Run:
    waits = [(each, (each.first_token_seconds or 0.0) * factor) for each in PATTERNS[arm]]
    return Run(block, arm, PER_RUN, tuple(replace(each, first_token_seconds=wait) for each, wait in waits))


def experiment(truth: Truth, rng: random.Random) -> Experiment:
    """Both runs of a block share the state of the day; their log ratio scatters by the truth's deviation."""
    runs = []
    for block in range(BLOCKS):
        day = math.exp(rng.gauss(0, 0.03))
        ratio = math.exp(math.log1p(-truth.improvement) + truth.deviation * truth.noise(rng))
        runs += [run(block, Arm.ROUND_ROBIN, day), run(block, Arm.KV, day * ratio)]
    same = Identity(1, WORKERS, "cards")
    alone = tuple(Calibration(worker, MISS, HIT) for worker in WORKERS)
    return Experiment(Workload.TRACE, BLOCKS, tuple(runs), 60.0, 16, 8, same, same, alone)


def outcomes(truth: Truth, seed: int) -> Counter[Outcome]:
    rng = random.Random(seed)
    found = (judge(experiment(truth, rng), LIMITS) for _ in range(EXPERIMENTS))
    return Counter(worst(finding.outcome for finding in findings) for findings in found)


def main() -> bool:
    rows, good = [], True
    for number, truth in enumerate(TRUTHS):
        told = outcomes(truth, seed=20_261_130 + number)
        passed = told[Outcome.PASS] / EXPERIMENTS
        limited = truth.shape == "normal"
        limit = f"≤ {MOST_FALSE:.1%}" if truth.improvement <= LIMITS.least_improvement else f"≥ {LEAST_POWER:.0%}"
        kept = passed <= MOST_FALSE if truth.improvement <= LIMITS.least_improvement else passed >= LEAST_POWER
        good = good and (kept or not limited)
        shares = (told[outcome] / EXPERIMENTS for outcome in (Outcome.INCONCLUSIVE, Outcome.FAIL, Outcome.ERROR))
        said = (f"{truth.improvement:.0%}", f"{truth.deviation:.3f}", truth.shape, f"**{passed:.1%}**")
        rows.append((*said, *(f"{share:.1%}" for share in shares), limit if limited else "–"))
    publish(
        "routing-ab-power",
        "What the routing A/B decides at a true gain",
        f"{EXPERIMENTS:,} simulated experiments per row, {BLOCKS} blocks of two runs of {PER_RUN} requests, through "
        "the judgement of real ones: every rule, not the bound alone. minTTFTImprovement is 20%. The spread is the "
        "standard deviation of a block's ln(KV / round-robin).",
        ("true gain", "spread", "noise", "Pass", "Inconclusive", "Fail", "Error", "limit on Pass"),
        rows,
    )
    return good


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
