"""Routing and the split switched on and off in every order, at any pace: one write at a time, and all of it undone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import permutations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kvgate.api.words import ConditionType
from kvgate.core.ab.evidence import BenchmarkEvidence, Subject
from kvgate.core.ab.experiment import Arm, Experiment
from kvgate.core.digests import digest
from kvgate.core.steps import Enable, Revert
from kvgate.core.target import Switch, TargetView
from kvgate.core.world import World
from tests.core import cases
from tests.core.ab.trials import experiment, run
from tests.core.plays import Play
from tests.core.worlds import ROUTING, SLOW, SPLIT, Scene, told

WON = experiment()
LOST = experiment(runs=tuple(run(block, arm, 2.0 if arm is Arm.KV else 1.0) for block in range(8) for arm in Arm))
AT_MOST = 400
ENABLED = {ROUTING: ConditionType.ROUTING_ENABLED, SPLIT: ConditionType.DISAGGREGATION_ENABLED}


@dataclass(frozen=True)
class Both(Scene):
    """A scene in which A/Bs are run too: each tells of the deployment as it was split, or not, when it ended."""

    compared: tuple[Experiment, str, datetime] | None = None

    @property
    def split(self) -> str:
        return "split" if self.toggles[SPLIT].switch is Switch.ON else "agg"

    @property
    def world(self) -> World:
        found = super().world
        assert isinstance(found.target, TargetView)
        return replace(found, target=replace(found.target, split=self.split), benchmarks=self._benchmarks())

    def _benchmarks(self) -> tuple[BenchmarkEvidence, ...]:
        if self.compared is None:
            return ()
        result, split, at = self.compared
        subject = Subject(self.target_uid, digest(self.toggles[ROUTING].projection), split)
        return (BenchmarkEvidence("ab", cases.POOL_UID, at, subject, result, report="ab"),)


@dataclass
class Deployment(Play):
    """A played deployment whose pool gates both."""

    def compare(self, result: Experiment) -> None:
        assert isinstance(self.scene, Both)
        self.scene = self.scene.but(compared=(result, self.scene.split, self.scene.now))

    def approve(self) -> None:
        """The plan stands in the status after the first look, and again after the epoch was raised."""
        self.scene = self.scene.approved()

    def withdraw(self) -> None:
        self.scene = self.scene.but(approvals=())

    def slow_down(self) -> None:
        """Two sweeps, one after the other, that find the paths too slow."""
        self.scene = self.scene.measured(SLOW).later(minutes=1).measured(SLOW)

    def settle(self) -> None:
        """Turns until a while has passed in which nothing was patched and nothing verified."""
        quiet = 0
        for _ in range(AT_MOST):
            before = self.scene.status
            decision = self.turn()
            idle = not decision.patches and decision.status == before and decision.status.operation is None
            quiet = quiet + 1 if idle else 0
            if quiet == 3:
                return
        raise AssertionError("never settles")

    @property
    def on(self) -> frozenset[str]:
        return frozenset(c.value for c, toggle in self.scene.toggles.items() if toggle.switch is Switch.ON)

    @property
    def patches(self) -> list[Enable | Revert]:
        return [patch for decision in self.decisions for patch in decision.patches]


def deployment(**asked: object) -> Deployment:
    scene = Both().gating(ROUTING, Switch.OFF)
    routing = {"kvEvents": "Ignored"}
    asking = scene.asking(criteria__routing=routing, rollback__onApprovalLost="Revert", **asked)
    made = Deployment(asking)
    made.turn()
    return made


Act = Callable[[Deployment], None]
ACTS: dict[str, Act] = {
    "routing on": lambda made: made.compare(WON),
    "routing off": lambda made: made.compare(LOST),
    "split on": Deployment.approve,
    "split off": Deployment.withdraw,
}
ORDERS = [
    order
    for order in permutations(ACTS)
    if order.index("routing on") < order.index("routing off") and order.index("split on") < order.index("split off")
]
WAYS: dict[str, Act] = {"its approval is lost": Deployment.withdraw, "two sweeps fail": Deployment.slow_down}


def expected(done: tuple[str, ...]) -> frozenset[str]:
    words = {ROUTING.value: "routing", SPLIT.value: "split"}
    return frozenset(c for c, word in words.items() if f"{word} on" in done and f"{word} off" not in done)


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("order", ORDERS, ids=", ".join)
def test_each_switch_leaves_the_other_as_it_is(order: tuple[str, ...], way: Act) -> None:
    made = deployment()
    for number, name in enumerate(order, 1):
        (way if name == "split off" else ACTS[name])(made)
        made.settle()
        assert made.on == expected(order[:number]), order[:number]
        for capability, kind in ENABLED.items():
            word = "True" if capability.value in made.on else "False"
            assert told(made.scene.status, kind)[0] == word
    assert [type(patch).__name__ for patch in made.patches] == _wanted(order)
    _undone(made)


def _wanted(order: tuple[str, ...]) -> list[str]:
    return ["Enable" if name.endswith("on") else "Revert" for name in order]


def _undone(made: Deployment) -> None:
    """Every field that was written was written back as it stood, and nothing is left to write back."""
    status = made.scene.status
    assert made.on == frozenset()
    assert status.operation is None
    assert status.target is not None
    assert status.target.baseline == ()
    assert all(len(decision.patches) <= 1 for decision in made.decisions)
    for revert in (patch for patch in made.patches if isinstance(patch, Revert)):
        assert [entry.present for entry in revert.baseline] == [False] * len(revert.baseline)
        assert revert.baseline


@example(("split on", "routing on", "routing off", "split off"), [3, 5, 0, 0])
@given(st.sampled_from(ORDERS), st.lists(st.integers(0, 9), min_size=4, max_size=4))
@settings(max_examples=10, deadline=None)
def test_whatever_comes_before_the_last_was_settled_all_of_it_is_undone(
    order: tuple[str, ...], turns: list[int]
) -> None:
    made = deployment()
    for name, pause in zip(order, turns, strict=True):
        ACTS[name](made)
        for _ in range(pause):
            made.turn()
    made.settle()
    _undone(made)


PAIRS = [order for order in ORDERS if {order[2], order[3]} == {"routing off", "split off"}]


@pytest.mark.parametrize("pause", range(1, 8))
@pytest.mark.parametrize("order", PAIRS, ids=", ".join)
def test_both_due_at_once_are_both_undone(order: tuple[str, ...], pause: int) -> None:
    made = deployment()
    for name, turns in zip(order, (3, pause, 0, 0), strict=True):
        ACTS[name](made)
        for _ in range(turns):
            made.turn()
    made.settle()
    _undone(made)


@pytest.mark.parametrize("first", [ROUTING, SPLIT])
def test_a_deleted_pool_leaves_neither(first: str) -> None:
    made = deployment(rollback__onDelete={"routing": "Revert", "disaggregation": "Revert"})
    for name in ("routing on", "split on") if first == ROUTING else ("split on", "routing on"):
        ACTS[name](made)
        made.settle()
    assert made.on == {ROUTING.value, SPLIT.value}
    made.scene = made.scene.but(deleted=True)
    made.settle()
    _undone(made)


@pytest.mark.parametrize("fault", [{"corrupt": 22}, {"never_ready": True}, {"refuses": True}], ids=str)
def test_a_split_that_fails_on_top_of_routing_goes_back_alone(fault: dict[str, object]) -> None:
    made = deployment()
    made.compare(WON)
    made.settle()
    made.faults = replace(made.faults, **fault)  # type: ignore[arg-type]
    made.seconds = 20.0
    made.approve()
    made.until(ConditionType.ROLLED_BACK, "True", "Disaggregation")
    assert made.on == {ROUTING.value}
    newest = made.scene.status.history[0]
    assert (newest.capability, newest.action) == (SPLIT, "Reverted")
    assert told(made.scene.status, ConditionType.ROUTING_ENABLED) == ("True", "Verified")
