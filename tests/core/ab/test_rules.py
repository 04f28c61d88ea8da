"""Every rule of an A/B on its own: the experiment that keeps it, and the smallest fault that breaks it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvgate.api.words import Outcome
from kvgate.core.ab import baseline, exercise, grounds
from kvgate.core.ab.experiment import Arm, Calibration, Experiment, Fault, Identity, Limits, Workload
from kvgate.core.ab.judgement import EXERCISE, GROUNDS, PROVISOS, Rule, judge
from tests.core.ab.trials import (
    HIT,
    LIMITS,
    MISS,
    but,
    experiment,
    failing,
    having,
    slower,
)

SOUND = experiment()


@pytest.mark.parametrize("rule", [*GROUNDS, *EXERCISE, *PROVISOS], ids=lambda rule: rule.__name__)
def test_the_sound_experiment_keeps_each_rule(rule: Rule) -> None:
    assert rule(SOUND, LIMITS).outcome is Outcome.PASS


def without_runs(*gone: tuple[int, Arm]) -> Experiment:
    return replace(SOUND, runs=tuple(run for run in SOUND.runs if (run.block, run.arm) not in gone))


def shown(arm: Arm) -> Experiment:
    families = ("dynamo_component_kv_cache_events_applied",)
    return replace(SOUND, runs=tuple(replace(r, kv_families=families) if r.arm is arm else r for r in SOUND.runs))


def after(**changes: object) -> Experiment:
    return replace(SOUND, after=replace(SOUND.after, **changes))  # type: ignore[arg-type]


ONE = Identity(3, ("w1",), "cards")
KV, RR = Arm.KV, Arm.ROUND_ROBIN
SILENT = but(None, having(cached_tokens=None))

BROKEN = [
    (grounds.not_aborted, replace(SOUND, aborted="live p99 TTFT rose"), "Error", "BenchmarkAborted", "ended early"),
    (grounds.whole, without_runs((7, KV)), "Error", "BenchmarkIncomplete", "a block without its KV run"),
    (grounds.whole, without_runs((7, KV), (7, RR)), "Error", "BenchmarkIncomplete", "a planned block that never ran"),
    (
        grounds.whole,
        replace(SOUND, runs=(*SOUND.runs, SOUND.runs[0])),
        "Error",
        "BenchmarkIncomplete",
        "a run told twice",
    ),
    (grounds.whole, experiment(blocks=1), "Error", "BenchmarkIncomplete", "one block alone"),
    (grounds.whole, experiment(blocks=0), "Error", "BenchmarkIncomplete", "nothing planned and nothing run"),
    (
        grounds.whole,
        but(KV, having(first_token_seconds=0.0)),
        "Error",
        "BenchmarkIncomplete",
        "waits of no time at all",
    ),
    (grounds.comparable, after(generation=4), "Error", "ArmsNotComparable", "a new generation"),
    (grounds.comparable, after(workers=("w1", "w3")), "Error", "ArmsNotComparable", "another worker"),
    (grounds.comparable, after(workers=("w1",)), "Error", "ArmsNotComparable", "a worker less"),
    (grounds.comparable, after(cards="others"), "Error", "ArmsNotComparable", "another model card"),
    (grounds.several_workers, replace(SOUND, before=ONE, after=ONE), "Inconclusive", "NotApplicable", "one worker"),
    (grounds.arms_apart, SILENT, "Error", "CacheNotReported", "an engine that tells no cached tokens"),
    (
        grounds.arms_apart,
        but(KV, having(cached_tokens=16), lambda n: n == 0),
        "Error",
        "ArmsShareCache",
        "one block of a first prompt cached",
    ),
    (baseline.errors_few, but(RR, failing(), lambda n: n > 128), "Error", "BaselineUnhealthy", "0.96 % of errors"),
    (baseline.completed, but(RR, failing(), lambda n: n < 2), "Error", "BaselineUnhealthy", "98.5 % answered"),
    (baseline.completed, but(RR, failing(Fault.TIMEOUT)), "Error", "BaselineUnhealthy", "none answered"),
    (
        baseline.steady,
        but(RR, slower(1.26), lambda n: n >= 130 - 34),
        "Error",
        "BaselineUnhealthy",
        "waits that grow by a quarter",
    ),
    (
        baseline.balanced,
        but(RR, having(worker="w1"), lambda n: n % 7 < 2),
        "Error",
        "BaselineUnhealthy",
        "one worker with more than its share",
    ),
    (
        baseline.balanced,
        but(RR, having(worker=""), lambda n: n == 100),
        "Error",
        "BaselineUnhealthy",
        "a nameless worker",
    ),
    (baseline.explained, but(RR, slower(1.26)), "Error", "BaselineUnhealthy", "a quarter longer than hits and misses"),
    (baseline.explained, but(RR, slower(0.74)), "Error", "BaselineUnhealthy", "a quarter shorter"),
    (
        baseline.explained,
        replace(SOUND, calibration=(Calibration("w1", MISS, HIT),)),
        "Error",
        "BaselineUnhealthy",
        "a worker that was never asked alone",
    ),
    (
        exercise.overlap_seen,
        but(KV, having(overlap_tokens=0), lambda n: n % 4 == 0),
        "Error",
        "NotExercised",
        "a quarter of the repeats without overlap",
    ),
    (
        exercise.overlap_seen,
        but(KV, having(overlap_tokens=None)),
        "Error",
        "NotExercised",
        "a router that tells no overlap",
    ),
    (exercise.overlap_seen, but(None, having(repeated_tokens=0)), "Error", "NotExercised", "no prompt repeated"),
    (
        exercise.overlap_true,
        but(KV, having(overlap_tokens=896 - 17)),
        "Error",
        "NotExercised",
        "overlap and cache differ by more than a block",
    ),
    (exercise.baseline_blind, shown(RR), "Error", "NotExercised", "round-robin with KV metrics"),
    (
        exercise.attributable,
        but(KV, having(cached_tokens=480)),
        "Error",
        "NotAttributable",
        "no more cached than round-robin",
    ),
    (
        exercise.reuse_long_enough,
        but(None, having(family=1), lambda n: n % 26 >= 5),
        "Pass",
        "ReuseLongEnough",
        "most in one family",
    ),
    (
        exercise.own_workload,
        replace(SOUND, workload=Workload.BUILT_IN),
        "Inconclusive",
        "BuiltInWorkload",
        "the built-in trace",
    ),
]


@pytest.mark.parametrize(
    ("rule", "seen", "outcome", "reason"),
    [pytest.param(*row[:4], id=f"{row[0].__name__}: {row[4]}") for row in BROKEN],
)
def test_a_fault_breaks_its_rule(rule: Rule, seen: Experiment, outcome: str, reason: str) -> None:
    finding = rule(seen, LIMITS)
    assert (finding.outcome.value, finding.reason) == (outcome, reason)
    assert finding.message


def families_of(size: int) -> Experiment:
    requests = [
        tuple(replace(each, family=number // size) for number, each in enumerate(run.requests)) for run in SOUND.runs
    ]
    runs = tuple(replace(run, requests=made) for run, made in zip(SOUND.runs, requests, strict=True))
    return replace(SOUND, runs=runs)


@pytest.mark.parametrize(("size", "reason"), [(5, "ShortReuse"), (6, "ReuseLongEnough")])
def test_a_family_needs_three_requests_per_worker(size: int, reason: str) -> None:
    assert exercise.reuse_long_enough(families_of(size), LIMITS).reason == reason


@pytest.mark.parametrize(
    "kept",
    [
        pytest.param(but(RR, slower(1.24)), id="24 % longer than hits and misses"),
        pytest.param(but(RR, slower(1.24), lambda n: n >= 130 - 34), id="waits that grow by less than a quarter"),
        pytest.param(but(None, having(cached_tokens=12), lambda n: n < 10), id="the template itself is cached"),
        pytest.param(but(KV, having(overlap_tokens=896 + 16)), id="overlap and cache one block apart"),
        pytest.param(
            but(KV, having(overlap_tokens=0), lambda n: n % 6 == 0), id="a sixth of the repeats without overlap"
        ),
        pytest.param(shown(KV), id="KV metrics of the KV arm"),
    ],
)
def test_what_is_within_the_limits_breaks_no_ground(kept: Experiment) -> None:
    found = judge(kept, LIMITS)
    assert [f.reason for f in found if f.outcome is Outcome.ERROR] == []


def test_outside_enforce_the_built_in_workload_may_pass() -> None:
    lenient = Limits(LIMITS.least_improvement, LIMITS.most_added_errors, enforce=False)
    found = judge(replace(SOUND, workload=Workload.BUILT_IN), lenient)
    assert {finding.outcome for finding in found} == {Outcome.PASS}
