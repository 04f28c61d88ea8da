"""The table of an A/B's rules, and the findings that an experiment gives: what is void is neither Pass nor Fail."""

from __future__ import annotations

from collections.abc import Callable

from kvgate.api.words import Outcome
from kvgate.core.ab import baseline, errors, exercise, gain, grounds
from kvgate.core.ab.experiment import Experiment, Limits
from kvgate.core.findings import Finding

Rule = Callable[[Experiment, Limits], Finding]

GROUNDS: tuple[Rule, ...] = (
    grounds.not_aborted,
    grounds.whole,
    grounds.comparable,
    grounds.several_workers,
    grounds.arms_apart,
    baseline.errors_few,
    baseline.completed,
    baseline.steady,
    baseline.balanced,
    baseline.explained,
)
"""The first of these that does not pass voids the whole experiment, and those after it would rest on nothing."""

EXERCISE: tuple[Rule, ...] = (
    exercise.overlap_seen,
    exercise.overlap_true,
    exercise.baseline_blind,
    exercise.attributable,
)
"""The first of these that does not pass voids the gain; errors stand, whatever caused them."""

PROVISOS: tuple[Rule, ...] = (exercise.reuse_long_enough, exercise.own_workload)


def judge(experiment: Experiment, limits: Limits) -> tuple[Finding, ...]:
    """All findings of one A/B. Total over every experiment that could be read."""
    passed, failed = _until_broken(GROUNDS, experiment, limits)
    if failed is not None:
        return (*passed, failed)
    added = errors.errors_bearable(experiment, limits)
    exercised, unproven = _until_broken(EXERCISE, experiment, limits)
    if unproven is not None:
        return (*passed, added, *exercised, unproven)
    faster = gain.gain_enough(experiment, limits)
    return (*passed, added, *exercised, faster, *(rule(experiment, limits) for rule in PROVISOS))


def countable(experiment: Experiment) -> bool:
    """Whether a gain can be computed at all, proven or not: whole blocks, with something to count in each."""
    return grounds.whole(experiment, Limits(0, 1)).outcome is Outcome.PASS


def _until_broken(
    rules: tuple[Rule, ...], experiment: Experiment, limits: Limits
) -> tuple[tuple[Finding, ...], Finding | None]:
    passed: list[Finding] = []
    for rule in rules:
        finding = rule(experiment, limits)
        if finding.outcome is not Outcome.PASS:
            return tuple(passed), finding
        passed.append(finding)
    return tuple(passed), None
