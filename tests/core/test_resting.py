"""How long a pool at rest is left alone, and that nothing which time brings about is found late for it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from kvgate.api.words import ApprovalState, Capability
from kvgate.core.ab.evidence import BenchmarkGround
from kvgate.core.decide import IDLE_SECONDS, decide
from kvgate.core.metrics_seen import MetricsSeen
from kvgate.core.resting import rest_seconds, stands
from kvgate.core.target import Switch, TargetView, Toggle
from kvgate.core.world import KVUnknown, Nodes
from tests.core.cases import case
from tests.core.test_benchmarking import LIVE, SPEC, STAGING
from tests.core.worlds import FAST, NOW, Scene, entry, opened, sweep

LONG = 4 * 3600.0
"""What a thousand pools are left alone for."""


def rest(scene: Scene, wanted: float = LONG) -> float:
    return rest_seconds(scene.pool, scene.world, decide(scene.pool, scene.world, scene.now), scene.now, wanted)


def settled(scene: Scene) -> Scene:
    """With what its first look says in its status."""
    return scene.but(status=decide(scene.pool, scene.world, scene.now).status)


def patient() -> Scene:
    """Measured an hour ago, and measured anew each day."""
    return Scene().asking(fabric__schedule__interval="24h", fabric__evidenceTTL="168h")


def waiting() -> Scene:
    """Measured, within its budget, and lacking an approval."""
    return settled(patient())


def measured_ago(**ago: float) -> Scene:
    """By its one sweep, of which its status tells."""
    return settled(patient().but(evidence=(sweep(FAST, "run-1", NOW - timedelta(**ago)),)))


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


def swept_in_time(scene: Scene, due: timedelta) -> None:
    """A look begins the sweep within five minutes of when it is due, some part of the jitter later than said."""
    jitter, began, looks = scene.spec.fabric.schedule.jitter.delta, scene.now, 0
    while (begun := decide(scene.pool, scene.world, scene.now)).status.sweep is None:
        assert not begun.steps
        scene, looks = settled(scene.but(now=scene.now + timedelta(seconds=rest(scene)))), looks + 1
        assert looks < 12
    assert due <= scene.now - began <= due + jitter + timedelta(seconds=IDLE_SECONDS)


@pytest.mark.parametrize("minutes", [20, 95, 239, 1000])
def test_evidence_that_falls_due_is_found_in_time(minutes: int) -> None:
    swept_in_time(measured_ago(hours=24, minutes=-minutes), timedelta(minutes=minutes))


@pytest.mark.parametrize("hindrance", [{"sweep_waits": "pool team/b sweeps now"}, {"sweep_problem": "no image"}])
def test_what_keeps_sweeps_from_starting_now_is_not_thought_to_last(hindrance: dict[str, str]) -> None:
    """Neither is told of a pool whose evidence is fresh, before its sweep is due or after."""
    fresh = measured_ago(hours=23)
    world = replace(fresh.world, **hindrance)  # type: ignore[arg-type]
    decision = decide(fresh.pool, world, fresh.now)
    assert decision.status == fresh.status
    assert rest_seconds(fresh.pool, world, decision, fresh.now, LONG) == rest(fresh) <= timedelta(hours=1).seconds


def test_a_pool_that_is_watched_rests_no_longer_than_its_interval_however_long_that_is() -> None:
    on = opened(patient()).asking(monitor__interval="10m", monitor__prometheusRef={"name": "main"})
    watched = settled(settled(on.but(metrics=MetricsSeen(asked_at=on.now))))
    assert rest(watched) == timedelta(minutes=10).total_seconds()
    assert rest(watched.asking(monitor__interval="15s")) == 15.0


@pytest.mark.parametrize("seconds", [5.0, 300.0])
def test_a_workers_configuration_that_has_not_come_is_looked_for_in_time(seconds: float) -> None:
    assert rest(settled(patient().but(kv=KVUnknown("KVBytesUnknown", "it is awaited", seconds)))) == seconds


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


def test_a_sweep_that_falls_due_before_the_open_window_closes_is_found_before_it_does() -> None:
    """NOW is noon, and the sweep is due within the last hour of the window: when that has closed, no status tells."""
    windows = [{"schedule": "0 11 * * *", "duration": "3h"}]
    fresh = patient().asking(changeWindows=windows, fabric__schedule__onlyInChangeWindows=True)
    scene = settled(fresh.but(evidence=(sweep(FAST, "run-1", NOW - timedelta(hours=23)),)))
    swept_in_time(scene, timedelta(hours=1))


def ab_at_rest(ground: BenchmarkGround) -> float:
    """The rest of a pool whose last A/B began ten minutes ago and proved nothing: the next one may begin in fifty. A
    change window is open from an hour ago until two hours from now."""
    plain = case(SPEC | {"changeWindows": [{"schedule": "0 11 * * *", "duration": "3h"}]})
    target = TargetView("target-uid", split="agg", toggles={Capability.ROUTING: Toggle(Switch.OFF)})
    world = replace(plain.world, nodes=Nodes(), target=target, benchmark_ground=ground)
    begun = plain.pool.status.model_copy(update={"last_benchmark_at": NOW - timedelta(minutes=10)})
    pool = replace(plain.pool, status=begun)
    pool = replace(pool, status=decide(pool, world, NOW).status)
    decision = decide(pool, world, NOW)
    assert (decision.steps, decision.status) == ((), pool.status)
    return rest_seconds(pool, world, decision, NOW, LONG)


@pytest.mark.parametrize(
    "ground",
    [
        pytest.param(STAGING, id="on a staging deployment, at any time"),
        pytest.param(LIVE, id="on the target, before the window closes"),
        pytest.param(replace(STAGING, problem="refused: quota exceeded"), id="that could not be started"),
    ],
)
def test_an_ab_that_falls_due_is_found_in_time(ground: BenchmarkGround) -> None:
    assert ab_at_rest(ground) <= timedelta(hours=1).total_seconds()


STANDS: dict[str, tuple[Scene, bool]] = {
    "a first status that waits for an approval": (Scene(), True),
    "one that stood already": (waiting(), True),
    "a status that means a patch": (waiting().approved(), False),
    "a status that means a sweep": (Scene().but(evidence=()), False),
}


@pytest.mark.parametrize(("scene", "expected"), STANDS.values(), ids=STANDS)
def test_whether_a_status_that_was_written_needs_another_turn(scene: Scene, expected: bool) -> None:
    assert stands(scene.pool, scene.world, decide(scene.pool, scene.world, scene.now), scene.now) is expected
