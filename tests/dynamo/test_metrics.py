"""What real frontends and workers expose, read into counts; absent is not 0; and no text whatever raises."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvgate.core.events_seen import FrontendCounts, WorkerCounts
from kvgate.dynamo.metrics import (
    MOST_SERIES,
    NAMES,
    Family,
    Unreadable,
    frontend_counts,
    read_exposition,
    worker_counts,
)

SCRAPES = Path(__file__).parents[1] / "data" / "metrics"
GAUGE = "dynamo_component_router_kv_event_source_mismatch_workers"
APPLIED = "dynamo_component_kv_cache_events_applied"
DROPPED = "dynamo_component_kv_publisher_engines_dropped_events"


def scrape(name: str) -> str:
    return (SCRAPES / f"{name}.txt").read_text("utf-8")


def frontend(name: str) -> FrontendCounts:
    read = frontend_counts(scrape(name))
    assert isinstance(read, FrontendCounts), read
    return read


def worker(text: str) -> WorkerCounts:
    read = worker_counts(text)
    assert isinstance(read, WorkerCounts), read
    return read


FIRST_NAMES = " or ".join(NAMES[Family.APPLIED])


@pytest.mark.parametrize(
    ("name", "mismatched", "stored", "input_tokens", "cached", "ready", "absent"),
    [
        pytest.param("agg-kv-events-on-frontend", 0, 14, 5230, 3856, True, (), id="events flow"),
        pytest.param("agg-kv-worker-events-off-frontend", 2, 0, 5230, 0, True, (), id="workers without events"),
        pytest.param("agg-kv-router-approx-frontend", None, 13, 5230, 3856, True, (GAUGE,), id="approximate mode"),
        pytest.param(
            "agg-rr-frontend",
            None,
            None,
            5230,
            2736,
            True,
            (GAUGE, FIRST_NAMES),
            id="round-robin has no router's families",
        ),
        pytest.param("disagg-kv-frontend", 0, 9, 3627, 2336, True, (), id="split"),
        pytest.param("disagg-kv-prefill-gone-frontend", 0, 9, 3627, 2336, False, (), id="split without its prefill"),
    ],
)
def test_what_a_real_frontend_exposes(
    name: str,
    mismatched: int | None,
    stored: int | None,
    input_tokens: int,
    cached: int,
    ready: bool,
    absent: tuple[str, ...],
) -> None:
    read = frontend(name)
    assert (read.mismatched, read.stored, read.input_tokens, read.cached_tokens) == (
        mismatched,
        stored,
        input_tokens,
        cached,
    )
    assert (read.model_ready, read.absent, read.block_tokens) == (ready, absent, 16)


def test_requests_failures_and_workers_of_a_frontend() -> None:
    read = frontend("disagg-kv-prefill-gone-frontend")
    assert (read.requests, read.errors, read.failures, read.registered_workers) == (9, 0, 4, 1)


@pytest.mark.parametrize(
    ("name", "dropped", "stored", "requests"),
    [
        pytest.param("agg-kv-events-on-w1", 0, None, 0, id="events by Dynamo's own plane are not counted here"),
        pytest.param("agg-kv-worker-events-off-w1", None, None, 6, id="no publisher, no family"),
        pytest.param("disagg-kv-p1", 0, None, 9, id="prefill"),
        pytest.param("disagg-kv-d1", None, None, 9, id="decode"),
        pytest.param("agg-kv-zmq-relay-w1", 0, 1, 1, id="the relay of vLLM's events counts them"),
    ],
)
def test_what_a_real_worker_exposes(name: str, dropped: int | None, stored: int | None, requests: int) -> None:
    read = worker(scrape(name))
    assert (read.dropped, read.stored, read.requests) == (dropped, stored, requests)


@pytest.mark.parametrize(
    ("requests", "absent"),
    [
        pytest.param("dynamo_frontend_requests_total 0\n", (), id="none served yet"),
        pytest.param(
            "dynamo_frontend_requests_total 3\n",
            ("dynamo_frontend_input_sequence_tokens_sum", "dynamo_frontend_cached_tokens_sum"),
            id="three served",
        ),
    ],
)
def test_families_of_tokens_come_with_the_first_request(requests: str, absent: tuple[str, ...]) -> None:
    read = frontend_counts(f'{GAUGE} 0\n{APPLIED}{{event_type="stored",status="ok"}} 0\n{requests}')
    assert isinstance(read, FrontendCounts)
    assert read.absent == absent


def test_absent_tells_every_name_that_was_tried() -> None:
    assert worker(scrape("agg-kv-worker-events-off-w1")).absent == (f"{DROPPED}_total or {DROPPED}",)


@pytest.mark.parametrize(
    ("text", "dropped"),
    [
        pytest.param(f"{DROPPED}_total 3\n", 3, id="with _total"),
        pytest.param(f"{DROPPED} 3\n", 3, id="without _total"),
        pytest.param(f"{DROPPED}_total 3\n{DROPPED} 5\n", 3, id="both: counted once"),
        pytest.param(f"# TYPE {DROPPED} counter\n{DROPPED}_total 3 # {{}} 1\n# EOF\n", 3, id="OpenMetrics"),
        pytest.param(
            f'{DROPPED}_total{{worker_id="a,b}}\\"c"}} 1\n{DROPPED}_total{{worker_id="d"}} 2\n', 3, id="odd labels"
        ),
        pytest.param(f"{DROPPED}_total 0\n", 0, id="there, and 0"),
        pytest.param("other_total 7\n", None, id="another family alone"),
        pytest.param(f"{DROPPED}_total NaN\n", None, id="not a number"),
        pytest.param(f"{DROPPED}_total -1\n", None, id="below 0"),
        pytest.param(f"{DROPPED}_total 1e300\n", None, id="beyond counting"),
        pytest.param(f"x{DROPPED}_total 3\nother 1\n", None, id="a longer name"),
    ],
)
def test_how_a_counter_may_be_written(text: str, dropped: int | None) -> None:
    assert worker(text).dropped == dropped


def test_an_engines_own_tokens() -> None:
    text = 'vllm:prefix_cache_queries_total{engine="0"} 1131\nvllm:prefix_cache_hits_total{engine="0"} 16\n'
    read = worker(text)
    assert (read.queried_tokens, read.cached_tokens) == (1131, 16)


def test_refused_events_are_those_stored_without_ok() -> None:
    lines = [
        f'{APPLIED}{{event_type="{kind}",status="{status}"}} {count}'
        for kind, status, count in (
            ("stored", "ok", 5),
            ("stored", "parent_block_not_found", 2),
            ("stored", "invalid_block", 1),
            ("removed", "block_not_found", 9),
        )
    ]
    read = frontend_counts("\n".join(lines))
    assert isinstance(read, FrontendCounts)
    assert (read.stored, read.refused) == (5, 3)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("", "no Prometheus exposition", id="nothing"),
        pytest.param("<html>404 page not found</html>", "no Prometheus exposition", id="a page"),
        pytest.param('{"status":"ok"}', "no Prometheus exposition", id="JSON"),
        pytest.param(f'{DROPPED}_total{{worker="a 1', "broken", id="a wanted line that breaks off"),
        pytest.param(f"{DROPPED}_total one", "broken", id="a wanted line without a number"),
        pytest.param(f"{DROPPED}_total 1\n" * (MOST_SERIES + 1), str(MOST_SERIES), id="too many series"),
    ],
)
def test_a_text_that_is_none_says_so(text: str, words: str) -> None:
    read = worker_counts(text)
    assert isinstance(read, Unreadable)
    assert words in read.message


def test_a_broken_line_of_something_else_spoils_nothing() -> None:
    assert worker(f'other{{ 1\n{DROPPED}_total 3\nvllm:odd_bucket{{le="+Inf" 7\n').dropped == 3


NAME = st.sampled_from([name for names in NAMES.values() for name in names])
LABELS = st.dictionaries(st.sampled_from(["event_type", "status", "stage", "le"]), st.text(max_size=8), max_size=3)
PIECE = st.one_of(
    st.text(max_size=60), st.builds(lambda n, labels, v: f"{n}{{{labels}}} {v}", NAME, LABELS, st.floats())
)


@given(st.lists(PIECE, max_size=12))
def test_no_text_raises(pieces: list[str]) -> None:
    text = "\n".join(pieces)
    assert isinstance(frontend_counts(text), FrontendCounts | Unreadable)
    assert isinstance(worker_counts(text), WorkerCounts | Unreadable)


@given(st.text(max_size=400), NAME)
def test_no_tail_of_a_wanted_line_raises(tail: str, name: str) -> None:
    read_exposition(f"{name}{tail}")


@given(st.data())
def test_no_damage_to_a_real_scrape_raises(data: st.DataObject) -> None:
    whole = scrape("agg-kv-zmq-relay-w1")
    cut = data.draw(st.integers(0, len(whole)))
    damaged = whole[:cut] + data.draw(st.text(max_size=5)) + whole[cut + data.draw(st.integers(0, 40)) :]
    assert isinstance(worker_counts(damaged), WorkerCounts | Unreadable)
