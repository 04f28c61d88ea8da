"""What the looks at KV events do to a pool: its verdict, its condition, its status, and when it is looked at again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvgate.api.words import Capability, ConditionType, Outcome
from kvgate.core.decide import decide
from kvgate.core.events_seen import EventsSeen, Routes
from kvgate.core.judging import Case
from kvgate.core.steps import Decision
from kvgate.core.target import Switch
from kvgate.core.verdicts import judge
from tests.core import worlds
from tests.core.event_looks import ANNOUNCED, OFF, gauged, seen, with_advert, worker
from tests.core.worlds import Scene

HEALTHY = seen()
ONE_OFF = seen(worker("w1"), with_advert("w2", OFF), frontends=(gauged("fe-1", 1),))
APPROXIMATE = seen(routes=Routes.APPROXIMATE)


def gated(switch: Switch = Switch.OFF) -> Scene:
    return worlds.Scene().gating(Capability.ROUTING, switch)


def decided(scene: Scene, events: EventsSeen | None) -> Decision:
    return decide(scene.pool, replace(scene.world, events=events), scene.now)


@pytest.mark.parametrize(
    ("events", "status", "reason"),
    [
        pytest.param(HEALTHY, "True", "KVEventsFlow", id="healthy"),
        pytest.param(ONE_OFF, "False", "KVEventsDisabled", id="a worker that publishes none"),
        pytest.param(APPROXIMATE, "Unknown", "KVEventsUnused", id="approximate mode where events are required"),
        pytest.param(None, "Unknown", "KVEventsNotObserved", id="nobody looked"),
    ],
)
def test_the_condition_tells_the_finding(events: EventsSeen | None, status: str, reason: str) -> None:
    held = decided(gated(), events).status
    assert worlds.told(held, ConditionType.KV_EVENTS_HEALTHY) == (status, reason)


def test_events_that_the_pool_ignores_are_not_judged() -> None:
    scene = gated().asking(criteria__routing__kvEvents="Ignored")
    status = decided(scene, ONE_OFF).status
    assert worlds.told(status, ConditionType.KV_EVENTS_HEALTHY) == ("Unknown", "KVEventsIgnored")
    assert status.routing is None


def test_the_verdict_of_routing_has_the_finding() -> None:
    scene = gated()
    case = Case(scene.pool, replace(scene.world, events=ONE_OFF), None, scene.now)
    found = next(f for f in judge(case, Capability.ROUTING).findings if f.criterion == "kvEvents")
    assert (found.outcome, found.reason) == (Outcome.FAIL, "KVEventsDisabled")


def test_the_status_shows_what_was_counted() -> None:
    routing = decided(gated(), HEALTHY).status.routing
    assert routing is not None
    assert routing.events is not None
    assert (routing.events.expected_workers, routing.events.applied) == (3, True)


def test_a_gated_pool_is_looked_at_each_monitor_interval() -> None:
    scene = gated().asking(monitor__interval="20s")
    assert decided(scene, HEALTHY).requeue_after_seconds <= 20
    assert decided(scene, None).requeue_after_seconds > 20


def test_a_look_that_changes_nothing_writes_nothing() -> None:
    scene = gated()
    first = decided(scene, HEALTHY).status
    later = scene.but(status=first).later(seconds=15)
    again = replace(HEALTHY, workers=tuple(replace(w, looks=w.looks[1:]) for w in HEALTHY.workers))
    assert decided(later, again).status == first


def test_before_the_switch_announced_events_are_enough() -> None:
    events = seen(with_advert("w1", ANNOUNCED), routes=Routes.OTHER, frontends=())
    assert worlds.told(decided(gated(), events).status, ConditionType.KV_EVENTS_HEALTHY) == (
        "True",
        "KVEventsAnnounced",
    )
