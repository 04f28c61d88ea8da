"""Operations: written before the patch, recorded by the look after it, and never more than one at a time."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from kvgate.api.status import BaselineEntry, Operation
from kvgate.api.words import Capability, ConditionType, Mode
from kvgate.core.steps import Enable, Revert
from kvgate.core.target import Switch, TargetProblem
from tests.core.worlds import (
    FAST,
    NOW,
    ROUTING,
    SLOW,
    SPLIT,
    Scene,
    actions,
    closed,
    condition,
    entry,
    kinds,
    opened,
    proposed,
    refused,
    toggle,
    told,
)

BEFORE = toggle(SPLIT, Switch.OFF).baseline
AGG = toggle(SPLIT, Switch.OFF).off_values


def baseline(scene: Scene) -> tuple[BaselineEntry, ...]:
    assert scene.status.target is not None
    return scene.status.target.baseline


def operation(scene: Scene) -> Operation:
    assert scene.status.operation is not None
    return scene.status.operation


def test_the_turn_that_patches_writes_operation_baseline_and_permission_first() -> None:
    decision = proposed().approved().decide()
    written = decision.status.operation
    assert decision.patches == (Enable(SPLIT, toggle(SPLIT, Switch.OFF).steps, written.id if written else ""),)
    assert written is not None
    assert (written.capability, written.step, written.started_at) == (SPLIT, "Enable", NOW + timedelta(seconds=1))
    assert written.plan_hash == entry(decision.status).plan_hash
    assert decision.status.permitted == (SPLIT,)
    assert decision.status.target is not None
    assert decision.status.target.baseline == BEFORE
    assert decision.requeue_after_seconds == 1


def test_the_next_turn_records_what_the_deployment_shows_and_begins_nothing() -> None:
    scene = proposed().approved().after().switched(Switch.ON)
    decision = scene.decide()
    assert decision.steps == ()
    assert decision.status.operation is None
    assert actions(decision.status) == ["Enabled"]
    assert decision.status.history[0].plan_hash == entry(decision.status).plan_hash
    assert decision.status.history[0].time == scene.now
    assert entry(decision.status).enabled


def test_what_was_just_written_back_is_not_written_again_in_the_same_turn() -> None:
    quick = opened().asking(criteria__disaggregation__approval="NotRequired", rollback__cooldown="0s")
    back = quick.measured(SLOW).later(minutes=1).measured(SLOW).after().switched(Switch.OFF).measured(FAST)
    decision = back.decide()
    assert actions(decision.status)[0] == "Reverted"
    assert decision.patches == ()
    assert kinds(back.after().decide()) == ["Enable"]


def test_what_was_written_by_half_keeps_its_baseline() -> None:
    half = proposed().approved().after().switched(Switch.MIXED)
    assert half.decide().patches == ()
    assert baseline(half.after()) == BEFORE


@pytest.mark.parametrize("turns", [1, 3])
def test_after_a_death_the_same_operation_is_issued_again(turns: int) -> None:
    scene = proposed().approved().after()
    first = operation(scene)
    for _ in range(turns):
        scene = scene.after(seconds=7)
    decision = scene.decide()
    assert decision.status.operation == first
    assert [step.operation_id for step in decision.patches] == [first.id]
    assert decision.status.target is not None
    assert decision.status.target.baseline == BEFORE


def test_a_plan_that_changed_meanwhile_is_another_operation() -> None:
    scene = proposed().asking(criteria__disaggregation__approval="NotRequired").after()
    first = operation(scene)
    changed = scene.switched(Switch.OFF, projection='{"image":"vllm:2"}').after()
    assert operation(changed).id != first.id
    assert operation(changed).plan_hash != first.plan_hash
    assert baseline(changed) == BEFORE


DROPPED = {
    "the evidence went bad": lambda scene: scene.measured(SLOW),
    "the approval was deleted": lambda scene: scene.but(approvals=()),
    "the pool was suspended": lambda scene: scene.asking(suspend=True),
    "the mode fell back to Observe": lambda scene: scene.asking(mode="Observe"),
    "the capability is no longer gated": lambda scene: scene.gating(ROUTING, Switch.OFF).asking(
        criteria__disaggregation=None
    ),
    "an older pool claims the target": lambda scene: scene.but(claimed_by="elder"),
}


@pytest.mark.parametrize("change", DROPPED.values(), ids=DROPPED)
def test_an_operation_that_was_never_written_is_dropped_with_its_baseline(change: object) -> None:
    scene = change(proposed().approved().after())  # type: ignore[operator]
    decision = scene.decide()
    assert decision.patches == ()
    assert decision.status.operation is None
    assert decision.status.target is not None
    assert decision.status.target.baseline == ()
    after = scene.after().decide()
    assert actions(after.status) == [], "nobody overwrote what was never written"


UNSEEN = {
    "the target is gone from sight": lambda scene: scene.but(target=TargetProblem("TargetNotFound", "it is gone")),
    "the target cannot be read": lambda scene: scene.but(toggles={SPLIT: refused(SPLIT, Switch.UNREADABLE)}),
}


@pytest.mark.parametrize("change", UNSEEN.values(), ids=UNSEEN)
def test_what_may_have_been_written_is_remembered_until_the_target_is_seen_again(change: object) -> None:
    scene = change(proposed().approved().after())  # type: ignore[operator]
    decision = scene.decide()
    assert decision.patches == ()
    seen = scene.after().but(target=None).switched(Switch.ON).after()
    assert baseline(seen) == BEFORE
    assert actions(seen.status) in (["Enabled"], ["Adopted"])
    failing = seen.measured(SLOW).later(minutes=1).measured(SLOW)
    assert kinds(failing.decide()) == ["Revert"], "ours, so that a confirmed failure closes it"


def test_a_revert_writes_what_stood_there_before() -> None:
    failing = opened().measured(SLOW).later(minutes=1).measured(SLOW)
    decision = failing.decide()
    (step,) = decision.patches
    assert isinstance(step, Revert)
    assert step.baseline == BEFORE
    assert step.reason == "TTFTBudgetExceeded"
    assert decision.status.operation is not None
    assert decision.status.operation.step == "Revert"
    assert decision.status.target is not None
    assert decision.status.target.baseline == BEFORE, "kept until the revert is seen"


def test_a_revert_is_issued_again_until_it_is_seen() -> None:
    failing = opened().measured(SLOW).later(minutes=1).measured(SLOW).after()
    again = failing.decide()
    assert [step.operation_id for step in again.patches] == [operation(failing).id]
    assert kinds(again) == ["Revert"]


def test_a_revert_is_recorded_with_the_reason_for_which_it_began() -> None:
    """What is found once it is off says nothing of why it went off."""
    failing = opened().measured(SLOW).later(minutes=1).measured(SLOW).after()
    assert operation(failing).reason == "TTFTBudgetExceeded"
    off = failing.switched(Switch.OFF).measured(FAST).after()
    assert [(held.action, held.reason) for held in off.status.history[:1]] == [("Reverted", "TTFTBudgetExceeded")]


def test_a_revert_is_recorded_forgets_the_baseline_and_asks_for_a_new_approval() -> None:
    scene = closed()
    assert actions(scene.status) == ["Reverted", "Enabled"]
    assert scene.status.history[0].reason == "TTFTBudgetExceeded"
    assert scene.status.operation is None
    assert baseline(scene) == ()
    assert entry(scene.status).epoch == 1
    assert not entry(scene.status).enabled


def test_a_split_that_was_rolled_back_does_not_reopen_on_the_old_approval() -> None:
    scene = closed()
    old = entry(scene.status).plan_hash
    better = scene.later(hours=2).measured(FAST).after()
    assert entry(better.status).plan_hash != old
    assert entry(better.status).held_by == "Approval"
    assert kinds(better.decide()) == []
    assert kinds(better.approved().decide()) == ["Enable"]


def test_a_revert_for_a_lost_approval_says_so() -> None:
    scene = opened().asking(rollback__onApprovalLost="Revert").but(approvals=())
    (step,) = scene.decide().patches
    assert isinstance(step, Revert)
    assert step.reason == "ApprovalMissing"
    recorded = scene.after().switched(Switch.OFF).after()
    assert recorded.status.history[0].reason == "ApprovalMissing"


def test_a_revert_that_is_no_longer_wanted_is_dropped_and_the_baseline_stays() -> None:
    scene = opened().measured(SLOW).later(minutes=1).measured(SLOW).after().measured(FAST)
    decision = scene.decide()
    assert decision.patches == ()
    assert decision.status.operation is None
    assert decision.status.target is not None
    assert decision.status.target.baseline == BEFORE


def test_rollback_of_routing_keeps_its_epoch() -> None:
    scene = opened().gating(ROUTING, Switch.ON).asking(enforcement__adopt=True, rollback__onEvidenceLost="Revert")
    adopted = scene.after()
    assert actions(adopted.status)[0] == "Adopted"
    reverting = adopted.after()
    assert operation(reverting).capability is ROUTING
    off = reverting.switched(Switch.OFF, ROUTING).after()
    assert actions(off.status)[0] == "Reverted"
    assert entry(off.status, ROUTING).epoch == 0


def test_one_operation_per_target_at_a_time() -> None:
    scene = proposed().approved().after()
    both = scene.gating(ROUTING, Switch.ON).asking(enforcement__adopt=True, rollback__onEvidenceLost="Revert")
    decision = both.after().decide()
    assert len(decision.patches) <= 1
    assert len({step.capability for step in decision.patches}) <= 1


def test_another_capability_waits_while_one_is_switched() -> None:
    waiting = proposed().gating(ROUTING, Switch.ON).approved()
    busy = Operation(id="busy", capability=ROUTING, step="Revert", started_at=NOW)
    held = waiting.but(status=waiting.status.model_copy(update={"operation": busy}))
    assert [step.capability for step in held.decide().patches if isinstance(step, Enable)] == []


def test_a_revert_does_not_wait_for_an_enable_that_never_arrives() -> None:
    adopted = Scene().gating(ROUTING, Switch.ON).asking(enforcement__adopt=True).after().after()
    stuck = adopted.approved().after()
    assert operation(stuck).capability is SPLIT
    losing = stuck.asking(rollback__onEvidenceLost="Revert")
    decision = losing.decide()
    assert [(type(step), step.capability) for step in decision.patches] == [(Revert, ROUTING)]
    assert decision.status.target is not None
    assert not set(BEFORE) & set(decision.status.target.baseline), "the split was never written"


DENIED = "the webhook of the deployment answered: no"


def both_on() -> Scene:
    adopted = Scene().gating(ROUTING, Switch.ON).asking(enforcement__adopt=True).after().after()
    return opened(adopted)


def routing_first() -> Scene:
    """Both are to be switched back from the same turn on."""
    failing = both_on().measured(SLOW).later(minutes=1).measured(SLOW)
    return failing.asking(rollback__onEvidenceLost="Revert").after()


def split_first() -> Scene:
    """Routing is to be switched back while the split's revert is in flight."""
    reverting = both_on().measured(SLOW).later(minutes=1).measured(SLOW).after()
    return reverting.asking(rollback__onEvidenceLost="Revert")


@pytest.mark.parametrize(
    ("scene", "refused_one", "other"),
    [
        pytest.param(routing_first, ROUTING, SPLIT, id="routing's is refused"),
        pytest.param(split_first, SPLIT, ROUTING, id="the split's is refused"),
    ],
)
def test_a_revert_does_not_wait_for_another_that_is_refused(
    scene: Callable[[], Scene], refused_one: Capability, other: Capability
) -> None:
    stuck = scene()
    assert operation(stuck).capability is refused_one
    decision = stuck.but(patch_problem=DENIED).decide()
    assert [(type(step), step.capability) for step in decision.patches] == [(Revert, other)]
    held = stuck.but(status=decision.status)
    assert baseline(held) == baseline(stuck), "both are still to be written back"
    off = held.switched(Switch.OFF, other).after()
    assert actions(off.status)[0] == "Reverted"
    again = off.decide()
    assert [(type(step), step.capability) for step in again.patches] == [(Revert, refused_one)]


def test_two_reverts_that_are_refused_take_turns_and_are_told_as_failed() -> None:
    scene, began = routing_first(), operation(routing_first()).started_at
    turns = []
    for _ in range(6):
        scene = scene.but(patch_problem=DENIED).after(seconds=10)
        turns.append(operation(scene).capability)
    assert turns == [SPLIT, ROUTING] * 3
    assert operation(scene).started_at == began
    assert told(scene.status, ConditionType.READY) == ("False", "RollbackFailed")
    assert DENIED in condition(scene.status, ConditionType.READY).message


def test_a_revert_that_may_have_been_written_stays_in_flight_until_it_is_seen() -> None:
    stuck = routing_first()
    decision = stuck.decide()
    assert [step.operation_id for step in decision.patches] == [operation(stuck).id]


@pytest.mark.parametrize(
    "forged",
    [
        pytest.param("", id="the switched-on value: it would change nothing, again and again"),
        pytest.param("encode", id="a value that is neither on nor off"),
        pytest.param("agg; exec evil", id="a value that no deployment could have held"),
    ],
)
def test_a_baseline_that_does_not_switch_off_is_never_written_back(forged: str) -> None:
    """However it came into the status, as by the hand of whoever may write it."""
    scene = opened()
    assert scene.status.target is not None
    odd = tuple(
        BaselineEntry(component=step.component, env=step.env, present=True, value=forged or step.to)
        for step in toggle(SPLIT, Switch.ON).steps
    )
    target = scene.status.target.model_copy(update={"baseline": odd})
    failing = scene.but(status=scene.status.model_copy(update={"target": target}))
    reverting = failing.measured(SLOW).later(minutes=1).measured(SLOW)
    (step,) = reverting.decide().patches
    assert isinstance(step, Revert)
    assert step.baseline == AGG
    assert baseline(reverting.after()) == AGG


def test_a_revert_that_is_accepted_and_never_shows_is_written_ever_less_often_and_told_once() -> None:
    scene = opened().measured(SLOW).later(minutes=1).measured(SLOW).after()
    waits, said = [], set()
    for _ in range(40):
        decision = scene.but(patch_landed=operation(scene).id).decide()
        waits.append(decision.requeue_after_seconds)
        said |= {(c.reason, c.message) for c in decision.status.conditions if c.reason == "RollbackFailed"}
        scene = scene.but(status=decision.status).later(seconds=waits[-1])
    assert waits[:8] == [1.0] * 8
    assert waits == sorted(waits)
    assert waits[-1] > 15.0
    ((_, message),) = said
    assert "the deployer must see in its managedFields" in message


def test_an_operation_on_a_capability_that_is_no_longer_gated_blocks_nothing() -> None:
    orphan = Operation(id="orphan", capability=ROUTING, step="Enable", started_at=NOW)
    scene = opened()
    held = scene.but(status=scene.status.model_copy(update={"operation": orphan}))
    assert held.decide().status.operation is None


def test_no_sweep_starts_while_an_operation_is_in_flight() -> None:
    scene = proposed().approved().after().but(asked="2026-11-30T12:00:00Z")
    decision = scene.decide()
    assert kinds(decision) == ["Enable"]
    assert decision.status.last_handled_measure_at == ""


@pytest.mark.parametrize("mode", [Mode.OBSERVE, Mode.RECOMMEND])
@pytest.mark.parametrize("rate", [FAST, SLOW])
def test_modes_that_only_look_never_patch(mode: Mode, rate: float) -> None:
    for start in (proposed().approved(), opened(), opened().asking(rollback__onEvidenceLost="Revert")):
        scene = start.asking(mode=mode).measured(rate).later(minutes=1).measured(rate)
        assert scene.decide().patches == ()
        assert scene.after().decide().patches == ()


def test_recommend_writes_the_patch_out() -> None:
    assert kinds(proposed().asking(mode="Recommend").decide()) == ["Recommend"]
    assert kinds(opened().asking(mode="Recommend").decide()) == []


@pytest.mark.parametrize(
    "resting",
    [
        pytest.param({"claimed_by": "elder"}, id="an older pool claims the target"),
        pytest.param({"deleted": True}, id="the pool is being deleted"),
    ],
)
def test_a_resting_pool_recommends_nothing(resting: dict[str, object]) -> None:
    assert kinds(proposed().asking(mode="Recommend").but(**resting).decide()) == []


def test_suspended_does_nothing_at_all() -> None:
    for start in (Scene(evidence=()), proposed().approved(), opened().measured(SLOW).later(minutes=1).measured(SLOW)):
        assert start.asking(suspend=True).decide().steps == ()
