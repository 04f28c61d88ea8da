"""A sweep that takes many turns: meant, taken up again after a death, introduced, collected, cleared."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from kvgate.api.status import SweepJob, SweepStatus
from kvgate.core.decide import decide
from kvgate.core.steps import Collect, Decision, Introduce, Measure
from kvgate.core.world import Sweep, Walker, WalkerState
from tests.core import cases
from tests.core.worlds import FAST, NOW, Scene
from tests.invariants import broken

RUN = "run-x"
NODES = ("p1", "p2", "d1", "d2")
JOBS = tuple(SweepJob(node=node, name=f"qwen3-{RUN}-{node}", uid=f"job-{node}") for node in NODES)
FENCE = SweepStatus(run_id=RUN, started_at=NOW, reason="no evidence yet", jobs=JOBS)
RUNNING, ENDED, PENDING, GONE = WalkerState.RUNNING, WalkerState.ENDED, WalkerState.PENDING, WalkerState.GONE


def walkers(**states: WalkerState) -> tuple[Walker, ...]:
    """Walkers with an address each; all have been told of all unless the test says otherwise."""
    return tuple(
        Walker(node, f"job-{node}", states.get(node, RUNNING), f"10.0.0.{number}") for number, node in enumerate(NODES)
    )


def turn(
    fence: SweepStatus | None,
    found: tuple[Walker, ...] | None,
    jobs: tuple[SweepJob, ...] = JOBS,
    scene: Scene | None = None,
    after: timedelta = timedelta(0),
) -> Decision:
    seen = scene or Scene(evidence=(), nodes=cases.nodes(NODES[:2], NODES[2:]))
    pool = replace(seen.pool, status=seen.status.model_copy(update={"sweep": fence}))
    sweep = None if found is None else Sweep(RUN, NOW, found)
    world = replace(seen.world, sweep=sweep, sweep_jobs=jobs if found is not None else ())
    decision = decide(pool, world, NOW + after)
    assert broken(decision.status, 1, NOW + after) == []
    return decision


def test_a_sweep_is_meant_in_the_status_before_it_starts() -> None:
    decision = turn(None, None)
    (step,) = decision.steps
    assert isinstance(step, Measure)
    assert decision.status.sweep is not None
    assert (decision.status.sweep.run_id, decision.status.sweep.jobs) == (step.run_id, ())


def test_after_a_death_before_any_job_it_starts_under_its_own_name() -> None:
    meant = FENCE.model_copy(update={"jobs": ()})
    decision = turn(meant, None)
    assert [step.run_id for step in decision.steps if isinstance(step, Measure)] == [RUN]
    assert decision.status.sweep == meant


def test_after_a_death_between_two_jobs_the_missing_ones_are_made() -> None:
    decision = turn(FENCE.model_copy(update={"jobs": ()}), walkers()[:2], JOBS[:2])
    assert [type(step) for step in decision.steps] == [Measure]
    assert decision.status.sweep is not None
    assert decision.status.sweep.jobs == ()


def test_the_jobs_are_remembered_once_all_of_them_exist() -> None:
    decision = turn(FENCE.model_copy(update={"jobs": ()}), walkers())
    assert decision.status.sweep == FENCE
    assert decision.steps == ()


STEPS = {
    "all are at work and know each other": (walkers(), None),
    "one was not told of a partner": (
        (replace(walkers()[0], untold=True), *walkers()[1:]),
        Introduce(RUN),
    ),
    "one that waits for its address is told nothing yet": (
        (replace(walkers(p1=PENDING)[0], address="", untold=True), *walkers()[1:]),
        None,
    ),
    "one is still at work": (walkers(p1=ENDED, p2=ENDED, d1=ENDED), None),
    "all have ended": (walkers(**dict.fromkeys(NODES, ENDED)), Collect(RUN)),
    "a Job that somebody deleted is not waited for": (
        walkers(p1=GONE, p2=ENDED, d1=ENDED, d2=ENDED),
        Collect(RUN),
    ),
}


@pytest.mark.parametrize(("found", "step"), STEPS.values(), ids=STEPS)
def test_what_comes_next(found: tuple[Walker, ...], step: Introduce | Collect | None) -> None:
    decision = turn(FENCE, found)
    assert decision.steps == (() if step is None else (step,))
    assert decision.status.sweep == FENCE


def test_at_its_timeout_a_sweep_is_collected_and_names_who_was_late() -> None:
    assert turn(FENCE, walkers(p1=ENDED, d2=PENDING), after=timedelta(hours=3)).steps == (
        Collect(RUN, late=("p2", "d1", "d2"), patient=False),
    )
    assert turn(FENCE, walkers(p1=ENDED, d2=PENDING), after=timedelta(hours=2, minutes=59)).steps == ()


def test_walkers_that_will_not_start_are_waited_for_a_minute_and_others_to_their_end() -> None:
    stuck = tuple(
        replace(w, stuck=True, trouble="DeviceHeld: node d2 has no rdma/hca left") if w.node == "d2" else w
        for w in walkers(p1=ENDED, p2=ENDED, d1=ENDED, d2=PENDING)
    )
    assert turn(FENCE, stuck, after=timedelta(seconds=59)).steps == ()
    assert turn(FENCE, stuck, after=timedelta(seconds=60)).steps == (Collect(RUN),)
    at_work = tuple(replace(w, state=RUNNING) if w.node == "p1" else w for w in stuck)
    decision = turn(FENCE, at_work, after=timedelta(minutes=5))
    assert decision.steps == ()
    measured = next(c for c in decision.status.conditions if c.type == "FabricMeasured")
    assert "node d2 has no rdma/hca left" in measured.message


def test_a_log_that_cannot_be_read_is_asked_for_until_the_timeout_and_no_longer() -> None:
    ended = walkers(**dict.fromkeys(NODES, ENDED))
    assert turn(FENCE, ended, after=timedelta(hours=2, minutes=59)).steps == (Collect(RUN),)
    assert turn(FENCE, ended, after=timedelta(hours=3)).steps == (Collect(RUN, patient=False),)


def test_what_was_collected_and_not_yet_cleared_is_collected_again() -> None:
    arrived = Scene(nodes=cases.nodes(NODES[:2], NODES[2:])).but(
        status=Scene().status.model_copy(update={"sweep": FENCE})
    )
    decision = turn(FENCE, walkers(**dict.fromkeys(NODES, ENDED)), scene=arrived.measured(FAST))
    assert decision.steps == (Collect(RUN),)
    assert decision.status.sweep == FENCE


def test_once_cleared_the_fence_falls_and_nothing_starts_in_the_same_turn() -> None:
    arrived = Scene(nodes=cases.nodes(NODES[:2], NODES[2:])).but(
        status=Scene().status.model_copy(update={"sweep": FENCE})
    )
    decision = turn(FENCE, None, scene=arrived.measured(FAST))
    assert decision.status.sweep is None
    assert not any(isinstance(step, Measure | Collect) for step in decision.steps)


def test_a_suspended_pool_starts_nothing_again_and_lets_what_runs_end() -> None:
    resting = Scene(evidence=(), nodes=cases.nodes(NODES[:2], NODES[2:])).asking(suspend=True).but(generation=1)
    assert turn(FENCE.model_copy(update={"jobs": ()}), None, scene=resting).status.sweep is None
    assert turn(FENCE, walkers(**dict.fromkeys(NODES, ENDED)), scene=resting).steps == (Collect(RUN),)


def test_a_walker_that_cannot_start_is_named_with_its_node() -> None:
    stuck = replace(walkers(d2=PENDING)[3], address="", trouble="Unschedulable: 0/3 nodes are available")
    decision = turn(FENCE, (*walkers()[:3], stuck))
    said = next(condition for condition in decision.status.conditions if condition.type == "FabricMeasured")
    assert (said.status, said.reason) == ("Unknown", "SweepTroubled")
    assert "node d2: Unschedulable" in said.message
