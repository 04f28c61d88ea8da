"""What a pool remembers of itself: rollbacks, back-off, drift, and a history that one capability cannot fill."""

from __future__ import annotations

from datetime import timedelta

import pytest

from kvgate.api.status import HistoryEntry, PoolStatus
from kvgate.core import memory
from kvgate.core.drift import drifted
from kvgate.core.memory import Action
from kvgate.core.target import Switch
from tests.core.worlds import NOW, ROUTING, SPLIT, STORAGE, Scene, entry, opened, toggle

HOUR = timedelta(hours=1)


def noted(action: Action, hours_ago: float, capability: object = SPLIT, plan_hash: str = "") -> HistoryEntry:
    return HistoryEntry.model_validate(
        {
            "time": NOW - hours_ago * HOUR,
            "action": action,
            "capability": capability,
            "reason": "Tested",
            "planHash": plan_hash,
        }
    )


BACKOFF = {
    "nothing was rolled back: no wait": ([], HOUR, None),
    "one rollback: the cool-down": ([1], HOUR, 0.0),
    "two within a day: doubled": ([0, 5], HOUR, 2.0),
    "three: doubled again": ([0, 5, 9], HOUR, 4.0),
    "six: no more than a day": ([0, 1, 2, 3, 4, 5], HOUR, 24.0),
    "a rollback of two days ago doubles nothing": ([0, 48], HOUR, 1.0),
    "a cool-down longer than a day stands, and is not doubled": ([0, 5], 30 * HOUR, 30.0),
    "no cool-down: no wait": ([0, 5], 0 * HOUR, 0.0),
}


@pytest.mark.parametrize(("rollbacks", "cooldown", "expected"), BACKOFF.values(), ids=BACKOFF)
def test_back_off(rollbacks: list[float], cooldown: timedelta, expected: float | None) -> None:
    history = tuple(noted(Action.REVERTED, hours) for hours in rollbacks)
    ready = memory.cooled_down_at(PoolStatus(history=history), SPLIT, cooldown, NOW)
    assert (None if ready is None else (ready - NOW) / HOUR) == expected


def test_back_off_looks_at_its_own_capability_and_at_rollbacks_alone() -> None:
    history = (noted(Action.REVERTED, 0, ROUTING), noted(Action.DRIFTED, 0), noted(Action.ENABLED, 1))
    assert memory.cooled_down_at(PoolStatus(history=history), SPLIT, HOUR, NOW) is None


def test_history_keeps_the_ten_newest() -> None:
    history: tuple[HistoryEntry, ...] = ()
    for hours in range(30, 0, -1):
        history = memory.with_entry(history, noted(Action.ENABLED, hours))
    assert [held.time for held in history] == [NOW - hours * HOUR for hours in range(1, 11)]


def test_no_capability_pushes_another_out_of_the_history() -> None:
    history = tuple(noted(Action.REVERTED, hours) for hours in (100, 101, 102))
    for hours in range(30, 0, -1):
        history = memory.with_entry(history, noted(Action.DRIFTED, hours, ROUTING))
    assert len(history) == memory.LONGEST_HISTORY
    assert len(memory.of(history, SPLIT, Action.REVERTED)) == 3
    assert list(history) == sorted(history, key=lambda held: held.time, reverse=True)


LEFT_ON = {
    "nothing happened": ([], False),
    "enabled": ([Action.ENABLED], True),
    "adopted": ([Action.ADOPTED], True),
    "reverted after": ([Action.REVERTED, Action.ENABLED], False),
    "drifted after": ([Action.DRIFTED, Action.ENABLED], False),
    "enabled again": ([Action.ENABLED, Action.REVERTED], True),
}


@pytest.mark.parametrize(("newest_first", "expected"), LEFT_ON.values(), ids=LEFT_ON)
def test_left_on(newest_first: list[Action], expected: bool) -> None:
    history = tuple(noted(action, hours) for hours, action in enumerate(newest_first))
    assert memory.left_on(PoolStatus(history=history), SPLIT) is expected
    assert memory.left_on(PoolStatus(history=history), STORAGE) is False


def test_the_memory_of_another_deployment_is_dropped_and_epochs_stay() -> None:
    status = opened().status
    assert memory.of_this_target(status, "target-uid") == status
    assert memory.of_this_target(status, "") == status
    assert memory.of_this_target(PoolStatus(), "another") == PoolStatus()
    fresh = memory.of_this_target(status, "another")
    assert fresh.target is not None
    assert (fresh.target.uid, fresh.target.baseline, fresh.operation, fresh.permitted) == ("another", (), None, ())
    assert (fresh.capabilities, fresh.history) == (status.capabilities, status.history)


PLAN = "v1:sha256:" + "a" * 64
DRIFTS = {
    "routing, taken for the first time: applied again": (ROUTING, [], True, False),
    "routing, taken again within the cool-down: drifted": (ROUTING, [0.5], True, True),
    "routing, taken again after the cool-down: applied again": (ROUTING, [2], True, False),
    "routing, recorded once: applied again": (ROUTING, [0], False, False),
    "routing, recorded twice within the cool-down: drifted": (ROUTING, [0, 0.5], False, True),
    "the split, taken for the first time: drifted": (SPLIT, [], True, True),
    "the split, recorded once: drifted": (SPLIT, [0], False, True),
    "the split, recorded long ago: drifted": (SPLIT, [90], False, True),
}


@pytest.mark.parametrize(("capability", "before", "taken", "expected"), DRIFTS.values(), ids=DRIFTS)
def test_drift(capability: object, before: list[float], taken: bool, expected: bool) -> None:
    which = ROUTING if capability is ROUTING else SPLIT
    off = toggle(which, Switch.OFF)
    history = tuple(noted(Action.DRIFTED, hours, which, PLAN) for hours in before)
    target = {"uid": "target-uid", "baseline": off.baseline if taken else ()}
    scene = Scene().but(status=PoolStatus.model_validate({"history": history, "target": target}))
    assert drifted(scene.case, which, off, PLAN) is expected


def test_the_epoch_and_the_proposal_are_remembered() -> None:
    scene = opened()
    kept = entry(scene.later(hours=5).decide().status)
    assert kept == entry(scene.status)
    assert memory.remembered(scene.status, SPLIT) == entry(scene.status)
    assert memory.remembered(scene.status, STORAGE).epoch == 0
