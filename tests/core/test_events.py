"""KV events, judged: each fault and each doubt among workers and routers that are well, and what must always hold."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvgate.api.words import Outcome
from kvgate.core.events import judge_events
from kvgate.core.events_seen import Declared, Declares, EventsSeen, FrontendLook, Routes, WorkerLook, WorkerSeen
from kvgate.core.events_series import full_blocks
from tests.core.event_looks import (
    ANNOUNCED,
    BLOCK,
    JUST_READY,
    OFF,
    at,
    frontend,
    frontend_look,
    gauged,
    seen,
    with_advert,
    worker,
    worker_look,
)

UNREAD = "HTTP 403 from 10.0.0.1:9090"
BARE = replace(ANNOUNCED, has_source=False)
NOTHING = Declared(Declares.UNKNOWN, "a launcher hides its flags")
PREFIX_OFF = Declared(Declares.OFF, "prefix caching is off by --no-enable-prefix-caching in args[3]")
CONNECTS = Declared(Declares.BROKEN, "its --kv-events-config endpoint tcp://0.0.0.0:5557 makes the engine connect")
PLAIN = {"stored": None, "received": None}
"""A worker whose publisher counts no event, as those that write into Dynamo's event plane themselves."""


def engine(place: int, stored: int | None, **fields: int) -> WorkerLook:
    """10 requests of 400 tokens between two looks, none cached: 240 new blocks."""
    tokens = {"queried_tokens": 4000 * place, "cached_tokens": 0, "requests": 10 * place, **fields}
    return worker_look(place, ANNOUNCED, stored=stored, received=stored, **tokens)


def engines(*stored: int | None, **fields: int) -> tuple[WorkerLook, ...]:
    return tuple(engine(place, count, **fields) for place, count in enumerate(stored, 1))


def deaf(**counts: int) -> tuple[FrontendLook, ...]:
    return tuple(frontend_look(place, stored=0, **counts) for place in (1, 2, 3))


def unread(name: str) -> WorkerSeen:
    return worker(name, *(WorkerLook(at(place), ANNOUNCED, None, UNREAD) for place in (1, 2, 3)))


CASES: tuple[tuple[str, EventsSeen, Outcome, str, str], ...] = (
    ("everything flows", seen(), Outcome.PASS, "KVEventsFlow", "all 3 workers"),
    (
        "workers without counters of their own, and a router that applies: whose events, a canary must tell",
        seen(*(with_advert(name, ANNOUNCED) for name in ("w1", "w2"))),
        Outcome.UNKNOWN,
        "KVEventsIdle",
        "w1, w2: requests served and no event published, as far as is known",
    ),
    (
        "the same before the switch: nobody listens who could tell",
        seen(*(with_advert(name, ANNOUNCED) for name in ("w1", "w2")), routes=Routes.OTHER, frontends=()),
        Outcome.PASS,
        "KVEventsAnnounced",
        "all 2 workers",
    ),
    (
        "a worker whose card says off",
        seen(worker("w1"), with_advert("w2", OFF), worker("w3"), frontends=(gauged("fe-1", 1),)),
        Outcome.FAIL,
        "KVEventsDisabled",
        "w2: its model card says",
    ),
    (
        "a worker whose card says off, just now",
        seen(worker("w1"), worker("w2", worker_look(1), worker_look(2), worker_look(3, OFF))),
        Outcome.PASS,
        "KVEventsFlow",
        "",
    ),
    (
        "a worker whose card says off and that is ready since 44 s",
        seen(worker("w1"), with_advert("w2", OFF, ready_since=JUST_READY)),
        Outcome.UNKNOWN,
        "KVEventsSettling",
        "w2",
    ),
    (
        "prefix caching off by the args, and no card",
        seen(worker("w1"), with_advert("w2", None, declared=PREFIX_OFF)),
        Outcome.FAIL,
        "KVEventsDisabled",
        "--no-enable-prefix-caching",
    ),
    (
        "args without the flag, and a card that says on: the card is the first source",
        seen(worker("w1"), worker("w2", declared=PREFIX_OFF)),
        Outcome.PASS,
        "KVEventsFlow",
        "",
    ),
    (
        "an endpoint that makes both sides connect, whatever the card says",
        seen(worker("w1"), with_advert("w2", ANNOUNCED, declared=CONNECTS)),
        Outcome.FAIL,
        "KVEventsDisabled",
        "connect",
    ),
    (
        "claims but silent: no source was announced",
        seen(worker("w1"), with_advert("w2", BARE), frontends=(gauged("fe-1", 1),)),
        Outcome.FAIL,
        "KVEventSourceMissing",
        "w2",
    ),
    (
        "an older release that announces no sources at all",
        seen(*(worker(n, *(worker_look(p, replace(ANNOUNCED, has_source=None)) for p in (1, 2, 3))) for n in "ab")),
        Outcome.PASS,
        "KVEventsFlow",
        "",
    ),
    (
        "one of three workers is silent by its own counters",
        seen(*(worker(n, *engines(5, 10, 15)) for n in ("w1", "w2")), worker("w3", *engines(5, 5, 5))),
        Outcome.FAIL,
        "KVEventsSilent",
        "w3: 0 stored events for at least 64",
    ),
    (
        "one of three workers never published, and the family is there with the others alone",
        seen(worker("w1", *engines(5, 10, 15)), worker("w2", *engines(None, None, None))),
        Outcome.FAIL,
        "KVEventsSilent",
        "w2",
    ),
    (
        "a fully cached worker is not silent",
        seen(
            worker("w1", *engines(5, 10, 15)),
            worker("w2", *(engine(p, 5, queried_tokens=4000 * p, cached_tokens=4000 * (p - 1)) for p in (1, 2, 3))),
        ),
        Outcome.PASS,
        "KVEventsFlow",
        "",
    ),
    (
        "100 requests of 4,000 tokens, 1,131 queries, no hit and no event of a hybrid model",
        seen(
            worker("w1", *(engine(p, None, queried_tokens=200_000 * p, requests=50 * p) for p in (1, 2, 3))),
            routes=Routes.OTHER,
            frontends=(),
        ),
        Outcome.INCONCLUSIVE,
        "KVEventsSilent",
        "whether the engine emits events for this model",
    ),
    (
        "a router that applies nothing while 64 blocks were filled",
        seen(*(with_advert(n, ANNOUNCED) for n in ("w1", "w2")), frontends=(frontend("fe-1", *deaf()),)),
        Outcome.FAIL,
        "KVEventsSilent",
        "the router of fe-1",
    ),
    (
        "one router of two is deaf, and only the other takes requests",
        seen(
            frontends=(
                frontend("fe-1"),
                frontend("fe-2", *deaf(input_tokens=0, prompts=0)),
            )
        ),
        Outcome.FAIL,
        "KVEventsSilent",
        "the router of fe-2",
    ),
    (
        "63 new blocks and no event: nothing is proven",
        seen(
            with_advert("w1", ANNOUNCED),
            frontends=(frontend("fe-1", *deaf(input_tokens=63 * BLOCK, prompts=0)),),
        ),
        Outcome.UNKNOWN,
        "KVEventsIdle",
        "fewer than 64",
    ),
    (
        "1,000 prompts of 12 tokens fill no block of 16",
        seen(
            with_advert("w1", ANNOUNCED),
            frontends=(frontend("fe-1", *deaf(input_tokens=12_000, prompts=1000)),),
        ),
        Outcome.UNKNOWN,
        "KVEventsIdle",
        "",
    ),
    (
        "no requests at all, and no event ever: idle",
        seen(
            with_advert("w1", ANNOUNCED),
            frontends=(frontend("fe-1", *deaf(input_tokens=0, prompts=0)),),
        ),
        Outcome.UNKNOWN,
        "KVEventsIdle",
        "canary",
    ),
    (
        "no requests since, and events before: nothing speaks against it",
        seen(frontends=(frontend("fe-1", *(frontend_look(1) for _ in range(3))),)),
        Outcome.PASS,
        "KVEventsFlow",
        "",
    ),
    (
        "requests served and no event, where others count theirs",
        seen(worker("w1"), worker("w2", *(worker_look(place, **PLAIN) for place in (1, 2, 3)))),
        Outcome.UNKNOWN,
        "KVEventsIdle",
        "w2",
    ),
    (
        "the router's gauge counts a worker whose card is fine",
        seen(*(with_advert(n, ANNOUNCED) for n in ("w1", "w2")), frontends=(gauged("fe-1", 1),)),
        Outcome.FAIL,
        "KVEventSourceMismatch",
        "1 workers of w1, w2",
    ),
    (
        "the gauge is up at one look only",
        seen(frontends=(frontend("fe-1", frontend_look(1), frontend_look(2), frontend_look(3, mismatched=1)),)),
        Outcome.PASS,
        "KVEventsFlow",
        "",
    ),
    (
        "the gauge counts a worker that has only just started",
        seen(worker("w1"), worker("w2", ready_since=JUST_READY), frontends=(gauged("fe-1", 1),)),
        Outcome.PASS,
        "KVEventsFlow",
        "",
    ),
    (
        "all cards say off and events flow",
        seen(*(with_advert(n, OFF) for n in ("w1", "w2")), frontends=(gauged("fe-1", 2),)),
        Outcome.INCONCLUSIVE,
        "KVEventsContradictory",
        "yet they come",
    ),
    (
        "a card says off and its own publisher counts events",
        seen(worker("w1"), worker("w2", *(worker_look(place, OFF) for place in (1, 2, 3)))),
        Outcome.INCONCLUSIVE,
        "KVEventsContradictory",
        "w2",
    ),
    (
        "all cards say off, and events came only before",
        seen(
            *(with_advert(n, OFF) for n in ("w1", "w2")),
            frontends=(gauged("fe-1", 2, stored=20, input_tokens=0, prompts=0),),
        ),
        Outcome.FAIL,
        "KVEventsDisabled",
        "w1, w2",
    ),
    (
        "workers of two block sizes",
        seen(worker("w1"), with_advert("w2", replace(ANNOUNCED, block_tokens=64))),
        Outcome.FAIL,
        "KVBlockSizeMismatch",
        "64 at w2",
    ),
    (
        "workers of another block size than the router",
        seen(*(with_advert(n, replace(ANNOUNCED, block_tokens=32)) for n in ("w1", "w2"))),
        Outcome.FAIL,
        "KVBlockSizeMismatch",
        "16 at the router",
    ),
    (
        "two block sizes while a new generation takes over",
        seen(
            with_advert("w1", ANNOUNCED, generation="a"),
            with_advert("w2", replace(ANNOUNCED, block_tokens=64), generation="b"),
            routes=Routes.OTHER,
            frontends=(),
        ),
        Outcome.PASS,
        "KVEventsAnnounced",
        "",
    ),
    (
        "events lost in a full buffer",
        seen(worker("w1"), worker("w2", *(worker_look(place, dropped=37 * (place - 1)) for place in (1, 2, 3)))),
        Outcome.FAIL,
        "KVEventsLost",
        "event_buffer_max_size",
    ),
    (
        "events lost long ago",
        seen(worker("w1"), worker("w2", *(worker_look(place, dropped=37) for place in (1, 2, 3)))),
        Outcome.PASS,
        "KVEventsFlow",
        "",
    ),
    (
        "hashes of bytes that the publisher cannot convert, and nothing else",
        seen(*(worker(n, *(worker_look(p, stored=0, unconvertible=5 * p) for p in (1, 2, 3))) for n in ("w1", "w2"))),
        Outcome.FAIL,
        "KVEventsUnreadable",
        "w1, w2",
    ),
    (
        "some events that cannot be converted",
        seen(worker("w1"), worker("w2", *(worker_look(place, unconvertible=place) for place in (1, 2, 3)))),
        Outcome.INCONCLUSIVE,
        "KVEventsUnreadable",
        "w2",
    ),
    (
        "sliding-window events that are filtered on purpose",
        seen(worker("w1"), worker("w2", *(worker_look(place, filtered=9 * place) for place in (1, 2, 3)))),
        Outcome.PASS,
        "KVEventsFlow",
        "",
    ),
    (
        "a router that can apply nothing of what it hears",
        seen(
            frontends=(
                frontend("fe-1", *deaf(refused=0)[:1], *(frontend_look(p, stored=0, refused=9 * p) for p in (2, 3))),
            )
        ),
        Outcome.FAIL,
        "KVEventsRefused",
        "",
    ),
    (
        "a router with gaps: 1 of 5 stored events has no parent",
        seen(frontends=(frontend("fe-1", *(frontend_look(p, refused=5 * p) for p in (1, 2, 3))),)),
        Outcome.INCONCLUSIVE,
        "KVEventsRefused",
        "5%",
    ),
    (
        "a decode worker that publishes nothing",
        seen(worker("p1", component="Prefill"), with_advert("d1", OFF, must_publish=False)),
        Outcome.PASS,
        "KVEventsFlow",
        "all 1 workers",
    ),
    (
        "a worker's metrics that are not there",
        seen(
            worker("w1"),
            worker("w2", *(worker_look(p, dropped=None, absent=("a_total or a",), **PLAIN) for p in (1, 2, 3))),
        ),
        Outcome.UNKNOWN,
        "KVEventMetricsAbsent",
        "w2 expose no a_total or a; absent is not 0",
    ),
    (
        "a router's gauge that is not there",
        seen(frontends=(frontend("fe-1", *(frontend_look(p, mismatched=None, absent=("gauge",)) for p in (1, 2, 3))),)),
        Outcome.UNKNOWN,
        "KVEventMetricsAbsent",
        "fe-1",
    ),
    (
        "a worker that refuses the connection",
        seen(worker("w1"), unread("w2")),
        Outcome.UNKNOWN,
        "KVEventsNotObserved",
        UNREAD,
    ),
    (
        "a frontend that gave no answer twice",
        seen(frontends=(frontend("fe-1", frontend_look(1), *(FrontendLook(at(p), None, UNREAD) for p in (2, 3))),)),
        Outcome.UNKNOWN,
        "KVEventsNotObserved",
        "fe-1",
    ),
    (
        "a frontend that gave no answer once",
        seen(frontends=(frontend("fe-1", frontend_look(1), frontend_look(2), FrontendLook(at(3), None, UNREAD)),)),
        Outcome.PASS,
        "KVEventsFlow",
        "",
    ),
    (
        "an operator that has just started",
        seen(worker("w1", worker_look(1)), frontends=(frontend("fe-1", frontend_look(1)),)),
        Outcome.UNKNOWN,
        "KVEventsFirstLook",
        "2 looks",
    ),
    (
        "no worker at all",
        EventsSeen(Routes.KV, (), (frontend("fe-1"),)),
        Outcome.UNKNOWN,
        "KVEventsNoWorkers",
        "deployer",
    ),
    (
        "only workers that have just started",
        seen(worker("w1", ready_since=JUST_READY)),
        Outcome.UNKNOWN,
        "KVEventsSettling",
        "60 s",
    ),
    (
        "only decode workers",
        seen(with_advert("d1", OFF, must_publish=False)),
        Outcome.UNKNOWN,
        "KVEventsNoWorkers",
        "",
    ),
    (
        "a worker of which nothing is known",
        seen(worker("w1"), with_advert("w2", None, declared=NOTHING)),
        Outcome.UNKNOWN,
        "KVEventsNotDeclared",
        "launcher",
    ),
    (
        "approximate mode where events are required",
        seen(routes=Routes.APPROXIMATE),
        Outcome.INCONCLUSIVE,
        "KVEventsUnused",
        "kvEvents: Ignored",
    ),
    (
        "before the switch: every publisher counts its events",
        seen(
            routes=Routes.OTHER,
            frontends=(frontend("fe-1", *(frontend_look(p, mismatched=None, stored=None) for p in (1, 2, 3))),),
        ),
        Outcome.PASS,
        "KVEventsPublished",
        "no router applies them",
    ),
    (
        "before the switch: events are announced",
        seen(*(with_advert(n, ANNOUNCED) for n in ("w1", "w2")), routes=Routes.OTHER, frontends=()),
        Outcome.PASS,
        "KVEventsAnnounced",
        "A/B",
    ),
    (
        "after a switch back, while the running frontends still have a router's gauge",
        seen(*(with_advert(n, ANNOUNCED) for n in ("w1", "w2")), routes=Routes.OTHER, frontends=(gauged("fe-1", 1),)),
        Outcome.FAIL,
        "KVEventSourceMismatch",
        "",
    ),
)


@pytest.mark.parametrize(
    ("given_", "outcome", "reason", "words"),
    [pytest.param(case, outcome, reason, words, id=name) for name, case, outcome, reason, words in CASES],
)
def test_one_difference_decides(given_: EventsSeen, outcome: Outcome, reason: str, words: str) -> None:
    finding = judge_events(given_).finding
    assert (finding.outcome, finding.reason) == (outcome, reason), finding.message
    assert words in finding.message


def test_a_restarted_worker_begins_a_new_life() -> None:
    """Its counters fell: what it had published before proves nothing of it now."""
    looks = (engine(1, 50), engine(2, 60), engine(3, 0, queried_tokens=100, requests=1))
    fresh = judge_events(seen(worker("w1", *engines(5, 10, 15)), worker("w2", *looks)))
    assert (fresh.finding.reason, [c.pod for c in fresh.canaries]) == ("KVEventsIdle", ["w2"])


def test_a_restarted_frontend_begins_a_new_life() -> None:
    looks = (
        frontend_look(8),
        frontend_look(9),
        *(frontend_look(p - 9, stored=0, input_tokens=0, prompts=0) for p in (10, 11)),
    )
    placed = tuple(replace(look, taken_at=at(place)) for place, look in enumerate(looks, 1))
    assert judge_events(seen(frontends=(frontend("fe-1", *placed),))).finding.reason == "KVEventsIdle"


def test_the_status_counts_workers_and_names_its_sources() -> None:
    status = judge_events(seen(worker("w1"), with_advert("w2", OFF), frontends=(gauged("fe-1", 1),))).status
    assert (status.expected_workers, status.publishing_workers, status.applied) == (2, 1, True)
    assert status.source == "worker metadata, args, worker counters, router gauges"


def test_the_status_says_when_nothing_is_applied() -> None:
    status = judge_events(seen(with_advert("w1", ANNOUNCED), frontends=(frontend("fe-1", *deaf()),))).status
    assert status.applied is False


def test_an_idle_worker_is_asked_by_a_canary_and_not_judged() -> None:
    """The prompt fills four blocks and one token more."""
    idle = worker("w2", *(worker_look(place, requests=0, **PLAIN) for place in (1, 2, 3)))
    judged = judge_events(seen(worker("w1"), idle))
    assert judged.finding.outcome is Outcome.PASS
    assert [(c.pod, c.instance, c.tokens) for c in judged.canaries] == [("w2", idle.instance, 4 * BLOCK + 1)]


def test_traffic_alone_changes_no_word_of_finding_and_status() -> None:
    """Else each look would be a write of the status."""
    told = set()
    for first in range(1, 6):
        places = range(first, first + 4)
        looks = (worker("w1", *map(worker_look, places)), worker("w2", *map(worker_look, places)))
        judged = judge_events(seen(*looks, frontends=(frontend("fe-1", *map(frontend_look, places)),)))
        told.add((judged.finding, judged.status.model_dump_json()))
    assert len(told) == 1


def test_a_running_loss_changes_the_message_only_by_powers_of_ten() -> None:
    said = set()
    for most in range(40, 90):
        losing = worker("w1", worker_look(1), worker_look(2, dropped=20), worker_look(3, dropped=most))
        said.add(judge_events(seen(losing)).finding.message)
    assert len(said) == 1


@pytest.mark.parametrize(
    ("new", "prompts", "block", "blocks"),
    [
        pytest.param(400, 1, 16, 25, id="25 whole blocks"),
        pytest.param(12, 1, 16, 0, id="less than a block"),
        pytest.param(17, 1, 16, 1, id="one block and one token"),
        pytest.param(2048, 1, 2096, 0, id="a prompt below a large block"),
        pytest.param(100, 10, 16, 0, id="ten short prompts"),
        pytest.param(0, 0, 1, 0, id="nothing"),
    ],
)
def test_only_full_blocks_are_expected(new: int, prompts: int, block: int, blocks: int) -> None:
    assert full_blocks(new, prompts, block) == blocks


@given(st.lists(st.integers(0, 5000), max_size=30), st.integers(1, 300))
def test_no_more_blocks_are_expected_than_the_prompts_fill(prompts: list[int], block: int) -> None:
    assert full_blocks(sum(prompts), len(prompts), block) <= sum(tokens // block for tokens in prompts)


COUNTS = st.none() | st.integers(0, 2000)
ADVERTS = st.sampled_from(
    [None, ANNOUNCED, OFF, BARE, replace(ANNOUNCED, block_tokens=64), replace(ANNOUNCED, publishing=None)]
)
DECLARED = st.sampled_from([Declared(), Declared(Declares.ON), PREFIX_OFF, CONNECTS])


@st.composite
def worker_looks(draw: st.DrawFn) -> tuple[WorkerLook, ...]:
    names = ("dropped", "stored", "received", "unconvertible", "requests", "queried_tokens", "cached_tokens")
    places = range(draw(st.integers(0, 4)))
    looks = [worker_look(place, draw(ADVERTS), **{name: draw(COUNTS) for name in names}) for place in places]
    return tuple(replace(look, counts=None, problem=UNREAD) if draw(st.booleans()) else look for look in looks)


@st.composite
def deployments(draw: st.DrawFn) -> EventsSeen:
    names = ("mismatched", "stored", "refused", "input_tokens", "cached_tokens", "prompts")
    ready = st.sampled_from([None, JUST_READY, at(0) - (at(9) - at(0))])
    workers = [
        worker(
            f"w{index}",
            ready_since=draw(ready),
            declared=draw(DECLARED),
            must_publish=draw(st.booleans()),
            generation=draw(st.sampled_from(["", "a"])),
        )
        for index in range(draw(st.integers(0, 4)))
    ]
    held = [replace(one, looks=draw(worker_looks())) for one in workers]
    frontends = [
        replace(
            frontend(f"fe-{index}", ready_since=draw(ready)),
            looks=tuple(
                frontend_look(place, **{name: draw(COUNTS) for name in names})
                for place in range(draw(st.integers(0, 4)))
            ),
        )
        for index in range(draw(st.integers(0, 3)))
    ]
    return EventsSeen(draw(st.sampled_from(list(Routes))), tuple(held), tuple(frontends))


@given(deployments())
def test_any_deployment_is_judged(case: EventsSeen) -> None:
    judged = judge_events(case)
    assert judged.finding.criterion == "kvEvents"
    assert judged.finding.reason
    assert judged.finding.message
    assert 0 <= (judged.status.publishing_workers or 0) <= (judged.status.expected_workers or 0)


@given(deployments(), st.randoms(use_true_random=False))
def test_the_order_of_pods_changes_nothing(case: EventsSeen, shuffler: Random) -> None:
    workers, frontends = list(case.workers), list(case.frontends)
    shuffler.shuffle(workers)
    shuffler.shuffle(frontends)
    assert judge_events(EventsSeen(case.routes, tuple(workers), tuple(frontends))) == judge_events(case)


@given(deployments())
def test_a_worker_that_is_known_not_to_publish_never_passes(case: EventsSeen) -> None:
    mute = with_advert("silent", BARE)
    assert judge_events(replace(case, workers=(*case.workers, mute))).finding.outcome is not Outcome.PASS


@given(deployments())
def test_a_worker_that_is_silent_under_traffic_never_passes(case: EventsSeen) -> None:
    mute = worker("silent", *engines(0, 0, 0), component="apart")
    sized = EventsSeen(case.routes, (*case.workers, mute, worker("other", component="apart")), case.frontends)
    assert judge_events(sized).finding.outcome is not Outcome.PASS


@given(deployments())
def test_a_deaf_router_never_passes(case: EventsSeen) -> None:
    listening = replace(case, routes=Routes.KV, frontends=(*case.frontends, frontend("deaf", *deaf())))
    assert judge_events(listening).finding.outcome is not Outcome.PASS


@given(deployments())
def test_more_events_lost_never_make_it_better(case: EventsSeen) -> None:
    losing = worker("losing", worker_look(1), worker_look(2, dropped=3), worker_look(3, dropped=9))
    assert judge_events(replace(case, workers=(*case.workers, losing))).finding.outcome is Outcome.FAIL
