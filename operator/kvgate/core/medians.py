"""Bounds of a median, and of how far one median rose above another, without assuming any distribution."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb
from statistics import median

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Interval:
    """A number with a lower and an upper bound, in the unit of its samples."""

    value: float
    low: float
    high: float


def rank_below(count: int, risk: float) -> int | None:
    """The largest rank k (from 1) whose order statistic lies above the median of the population with a chance of at
    most `risk`: P(Binomial(count, 1/2) ≤ k − 1) ≤ risk. None where so few samples have no such rank.

    Source: David and Nagaraja, Order Statistics, 3rd edition, §7.1; Conover, Practical Nonparametric Statistics,
    3rd edition, §3.2.
    """
    chance, rank = 0.0, 0
    while rank < count:
        chance += comb(count, rank) / 2**count
        if chance > risk:
            break
        rank += 1
    return rank or None


def median_rise(before: Sequence[float], after: Sequence[float], confidence: float = CONFIDENCE) -> Interval | None:
    """median(after) − median(before), in the unit of the samples, with a lower and an upper bound that each hold at
    least at this confidence, whatever the distributions are. None of too few samples (under 6 a side at 95 %).

    Each median gets a one-sided bound from its order statistics at half the risk, and the difference of two such bounds
    holds at the whole by Bonferroni's inequality. That errs toward Inconclusive: a rise by a longer tail is neither
    taken for a shift of all answers, as Hodges and Lehmann's estimate would, nor is equal spread assumed.
    """
    risk = (1.0 - confidence) / 2
    low, high = rank_below(len(before), risk), rank_below(len(after), risk)
    if low is None or high is None:
        return None
    old, new = sorted(before), sorted(after)
    return Interval(median(new) - median(old), new[high - 1] - old[-low], new[-high] - old[low - 1])
