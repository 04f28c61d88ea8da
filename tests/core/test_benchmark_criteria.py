"""Which routing A/B counts, what the verdict makes of it, and what the status shows."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from kvgate.api.words import Capability, Outcome
from kvgate.core.ab.evidence import BenchmarkEvidence, Provenance, Subject, TraceSeen
from kvgate.core.ab.experiment import Arm, Experiment, Workload
from kvgate.core.benchmark_criteria import benchmark_won, chosen
from kvgate.core.digests import digest
from kvgate.core.findings import worst
from kvgate.core.judged import judge_capability
from kvgate.core.judging import Case
from kvgate.core.statuses import routing
from kvgate.core.switching import Move
from kvgate.core.target import Switch, TargetView, Toggle, ToggleStep
from tests.core.ab.trials import but, experiment, failing, having, slower
from tests.core.cases import NOW, POOL_UID, case

PROJECTION = '{"image":"vllm:1"}'
SUBJECT = Subject("target-uid", digest(PROJECTION), "agg")
SOUND = experiment()
SLOW = but(Arm.KV, slower(1.8))
VOID = replace(SOUND, aborted="live p99 TTFT rose by 12 %")
STAGING: dict[str, object] = {"criteria.routing": {"benchmark": {"targetRef": {"name": "staging"}}}}


def ab(found: Experiment = SOUND, age: timedelta = timedelta(hours=1), **changes: object) -> BenchmarkEvidence:
    plain = BenchmarkEvidence("run-1", POOL_UID, NOW - age, SUBJECT, found, report="qwen3-run-1")
    return replace(plain, **changes)  # type: ignore[arg-type]


def seen(*benchmarks: BenchmarkEvidence, spec: dict[str, object] | None = None, **world: object) -> Case:
    """The pool with these A/Bs, newest first, before the deployment that they were run on."""
    plain = case(spec or STAGING)
    toggle = Toggle(Switch.OFF, projection=PROJECTION)
    target = TargetView("target-uid", split="agg", toggles={Capability.ROUTING: toggle})
    known = replace(plain.world, target=target, benchmarks=benchmarks)
    return replace(plain, world=replace(known, **world))  # type: ignore[arg-type]


def told(found: Case) -> tuple[Outcome, list[str]]:
    findings = benchmark_won(found)
    return worst(f.outcome for f in findings), [f.reason for f in findings if f.outcome is not Outcome.PASS]


def view(**changes: object) -> TargetView:
    toggle = Toggle(Switch.OFF, projection=PROJECTION)
    plain = TargetView("target-uid", split="agg", toggles={Capability.ROUTING: toggle})
    return replace(plain, **changes)  # type: ignore[arg-type]


OF_TRACE = replace(SUBJECT, workload="a" * 64)
TRACED: dict[str, object] = {
    "criteria.routing": {
        "benchmark": {"targetRef": {"name": "staging"}, "trace": {"configMapKeyRef": {"name": "t", "key": "k"}}}
    }
}
OTHER_PLAN = {Capability.ROUTING: Toggle(Switch.OFF, projection='{"image":"vllm:2"}')}
STEP = (ToggleStep("Frontend", "DYN_ROUTER_MODE", "kv"),)
HELD_ON = {Capability.ROUTING: Toggle(Switch.ON, STEP, projection=PROJECTION)}
OTHER_PLAN_ON = {Capability.ROUTING: Toggle(Switch.ON, STEP, projection="{}")}
ON = {Capability.ROUTING: Toggle(Switch.ON, projection=PROJECTION)}


@pytest.mark.parametrize(
    ("found", "outcome", "reasons"),
    [
        pytest.param(seen(), Outcome.UNKNOWN, ["BenchmarkNotRun"], id="none has ended"),
        pytest.param(
            seen(spec={"criteria.routing": {}}), Outcome.UNKNOWN, ["BenchmarkNotConfigured"], id="none is asked for"
        ),
        pytest.param(seen(ab()), Outcome.PASS, [], id="a good one"),
        pytest.param(
            seen(ab(), spec={"criteria.routing": {}}), Outcome.PASS, [], id="a good one that was brought along"
        ),
        pytest.param(seen(ab(SLOW)), Outcome.FAIL, ["GainTooSmall"], id="one without a gain"),
        pytest.param(
            seen(ab(SLOW), ab(age=timedelta(hours=2))), Outcome.FAIL, ["GainTooSmall"], id="the newest decides"
        ),
        pytest.param(seen(ab(), ab(SLOW)), Outcome.PASS, [], id="an older failure is past"),
        pytest.param(seen(ab(VOID)), Outcome.ERROR, ["BenchmarkAborted"], id="a void one alone"),
        pytest.param(
            seen(ab(VOID), ab(age=timedelta(hours=2))), Outcome.PASS, [], id="a void one gives way to the one before"
        ),
        pytest.param(seen(ab(VOID), ab(SLOW)), Outcome.FAIL, ["GainTooSmall"], id="a void one hides no failure"),
        pytest.param(
            seen(ab(age=timedelta(hours=48))), Outcome.UNKNOWN, ["BenchmarkExpired"], id="one as old as evidenceTTL"
        ),
        pytest.param(
            seen(ab(age=-timedelta(minutes=2))), Outcome.ERROR, ["BenchmarkFromTheFuture"], id="one from the future"
        ),
        pytest.param(
            seen(ab(subject=OF_TRACE), spec=TRACED, trace=TraceSeen("b" * 64)),
            Outcome.UNKNOWN,
            ["WorkloadChanged"],
            id="the trace's ConfigMap was changed since",
        ),
        pytest.param(
            seen(ab(subject=OF_TRACE), spec=TRACED, trace=TraceSeen("a" * 64)), Outcome.PASS, [], id="its trace"
        ),
        pytest.param(
            seen(ab(subject=OF_TRACE), spec=TRACED, trace=TraceSeen(problem="ConfigMap t is not there")),
            Outcome.UNKNOWN,
            ["TraceNotFound"],
            id="the trace's ConfigMap is gone",
        ),
        pytest.param(
            seen(ab(subject=OF_TRACE), spec=STAGING),
            Outcome.UNKNOWN,
            ["WorkloadChanged"],
            id="the pool asks for the built-in workload by now",
        ),
        pytest.param(seen(ab(subject=OF_TRACE), spec=TRACED), Outcome.PASS, [], id="no trace is looked for in files"),
        pytest.param(seen(ab(pool_uid="other")), Outcome.ERROR, ["BenchmarkOfAnotherPool"], id="another pool's"),
        pytest.param(
            seen(ab(), benchmark_problem="report r: shard s is missing"),
            Outcome.ERROR,
            ["BenchmarkUnreadable"],
            id="a newer one that cannot be read",
        ),
        pytest.param(
            seen(ab(), target=view(uid="born-anew")),
            Outcome.UNKNOWN,
            ["TopologyChanged"],
            id="the deployment was made anew",
        ),
        pytest.param(
            seen(ab(), target=view(split="disagg")), Outcome.UNKNOWN, ["TopologyChanged"], id="the split flipped"
        ),
        pytest.param(
            seen(ab(), target=view(toggles=OTHER_PLAN)), Outcome.UNKNOWN, ["TopologyChanged"], id="another image"
        ),
        pytest.param(seen(ab(), target=view(toggles=ON)), Outcome.PASS, [], id="routing was switched on since"),
        pytest.param(seen(ab(), target=TargetView("")), Outcome.PASS, [], id="no deployment was given"),
        pytest.param(
            seen(ab(replace(SOUND, workload=Workload.BUILT_IN))), Outcome.PASS, [], id="the built-in trace in Observe"
        ),
        pytest.param(
            seen(ab(replace(SOUND, workload=Workload.BUILT_IN)), spec=STAGING | {"mode": "Enforce"}),
            Outcome.INCONCLUSIVE,
            ["BuiltInWorkload"],
            id="the built-in trace in Enforce",
        ),
        pytest.param(
            seen(ab(), spec={"criteria.routing": {"minTTFTImprovement": "60%"}}),
            Outcome.FAIL,
            ["GainTooSmall"],
            id="the pool asks for more",
        ),
        pytest.param(
            seen(ab(but(Arm.KV, failing(), lambda n: n % 20 == 19))),
            Outcome.FAIL,
            ["ErrorRateIncreased", "GainTooSmall"],
            id="one with errors",
        ),
    ],
)
def test_the_verdict_rests_on_the_newest_that_counts(found: Case, outcome: Outcome, reasons: list[str]) -> None:
    assert told(found) == (outcome, reasons)


def test_the_status_shows_the_gain_its_interval_and_the_cache() -> None:
    shown = routing(seen(ab()))
    assert shown is not None
    assert shown.benchmark == "qwen3-run-1"
    assert (shown.improvement_percent, shown.low_percent, shown.high_percent) == ("54.0", "54.0", "54.0")
    assert shown.cached_token_ratio == "0.896"
    assert shown.tokens_per_joule is None


def test_the_status_shows_tokens_per_joule_and_no_verdict_rests_on_them() -> None:
    worse = Provenance(tokens_per_joule=(("RoundRobin", 9.0), ("KV", 0.0125)))
    shown = routing(seen(ab(provenance=worse)))
    assert shown is not None
    assert (shown.tokens_per_joule, shown.tokens_per_joule_round_robin) == ("0.013", "9.000")
    assert told(seen(ab(provenance=worse))) == told(seen(ab())) == (Outcome.PASS, [])


@pytest.mark.parametrize(
    ("found", "named"),
    [
        pytest.param(seen(ab(VOID)), "qwen3-run-1", id="a void one is named and shows no gain"),
        pytest.param(
            seen(ab(but(Arm.KV, having(overlap_tokens=0)))), "qwen3-run-1", id="so is one whose arms proved nothing"
        ),
    ],
)
def test_a_void_one_shows_no_gain(found: Case, named: str) -> None:
    shown = routing(found)
    assert shown is not None
    assert (shown.benchmark, shown.improvement_percent, shown.cached_token_ratio) == (named, None, None)


@pytest.mark.parametrize(
    "found",
    [
        pytest.param(seen(), id="none"),
        pytest.param(seen(ab(), target=view(split="disagg")), id="one of another topology"),
        pytest.param(seen(ab(), spec={"criteria": {}}), id="routing is not gated"),
    ],
)
def test_what_does_not_count_is_not_in_the_status(found: Case) -> None:
    assert routing(found) is None
    assert chosen(found) is None or found.pool.spec.criteria.routing is None


@pytest.mark.parametrize(
    ("found", "move"),
    [
        pytest.param(seen(ab(), target=view(toggles=OTHER_PLAN_ON)), Move.HOLD, id="another topology holds"),
        pytest.param(
            seen(ab(subject=replace(SUBJECT, workload="old")), target=view(toggles=HELD_ON)),
            Move.HOLD,
            id="another workload holds",
        ),
        pytest.param(seen(target=view(toggles=OTHER_PLAN_ON)), Move.REVERT, id="no A/B at all is evidence lost"),
        pytest.param(
            seen(ab(SLOW), target=view(toggles=HELD_ON)), Move.REVERT, id="an A/B that fails is confirmed by itself"
        ),
        pytest.param(seen(ab(), target=view(toggles=HELD_ON)), Move.STAY, id="a good one stays"),
    ],
)
def test_what_is_on_is_held_through_a_change_of_topology_whatever_the_pool_says(found: Case, move: Move) -> None:
    spec = {
        "mode": "Enforce",
        "criteria.routing": {"kvEvents": "Ignored", "benchmark": {"targetRef": {"name": "staging"}}},
        "rollback": {"onEvidenceLost": "Revert"},
    }
    asked = case(spec).pool
    pool = replace(asked, status=asked.status.model_copy(update={"permitted": (Capability.ROUTING,)}))
    assert judge_capability(replace(found, pool=pool), Capability.ROUTING, None).ruling.move is move
