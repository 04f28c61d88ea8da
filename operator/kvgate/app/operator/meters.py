"""The operator's metrics: pools as they were last seen, what is counted as it happens, and the page of all of it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kvgate import __version__
from kvgate.api.status import PoolStatus
from kvgate.app.operator.pool_series import POOL, SERIES, Series, Watched
from kvgate.core.memory import Action
from kvgate.core.steps import Enable, Revert, Step
from kvgate.core.world import Pool

NO_ANSWER = "none"
TURN_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
REQUEST_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

disable_created_metrics()  # type: ignore[no-untyped-call]


class _Pools(Collector):
    """The series of all pools, made at each scrape; none while another process acts, whose word counts then."""

    def __init__(self, watched: Callable[[], Iterable[Watched]], clock: Callable[[], datetime]) -> None:
        self._watched = watched
        self._clock = clock

    def describe(self) -> Iterable[Metric]:
        return [_family(series) for series in SERIES]

    def collect(self) -> Iterable[Metric]:
        now, pools = self._clock(), tuple(self._watched())
        for series in SERIES:
            family = _family(series)
            for watched in pools:
                for labels, value in series.points(watched, now):
                    family.add_metric([*watched.labels, *labels], value)
            yield family


def _family(series: Series) -> GaugeMetricFamily | CounterMetricFamily:
    family = CounterMetricFamily if series.counts else GaugeMetricFamily
    return family(series.name, series.help, labels=[*POOL, *series.labels])


class Meters:
    """Safe from any thread. `page` is what a scrape gets, in Prometheus's text format."""

    def __init__(self, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self.leads: Callable[[], bool] = lambda: True
        self._lock = threading.Lock()
        self._pools: dict[str, Watched] = {}
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._make(self.registry)
        self.registry.register(_Pools(self._watched, clock))

    def _make(self, registry: CollectorRegistry) -> None:
        build = Gauge("kvgate_build_info", "Always 1: the version.", ["version"], registry=registry)
        build.labels(__version__).set(1)
        leading = Gauge("kvgate_leading", "1 where this process holds the Lease and acts, else 0.", registry=registry)
        leading.set_function(lambda: float(self.leads()))
        self._patches = Counter(
            "kvgate_patches",
            "Patches of deployments that were made: Enable or Revert.",
            [*POOL, "capability", "action"],
            registry=registry,
        )
        self._rollbacks = Counter(
            "kvgate_rollbacks",
            "Times that a capability was switched back, as the history has it.",
            [*POOL, "capability"],
            registry=registry,
        )
        self._turns = Counter("kvgate_turns", "Turns of pools, by what they came to.", ["result"], registry=registry)
        self._turn_seconds = Histogram(
            "kvgate_turn_duration_seconds",
            "How long turns took: reading, deciding, writing and patching.",
            registry=registry,
            buckets=TURN_BUCKETS,
        )
        self._requests = Counter(
            "kvgate_api_requests",
            f"Requests to the API server, without watches; the code is {NO_ANSWER} where no answer came.",
            ["method", "resource", "code"],
            registry=registry,
        )
        self._request_seconds = Histogram(
            "kvgate_api_request_duration_seconds",
            "How long these requests took.",
            ["method"],
            registry=registry,
            buckets=REQUEST_BUCKETS,
        )

    def page(self) -> bytes:
        return generate_latest(self.registry)

    def seen(self, pool: Pool, status: PoolStatus) -> None:
        """A pool was read, or this status of it was written. Its counters begin at 0, so that the first rise shows."""
        with self._lock:
            before = self._pools.get(pool.key)
            self._pools[pool.key] = Watched.of(pool, status, before.failures if before else 0)
        for entry in status.capabilities:
            self._rollbacks.labels(pool.namespace, pool.name, entry.name.value)
        for noted in status.history:
            if noted.action == Action.REVERTED and noted not in pool.status.history:
                self._rollbacks.labels(pool.namespace, pool.name, noted.capability.value).inc()

    def step_taken(self, pool: Pool, step: Step) -> None:
        if isinstance(step, Enable | Revert):
            action = type(step).__name__
            self._patches.labels(pool.namespace, pool.name, step.capability.value, action).inc()

    def turned(self, key: str, seconds: float, *, failures: int = 0) -> None:
        """A turn ended; `failures` is how many have failed in a row with it."""
        self._turns.labels("failed" if failures else "done").inc()
        self._turn_seconds.observe(seconds)
        with self._lock:
            if key in self._pools:
                self._pools[key] = replace(self._pools[key], failures=failures)

    def gone(self, key: str) -> None:
        """The pool is no more: nor are its series."""
        with self._lock:
            self._pools.pop(key, None)
        namespace, _, name = key.partition("/")
        for counter in (self._patches, self._rollbacks):
            counter.remove_by_labels({"namespace": namespace, "pool": name})

    def called(self, method: str, resource: str, code: int, seconds: float) -> None:
        """A request ended; code 0 for one that got no answer."""
        self._requests.labels(method, resource, str(code) if code else NO_ANSWER).inc()
        self._request_seconds.labels(method).observe(seconds)

    def _watched(self) -> Iterable[Watched]:
        if not self.leads():
            return ()
        with self._lock:
            return tuple(self._pools.values())
