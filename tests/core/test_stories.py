"""Whole lives of a pool, made up event by event: the deployment is a table of values that patches really change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from kvgate.api.status import BaselineEntry
from kvgate.api.words import Outcome
from kvgate.core.steps import Decision, Enable, Revert
from kvgate.core.target import Switch, Toggle
from tests.core import worlds
from tests.core.worlds import FAST, SLOW, SPLIT, Scene

OFF = {(entry.component, entry.env): entry.value for entry in worlds.toggle(SPLIT, Switch.ON).off_values}
ON = {(step.component, step.env): step.to for step in worlds.toggle(SPLIT, Switch.OFF).steps}
Key = tuple[str, str]


@dataclass
class Life:
    """A scene and the values that its deployment holds now; what it held when it last was off."""

    scene: Scene = field(default_factory=Scene)
    held: dict[Key, str | None] = field(default_factory=lambda: dict.fromkeys(OFF))
    off: dict[Key, str | None] = field(default_factory=lambda: dict.fromkeys(OFF))
    reverted_at: datetime | None = None
    loses_patches: bool = False

    def look(self) -> Scene:
        return self.scene.but(toggles={SPLIT: self.toggle()})

    def toggle(self) -> Toggle:
        on = [self.held[key] == ON[key] for key in ON]
        switch = Switch.ON if all(on) else Switch.MIXED if any(on) else Switch.OFF
        stands = tuple(
            BaselineEntry(component=component, env=env, present=value is not None, value=value or "")
            for (component, env), value in self.held.items()
        )
        return worlds.toggle(SPLIT, switch, baseline=stands)

    def turn(self) -> Decision:
        if self.toggle().switch is Switch.OFF:
            self.off = dict(self.held)
        scene = self.look()
        decision = scene.decide()
        self.check(scene, decision)
        for step in decision.patches:
            if not self.loses_patches:
                self.write(step)
        self.scene = scene.but(status=decision.status).later(seconds=1)
        return decision

    def check(self, scene: Scene, decision: Decision) -> None:
        assert len(decision.patches) <= 1
        for step in decision.patches:
            assert scene.spec.mode == "Enforce"
            assert not scene.spec.suspend
            if isinstance(step, Enable):
                entry = worlds.entry(decision.status)
                assert entry.outcome is Outcome.PASS
                assert SPLIT in decision.status.permitted
                assert any(approval.spec.plan_hash == entry.plan_hash for approval in scene.approvals)
                if self.reverted_at is not None:
                    assert any(approval.created_at >= self.reverted_at for approval in scene.approvals)

    def write(self, step: Enable | Revert) -> None:
        if isinstance(step, Enable):
            self.held.update({(one.component, one.env): one.to for one in step.steps})
        else:
            ours = [self.held[key] == ON[key] for key in ON]
            assert all(ours) or (self.scene.deleted and any(ours)), "a revert writes over what is not ours"
            self.held.update({(e.component, e.env): e.value if e.present else None for e in step.baseline})
            assert self.held in (self.off, OFF), "a revert writes what stood there when it was off"
            self.reverted_at = self.scene.now

    def by_hand(self, values: dict[Key, str]) -> None:
        self.held.update(values)


Event = Callable[[Life], None]


def scene_event(change: Callable[[Scene], Scene]) -> Event:
    def happen(life: Life) -> None:
        life.scene = change(life.look())

    return happen


def _approve(life: Life) -> None:
    if any(held.name is SPLIT and held.plan_hash for held in life.scene.status.capabilities):
        life.scene = life.scene.approved()


def _turn(life: Life) -> None:
    life.turn()


def _lose(life: Life) -> None:
    life.loses_patches = not life.loses_patches


FIRST = next(iter(ON))
EVENTS: dict[str, Event] = {
    "a turn": _turn,
    "another turn": _turn,
    "the plan is approved": _approve,
    "patches get lost, or no longer": _lose,
    "a fast sweep": scene_event(lambda scene: scene.measured(FAST)),
    "a slow sweep": scene_event(lambda scene: scene.measured(SLOW)),
    "an empty sweep": scene_event(lambda scene: scene.measured(None)),
    "a minute passes": scene_event(lambda scene: scene.later(minutes=1)),
    "two hours pass": scene_event(lambda scene: scene.later(hours=2)),
    "three days pass": scene_event(lambda scene: scene.later(days=3)),
    "approvals are deleted": scene_event(lambda scene: scene.but(approvals=())),
    "the budget changes": scene_event(
        lambda scene: scene.asking(criteria__disaggregation__ttftBudget=f"{2000 + scene.generation}ms")
    ),
    "suspend": scene_event(lambda scene: scene.asking(suspend=True)),
    "resume": scene_event(lambda scene: scene.asking(suspend=False)),
    "Observe": scene_event(lambda scene: scene.asking(mode="Observe")),
    "Enforce": scene_event(lambda scene: scene.asking(mode="Enforce")),
    "lost approvals revert": scene_event(lambda scene: scene.asking(rollback__onApprovalLost="Revert")),
    "lost evidence reverts": scene_event(lambda scene: scene.asking(rollback__onEvidenceLost="Revert")),
    "adopt": scene_event(lambda scene: scene.asking(enforcement__adopt=True)),
    "another hand switches it on": lambda life: life.by_hand(dict(ON)),
    "another hand switches it off": lambda life: life.by_hand(dict(OFF)),
    "another hand takes one worker": lambda life: life.by_hand({FIRST: OFF[FIRST]}),
}
stories = st.lists(st.sampled_from(sorted(EVENTS)), max_size=30)
OPENING = ("a turn", "the plan is approved", "a turn", "a turn")


@settings(max_examples=120, deadline=None)
@given(stories, st.booleans())
def test_no_story_breaks_a_rule_and_each_comes_to_rest(story: list[str], opened: bool) -> None:
    life = Life()
    for name in (*(OPENING if opened else ()), *story):
        EVENTS[name](life)
        life.turn()
    life.loses_patches = False
    for _ in range(8):
        before = life.look()
        decision = life.turn()
        if decision.status == before.status and not decision.patches:
            break
    else:
        raise AssertionError("the pool does not come to rest in a world that stands still")
    much_later = replace(life.look(), now=life.scene.now + timedelta(seconds=30))
    assert much_later.decide().status.model_dump_json() == decision.status.model_dump_json()


@settings(max_examples=120, deadline=None)
@given(stories, st.booleans())
def test_whatever_happened_before_a_deletion_comes_to_its_end_and_leaves_nothing_of_ours(
    story: list[str], opened: bool
) -> None:
    """The finalizer is played as the API server keeps it; without it a pool that is deleted is gone at once."""
    life = Life()
    life.scene = life.scene.asking(rollback__onDelete__disaggregation="Revert").but(finalizer=False)
    for name in (*(OPENING if opened else ()), *story):
        EVENTS[name](life)
        _with_finalizer(life)
    life.loses_patches = False
    life.scene = life.look().but(deleted=True)
    ours = bool(life.scene.status.target and life.scene.status.target.baseline)
    for _ in range(8):
        if not life.scene.finalizer:
            break
        _with_finalizer(life)
    assert not life.scene.finalizer, "the deletion never ends"
    resting = life.scene.spec.suspend or life.scene.spec.mode != "Enforce"
    if ours and not resting:
        assert life.toggle().switch is Switch.OFF


def _with_finalizer(life: Life) -> None:
    steps = {type(step).__name__ for step in life.turn().steps}
    if "HoldDeletion" in steps:
        assert "Enable" not in steps
        life.scene = life.scene.but(finalizer=True)
    if "LetGo" in steps:
        life.scene = life.scene.but(finalizer=False)
