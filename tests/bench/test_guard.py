"""Metrics pages as Dynamo writes them, and when an A/B ends for the sake of users."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kvgate_bench.guard import live_rate, objection, percentile
from kvgate_bench.pages import LiveLook, Page, kv_families, look, read_page, workers

PAGES = Path(__file__).parents[1] / "data" / "metrics"


def page(name: str) -> Page:
    found = read_page((PAGES / name).read_text(encoding="utf-8"))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("name", "families"),
    [
        ("agg-rr-frontend.txt", 0),
        ("agg-kv-events-on-frontend.txt", 1),
        ("agg-kv-worker-events-off-frontend.txt", 1),
    ],
)
def test_a_round_robin_frontend_shows_nothing_of_kv_events(name: str, families: int) -> None:
    assert len(kv_families(page(name))) >= families
    assert bool(kv_families(page(name))) == bool(families)


def test_a_kv_frontend_names_its_workers_and_a_round_robin_one_does_not() -> None:
    found = workers(page("agg-kv-events-on-frontend.txt"))
    assert len(found) == 2
    assert all(name.isdigit() for name in found)
    assert workers(page("agg-rr-frontend.txt")) == ()


def test_refusals_are_counted_though_they_are_not_among_the_requests() -> None:
    assert look(page("disagg-kv-prefill-gone-frontend.txt"), 0).refused == 4
    assert look(page("agg-kv-events-on-frontend.txt"), 0).refused == 0


def test_a_page_that_is_none_is_no_empty_page() -> None:
    assert read_page("{{{") is None


QUIET = LiveLook(0.0, {0.1: 0, 0.2: 0, 0.4: 0, float("inf"): 0}, 0, 0, 0.1)


def at(seconds: float, fast: float, slow: float, **changes: object) -> LiveLook:
    buckets = {0.1: fast, 0.2: fast, 0.4: fast + slow, float("inf"): fast + slow}
    plain = LiveLook(seconds, buckets, fast + slow, 0, 0.1)
    return replace(plain, **changes)  # type: ignore[arg-type]


BEFORE = (QUIET, at(30, 100, 0))


@pytest.mark.parametrize(
    ("before", "during", "said"),
    [
        pytest.param(BEFORE, (at(40, 200, 0),), "", id="users feel nothing"),
        pytest.param(
            BEFORE, (at(40, 150, 50),), "p99 TTFT of users rose from 99 ms to 396 ms", id="a quarter waits longer"
        ),
        pytest.param(BEFORE, (at(40, 110, 20),), "", id="thirty answers say nothing yet"),
        pytest.param((QUIET, at(30, 10, 0)), (at(40, 60, 50),), "", id="nor do ten before"),
        pytest.param(
            BEFORE, (at(40, 200, 0, refused=1),), "1 requests of users were answered with 503 or 529", id="a refusal"
        ),
        pytest.param(
            (at(0, 0, 0, refused=5), at(30, 100, 0, refused=5)), (at(40, 200, 0, refused=5),), "", id="an older refusal"
        ),
        pytest.param(BEFORE, (at(40, 200, 0, utilization=0.61),), "at 61% of its KV blocks, above 50%", id="too busy"),
        pytest.param(BEFORE, (at(40, 200, 0, utilization=None),), "", id="a page that tells no utilisation"),
        pytest.param((), (at(40, 200, 0, utilization=0.61),), "above 50%", id="too busy before it begins"),
        pytest.param(BEFORE, (), "", id="nothing was seen yet"),
    ],
)
def test_an_ab_ends_for_the_sake_of_users(
    before: tuple[LiveLook, ...], during: tuple[LiveLook, ...], said: str
) -> None:
    found = objection(before, during, 0.5)
    assert (said in found) if said else (found == "")


def test_a_percentile_is_interpolated_within_its_bucket() -> None:
    assert percentile({0.1: 50, 0.2: 100, float("inf"): 100}, 0.75) == pytest.approx(0.15)
    assert percentile({0.1: 50, float("inf"): 100}, 0.99) == pytest.approx(0.1)
    assert percentile({}, 0.99) == 0.0


def test_the_live_rate_needs_two_looks() -> None:
    assert live_rate((at(0, 0, 0), at(10, 30, 10))) == pytest.approx(4)
    assert live_rate((at(0, 0, 0),)) is None
