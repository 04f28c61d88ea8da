"""When a Prometheus is asked about a pool, and what stands in between; the server is a double that counts questions."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from urllib.parse import parse_qs, urlsplit

import pytest

from kvgate.api.status import CapabilityStatus, HistoryEntry, PoolStatus
from kvgate.core.metrics_seen import MetricsSeen
from kvgate.core.world import Pool
from kvgate.edge.metrics import MetricsLooks
from kvgate.edge.promql import DEFAULT_MATCHER, PrometheusEndpoint, read_matchers
from tests.core import worlds
from tests.edge.prometheus_double import Double, Handler, double, envelope

AT = 1_800_000_000.0
READY = "dynamo_frontend_model_ready"


def steady(handler: Handler, _: threading.Event) -> None:
    """One frontend that has the model ready; every number is 300."""
    query = parse_qs(urlsplit(handler.path).query)["query"][0]
    samples = [[AT - 10, "1"], [AT - 5, "1"], [AT, "1"]]
    labels = {"__name__": READY, "instance": "f1", "model": "m"}
    asks_states = query.startswith("{__name__")
    number = str(AT) if query == "vector(time())" else "300"
    result = [{"metric": labels, "values": samples}] if asks_states else [{"metric": {}, "value": [AT, number]}]
    handler.reply(200, envelope(result))


def broken(handler: Handler, _: threading.Event) -> None:
    handler.reply(500, b"no")


@dataclass
class Asking:
    """Looks at one pool on a clock that the test moves."""

    server: Double
    looks: MetricsLooks
    seconds: list[float]
    failing: list[bool]

    def seen(self, pool: Pool) -> MetricsSeen | None:
        return self.looks.seen(pool)

    def later(self, seconds: float) -> None:
        self.seconds[0] += seconds

    def settled(self, pool: Pool, holds: Callable[[MetricsSeen], bool]) -> MetricsSeen:
        deadline = time.monotonic() + 20
        while (found := self.looks.seen(pool)) is None or not holds(found):
            assert time.monotonic() < deadline, found
            time.sleep(0.02)
        return found

    def quiet(self) -> int:
        """How many questions came, once none comes any more."""
        before = -1
        while before != len(self.server.asked):
            before = len(self.server.asked)
            time.sleep(0.3)
        return before


@contextmanager
def asking(name: str = "default") -> Iterator[Asking]:
    failing = [False]

    def answer(handler: Handler, ended: threading.Event) -> None:
        (broken if failing[0] else steady)(handler, ended)

    seconds = [0.0]
    with double(answer) as server:
        endpoint = PrometheusEndpoint("default", server.url, read_matchers(DEFAULT_MATCHER))
        known = {"default": endpoint}
        looks = MetricsLooks(known.get, lambda: datetime.now(UTC), lambda: seconds[0])
        yield Asking(server, looks, seconds, failing)


def pool(*, on: bool = True, held_by: str = "", name: str = "default") -> Pool:
    scene = worlds.Scene().asking(monitor__prometheusRef={"name": name}, monitor__interval="15s")
    entry = CapabilityStatus(name=worlds.SPLIT, enabled=on, held_by=held_by)
    return replace(scene.pool, status=PoolStatus(capabilities=(entry,)))


def told(seen: MetricsSeen) -> bool:
    return seen.asked_at is not None


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        pytest.param(worlds.Scene().pool, None, id="no Prometheus is named"),
        pytest.param(replace(pool(), spec=worlds.Scene().asking(suspend=True).spec), None, id="the pool is suspended"),
        pytest.param(pool(on=False, held_by="Approval"), MetricsSeen(), id="nothing is on, and an approval is missing"),
        pytest.param(replace(pool(), deleted=True), MetricsSeen(), id="the pool is being deleted"),
    ],
)
def test_nobody_is_asked_where_nothing_is_watched(asked: Pool, found: MetricsSeen | None) -> None:
    with asking() as world:
        assert world.seen(asked) == found
        assert world.quiet() == 0


@pytest.mark.parametrize("asked", [pool(), pool(on=False, held_by="Metrics")], ids=["something is on", "about to be"])
def test_a_pool_is_asked_about_once_in_an_interval_in_the_background(asked: Pool) -> None:
    with asking() as world:
        assert world.seen(asked) == MetricsSeen(), "the turn does not wait"
        seen = world.settled(asked, told)
        assert seen.lately is not None
        assert (seen.lately.failed, seen.lately.requests, seen.unready_since) == (300, 600, None)
        once = world.quiet()
        world.later(14)
        world.seen(asked)
        assert world.quiet() == once
        world.later(1)
        world.seen(asked)
        assert world.quiet() == 2 * once


def test_one_answer_that_is_lost_is_no_loss_and_three_are() -> None:
    with asking() as world:
        world.settled(pool(), told)
        world.failing[0] = True
        for _ in range(2):
            world.later(15)
            world.seen(pool())
            world.quiet()
            found = world.seen(pool())
            assert found is not None
            assert found.unseen is None
        world.later(15)
        found = world.settled(pool(), lambda seen: seen.unseen is not None)
        assert found.unseen is not None
        assert "HTTP 500" in found.unseen.message
        assert 'Prometheus "default"' in found.unseen.message


def test_a_name_that_the_settings_do_not_have_is_told() -> None:
    with asking() as world:
        found = world.settled(pool(name="elsewhere"), told)
        assert found.unseen is not None
        assert 'name no Prometheus "elsewhere"' in found.unseen.message
        assert world.quiet() == 0


def test_requests_since_a_switch_are_asked_for_at_once_and_while_nothing_is_told_not_sooner_than_usual() -> None:
    entry = HistoryEntry(time=datetime.now(UTC), action="Enabled", capability=worlds.SPLIT, reason="CriteriaMet")
    switched = replace(pool(), status=pool().status.model_copy(update={"history": (entry,)}))
    with asking() as world:
        world.settled(pool(), told)
        found = world.settled(switched, lambda seen: seen.changed_at == entry.time)
        assert found.since_change is not None
        world.failing[0] = True
        world.later(60)
        world.settled(switched, lambda seen: seen.unseen is not None)
        once = world.quiet()
        world.seen(switched)
        assert world.quiet() == once


def test_a_pool_that_was_forgotten_is_asked_about_anew() -> None:
    with asking() as world:
        world.settled(pool(), told)
        world.looks.forget(pool().key)
        assert world.seen(pool()) == MetricsSeen()


def test_a_server_that_hangs_holds_up_no_turn() -> None:
    def hangs(_: Handler, ended: threading.Event) -> None:
        ended.wait(30)

    with double(hangs) as server:
        endpoint = PrometheusEndpoint("default", server.url, read_matchers(DEFAULT_MATCHER))
        looks = MetricsLooks(lambda _: endpoint, lambda: datetime.now(UTC))
        began = time.monotonic()
        assert looks.seen(pool()) == MetricsSeen()
        assert time.monotonic() - began < 1
