"""When an A/B starts, what its fence remembers, and how it ends: by its Job, by a closed window, by a death."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from kvgate.api.status import BenchmarkRun, SweepStatus
from kvgate.api.words import Capability
from kvgate.core.ab.evidence import BenchmarkGround
from kvgate.core.benchmark_criteria import workload
from kvgate.core.benchmarking import LONGEST, REST
from kvgate.core.decide import decide
from kvgate.core.digests import digest
from kvgate.core.runs import JobState, RunningJob
from kvgate.core.steps import AbandonBenchmark, CollectBenchmark, Decision, StartBenchmark
from kvgate.core.target import Switch, TargetProblem, TargetView, Toggle
from kvgate.core.world import Nodes, Pool, World
from tests.core.ab.trials import experiment
from tests.core.cases import NOW, case
from tests.core.test_benchmark_criteria import PROJECTION, SUBJECT, VOID, ab

STAGING = BenchmarkGround("staging", 4, "cards")
LIVE = replace(STAGING, ran_on="qwen3", on_live=True)
SPEC: dict[str, object] = {
    "criteria": {"routing": {"kvEvents": "Ignored", "benchmark": {"targetRef": {"name": "staging"}}}},
}
WINDOWS = [{"schedule": "0 11 * * *", "duration": "2h"}]
"""Open at noon, when these turns are."""
FENCE = BenchmarkRun(run_id="run-1", started_at=NOW, ran_on="staging", generation=4, cards="cards")
RECORDED = FENCE.model_copy(update={"job_uid": "job"})
RUNNING = RunningJob("run-1", "job", JobState.RUNNING)
ENDED = replace(RUNNING, state=JobState.ENDED)


def turn(
    spec: dict[str, object] | None = None, *, status: dict[str, object] | None = None, **world: object
) -> Decision:
    """One turn of a pool whose routing is gated and whose deployment is off; the world differs as said."""
    plain = case(SPEC | (spec or {}))
    toggle = Toggle(Switch.OFF, projection=PROJECTION)
    target = TargetView("target-uid", split="agg", toggles={Capability.ROUTING: toggle})
    seen: World = replace(plain.world, nodes=Nodes(), target=target, benchmark_ground=STAGING)
    pool: Pool = replace(plain.pool, status=plain.pool.status.model_copy(update=status or {}))
    return decide(pool, replace(seen, **world), NOW)  # type: ignore[arg-type]


def steps(decision: Decision) -> tuple[object, ...]:
    kinds = (StartBenchmark, CollectBenchmark, AbandonBenchmark)
    return tuple(step for step in decision.steps if isinstance(step, kinds))


def test_it_is_meant_in_the_status_with_all_that_must_not_change_before_its_job_is_made() -> None:
    decision = turn()
    fence = decision.status.benchmark
    assert fence is not None
    assert steps(decision) == (StartBenchmark(fence.run_id),)
    assert (fence.ran_on, fence.generation, fence.cards, fence.on_live) == ("staging", 4, "cards", False)
    assert (fence.target_uid, fence.projection, fence.split) == ("target-uid", digest(PROJECTION), "agg")
    assert decision.status.last_benchmark_at == NOW
    assert fence.workload == workload(case(SPEC)) != ""
    assert turn().status.benchmark == fence


@pytest.mark.parametrize(
    "decision",
    [
        pytest.param(turn(benchmarks=(ab(age=timedelta(hours=25)),)), id="the last is older than schedule.interval"),
        pytest.param(turn(benchmarks=(ab(VOID),)), id="the last was void"),
        pytest.param(
            turn(benchmarks=(ab(subject=replace(SUBJECT, workload="another")),)), id="the last was of another workload"
        ),
        pytest.param(turn(benchmarks=(ab(age=timedelta(hours=50)),)), id="the last has expired"),
        pytest.param(turn(status={"last_benchmark_at": NOW - REST}), id="it rested long enough"),
        pytest.param(
            turn({"changeWindows": WINDOWS}, benchmark_ground=LIVE), id="users share it, and a window is open"
        ),
    ],
)
def test_it_starts_when_there_is_something_to_prove(decision: Decision) -> None:
    assert [type(step) for step in steps(decision)] == [StartBenchmark]


SHUT = [{"schedule": "0 2 * * *", "duration": "1h"}]


@pytest.mark.parametrize(
    "decision",
    [
        pytest.param(turn(benchmark_ground=None), id="none is asked for"),
        pytest.param(
            turn(benchmark_ground=replace(STAGING, problem="staging is not ready")), id="nothing to run it on"
        ),
        pytest.param(turn(benchmarks=(ab(experiment()),)), id="a fresh one counts"),
        pytest.param(turn(status={"last_benchmark_at": NOW - REST / 2}), id="one was begun half an hour ago"),
        pytest.param(turn({"suspend": True}), id="the pool is suspended"),
        pytest.param(turn(claimed_by="older"), id="an older pool owns the target"),
        pytest.param(turn(target=TargetProblem("TargetNotFound", "gone")), id="the target is gone"),
        pytest.param(turn({"criteria": {"kvStorage": {}}}), id="routing is not gated"),
        pytest.param(turn(benchmark_ground=LIVE), id="users share it, and there is no window at all"),
        pytest.param(turn({"changeWindows": SHUT}, benchmark_ground=LIVE), id="users share it, and the window is shut"),
        pytest.param(
            turn({"criteria": {"routing": {"benchmark": {"targetRef": {"name": "staging"}}}}}),
            id="KV events are not known",
        ),
    ],
)
def test_it_does_not_start(decision: Decision) -> None:
    assert steps(decision) == ()
    assert decision.status.benchmark is None


def test_a_sweep_and_an_ab_never_run_together() -> None:
    sweep = SweepStatus(run_id="s", started_at=NOW, reason="r")
    assert steps(turn(status={"sweep": sweep}, nodes=case().world.nodes)) == ()
    both = turn(status={"benchmark": RECORDED}, benchmark_job=RUNNING, nodes=case().world.nodes, evidence=())
    assert both.status.sweep is None


LIVE_RUN = RECORDED.model_copy(update={"on_live": True, "ran_on": "qwen3"})


@pytest.mark.parametrize(
    ("decision", "step", "kept"),
    [
        pytest.param(
            turn(status={"benchmark": FENCE}), StartBenchmark("run-1"), FENCE, id="its Job was not made: again"
        ),
        pytest.param(
            turn(status={"benchmark": FENCE}, benchmark_job=RUNNING), None, RECORDED, id="its Job is remembered"
        ),
        pytest.param(turn(status={"benchmark": RECORDED}, benchmark_job=RUNNING), None, RECORDED, id="it runs"),
        pytest.param(
            turn(status={"benchmark": RECORDED}, benchmark_job=ENDED),
            CollectBenchmark("run-1"),
            RECORDED,
            id="it has ended",
        ),
        pytest.param(
            turn(status={"benchmark": RECORDED}, benchmark_job=ENDED, benchmarks=(ab(),)),
            AbandonBenchmark("run-1"),
            RECORDED,
            id="it was collected, and something of it is left",
        ),
        pytest.param(
            turn(status={"benchmark": RECORDED}, benchmarks=(ab(),)), None, None, id="it was collected and cleared"
        ),
        pytest.param(turn(status={"benchmark": RECORDED}), None, None, id="somebody deleted its Job"),
        pytest.param(
            turn(status={"benchmark": RECORDED}, benchmark_job=replace(RUNNING, uid="other")),
            AbandonBenchmark("run-1"),
            RECORDED,
            id="somebody put another Job in its place",
        ),
        pytest.param(
            turn({"suspend": True}, status={"benchmark": RECORDED}, benchmark_job=RUNNING),
            AbandonBenchmark("run-1"),
            RECORDED,
            id="the pool was suspended",
        ),
        pytest.param(
            turn({"changeWindows": SHUT}, status={"benchmark": LIVE_RUN}, benchmark_job=RUNNING, benchmark_ground=LIVE),
            CollectBenchmark("run-1", "the change window closed"),
            LIVE_RUN,
            id="users share it, and the window closed",
        ),
        pytest.param(
            turn({"changeWindows": SHUT}, status={"benchmark": RECORDED}, benchmark_job=RUNNING),
            None,
            RECORDED,
            id="on staging",
        ),
        pytest.param(
            turn(status={"benchmark": FENCE}, benchmark_ground=replace(STAGING, generation=5)),
            None,
            None,
            id="the deployment changed before its Job was made",
        ),
        pytest.param(
            turn(status={"benchmark": FENCE.model_copy(update={"workload": "another"})}),
            None,
            None,
            id="the workload changed before its Job was made",
        ),
        pytest.param(
            turn(status={"benchmark": FENCE.model_copy(update={"started_at": NOW - LONGEST})}),
            None,
            None,
            id="its Job could not be made for half a day",
        ),
    ],
)
def test_what_is_under_way_goes_on(decision: Decision, step: object, kept: BenchmarkRun | None) -> None:
    assert steps(decision) == (() if step is None else (step,))
    assert decision.status.benchmark == kept


def test_while_it_runs_it_is_looked_at_soon_and_the_condition_says_so() -> None:
    decision = turn(
        status={"benchmark": RECORDED}, benchmark_job=replace(RUNNING, trouble="its pod cannot pull its image")
    )
    assert decision.requeue_after_seconds <= 10
    accepted = next(c for c in decision.status.conditions if c.type == "RoutingAccepted")
    assert (accepted.status, accepted.reason) == ("Unknown", "BenchmarkNotRun")
    assert "one runs on staging since" in accepted.message
    assert "its pod cannot pull its image" in accepted.message


def test_what_keeps_it_from_beginning_is_told() -> None:
    decision = turn(benchmark_ground=replace(STAGING, problem="staging differs from qwen3 in its image"))
    accepted = next(c for c in decision.status.conditions if c.type == "RoutingAccepted")
    assert "none can begin: staging differs from qwen3 in its image" in accepted.message
