"""KV events, judged: each fault and each doubt among workers and routers that are well, and what must always hold."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvgate.api.words import Outcome
from kvgate.core.events import judge_events
from kvgate.core.events_seen import EventsSeen, FrontendLook, Routes
from tests.core.event_looks import (
    ANNOUNCED,
    BARE,
    BLOCK,
    CONNECTS,
    JUST_READY,
    NOTHING,
    OFF,
    PLAIN,
    PREFIX_OFF,
    UNREAD,
    at,
    deaf,
    engine,
    engines,
    frontend,
    frontend_look,
    gauged,
    seen,
    unread,
    with_advert,
    worker,
    worker_look,
)

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
