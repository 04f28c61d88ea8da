"""An hour with a hand that takes the fields every three minutes: how often kvgate writes, and what it says at the end.

The deployment is a switch that patches and the hand really turn; the clock is the scene's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from kvgate.api.words import Capability, ConditionType
from kvgate.core.steps import Enable, Revert
from kvgate.core.target import Deed, Hand, Switch
from tests.core.hours import gated
from tests.core.worlds import ROUTING, SPLIT, Scene, condition, told

HAND = Hand("argocd-controller", Deed.OVERWROTE, ("Frontend/DYN_ROUTER_MODE",), "drop the line")
Act = Callable[[Scene, Capability, int], Scene]
EVERY_SECONDS, STEP_SECONDS, HOUR_SECONDS = 180, 60, 3600


def takes(scene: Scene, capability: Capability, number: int) -> Scene:
    del number
    return scene.switched(Switch.OFF, capability, hands=(HAND,))


def takes_and_changes_the_plan(scene: Scene, capability: Capability, number: int) -> Scene:
    taken = takes(scene, capability, number)
    toggle = replace(taken.toggles[capability], projection=f'{{"image":"vllm:{number}"}}')
    return taken.but(toggles={**taken.toggles, capability: toggle})


def lived(
    scene: Scene, capability: Capability, act: Callable[[Scene, Capability, int], Scene], hours: int = 1
) -> tuple[Scene, int]:
    """The scene after so many hours, and how many patches were written once the hand had begun."""
    patches = begun = 0
    for second in range(0, hours * HOUR_SECONDS, STEP_SECONDS):
        decision = scene.decide()
        written = scene.toggles[capability]
        scene = scene.but(status=decision.status).later(seconds=STEP_SECONDS)
        for step in decision.patches:
            assert isinstance(step, Enable | Revert)
            patches += begun > 0
            written = replace(written, switch=Switch.ON if isinstance(step, Enable) else Switch.OFF, hands=())
            scene = scene.but(landed=step.operation_id)
        scene = scene.but(toggles={**scene.toggles, capability: written})
        if (second + STEP_SECONDS) % EVERY_SECONDS == 0:
            begun += 1
            scene = act(scene, capability, begun)
    return scene, patches


def test_routing_is_written_again_once_and_then_held_as_drifted() -> None:
    scene, patches = lived(gated(ROUTING), ROUTING, takes)
    assert patches == 1
    drifted = condition(scene.decide().status, ConditionType.DRIFTED)
    assert (drifted.status.value, drifted.reason) == ("True", "Overwritten")
    assert "argocd-controller overwrote Frontend/DYN_ROUTER_MODE: drop the line" in drifted.message


def test_the_split_is_never_written_again() -> None:
    scene, patches = lived(gated(SPLIT), SPLIT, takes)
    assert patches == 0
    assert told(scene.decide().status, ConditionType.DRIFTED) == ("True", "Overwritten")


def test_four_hours_of_it_are_one_patch_too() -> None:
    _, patches = lived(gated(ROUTING), ROUTING, takes, hours=4)
    assert patches == 1


@pytest.mark.parametrize(
    ("capability", "limit"),
    [pytest.param(ROUTING, 1, id="routing: once"), pytest.param(SPLIT, 0, id="the split: never")],
)
def test_a_hand_that_changes_the_plan_each_time_is_not_fought_either_within_the_cool_down(
    capability: Capability, limit: int
) -> None:
    """Each change of the manifest is a new plan, which here needs no approval."""
    scene, patches = lived(gated(capability), capability, takes_and_changes_the_plan)
    assert patches == limit
    assert told(scene.decide().status, ConditionType(f"{capability}Enabled")) == ("False", "HeldByCooldown")


def test_what_holds_it_then_is_told_with_its_end_and_its_cause() -> None:
    scene, _ = lived(gated(ROUTING), ROUTING, takes_and_changes_the_plan)
    message = condition(scene.decide().status, ConditionType.ROUTING_ENABLED).message
    assert "another hand took its fields" in message
    assert "rollback.cooldown is 1h" in message


def test_once_the_cool_down_is_over_a_changed_plan_is_written_once_more() -> None:
    scene, _ = lived(gated(ROUTING), ROUTING, takes_and_changes_the_plan)
    assert scene.decide().patches == ()
    assert [type(step) for step in scene.later(hours=1, minutes=1).decide().patches] == [Enable]


def test_over_four_hours_a_hand_that_changes_the_plan_gets_at_most_one_patch_in_each_cool_down() -> None:
    _, patches = lived(gated(ROUTING), ROUTING, takes_and_changes_the_plan, hours=4)
    assert 2 <= patches <= 4


def test_a_newer_approval_opens_it_again_at_once() -> None:
    scene, _ = lived(gated(SPLIT), SPLIT, takes)
    assert scene.decide().patches == ()
    assert [type(step) for step in scene.approved(SPLIT).later(seconds=1).decide().patches] == [Enable]


@pytest.mark.parametrize("capability", [ROUTING, SPLIT])
def test_a_hand_that_is_faster_than_our_next_look_is_not_fought_at_every_look(capability: Capability) -> None:
    scene: Scene = gated(capability)
    patches = 0
    for _ in range(60):
        decision = scene.decide()
        patches += len(decision.patches)
        for step in decision.patches:
            assert isinstance(step, Enable)
            scene = scene.but(landed=step.operation_id)
        scene = takes(scene.but(status=decision.status), capability, 0).later(seconds=1)
    assert patches == (2 if capability is ROUTING else 1), "the first, and what the cool-down grants"
    assert told(scene.decide().status, ConditionType.DRIFTED) == ("True", "Overwritten")


def test_a_patch_of_which_nobody_knows_whether_it_came_through_is_written_again() -> None:
    """After a restart of kvgate nobody remembers that it was accepted."""
    scene = gated(SPLIT)
    assert [type(step) for step in scene.decide().patches] == [Enable]
    assert [type(step) for step in scene.after().decide().patches] == [Enable]


def test_with_hold_a_line_in_the_manifest_is_never_forced() -> None:
    """The hand's manifest names the field: what stands there is its owner's, and the pool says Hold."""

    def names(scene: Scene, capability: Capability, number: int) -> Scene:
        taken = takes(scene, capability, number)
        toggle = replace(taken.toggles[capability], conflict="argocd-controller")
        return taken.but(toggles={**taken.toggles, capability: toggle})

    scene, patches = lived(gated(ROUTING), ROUTING, names)
    assert patches == 0
    enabled = condition(scene.decide().status, ConditionType.ROUTING_ENABLED)
    assert enabled.reason == "HeldByConflict"
    assert "argocd-controller" in enabled.message


def test_the_baseline_is_what_stood_there_when_it_was_written_last() -> None:
    """Another hand wrote the fields while nobody knew whether our patch had come through."""
    scene = gated(SPLIT).after()
    assert scene.status.target is not None
    assert {kept.present for kept in scene.status.target.baseline} == {False}
    meanwhile = scene.switched(Switch.OFF, SPLIT, baseline=scene.toggles[SPLIT].off_values).after()
    assert meanwhile.status.target is not None
    assert meanwhile.status.target.baseline == scene.toggles[SPLIT].off_values
