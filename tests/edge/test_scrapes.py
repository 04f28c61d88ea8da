"""Looks at pods over real HTTP on loopback: when they are asked, what is kept, and what each way to fail reads like."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from kvgate.api.words import Capability
from kvgate.core.events_seen import Advert, EventsSeen, FrontendSeen, Routes, WorkerLook, WorkerSeen
from kvgate.core.target import Switch
from kvgate.core.world import Pool
from kvgate.dynamo.watched import Watched, WatchedFrontend, WatchedWorker
from kvgate.edge.scrapes import LARGEST_SCRAPE_BYTES, MOST_LOOKS, PATIENCE_SECONDS, EventLooks, Unread, get_metrics
from tests.cluster.waiting import eventually
from tests.core import worlds
from tests.edge.prometheus_double import Answer, Double, double, says

SCRAPES = Path(__file__).parents[1] / "data" / "metrics"
FRONTEND = (SCRAPES / "agg-kv-events-on-frontend.txt").read_bytes()
WORKER = (SCRAPES / "agg-kv-zmq-relay-w1.txt").read_bytes()
START = datetime(2026, 3, 1, tzinfo=UTC)
ADVERT = Advert(publishing=True, has_source=True)


def gating(**asked: object) -> Pool:
    scene = worlds.Scene().gating(Capability.ROUTING, Switch.OFF)
    return (scene.asking(**asked) if asked else scene).pool


@dataclass
class Clock:
    """A clock that only the test moves."""

    seconds: float = 0.0

    def now(self) -> datetime:
        return START + timedelta(seconds=self.seconds)

    def monotonic(self) -> float:
        return 1000.0 + self.seconds


@dataclass
class Pods:
    """Pods that answer out of a table; counts who was asked."""

    clock: Clock = field(default_factory=Clock)
    texts: dict[int, str | Unread] = field(default_factory=dict)
    asked: list[int] = field(default_factory=list)
    looks: EventLooks = field(init=False)

    def __post_init__(self) -> None:
        self.looks = EventLooks(self.clock.now, self.clock.monotonic, self.fetch)

    def fetch(self, address: str, port: int) -> str | Unread:
        self.asked.append(port)
        return self.texts.get(port, Unread("nobody listens"))

    def seen(self, pool: Pool, found: Watched) -> EventsSeen:
        events = self.looks.seen(pool, lambda: found)
        assert events is not None
        return events


def worker(port: int, **fields: object) -> WatchedWorker:
    one = WatchedWorker(f"uid-{port}", "127.0.0.1", port, WorkerSeen(f"w-{port}", "Worker"), ADVERT)
    return replace(one, **fields)  # type: ignore[arg-type]


def frontend(port: int) -> WatchedFrontend:
    return WatchedFrontend(f"uid-{port}", "127.0.0.1", port, FrontendSeen(f"fe-{port}"))


TWO = Watched(Routes.KV, (worker(1),), (frontend(2),))


@pytest.fixture
def pods() -> Pods:
    return Pods(texts={1: WORKER.decode(), 2: FRONTEND.decode()})


def test_a_look_reads_each_pod_and_says_what_was_known_without_it(pods: Pods) -> None:
    events = pods.seen(gating(), TWO)
    assert sorted(pods.asked) == [1, 2]
    look, front = events.workers[0].last, events.frontends[0].last
    assert look is not None
    assert look.counts is not None
    assert front is not None
    assert front.counts is not None
    assert (look.advert, look.taken_at, look.counts.dropped, front.counts.stored) == (ADVERT, START, 0, 14)


def test_turns_within_an_interval_ask_nobody_again(pods: Pods) -> None:
    pool = gating(monitor__interval="15s")
    first = pods.seen(pool, TWO)
    pods.clock.seconds = 10
    assert pods.seen(pool, TWO) == first
    assert len(pods.asked) == 2
    pods.clock.seconds = 15
    assert len(pods.seen(pool, TWO).workers[0].looks) == 2


def test_few_looks_are_kept_and_none_of_a_pod_that_is_gone(pods: Pods) -> None:
    pool = gating(monitor__interval="15s")
    for place in range(MOST_LOOKS + 5):
        pods.clock.seconds = 15 * place
        events = pods.seen(pool, TWO)
    assert len(events.workers[0].looks) == MOST_LOOKS
    assert events.frontends[0].looks[0].taken_at == START, "no event came since, so silence counts from here"
    pods.clock.seconds += 15
    assert pods.seen(pool, Watched(Routes.KV, (worker(3),))).workers[0].looks[:-1] == ()
    pods.clock.seconds += 15
    assert len(pods.seen(pool, TWO).workers[0].looks) == 1


@pytest.mark.parametrize(
    "asked",
    [
        pytest.param({"criteria__routing__kvEvents": "Ignored"}, id="events are ignored"),
        pytest.param({"suspend": True}, id="the pool is suspended"),
    ],
)
def test_a_pool_that_asks_for_no_events_asks_nobody(pods: Pods, asked: dict[str, object]) -> None:
    assert pods.looks.seen(gating(**asked), lambda: TWO) is None
    assert pods.asked == []


def test_a_pool_that_gates_no_routing_asks_nobody(pods: Pods) -> None:
    assert pods.looks.seen(worlds.Scene().pool, lambda: TWO) is None
    assert pods.asked == []


def test_no_deployment_no_looks(pods: Pods) -> None:
    assert pods.looks.seen(gating(), lambda: None) is None


def test_what_was_known_is_forgotten_with_the_criteria(pods: Pods) -> None:
    pool = gating()
    pods.seen(pool, TWO)
    pods.looks.seen(gating(suspend=True), lambda: TWO)
    pods.clock.seconds = 15
    assert len(pods.seen(pool, TWO).workers[0].looks) == 1


def test_a_pod_that_gives_nothing_says_where_and_why(pods: Pods) -> None:
    del pods.texts[1]
    look = pods.seen(gating(), TWO).workers[0].last
    assert look is not None
    assert (look.counts, look.problem) == (None, "/metrics at 127.0.0.1:1: nobody listens")


def test_a_pod_without_an_address_is_not_asked(pods: Pods) -> None:
    look = pods.seen(gating(), Watched(Routes.KV, (worker(1, address=""),))).workers[0].last
    assert look is not None
    assert look.problem == "the pod has no address yet"
    assert pods.asked == []


def test_one_pod_that_hangs_holds_up_no_other() -> None:
    """64 pods, one of which never answers: the look ends in its bound, and has the 63 others."""
    release = threading.Event()

    def fetch(address: str, port: int) -> str | Unread:
        if port == 7:
            release.wait(30)
        return WORKER.decode()

    clock = Clock()
    looks = EventLooks(clock.now, clock.monotonic, fetch, round_seconds=0.5)
    many = Watched(Routes.KV, tuple(worker(port) for port in range(1, 65)))
    began = time.monotonic()
    _seen_by(looks, gating(), many)
    took = time.monotonic() - began
    eventually(lambda: _seen_by(looks, gating(), many).workers[0].looks)
    events = _seen_by(looks, gating(), many)
    release.set()
    problems = {seen.pod: seen.last.problem for seen in events.workers if seen.last and seen.last.problem}
    assert list(problems) == ["w-7"]
    assert problems["w-7"].startswith("/metrics at 127.0.0.1:7: not reached within 0.5 s")
    assert took < 5


def test_pods_that_hang_hold_up_no_turn_and_what_they_tell_late_is_found_by_a_later_one() -> None:
    release = threading.Event()
    asked: list[int] = []

    def fetch(address: str, port: int) -> str | Unread:
        asked.append(port)
        release.wait(60)
        return WORKER.decode()

    clock = Clock()
    looks = EventLooks(clock.now, clock.monotonic, fetch, round_seconds=60)
    pool = gating(monitor__interval="1s")
    began = time.monotonic()
    for second in range(3):
        clock.seconds = second
        assert _first_looks(looks, pool) == ()
    took = time.monotonic() - began
    assert sorted(asked) == [1, 2], "one look is taken at a time"
    assert took < 3 * PATIENCE_SECONDS, "only the turn that begins a look waits for it"
    release.set()
    eventually(lambda: _first_looks(looks, pool))
    assert _first_looks(looks, pool)[0].taken_at == START


def _first_looks(looks: EventLooks, pool: Pool) -> tuple[WorkerLook, ...]:
    return _seen_by(looks, pool, TWO).workers[0].looks


def _seen_by(looks: EventLooks, pool: Pool, found: Watched) -> EventsSeen:
    events = looks.seen(pool, lambda: found)
    assert events is not None
    return events


def test_a_fault_of_ours_at_one_pod_is_told_of_that_pod_and_looks_go_on(pods: Pods) -> None:
    def fetch(address: str, port: int) -> str | Unread:
        if port == 1:
            raise ZeroDivisionError
        return FRONTEND.decode()

    looks = EventLooks(pods.clock.now, pods.clock.monotonic, fetch)
    for turn in (1, 2):
        events = _seen_by(looks, gating(monitor__interval="15s"), TWO)
        assert (len(events.workers[0].looks), len(events.frontends[0].looks)) == (turn, turn)
        pods.clock.seconds += 15
    last = events.workers[0].last
    assert last is not None
    assert last.problem == "/metrics at 127.0.0.1:1: kvgate failed (ZeroDivisionError)"


@pytest.fixture
def serve() -> Iterator[Callable[[Answer], Double]]:
    with ExitStack() as stack:
        yield lambda answer: stack.enter_context(double(answer))


def port_of(server: Double) -> int:
    return int(server.url.rsplit(":", 1)[1].strip("/"))


def test_a_real_answer_is_read(serve: Callable[[Answer], Double]) -> None:
    server = serve(says(FRONTEND))
    assert get_metrics("127.0.0.1", port_of(server)) == FRONTEND.decode()
    assert [asked.path for asked in server.asked] == ["/metrics"]


def drip(handler: object, release: threading.Event) -> None:
    """A byte now and then, for ever."""
    for _ in range(1000):
        if release.wait(0.1):
            return
        handler.wfile.write(b"#")  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        pytest.param(says(b"no", 404), "HTTP 404, expected 200", id="no such page"),
        pytest.param(
            says(b"", 302, Location="http://169.254.169.254/"),
            "a redirect, which is not followed",
            id="a redirect is not followed",
        ),
        pytest.param(says(b"x" * (LARGEST_SCRAPE_BYTES + 1)), f"limit of {LARGEST_SCRAPE_BYTES} bytes", id="too large"),
        pytest.param(drip, "5 s", id="a drip"),
    ],
)
def test_what_fails_says_so(serve: Callable[[Answer], Double], answer: Answer, words: str) -> None:
    read = get_metrics("127.0.0.1", port_of(serve(answer)))
    assert isinstance(read, Unread)
    assert words in read.message


def test_a_port_where_nobody_listens() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        read = get_metrics("127.0.0.1", taken.getsockname()[1])
    assert isinstance(read, Unread)
    assert "NetworkPolicy" in read.message


@pytest.mark.parametrize("address", ["", "example.org", "127.0.0.1/x", "127.0.0.1:80"])
def test_what_is_no_address_is_asked_nothing(address: str) -> None:
    assert get_metrics(address, 80) == Unread("its address is none")
