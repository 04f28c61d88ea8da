"""The observed rate of requests: asked once in a while, for information alone, and never waited for."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

from kvgate.app.operator.observed import PATIENCE_SECONDS, RATE_SECONDS, ObservedRates
from kvgate.app.settings import Settings, read_settings
from kvgate.core.world import Pool
from tests.cluster.waiting import eventually
from tests.core import worlds
from tests.edge.prometheus_double import Handler, double, envelope, says

FOUR = says(envelope([{"metric": {}, "value": [1_700_000_000, "4.0"]}]))


def watched(name: str = "main") -> Pool:
    return worlds.Scene().asking(monitor__prometheusRef={"name": name}).pool


@dataclass
class Asking:
    """Rates of the Prometheus at a URL, by a clock that only the test moves."""

    url: str
    seconds: float = 1000.0
    rates: ObservedRates = field(init=False)

    def __post_init__(self) -> None:
        read = read_settings(f"prometheus: {{main: {{url: '{self.url}'}}}}")
        assert isinstance(read, Settings), read
        self.rates = ObservedRates(lambda: read, lambda: self.seconds)


def test_a_rate_is_asked_for_once_in_its_time() -> None:
    with double(FOUR) as server:
        asking = Asking(server.url)
        assert [asking.rates(watched()) for _ in range(3)] == [4.0] * 3
        before = len(server.asked)
        asking.seconds += RATE_SECONDS
        assert asking.rates(watched()) == 4.0
        assert len(server.asked) == 2 * before


def test_a_prometheus_that_hangs_holds_up_no_turn_and_is_found_by_a_later_one() -> None:
    let = threading.Event()

    def late(handler: Handler, closing: threading.Event) -> None:
        let.wait(4)
        FOUR(handler, closing)

    with double(late) as server:
        asking = Asking(server.url)
        began = time.monotonic()
        assert [asking.rates(watched()) for _ in range(3)] == [None] * 3
        took = time.monotonic() - began
        let.set()
        eventually(lambda: asking.rates(watched()) == 4.0)
    assert took < 2 * PATIENCE_SECONDS


def test_a_pool_that_names_no_prometheus_of_the_settings_has_no_rate() -> None:
    with double(FOUR) as server:
        asking = Asking(server.url)
        assert asking.rates(watched("another")) is None
        assert asking.rates(worlds.Scene().pool) is None
        assert server.asked == []


def test_what_nobody_asks_for_any_more_is_dropped() -> None:
    with double(FOUR) as server:
        asking = Asking(server.url)
        pool = watched()
        asking.rates(pool)
        asking.seconds += 2 * RATE_SECONDS
        asking.rates(Pool("other", "serving", "other-uid", 1, pool.spec, pool.status, pool.created_at))
        assert list(asking.rates._known) == ["other-uid"]
