"""Canaries for KV events: who is asked and when, what each answer proves, and that an idle minute ends quiet."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from kvgate.api.status import BenchmarkRun
from kvgate.api.words import Capability, Outcome
from kvgate.core.decide import decide
from kvgate.core.events import judge_events
from kvgate.core.events_canaries import MOST_AT_ONCE, state
from kvgate.core.events_seen import (
    Advert,
    CanaryAnswer,
    Declared,
    EventsSeen,
    FrontendSeen,
    Routes,
    WorkerLook,
    WorkerSeen,
)
from kvgate.core.events_view import View
from kvgate.core.serving import Reply
from kvgate.core.steps import AskWorkers, Decision
from kvgate.core.target import Switch
from tests.core import worlds
from tests.core.event_looks import (
    ANNOUNCED,
    BLOCK,
    LONG_READY,
    OFF,
    PLAIN,
    at,
    engines,
    frontend,
    frontend_look,
    seen,
    worker,
    worker_look,
)

NEW = Reply("fe-1", 65, 0, prompt_tokens=100, cached_tokens=0, ttft_seconds=0.4)
HEARD = replace(NEW, round=1, cached_tokens=96, router_hit_rate=0.96, ttft_seconds=0.1)
UNHEARD = replace(HEARD, router_hit_rate=0.0)
UNROUTED = replace(HEARD, router_hit_rate=None)
BUSY = replace(NEW, failure="HTTP503")
QUIET = {"stored": None, "received": None, "requests": 0}


def idle_looks(*places: int, advert: Advert = ANNOUNCED) -> tuple[WorkerLook, ...]:
    return tuple(worker_look(place, advert, **QUIET) for place in places)


def idle(name: str, *answers: CanaryAnswer, places: tuple[int, ...] = (1, 2, 3), **fields: object) -> WorkerSeen:
    return worker(name, *idle_looks(*places), canaries=answers, **fields)


def quiet_router(*places: int) -> FrontendSeen:
    looks = (frontend_look(place, stored=0, input_tokens=0, prompts=0) for place in places or (1, 2, 3))
    return frontend("fe-1", *looks)


def answered(events: EventsSeen, name: str, *replies: tuple[Reply, Reply | None], place: float = 2.2) -> EventsSeen:
    """The same deployment, where this worker gave these answers, one in each interval from `place` on."""
    workers = list(events.workers)
    index = next(i for i, one in enumerate(workers) if one.pod == name)
    now = state(View(events), workers[index])
    given = [
        CanaryAnswer(
            now, at(0) + timedelta(seconds=15 * (place + n)), at(0) + timedelta(seconds=15 * (place + n) + 3), *r
        )
        for n, r in enumerate(replies)
    ]
    workers[index] = replace(workers[index], canaries=tuple(given))
    return replace(events, workers=tuple(workers), canaries_at=given[-1].asked_at if given else None)


def asked(events: EventsSeen) -> list[str]:
    return [canary.pod for canary in judge_events(events).canaries]


def told(events: EventsSeen) -> tuple[Outcome, str]:
    finding = judge_events(events).finding
    return finding.outcome, finding.reason


IDLE = seen(idle("w1"), frontends=(quiet_router(),))
BEFORE_THE_SWITCH = seen(idle("w1"), routes=Routes.OTHER, frontends=())


def uncounted(name: str, *answers: CanaryAnswer, **fields: object) -> WorkerSeen:
    """A worker that serves, of a kind whose publishers count no events."""
    looks = (worker_look(place, requests=100 + place, **PLAIN) for place in (1, 2, 3))
    return worker(name, *looks, canaries=answers, **fields)


UNCOUNTED = seen(uncounted("w1"), uncounted("w2"), uncounted("w3"))
"""The router applies events, and nothing tells whose."""


def all_but(silent: str) -> EventsSeen:
    """The router heard of every canary but those of this worker."""
    events = UNCOUNTED
    for one in events.workers:
        unheard, heard = [(NEW, UNHEARD)] * 2, [(NEW, HEARD)]
        events = answered(events, one.pod, *(unheard if one.pod == silent else heard), place=1.2)
    return events


def restarted(events: EventsSeen, name: str) -> EventsSeen:
    """The container began anew in the same pod, under the same instance."""
    workers = (replace(one, restarts=one.restarts + (one.pod == name)) for one in events.workers)
    return replace(events, workers=tuple(workers), canaries_at=None)


def before_the_switch(*looks: WorkerLook) -> EventsSeen:
    """A worker that was idle until the canary, beside one that counts its events."""
    return seen(worker("w1", *looks), worker("w2"), routes=Routes.OTHER, frontends=())


CASES: tuple[tuple[str, EventsSeen, Outcome, str, list[str]], ...] = (
    ("an idle deployment is asked", IDLE, Outcome.UNKNOWN, "KVEventsIdle", ["w1"]),
    (
        "a router that heard of the canary proves the worker, and nobody is asked again",
        answered(IDLE, "w1", (NEW, HEARD)),
        Outcome.PASS,
        "KVEventsFlow",
        [],
    ),
    (
        "one canary that the router did not hear of is confirmed by another",
        answered(IDLE, "w1", (NEW, UNHEARD)),
        Outcome.UNKNOWN,
        "KVEventsIdle",
        ["w1"],
    ),
    (
        "two canaries that the router did not hear of are silence, and enough",
        answered(IDLE, "w1", (NEW, UNHEARD), (NEW, UNHEARD), place=1.2),
        Outcome.FAIL,
        "KVEventsSilent",
        [],
    ),
    (
        "a worker that was heard of once is not silent",
        answered(IDLE, "w1", (NEW, UNHEARD), (NEW, HEARD), place=1.2),
        Outcome.PASS,
        "KVEventsFlow",
        [],
    ),
    (
        "a canary whose prompt was cached already proves no silence",
        answered(IDLE, "w1", *[(replace(NEW, cached_tokens=96), UNHEARD)] * 2, place=1.2),
        Outcome.UNKNOWN,
        "KVEventsIdle",
        [],
    ),
    (
        "a canary that was refused tells nothing, and the worker rests",
        answered(IDLE, "w1", (BUSY, None)),
        Outcome.UNKNOWN,
        "KVEventsCanaryFailed",
        [],
    ),
    (
        "a repeat that broke off tells nothing",
        answered(IDLE, "w1", (NEW, replace(UNHEARD, failure="Timeout", router_hit_rate=None))),
        Outcome.UNKNOWN,
        "KVEventsCanaryFailed",
        [],
    ),
    (
        "a silent one among workers whose events flow is named",
        answered(seen(worker("w1"), idle("w2")), "w2", (NEW, UNHEARD), (NEW, UNHEARD), place=1.2),
        Outcome.FAIL,
        "KVEventsSilent",
        [],
    ),
    (
        "before the switch, the publisher's count that rose proves the worker",
        answered(before_the_switch(*idle_looks(1, 2), worker_look(3, stored=4, received=4)), "w1", (NEW, UNROUTED)),
        Outcome.PASS,
        "KVEventsPublished",
        [],
    ),
    (
        "before the switch, one look without a count is not enough",
        answered(
            before_the_switch(*idle_looks(1, 2), worker_look(3, stored=None, received=None)), "w1", (NEW, UNROUTED)
        ),
        Outcome.UNKNOWN,
        "KVEventsIdle",
        [],
    ),
    (
        "before the switch, two looks without a count are silence",
        answered(
            before_the_switch(*idle_looks(1, 2), *(worker_look(n, stored=None, received=None) for n in (3, 4))),
            "w1",
            (NEW, UNROUTED),
        ),
        Outcome.FAIL,
        "KVEventsSilent",
        [],
    ),
    (
        "before the switch, where no publisher counts, a canary proves nothing and is not sent again",
        answered(BEFORE_THE_SWITCH, "w1", (NEW, UNROUTED), place=0.2),
        Outcome.PASS,
        "KVEventsAnnounced",
        [],
    ),
    (
        "a worker that says itself that it publishes nothing is not asked",
        seen(worker("w1", *idle_looks(1, 2, 3, advert=OFF)), frontends=(quiet_router(),)),
        Outcome.FAIL,
        "KVEventsDisabled",
        [],
    ),
    (
        "a worker that is silent under traffic needs no canary",
        seen(worker("w1", *engines(5, 10, 15)), worker("w2", *engines(0, 0, 0))),
        Outcome.FAIL,
        "KVEventsSilent",
        [],
    ),
    (
        "nobody is asked while others are",
        replace(IDLE, asking=True),
        Outcome.UNKNOWN,
        "KVEventsIdle",
        [],
    ),
    (
        "nobody is asked before there was a look since the last round",
        replace(IDLE, canaries_at=at(3) + timedelta(seconds=1)),
        Outcome.UNKNOWN,
        "KVEventsIdle",
        [],
    ),
    (
        "where publishers do not count, whose events the router applies is asked of each worker that serves",
        UNCOUNTED,
        Outcome.UNKNOWN,
        "KVEventsIdle",
        ["w1", "w2", "w3"],
    ),
    (
        "all of them are heard, and nobody is asked again",
        all_but(""),
        Outcome.PASS,
        "KVEventsFlow",
        [],
    ),
    (
        "one of three that serve is silent, though the router applies the others' events",
        all_but("w2"),
        Outcome.FAIL,
        "KVEventsSilent",
        [],
    ),
    (
        "the only replica of a component is silent, and the other component's worker flows",
        answered(
            seen(uncounted("w1", component="PrefillWorker"), worker("w2", component="DecodeWorker")),
            "w1",
            *[(NEW, UNHEARD)] * 2,
            place=1.2,
        ),
        Outcome.FAIL,
        "KVEventsSilent",
        [],
    ),
    (
        "what a container told before it began anew proves nothing, under the same instance",
        restarted(all_but(""), "w2"),
        Outcome.UNKNOWN,
        "KVEventsIdle",
        ["w2"],
    ),
    (
        "a worker that served is not asked anew for each new router: that events come from it is known",
        replace(all_but(""), frontends=(frontend("fe-2"),), canaries_at=None),
        Outcome.PASS,
        "KVEventsFlow",
        [],
    ),
    (
        "a router that began anew and heard nothing asks workers that served before",
        seen(worker("w1"), frontends=(quiet_router(),)),
        Outcome.UNKNOWN,
        "KVEventsIdle",
        ["w1"],
    ),
)


@pytest.mark.parametrize(
    ("events", "outcome", "reason", "names"), [pytest.param(*case, id=name) for name, *case in CASES]
)
def test_what_a_canary_tells_and_who_is_asked_next(
    events: EventsSeen, outcome: Outcome, reason: str, names: list[str]
) -> None:
    assert (told(events), asked(events)) == ((outcome, reason), names), judge_events(events).finding.message


def test_silence_is_told_with_the_pod_and_who_must_act() -> None:
    events = answered(seen(worker("w1"), idle("w2")), "w2", (NEW, UNHEARD), (NEW, UNHEARD), place=1.2)
    judged = judge_events(events)
    assert judged.finding.message.startswith("w2: a canary of at least 4 new blocks was served")
    assert "the deployer must" in judged.finding.message
    assert judged.status.publishing_workers == 1


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({"ready_since": LONG_READY + timedelta(minutes=5)}, id="it restarted"),
        pytest.param({"instance": 7}, id="it is another process"),
        pytest.param({"generation": "b"}, id="it is of another generation"),
        pytest.param({"looks": idle_looks(1, 2, 3, advert=replace(ANNOUNCED, has_source=None))}, id="its card changed"),
    ],
)
def test_an_answer_counts_for_what_the_worker_was_then(changed: dict[str, object]) -> None:
    events = answered(IDLE, "w1", (NEW, UNHEARD), (NEW, UNHEARD), place=1.2)
    later = replace(events, workers=(replace(events.workers[0], **changed),))  # type: ignore[arg-type]
    assert (told(later), asked(later)) == ((Outcome.UNKNOWN, "KVEventsIdle"), ["w1"])


def test_another_frontend_may_hear_what_the_first_did_not() -> None:
    events = answered(IDLE, "w1", (NEW, UNHEARD), (NEW, UNHEARD), place=1.2)
    later = replace(events, frontends=(replace(quiet_router(), pod="fe-2"),))
    assert asked(later) == ["w1"]


@pytest.mark.parametrize(
    ("failures", "minutes"),
    [pytest.param(1, 1, id="once"), pytest.param(2, 5, id="twice"), pytest.param(6, 30, id="again and again")],
)
def test_a_worker_that_is_not_served_is_asked_ever_less_often(failures: int, minutes: int) -> None:
    failed = answered(IDLE, "w1", *[(BUSY, None)] * failures, place=-6)
    ended = failed.workers[0].canaries[-1].ended_at

    def after(seconds: float) -> EventsSeen:
        looks = [replace(look, taken_at=ended + timedelta(seconds=seconds)) for look in failed.workers[0].looks]
        workers = (replace(failed.workers[0], looks=tuple(looks), ready_since=LONG_READY),)
        return replace(failed, workers=workers)

    assert asked(after(60 * minutes - 1)) == []
    assert asked(after(60 * minutes)) == ["w1"]


def test_a_large_idle_deployment_is_asked_in_rounds_each_worker_once() -> None:
    """As a sender would: every canary is answered, and the next look comes."""
    events = seen(*(idle(f"w{n:02}") for n in range(20)), frontends=(quiet_router(),))
    rounds: list[list[str]] = []
    for _ in range(10):
        names = asked(events)
        for name in names:
            events = answered(events, name, (NEW, HEARD))
        rounds.append(names)
        events = replace(events, canaries_at=at(2))
    assert [len(names) for names in rounds] == [MOST_AT_ONCE, MOST_AT_ONCE, 4, *[0] * 7]
    assert len({name for names in rounds for name in names}) == 20


def test_a_prefill_worker_is_pinned_as_such_and_a_decode_worker_not_at_all() -> None:
    decode = idle("d1", must_publish=False)
    events = seen(idle("p1", prefills=True), decode, frontends=(quiet_router(),))
    assert [(c.pod, c.prefills, c.tokens) for c in judge_events(events).canaries] == [("p1", True, 4 * BLOCK + 1)]


def test_the_status_tells_what_a_cached_prefix_saves() -> None:
    events = answered(seen(idle("w1"), idle("w2"), frontends=(quiet_router(),)), "w1", (NEW, HEARD))
    canaries = judge_events(events).status.canaries
    assert canaries is not None
    assert (canaries.answered, canaries.flowing, canaries.repeat_cached_percent) == (1, 1, 96)
    assert (canaries.first_ttft_milliseconds, canaries.repeat_ttft_milliseconds) == (400, 100)
    assert judge_events(IDLE).status.canaries is None


def steps(events: EventsSeen | None, **asked_: object) -> tuple[AskWorkers, ...]:
    scene = worlds.Scene().gating(Capability.ROUTING, Switch.OFF)
    scene = scene.asking(**asked_) if asked_ else scene
    decision = decide(scene.pool, replace(scene.world, events=events), scene.now)
    return tuple(step for step in decision.steps if isinstance(step, AskWorkers))


@pytest.mark.parametrize("mode", ["Observe", "Recommend", "Enforce"])
def test_canaries_are_sent_in_every_mode(mode: str) -> None:
    (step,) = steps(IDLE, mode=mode)
    assert [canary.pod for canary in step.canaries] == ["w1"]


def test_none_is_sent_where_nobody_looks_or_events_are_ignored() -> None:
    assert steps(None) == ()
    assert steps(IDLE, criteria__routing__kvEvents="Ignored") == ()


def test_none_is_sent_beside_a_routing_ab() -> None:
    scene = worlds.Scene().gating(Capability.ROUTING, Switch.OFF)
    run = BenchmarkRun(run_id="r", started_at=scene.now, ran_on="shadows")
    pool = replace(scene.pool, status=scene.pool.status.model_copy(update={"benchmark": run}))
    decision = decide(pool, replace(scene.world, events=IDLE), scene.now)
    assert not any(isinstance(step, AskWorkers) for step in decision.steps)


def refused(step: str, events: EventsSeen) -> Decision:
    """The split's patch is in flight, and the webhook refuses it, while events of routing are looked at."""
    scene = worlds.opened().gating(Capability.ROUTING, Switch.OFF)
    meant = scene.measured(worlds.SLOW).later(minutes=1).measured(worlds.SLOW).after()
    assert meant.status.operation is not None
    assert meant.status.operation.step == step
    return decide(meant.pool, replace(meant.world, events=events, patch_problem="no"), meant.now)


def test_a_patch_that_is_refused_keeps_no_worker_from_being_asked() -> None:
    decision = refused("Revert", IDLE)
    assert any(isinstance(step, AskWorkers) for step in decision.steps)
    assert decision.watched_within_seconds == 5.0, "answers are about to come"
    assert refused("Revert", answered(IDLE, "w1", (NEW, HEARD))).watched_within_seconds == 15.0, "monitor.interval"


def test_what_is_declared_alone_is_asked_too() -> None:
    """A worker without metadata whose args turn events on: the canary tells."""
    bare = idle("w1", declared=Declared())
    assert asked(seen(bare, frontends=(quiet_router(),))) == ["w1"]
