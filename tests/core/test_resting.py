"""How long a pool at rest is left alone, and that nothing which time brings about is found late for it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from kvgate.api.words import ApprovalState
from kvgate.core.decide import IDLE_SECONDS, decide
from kvgate.core.resting import rest_seconds, stands
from tests.core.worlds import FAST, NOW, Scene, entry, sweep

LONG = 4 * 3600.0
"""What a thousand pools are left alone for."""


def rest(scene: Scene, wanted: float = LONG) -> float:
    return rest_seconds(scene.pool, scene.world, decide(scene.pool, scene.world, scene.now), scene.now, wanted)


def settled(scene: Scene) -> Scene:
    """With what its first look says in its status."""
    return scene.but(status=decide(scene.pool, scene.world, scene.now).status)


def waiting() -> Scene:
    """Measured, within its budget, and lacking an approval."""
    return settled(Scene().asking(fabric__schedule__interval="24h", fabric__evidenceTTL="168h"))


def test_a_pool_at_rest_is_left_alone_for_as_long_as_is_wanted() -> None:
    assert rest(waiting()) == LONG
    assert rest(waiting(), 600.0) == 600.0


def test_with_few_pools_it_is_looked_at_every_five_minutes() -> None:
    assert rest(waiting(), 15.0) == IDLE_SECONDS


def test_one_that_has_something_to_do_is_looked_at_when_that_asks_for_it() -> None:
    scene = waiting().approved()
    decision = decide(scene.pool, scene.world, scene.now)
    assert decision.steps
    assert rest(scene) == decision.requeue_after_seconds < IDLE_SECONDS


def found_within(scene: Scene, when: timedelta) -> Scene:
    """The scene of the first look at or after that moment, which is within five minutes of it, by a dozen looks."""
    began, looks = scene.now, 0
    while scene.now < began + when:
        scene, looks = settled(scene.but(now=scene.now + timedelta(seconds=rest(scene)))), looks + 1
        assert looks < 12
    assert scene.now - (began + when) <= timedelta(seconds=IDLE_SECONDS)
    return scene


@pytest.mark.parametrize("minutes", [20, 95, 239, 1000])
def test_evidence_that_falls_due_is_found_in_time(minutes: int) -> None:
    fresh = waiting().but(evidence=(sweep(FAST, "run-1", NOW - timedelta(hours=24) + timedelta(minutes=minutes)),))
    later = fresh
    while decide(later.pool, later.world, later.now).status.sweep is None:
        later = later.but(now=later.now + timedelta(minutes=1))
    found_within(settled(fresh), later.now - fresh.now)


@pytest.mark.parametrize("minutes", [30, 200, 700])
def test_an_approval_that_ends_is_found_in_time(minutes: int) -> None:
    """In Recommend, so that nothing is done for it; what is told of the approval changes at its end."""
    ends = timedelta(minutes=minutes)
    scene = settled(waiting().asking(mode="Recommend"))
    scene = settled(settled(scene.approved(expiresAt=NOW + ends)))
    before = entry(scene.status).approval.state
    found = found_within(scene, ends)
    assert (before, entry(found.status).approval.state) == (ApprovalState.VALID, ApprovalState.EXPIRED)


def test_a_change_window_that_opens_and_closes_meanwhile_is_not_missed() -> None:
    """NOW is a Monday noon: the window opens after two hours and closes an hour later."""
    windows = [{"schedule": "0 14 * * 1", "duration": "1h"}]
    scene = settled(waiting().asking(changeWindows=windows).approved())
    assert scene.now == NOW
    opens = timedelta(hours=2)
    looks = 0
    while not decide(scene.pool, scene.world, scene.now).steps:
        scene, looks = settled(scene.but(now=scene.now + timedelta(seconds=rest(scene)))), looks + 1
        assert looks < 12
    assert opens <= scene.now - NOW <= opens + timedelta(seconds=IDLE_SECONDS)


def test_a_window_that_cannot_be_read_changes_no_rest() -> None:
    windows = [{"schedule": "0 14 * * 1", "duration": "1h", "timeZone": "Middle/Earth"}]
    assert rest(settled(waiting().asking(changeWindows=windows))) == IDLE_SECONDS


def test_no_rest_reaches_beyond_the_moment_at_which_a_window_opens() -> None:
    """NOW is a Monday noon. The pool waits for an approval, so that its status says nothing of windows."""
    windows = [{"schedule": "10 13 * * 1", "duration": "1h"}]
    assert rest(settled(waiting().asking(changeWindows=windows))) == timedelta(minutes=70).total_seconds()


STANDS: dict[str, tuple[Scene, bool]] = {
    "a first status that waits for an approval": (Scene(), True),
    "one that stood already": (waiting(), True),
    "a status that means a patch": (waiting().approved(), False),
    "a status that means a sweep": (Scene().but(evidence=()), False),
}


@pytest.mark.parametrize(("scene", "expected"), STANDS.values(), ids=STANDS)
def test_whether_a_status_that_was_written_needs_another_turn(scene: Scene, expected: bool) -> None:
    assert stands(scene.pool, scene.world, decide(scene.pool, scene.world, scene.now), scene.now) is expected
