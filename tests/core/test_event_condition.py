"""What the looks at KV events do to a pool: its verdict, its condition, its status, and when it is looked at again."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from kvgate.api.status import PoolStatus
from kvgate.api.words import Capability, ConditionType, Outcome
from kvgate.core.ab.evidence import BenchmarkEvidence, Subject
from kvgate.core.decide import decide
from kvgate.core.digests import digest
from kvgate.core.events_seen import EventsSeen, Routes
from kvgate.core.judged import judge_capability
from kvgate.core.judging import Case
from kvgate.core.steps import Decision
from kvgate.core.switching import Move
from kvgate.core.target import Switch, TargetView
from kvgate.core.verdicts import judge
from tests.core import cases, worlds
from tests.core.ab.trials import experiment
from tests.core.event_looks import (
    ANNOUNCED,
    OFF,
    frontend,
    frontend_look,
    gauged,
    seen,
    with_advert,
    worker,
    worker_look,
)
from tests.core.worlds import Scene, toggle

PROJECTION = '{"image":"vllm:1"}'

HEALTHY = seen()
ONE_OFF = seen(worker("w1"), with_advert("w2", OFF), frontends=(gauged("fe-1", 1),))
APPROXIMATE = seen(routes=Routes.APPROXIMATE)
FIRST_LOOK = seen(worker("w1", worker_look(1)), frontends=(frontend("fe-1", frontend_look(1)),))


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


def routed(events: EventsSeen, rollback: dict[str, object]) -> Case:
    """KV routing is on and ours; its A/B was won, and the events are as a test says."""
    subject = Subject("target-uid", digest(PROJECTION), "agg")
    won = BenchmarkEvidence("run-1", cases.POOL_UID, cases.NOW - timedelta(hours=1), subject, experiment(), report="r")
    held = toggle(Capability.ROUTING, Switch.ON, projection=PROJECTION)
    target = TargetView("target-uid", split="agg", toggles={Capability.ROUTING: held})
    spec = {"criteria.routing": {"benchmark": {"targetRef": {"name": "staging"}}}, "mode": "Enforce", **rollback}
    plain = cases.case(spec)
    world = replace(plain.world, target=target, benchmarks=(won,), events=events)
    status = PoolStatus(permitted=(Capability.ROUTING,))
    return replace(plain, world=world, pool=replace(plain.pool, status=status))


@pytest.mark.parametrize(
    ("events", "rollback", "move"),
    [
        pytest.param(ONE_OFF, {}, Move.REVERT, id="lost"),
        pytest.param(ONE_OFF, {"rollback.onKVEventsLost": "Hold"}, Move.HOLD, id="lost, and the pool wants to hold"),
        pytest.param(HEALTHY, {}, Move.STAY, id="healthy"),
        pytest.param(FIRST_LOOK, {"rollback.onEvidenceLost": "Revert"}, Move.HOLD, id="kvgate has just started"),
        pytest.param(APPROXIMATE, {"rollback.onEvidenceLost": "Revert"}, Move.HOLD, id="a person must say"),
    ],
)
def test_only_events_that_are_lost_switch_routing_back(
    events: EventsSeen, rollback: dict[str, object], move: Move
) -> None:
    assert judge_capability(routed(events, rollback), Capability.ROUTING, None).ruling.move is move
