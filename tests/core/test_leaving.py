"""The finalizer: there before what it protects, gone with it, and never the cause of a deletion without end."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kvgate.api.words import ConditionType
from kvgate.core.steps import Abandon, LetGo, Revert
from kvgate.core.target import Switch, TargetProblem
from tests.core.worlds import (
    ROUTING,
    SPLIT,
    STORAGE,
    Scene,
    actions,
    condition,
    kinds,
    opened,
    proposed,
    refused,
    told,
)

Change = Callable[[Scene], Scene]
READY = ConditionType.READY
GONE = TargetProblem("TargetNotFound", "there is none; create it")
ILLEGIBLE = TargetProblem("TargetInvalid", "it has no components: list them")


def reverting(**changes: object) -> Scene:
    """A pool whose deletion switches the split back, and that has no finalizer yet."""
    return Scene().asking(rollback__onDelete__disaggregation="Revert").but(finalizer=False, **changes)


def protected(**changes: object) -> Scene:
    """The split is on and ours, and the finalizer stands."""
    return opened(reverting()).but(finalizer=True, **changes)


def deleted(**changes: object) -> Scene:
    """The same, and somebody deletes the pool."""
    scene = protected(deleted=True, **changes)
    return scene.but(generation=scene.generation + 1)


def letting_go(scene: Scene) -> str:
    """The reason for which the turn lets the pool go; empty while it does not."""
    steps = scene.decide().steps
    assert not any(isinstance(step, LetGo) for step in steps[:-1]), "nothing is done after it"
    return next((step.reason for step in steps if isinstance(step, LetGo)), "")


# --- set ----------------------------------------------------------------------------------------------------------


def test_the_finalizer_is_set_after_the_status_and_read_back_before_the_patch() -> None:
    first = proposed(reverting()).approved()
    decision = first.decide()
    assert kinds(decision) == ["HoldDeletion"]
    assert decision.status.operation is not None
    assert decision.requeue_after_seconds <= 1

    unseen = first.after()
    assert kinds(unseen.decide()) == ["HoldDeletion"], "an operator that died before it set the finalizer sets it"
    seen = unseen.but(finalizer=True).decide()
    assert kinds(seen) == ["Enable"]
    assert seen.status.operation == decision.status.operation


NEEDS_NONE: dict[str, Change] = {
    "the split is left on": lambda s: s.asking(rollback__onDelete__disaggregation="Leave").after().approved(),
    "nothing is approved": lambda s: s.after(),
    "Observe": lambda s: s.asking(mode="Observe").after().approved(),
    "Recommend": lambda s: s.asking(mode="Recommend").after().approved(),
    "suspended": lambda s: s.asking(suspend=True).after().approved(),
    "an older pool has the target": lambda s: s.after().approved().but(claimed_by="elder"),
    "no target": lambda s: s.after().approved().but(target=GONE),
    "being deleted": lambda s: s.after().approved().but(deleted=True),
    "a directory has no finalizers": lambda s: s.after().approved().but(finalizer=None),
    "storage is never ours to switch": lambda s: s.gating(STORAGE, Switch.UNREADABLE).after(),
    "on by another hand": lambda s: s.switched(Switch.ON).after(),
}


@pytest.mark.parametrize("change", NEEDS_NONE.values(), ids=NEEDS_NONE)
def test_no_finalizer_is_set_where(change: Change) -> None:
    assert "HoldDeletion" not in kinds(change(reverting()).decide())


LATE: dict[str, Change] = {
    "onDelete is changed to Revert while it is on": lambda s: s,
    "the pool is back in Enforce": lambda s: s.asking(mode="Observe").after().asking(mode="Enforce"),
    "it is suspended": lambda s: s.asking(suspend=True),
    "another hand took half of it": lambda s: s.switched(Switch.MIXED),
    "its manifest cannot be switched any more": lambda s: s.but(toggles={SPLIT: refused(SPLIT, Switch.UNREADABLE)}),
}


@pytest.mark.parametrize("change", LATE.values(), ids=LATE)
def test_what_stands_is_protected_when(change: Change) -> None:
    on = opened(Scene().but(finalizer=False)).asking(rollback__onDelete__disaggregation="Revert")
    assert "HoldDeletion" in kinds(change(on).decide())


def test_routing_is_reverted_by_default_and_protected() -> None:
    scene = Scene().gating(ROUTING, Switch.OFF).but(finalizer=False)
    on = opened(scene).switched(Switch.ON, ROUTING).asking(enforcement__adopt=True)
    assert kinds(on.after().decide()) == ["HoldDeletion"]


def test_a_revert_does_not_wait_for_the_finalizer() -> None:
    lost = opened(reverting()).asking(rollback__onApprovalLost="Revert").but(approvals=(), finalizer=False)
    assert kinds(lost.decide()) == ["HoldDeletion", "Revert"]


# --- let go while the pool lives ----------------------------------------------------------------------------------

RELEASED: dict[str, tuple[Change, str]] = {
    "it was switched back": (
        lambda s: s.asking(rollback__onApprovalLost="Revert").but(approvals=()).after().switched(Switch.OFF),
        "NothingToRevert",
    ),
    "another hand switched it off": (lambda s: s.switched(Switch.OFF), "NothingToRevert"),
    "onDelete is changed to Leave": (lambda s: s.asking(rollback__onDelete__disaggregation="Leave"), "NothingToRevert"),
    "it is no longer gated": (
        lambda s: s.gating(ROUTING, Switch.OFF).asking(criteria__disaggregation=None),
        "NothingToRevert",
    ),
    "the mode falls to Observe": (lambda s: s.asking(mode="Observe"), "ModeObserve"),
    "the mode falls to Recommend": (lambda s: s.asking(mode="Recommend"), "ModeRecommend"),
    "an older pool claims the target": (lambda s: s.but(claimed_by="elder"), "ClaimedByOlderPool"),
    "the target is gone": (lambda s: s.but(target=GONE), "TargetGone"),
    "the target is being deleted": (lambda s: s.but(target_leaving=True), "TargetGone"),
    "the target was replaced": (lambda s: s.but(target_uid="another").switched(Switch.OFF), "NothingToRevert"),
    "the target was replaced by one that is on": (lambda s: s.but(target_uid="another"), "NothingToRevert"),
    "the target was replaced by one that cannot be switched": (
        lambda s: s.but(target_uid="another", toggles={SPLIT: refused(SPLIT, Switch.UNREADABLE)}),
        "NothingToRevert",
    ),
}


@pytest.mark.parametrize(("change", "reason"), RELEASED.values(), ids=RELEASED)
def test_the_finalizer_falls_when(change: Change, reason: str) -> None:
    assert letting_go(change(protected())) == reason


@pytest.mark.parametrize(("change", "reason"), RELEASED.values(), ids=RELEASED)
def test_a_pool_that_is_deleted_goes_at_once_when(change: Change, reason: str) -> None:
    assert letting_go(change(protected()).but(deleted=True)) == reason


KEPT: dict[str, Change] = {
    "nothing changes": lambda s: s,
    "it is suspended": lambda s: s.asking(suspend=True),
    "evidence has expired": lambda s: s.later(days=9),
    "the target cannot be read": lambda s: s.but(target=ILLEGIBLE),
    "the target cannot be switched": lambda s: s.but(toggles={SPLIT: refused(SPLIT, Switch.UNREADABLE)}),
    "another hand took half of it": lambda s: s.switched(Switch.MIXED).after(),
}


@pytest.mark.parametrize("change", KEPT.values(), ids=KEPT)
def test_the_finalizer_stays_while(change: Change) -> None:
    assert not {"LetGo", "HoldDeletion"} & set(kinds(change(protected()).decide()))


# --- deletion -----------------------------------------------------------------------------------------------------


def test_a_deletion_writes_back_once_and_lets_go_when_that_was_seen() -> None:
    scene = deleted()
    decision = scene.decide()
    assert kinds(decision) == ["Revert"]
    (step,) = decision.patches
    assert isinstance(step, Revert)
    assert step.reason == "PoolDeleted"
    assert told(decision.status, READY) == ("Unknown", "Progressing")
    assert decision.status.permitted == ()

    done = scene.after().switched(Switch.OFF)
    assert letting_go(done) == "NothingToRevert"
    last = done.decide()
    assert kinds(last) == ["LetGo"]
    assert actions(last.status)[0] == "Reverted"
    assert told(last.status, READY) == ("True", "RolledBack")


def test_an_enable_that_was_never_written_is_dropped_and_the_pool_goes() -> None:
    begun = proposed(reverting()).approved().after().but(finalizer=True, deleted=True)
    assert letting_go(begun) == "NothingToRevert"
    assert begun.decide().status.operation is None


def test_an_enable_that_was_written_a_moment_ago_is_recorded_and_written_back() -> None:
    written = proposed(reverting()).approved().after().but(finalizer=True, deleted=True).switched(Switch.ON)
    recorded = written.decide()
    assert kinds(recorded) == []
    assert actions(recorded.status) == ["Enabled"]
    assert told(recorded.status, READY) == ("Unknown", "Progressing")
    assert recorded.requeue_after_seconds <= 1
    assert kinds(written.after().decide()) == ["Revert"]


def test_the_half_that_another_hand_left_is_written_back_on_deletion() -> None:
    half = protected().switched(Switch.MIXED).after().but(deleted=True)
    assert kinds(half.decide()) == ["Revert"]
    assert letting_go(half.after().switched(Switch.OFF)) == "NothingToRevert"


def test_a_suspended_pool_that_is_deleted_is_let_go_and_nothing_is_patched() -> None:
    scene = protected().asking(suspend=True).after().but(deleted=True)
    assert letting_go(scene) == "Suspended"
    assert kinds(scene.decide()) == ["LetGo"]


def test_a_deletion_that_waits_is_let_go_by_Leave() -> None:  # noqa: N802
    waiting = deleted().after().asking(rollback__onDelete__disaggregation="Leave")
    assert kinds(waiting.decide()) == ["LetGo"]
    assert waiting.decide().status.operation is None


@pytest.mark.parametrize("finalizer", [True, False, None])
def test_without_a_wish_to_revert_the_split_stays_and_no_deletion_waits(finalizer: bool | None) -> None:
    left = opened().but(finalizer=finalizer, deleted=True).decide()
    assert left.patches == ()
    assert kinds(left) == (["LetGo"] if finalizer else [])


def test_held_by_another_finalizer_alone_it_still_writes_back() -> None:
    assert kinds(deleted().but(finalizer=False).decide()) == ["Revert"]


CANNOT: dict[str, Change] = {
    "the target cannot be read": lambda s: s.but(target=ILLEGIBLE),
    "the target cannot be switched": lambda s: s.but(toggles={SPLIT: refused(SPLIT, Switch.UNREADABLE)}),
}


@pytest.mark.parametrize("change", CANNOT.values(), ids=CANNOT)
def test_what_cannot_be_written_back_holds_the_pool_and_says_how_to_let_it_go(change: Change) -> None:
    decision = change(deleted()).decide()
    assert kinds(decision) == []
    ready = condition(decision.status, READY)
    assert (ready.status, ready.reason) == ("False", "RollbackFailed")
    assert "set spec.rollback.onDelete.disaggregation to Leave" in ready.message


def test_a_refused_revert_is_tried_again_and_says_by_whom_and_how_to_let_it_go() -> None:
    scene = deleted().after().but(patch_problem="the field is held by argocd: drop that line")
    assert kinds(scene.decide()) == ["Revert"]
    assert told(scene.decide().status, READY) == ("Unknown", "Progressing")
    ready = condition(scene.later(minutes=1).decide().status, READY)
    assert (ready.status, ready.reason) == ("False", "RollbackFailed")
    assert "the field is held by argocd: drop that line" in ready.message
    assert "set spec.rollback.onDelete.disaggregation to Leave" in ready.message


# --- its sweep ----------------------------------------------------------------------------------------------------


def test_a_sweep_ends_with_its_pool_and_nothing_of_it_is_collected() -> None:
    running = deleted(sweeping=True).decide()
    assert kinds(running) == ["Revert", "Abandon"]
    assert Abandon("busy") in running.steps
    assert running.status.sweep is not None

    left = opened().but(finalizer=False, deleted=True, sweeping=True)
    assert kinds(left.decide()) == ["Abandon"]
    assert left.but(status=left.pool.status, sweeping=False).decide().status.sweep is None


# --- refused patches of a living pool -----------------------------------------------------------------------------


def test_a_refused_patch_says_why_and_after_half_a_minute_that_somebody_must_act() -> None:
    scene = proposed().approved().after().but(patch_problem="forbidden; ask who set the policy")
    early, late = scene.decide().status, scene.later(seconds=31).decide().status
    assert told(early, READY) == ("Unknown", "Progressing")
    assert told(late, READY) == ("False", "PatchRefused")
    assert "forbidden; ask who set the policy" in condition(early, READY).message
    assert "forbidden; ask who set the policy" in condition(late, READY).message
    assert "onDelete" not in condition(late, READY).message


def test_a_recommendation_that_cannot_be_written_says_why() -> None:
    scene = proposed(Scene().asking(mode="Recommend")).but(patch_problem="it is not owned by the pool: rename it")
    decision = scene.decide()
    assert kinds(decision) == ["Recommend"]
    assert told(decision.status, READY) == ("False", "PatchRefused")
    assert told(scene.but(patch_problem="").decide().status, READY) == ("True", "Observing")
