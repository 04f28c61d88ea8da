"""Whole experiments: what is void is neither Pass nor Fail, errors stand whatever caused them, nothing raises."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvgate.api.words import Outcome
from kvgate.core.ab.experiment import (
    Arm,
    Calibration,
    Experiment,
    Fault,
    Identity,
    Limits,
    Request,
    Run,
    Workload,
)
from kvgate.core.ab.judgement import EXERCISE, GROUNDS, PROVISOS, judge
from kvgate.core.findings import worst
from tests.core.ab.trials import LIMITS, but, experiment, failing, having, slower

KV, RR = Arm.KV, Arm.ROUND_ROBIN
SOUND = experiment()


def told(found: Experiment) -> tuple[Outcome, list[str]]:
    findings = judge(found, LIMITS)
    return worst(f.outcome for f in findings), [f.reason for f in findings if f.outcome is not Outcome.PASS]


@pytest.mark.parametrize(
    ("seen", "outcome", "reasons"),
    [
        pytest.param(SOUND, Outcome.PASS, [], id="a sound gain passes"),
        pytest.param(
            but(KV, having(cached_tokens=480, overlap_tokens=480), lambda n: n >= 10),
            Outcome.ERROR,
            ["NotAttributable"],
            id="a gain that no cache explains is void",
        ),
        pytest.param(but(KV, slower(1.8)), Outcome.FAIL, ["GainTooSmall"], id="a gain of a sixth fails"),
        pytest.param(
            but(KV, failing(), lambda n: n % 10 == 9),
            Outcome.FAIL,
            ["ErrorRateIncreased", "GainTooSmall"],
            id="an overloaded arm fails on errors",
        ),
        pytest.param(
            but(KV, failing()),
            Outcome.FAIL,
            ["ErrorRateIncreased", "NotExercised"],
            id="an arm that never answers fails",
        ),
        pytest.param(
            but(RR, failing(), lambda n: n % 10 == 9),
            Outcome.ERROR,
            ["BaselineUnhealthy"],
            id="a sick baseline voids even a faster arm",
        ),
        pytest.param(
            but(KV, having(overlap_tokens=0, cached_tokens=480), lambda n: n >= 10),
            Outcome.ERROR,
            ["NotExercised"],
            id="KV mode without events is void",
        ),
        pytest.param(
            replace(but(KV, failing()), aborted="a worker left"),
            Outcome.ERROR,
            ["BenchmarkAborted"],
            id="an abort judges nothing",
        ),
        pytest.param(
            replace(SOUND, workload=Workload.BUILT_IN),
            Outcome.INCONCLUSIVE,
            ["BuiltInWorkload"],
            id="the built-in trace",
        ),
    ],
)
def test_an_experiment_is_judged_as_a_whole(seen: Experiment, outcome: Outcome, reasons: list[str]) -> None:
    assert told(seen) == (outcome, reasons)


def test_every_rule_speaks_in_the_findings_of_a_sound_experiment() -> None:
    assert len(judge(SOUND, LIMITS)) == len((*GROUNDS, *EXERCISE, *PROVISOS)) + 2


_REQUESTS = st.builds(
    Request,
    family=st.integers(0, 3),
    arrival_seconds=st.floats(0, 100),
    prompt_tokens=st.integers(0, 5000),
    repeated_tokens=st.integers(0, 5000),
    first_token_seconds=st.floats(0, 1e6),
    cached_tokens=st.none() | st.integers(0, 5000),
    overlap_tokens=st.none() | st.integers(0, 5000),
    worker=st.sampled_from(["", "w1", "w2"]),
) | st.builds(
    Request,
    family=st.integers(0, 3),
    arrival_seconds=st.floats(0, 100),
    prompt_tokens=st.integers(0, 5000),
    fault=st.sampled_from(Fault),
)
_IDENTITIES = st.builds(Identity, st.integers(0, 2), st.sampled_from([(), ("w1",), ("w1", "w2")]), st.just("c"))
_RUNS = st.builds(
    Run,
    block=st.integers(0, 2),
    arm=st.sampled_from(Arm),
    offered=st.integers(0, 6),
    requests=st.lists(_REQUESTS, max_size=5).map(tuple),
    kv_families=st.sampled_from([(), ("kv",)]),
)
_EXPERIMENTS = st.builds(
    Experiment,
    workload=st.sampled_from(Workload),
    blocks=st.integers(0, 3),
    runs=st.lists(_RUNS, max_size=6).map(tuple),
    timeout_seconds=st.floats(0, 60),
    block_tokens=st.integers(1, 64),
    template_tokens=st.integers(0, 64),
    before=_IDENTITIES,
    after=_IDENTITIES,
    calibration=st.lists(
        st.builds(Calibration, st.sampled_from(["w1", "w2"]), st.floats(0, 9), st.floats(0, 9)), max_size=3
    ).map(tuple),
    aborted=st.sampled_from(["", "why"]),
)


@given(_EXPERIMENTS, st.floats(0, 1), st.floats(0, 1), st.booleans())
@settings(max_examples=150)
def test_no_experiment_is_too_odd_to_be_judged(found: Experiment, least: float, most: float, enforce: bool) -> None:
    findings = judge(found, Limits(least, most, enforce=enforce))
    assert findings
    assert all(finding.message for finding in findings)


@given(_EXPERIMENTS)
def test_too_few_requests_never_pass(found: Experiment) -> None:
    assert worst(f.outcome for f in judge(found, LIMITS)) is not Outcome.PASS


@given(st.integers(0, 7), st.sampled_from(Arm))
def test_what_is_void_shows_no_gain(block: int, arm: Arm) -> None:
    gone = replace(SOUND, runs=tuple(run for run in SOUND.runs if (run.block, run.arm) != (block, arm)))
    criteria = {finding.criterion for finding in judge(gone, LIMITS)}
    assert not criteria & {"ttftGain", "addedErrors"}
