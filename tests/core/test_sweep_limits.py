"""What the operator's limits do to a sweep that is due: it waits, says for what, and no verdict changes by it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from kvgate.api.status import SweepJob, SweepStatus
from kvgate.api.words import ConditionType
from kvgate.core.decide import decide
from kvgate.core.evidence import NodeIdentity
from kvgate.core.steps import Abandon, Collect, Decision, Line, Measure
from kvgate.core.world import Sweep, Walker, WalkerState
from tests.core import cases
from tests.core.worlds import FAST, NOW, SLOW, Scene, condition, opened, told
from tests.invariants import broken

ASKED = "2026-11-30T12:00:00Z"
BUSY = "pool team-a/llama sweeps now, and the operator's probe.maxConcurrentSweeps is 1"
HOUR, DAY = timedelta(hours=1), timedelta(hours=24)
REBOOTED = cases.nodes(identities=cases.identities(d2=NodeIdentity("d2", "uid-d2", "another-boot", "6.18")))
Change = Callable[[Scene], Scene]


def turn(scene: Scene, waits: str = "", least: timedelta = timedelta(0), problem: str = "") -> Decision:
    world = replace(scene.world, sweep_waits=waits, least_sweep_interval=least, sweep_problem=problem)
    decision = decide(scene.pool, world, scene.now)
    assert broken(decision.status, scene.generation, scene.now, scene.status) == []
    return decision


def measures(decision: Decision) -> bool:
    begun = any(isinstance(step, Measure) for step in decision.steps)
    assert begun == (decision.status.sweep is not None)
    return begun


def swept(scene: Scene, **ago: float) -> Scene:
    """The pool remembers when its last sweep was over."""
    ended = scene.now - timedelta(**ago)
    return scene.but(status=scene.status.model_copy(update={"last_sweep_at": ended}))


# --- maxConcurrentSweeps ------------------------------------------------------------------------------------------

DUE: dict[str, tuple[Change, Line]] = {
    "a first sweep": (lambda s: s.but(evidence=()), Line.BACK),
    "a scheduled sweep": (lambda s: s.later(hours=23.3), Line.BACK),
    "a sweep that a person asked for": (lambda s: s.but(asked=ASKED), Line.BACK),
    "a sweep after a node was rebooted": (lambda s: s.but(nodes=REBOOTED), Line.BACK),
    "the second sweep after a Fail": (lambda s: opened(s).measured(SLOW), Line.FRONT),
}


@pytest.mark.parametrize(("change", "line"), DUE.values(), ids=DUE)
def test_what_is_due_waits_in_line_while_others_fill_the_limit(change: Change, line: Line) -> None:
    scene = change(Scene())
    waiting = turn(scene, BUSY)
    assert (measures(waiting), waiting.line) == (False, line)
    assert 30 <= waiting.requeue_after_seconds <= 60
    assert waiting.status.last_handled_measure_at == scene.status.last_handled_measure_at

    called = turn(scene)
    assert (measures(called), called.line) == (True, Line.NOWHERE)


def test_a_pool_without_evidence_says_who_runs_and_the_limit_and_is_not_ready_yet() -> None:
    status = turn(Scene(evidence=()), BUSY).status
    for kind in (ConditionType.FABRIC_MEASURED, ConditionType.READY, ConditionType.RECONCILING):
        said = condition(status, kind)
        assert said.reason == "WaitingForTurn"
        assert BUSY in said.message
    assert told(status, ConditionType.FABRIC_MEASURED)[0] == "Unknown"
    assert told(status, ConditionType.READY)[0] == "Unknown"


def test_a_routine_sweep_that_waits_changes_nothing_that_is_said() -> None:
    scene = opened().later(hours=24.3).after(seconds=0)
    assert measures(turn(scene))
    waiting, idle = turn(scene, BUSY).status, turn(scene.but(spec=weekly(scene))).status
    assert waiting.conditions == idle.conditions
    assert waiting.capabilities == idle.capabilities


def weekly(scene: Scene) -> object:
    return scene.asking(fabric__schedule__interval="168h").spec


def test_evidence_that_counts_no_more_says_what_its_new_sweep_waits_for() -> None:
    said = condition(turn(Scene(nodes=REBOOTED), BUSY).status, ConditionType.FABRIC_MEASURED)
    assert (said.status.value, said.reason) == ("False", "NodeNotCovered")
    assert BUSY in said.message


def test_a_sweep_that_is_meant_goes_on_whoever_else_sweeps() -> None:
    meant = SweepStatus(run_id="run-x", started_at=NOW, reason="no evidence yet")
    scene = Scene(evidence=(), status=Scene().status.model_copy(update={"sweep": meant}))
    decision = turn(scene, BUSY, least=DAY)
    assert [step.run_id for step in decision.steps if isinstance(step, Measure)] == ["run-x"]
    assert decision.status.sweep == meant


# --- minInterval --------------------------------------------------------------------------------------------------

HELD: dict[str, Change] = {
    "its interval is shorter": lambda s: s.asking(fabric__schedule__interval="30m"),
    "a node was rebooted": lambda s: s.but(nodes=REBOOTED),
    "a node joined": lambda s: s.but(nodes=cases.nodes(decode=("d1", "d2", "d3"))),
    "its evidence expired": lambda s: s.asking(fabric__evidenceTTL="30m", fabric__schedule__interval="20m"),
    "all its reports were deleted": lambda s: swept(s.but(evidence=()), hours=1),
    "its newest report was deleted": lambda s: swept(s, hours=1).later(hours=30),
}


@pytest.mark.parametrize("change", HELD.values(), ids=HELD)
def test_no_scheduled_sweep_begins_before_the_least_interval_is_over(change: Change) -> None:
    scene = change(Scene())
    since = timedelta(hours=31) if scene.now > NOW else HOUR
    assert measures(turn(scene, least=since))
    held = turn(scene, least=since + timedelta(minutes=2))
    assert not measures(held)
    assert held.requeue_after_seconds == pytest.approx(120)
    assert held.line is Line.NOWHERE


EXEMPT: dict[str, Change] = {
    "a person asked": lambda s: s.but(asked=ASKED),
    "a person asked a pool whose reports are gone": lambda s: swept(s.but(evidence=(), asked=ASKED), minutes=1),
    "it confirms a Fail": lambda s: opened(s).measured(SLOW),
    "it is the first": lambda s: s.but(evidence=()),
    "the only evidence is another pool's": lambda s: s.but(evidence=()).measured(FAST, pool_uid="b"),
    "the last sweep is told for tomorrow": lambda s: swept(s.but(evidence=()), hours=-24),
}


@pytest.mark.parametrize("change", EXEMPT.values(), ids=EXEMPT)
def test_what_the_least_interval_does_not_hold(change: Change) -> None:
    assert measures(turn(change(Scene()), least=timedelta(days=30)))


def test_a_clock_that_went_back_lets_no_sweep_follow_the_other() -> None:
    scene = Scene().measured(FAST).later(hours=-2)
    assert measures(turn(scene, least=HOUR))
    assert not measures(turn(swept(scene, minutes=5), least=HOUR))


def test_where_a_person_waits_the_message_says_until_when_and_how_not_to() -> None:
    said = condition(turn(Scene(nodes=REBOOTED), least=DAY).status, ConditionType.FABRIC_MEASURED)
    assert said.reason == "NodeNotCovered"
    assert "may begin at 2026-12-01T11:00:00Z: the operator's probe.minInterval is 24 h" in said.message
    assert "kvgate.dev/measure-requested-at" in said.message
    gone = turn(swept(Scene(evidence=()), hours=1), least=DAY).status
    assert told(gone, ConditionType.FABRIC_MEASURED) == ("Unknown", "WaitingForInterval")
    assert told(gone, ConditionType.READY) == ("Unknown", "WaitingForInterval")


def test_the_interval_counts_from_the_end_of_the_last_sweep_that_ran_told_once() -> None:
    walker = Walker("p1", "job-uid", WalkerState.ENDED)
    scene = Scene(evidence=(), sweeping=True)
    world = replace(scene.world, sweep=Sweep("busy", NOW, (walker,)))
    first = decide(scene.pool, world, NOW + HOUR)
    assert any(isinstance(step, Collect) for step in first.steps)
    assert first.status.last_sweep_at == NOW + HOUR
    second = decide(replace(scene.pool, status=first.status), world, NOW + 2 * HOUR)
    assert second.status.last_sweep_at == NOW + HOUR


# --- what may not start, and what gives its turn back -------------------------------------------------------------

PROBLEM = "the operator's settings name no probe image: its administrator must set probe.image"


def test_a_sweep_that_may_not_be_started_takes_no_turn_and_is_tried_again() -> None:
    decision = turn(Scene(evidence=(), asked=ASKED), problem=PROBLEM)
    assert not measures(decision)
    assert decision.requeue_after_seconds == 60
    assert decision.status.last_handled_measure_at == ""
    assert told(decision.status, ConditionType.FABRIC_MEASURED) == ("Unknown", "SweepTroubled")
    assert condition(decision.status, ConditionType.READY).message == PROBLEM


MEANT = SweepStatus(run_id="run-x", started_at=NOW, reason="no evidence yet")
FALLS: dict[str, tuple[Change, str, timedelta]] = {
    "its pool was suspended": (lambda s: s.asking(suspend=True), "", timedelta(0)),
    "its pool is being deleted": (lambda s: s.but(deleted=True), "", timedelta(0)),
    "an older pool took the target": (lambda s: s.but(claimed_by="elder"), "", timedelta(0)),
    "no node is left": (lambda s: s.but(nodes=cases.nodes(prefill=(), decode=())), "", timedelta(0)),
    "it was refused": (lambda s: s, PROBLEM, timedelta(0)),
    "its time is up": (lambda s: s, "", timedelta(hours=3)),
}


@pytest.mark.parametrize(("change", "problem", "after"), FALLS.values(), ids=FALLS)
def test_a_sweep_of_which_nothing_runs_gives_its_turn_back(change: Change, problem: str, after: timedelta) -> None:
    scene = change(Scene(evidence=()))
    scene = scene.but(status=scene.status.model_copy(update={"sweep": MEANT}), now=NOW + after)
    decision = turn(scene, problem=problem)
    assert decision.status.sweep is None
    assert not any(isinstance(step, Measure) for step in decision.steps)


@pytest.mark.parametrize(
    ("minutes", "step"),
    [pytest.param(4, Measure, id="tried again at first"), pytest.param(6, Collect, id="given up after 5 min")],
)
def test_a_sweep_whose_jobs_are_refused_in_part_holds_others_up_no_longer_than_its_patience(
    minutes: float, step: type[object]
) -> None:
    scene = Scene(evidence=(), status=Scene().status.model_copy(update={"sweep": MEANT}), now=NOW)
    scene = scene.later(minutes=minutes)
    ended = Walker("p1", "job-uid", WalkerState.ENDED)
    made = (SweepJob(node="p1", name="j", uid="job-uid"),)
    world = replace(scene.world, sweep=Sweep("run-x", NOW, (ended,)), sweep_jobs=made, sweep_problem="QuotaExceeded")
    assert [type(one) for one in decide(scene.pool, world, scene.now).steps] == [step]


def test_a_sweep_of_which_not_one_job_may_be_made_is_cleared_at_once() -> None:
    scene = Scene(evidence=(), status=Scene().status.model_copy(update={"sweep": MEANT}), now=NOW)
    waiting = Walker("p1", "", WalkerState.PENDING)
    world = replace(scene.world, sweep=Sweep("run-x", NOW, (waiting,)), sweep_problem="denied")
    assert decide(scene.pool, world, scene.now).steps == (Abandon("run-x"),)
