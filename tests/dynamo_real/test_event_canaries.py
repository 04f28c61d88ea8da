"""Canaries through real frontends to real mock workers: idle ones become healthy by them, and a silent one is named."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import pytest

from kvgate.api.words import Outcome
from kvgate.core.events import EventsJudged, judge_events
from kvgate.core.events_seen import EventsSeen, Routes
from kvgate.edge.canary import Frontend as Door
from kvgate.edge.event_canaries import EventCanaries
from tests.dynamo_real.event_rig import INTERVAL, POOL, Rig
from tests.dynamo_stage import model
from tests.dynamo_stage.specs import Frontend, Role, RouterMode, Worker
from tests.dynamo_stage.stage import RunningFrontend, Stage

pytestmark = pytest.mark.dynamo
KV = Frontend(RouterMode.KV)
SERVED = "dynamo_frontend_requests_total"
WORKED = "dynamo_component_requests_total"


@dataclass
class Gate:
    """A stage that is looked at and asked as the operator does it, with a clock that the test moves by an interval."""

    rig: Rig
    sender: EventCanaries = field(init=False)
    sent: int = 0

    def __post_init__(self) -> None:
        self.sender = EventCanaries(lambda: self.rig.now, settle_seconds=1.0)

    def turns(self, count: int) -> EventsJudged:
        """So many turns, each with a look and the canaries that it wants."""
        judged = self.turn()
        for _ in range(count - 1):
            judged = self.turn()
        return judged

    def turn(self) -> EventsJudged:
        self.rig.settle()
        self.rig.now += INTERVAL
        judged = judge_events(self.known())
        if judged.canaries:
            doors = [Door(one.name, one.door.base.removeprefix("http://")) for one in self.rig.frontends]
            assert self.sender.start(POOL.key, model.NAME, doors, judged.canaries)
            self.sent += len(judged.canaries)
            self._until_answered()
        return judged

    def known(self) -> EventsSeen:
        seen = self.sender.known(POOL.key, self.rig.looks.seen(POOL, self.rig.watched))
        assert seen is not None
        return seen

    def _until_answered(self) -> None:
        deadline = time.monotonic() + 120
        while self.known().asking:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def serve(stage: Stage, spec: Frontend = KV, **workers: Worker) -> RunningFrontend:
    frontend = stage.frontend(spec=spec)
    stage.workers(**workers)
    stage.until_ready(frontend)
    return frontend


def requests(frontend: RunningFrontend, count: int) -> None:
    for number in range(count):
        words = f"prompt {number} " + "the quick brown fox jumps over the lazy dog " * 10
        assert frontend.door.chat(words).good


def served(rig: Rig, frontend: RunningFrontend, name: str) -> bool:
    """Whether this worker has served a request of its present life; a KV router might never choose it by itself."""
    worker = next(one for one in rig.workers if one.name == name)
    pinned = {"nvext": {"backend_instance_id": rig.published(worker).cards[0].instance}} if worker.healthy() else {}
    frontend.door.chat("the quick brown fox jumps over the lazy dog " * 10, extra=pinned)
    return worker.healthy() and worker.door.scrape().total(WORKED, dynamo_endpoint="generate") > 0


def told(judged: EventsJudged) -> tuple[Outcome, str]:
    return judged.finding.outcome, judged.finding.reason


def test_idle_workers_become_healthy_by_one_canary_each_and_are_left_alone(stage: Stage) -> None:
    frontend = serve(stage, w1=Worker(), w2=Worker())
    gate = Gate(Rig(stage))
    judged = gate.turns(3)
    assert told(judged) == (Outcome.PASS, "KVEventsFlow"), judged.finding.message
    status = judged.status.canaries
    assert status is not None
    assert (status.answered, status.flowing) == (2, 2)
    assert (status.repeat_cached_percent or 0) >= 80
    assert status.first_ttft_milliseconds is not None
    gate.turns(6)
    assert gate.sent == 2
    assert frontend.door.scrape().total(SERVED) == 4, "two prompts, each with its repeat"


def test_an_idle_worker_that_claims_events_and_is_silent_is_named(stage: Stage) -> None:
    serve(stage, w1=Worker(), w2=Worker(silent=True), w3=Worker(zmq_events=True))
    gate = Gate(Rig(stage))
    judged = gate.turns(4)
    assert told(judged) == (Outcome.FAIL, "KVEventsSilent"), judged.finding.message
    assert judged.finding.message.startswith("w2: a canary")
    assert judged.status.publishing_workers == 2
    gate.turns(4)
    assert gate.sent == 4, "one each, and a second one to confirm the silence"


def test_a_worker_that_comes_back_silent_is_named_though_the_others_flow(stage: Stage) -> None:
    """It serves, so it is not idle; its publisher counts nothing, and the router applies the others' events."""
    frontend = serve(stage, w1=Worker(), w2=Worker(), w3=Worker())
    gate = Gate(Rig(stage))
    requests(frontend, 24)
    assert told(gate.turns(3)) == (Outcome.PASS, "KVEventsFlow")
    stage.kill("w2")
    stage.worker("w2", Worker(silent=True))
    stage.until(lambda: served(gate.rig, frontend, "w2"), "w2 to serve", frontend)
    judged = gate.turns(4)
    assert told(judged) == (Outcome.FAIL, "KVEventsSilent"), judged.finding.message
    assert judged.finding.message.startswith("w2: a canary")


def test_before_the_switch_a_silent_publisher_is_named_where_others_count_theirs(stage: Stage) -> None:
    serve(stage, Frontend(RouterMode.ROUND_ROBIN), w1=Worker(zmq_events=True), w2=Worker(silent=True))
    gate = Gate(Rig(stage, Routes.OTHER))
    judged = gate.turns(5)
    assert told(judged) == (Outcome.FAIL, "KVEventsSilent"), judged.finding.message
    assert judged.finding.message.startswith("w2: ")
    assert gate.sent == 2


def test_a_split_is_proven_by_its_prefill_workers(stage: Stage) -> None:
    frontend = serve(stage, p1=Worker(Role.PREFILL), p2=Worker(Role.PREFILL), d1=Worker(Role.DECODE))
    stage.until(lambda: frontend.door.chat("hello").good, "the first answer of the pair", frontend)
    gate = Gate(Rig(stage))
    judged = gate.turns(3)
    assert told(judged) == (Outcome.PASS, "KVEventsFlow"), judged.finding.message
    status = judged.status.canaries
    assert status is not None
    assert (status.flowing, judged.status.expected_workers) == (status.answered, 2)
    assert status.answered >= 1, "of two prefill workers, the first answer left one idle at least"


def test_a_worker_that_is_gone_while_it_is_asked_is_told_as_not_served(stage: Stage) -> None:
    """The look still knows it; the request that is pinned to it is refused."""
    serve(stage, w1=Worker(), w2=Worker())
    gate = Gate(Rig(stage))
    wanted = judge_events(gate.known()).canaries
    gate.rig.now += INTERVAL
    wanted = judge_events(gate.known()).canaries or wanted
    stage.kill("w2")
    doors = [Door(one.name, one.door.base.removeprefix("http://")) for one in gate.rig.frontends]
    assert gate.sender.start(POOL.key, model.NAME, doors, [canary for canary in wanted if canary.pod == "w2"])
    gate._until_answered()
    own = gate.sender.own(POOL.key)
    assert [(one.requests, one.failed) for one in own] == [(1, 1)]
