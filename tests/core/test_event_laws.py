"""What holds of event findings over time and of every deployment: new lives, few words, and no excuse for silence."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvgate.api.words import Outcome
from kvgate.core.events import judge_events
from kvgate.core.events_seen import Declared, Declares, EventsSeen, Routes, WorkerLook
from kvgate.core.events_series import full_blocks
from tests.core.event_looks import (
    ANNOUNCED,
    BARE,
    BLOCK,
    CONNECTS,
    JUST_READY,
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
    with_advert,
    worker,
    worker_look,
)


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
