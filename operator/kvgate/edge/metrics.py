"""Looks at the frontends' metrics through Prometheus, in the background: one per monitor interval, the last kept."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from kvgate.core.metrics_seen import MetricsSeen, Served, Unseen
from kvgate.core.monitoring import LEAST_REQUESTS, asks, counts_from
from kvgate.core.world import Pool
from kvgate.edge import metrics_queries as queries
from kvgate.edge.metrics_queries import Labels, Number, States
from kvgate.edge.power import PowerReader, no_prometheus
from kvgate.edge.prometheus import ask
from kvgate.edge.promql import NoData, NoDataReason, PrometheusEndpoint

HOUR_SECONDS, DAY_SECONDS = 3600, 86_400
AT_ONCE = 8
"""Pools that are asked about at a time; others wait for their next turn."""
LARGEST_STATES_BYTES = 2 * 1024 * 1024
EARLY_SECONDS = 0.5
ROUND_SECONDS = 20.0
"""The longest that the questions of one look may take together, but for the one that is being answered."""
INTERVALS_BORNE = 2
"""So many intervals an answer stands while those after it fail: one that is lost is no loss of metrics."""

Endpoints = Callable[[str], PrometheusEndpoint | None]


@dataclass
class _Held:
    """What is known of one pool's frontends. The lock of the looks guards all of it."""

    begun_seconds: float = -float("inf")
    asking: bool = False
    seen: MetricsSeen = field(default_factory=MetricsSeen)
    good_seconds: float = -float("inf")
    unready: Mapping[str, datetime] = field(default_factory=dict)


class MetricsLooks:
    """The looks of all pools, in memory alone; each is taken in a thread of its own, so that no turn waits for it."""

    def __init__(
        self,
        endpoints: Endpoints,
        clock: Callable[[], datetime],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`endpoints` gives what the operator's settings call by a name; it is asked anew at each look."""
        self._endpoints, self._clock, self._monotonic = endpoints, clock, monotonic
        self._lock = threading.Lock()
        self._held: dict[str, _Held] = {}

    def seen(self, pool: Pool) -> MetricsSeen | None:
        """What is known, and a new look if one is due. None where the pool names no Prometheus; a pool of which nothing
        is on, or about to be, is not asked about."""
        ref = pool.spec.monitor.prometheus_ref
        if ref is None or pool.spec.suspend:
            self.forget(pool.key)
            return None
        if not asks(pool):
            self.forget(pool.key)
            return MetricsSeen()
        with self._lock:
            held = self._held.setdefault(pool.key, _Held())
            if self._due(held, pool):
                held.begun_seconds, held.asking = self._monotonic(), True
                threading.Thread(target=self._look, args=(held, pool, ref.name), name="metrics", daemon=True).start()
            return held.seen

    def forget(self, key: str) -> None:
        """The pool is gone, or nothing of it is watched any more."""
        with self._lock:
            self._held.pop(key, None)

    def _due(self, held: _Held, pool: Pool) -> bool:
        busy = sum(other.asking for other in self._held.values())
        rested = self._monotonic() - held.begun_seconds >= pool.spec.monitor.interval.seconds - EARLY_SECONDS
        answered = held.seen.asked_at is not None and held.seen.unseen is None
        stale = answered and held.seen.changed_at != counts_from(pool, self._clock())
        return not held.asking and busy < AT_ONCE and (rested or stale)

    def _look(self, held: _Held, pool: Pool, name: str) -> None:
        found: Taken | Unseen
        ends = self._monotonic() + ROUND_SECONDS

        def late() -> bool:
            return self._monotonic() >= ends

        try:
            endpoint = self._endpoints(name)
            look = Look(endpoint, pool, self._clock(), held.unready, late) if endpoint is not None else None
            found = _unnamed(name) if look is None else look.taken()
        except Exception as error:  # noqa: BLE001  told as unseen: a look that vanishes would count as none asked for
            found = Unseen(f"the look failed: {type(error).__name__}")
        with self._lock:
            held.asking = False
            self._keep(held, pool, found)

    def _keep(self, held: _Held, pool: Pool, found: Taken | Unseen) -> None:
        now = self._monotonic()
        if isinstance(found, Taken):
            held.seen, held.good_seconds, held.unready = found.seen, now, found.unready
        elif now - held.good_seconds > INTERVALS_BORNE * pool.spec.monitor.interval.seconds + EARLY_SECONDS:
            held.seen = MetricsSeen(asked_at=self._clock(), unseen=found)


@dataclass(frozen=True)
class Taken:
    """A look that succeeded, and since when the model is unready by address, for the look after it."""

    seen: MetricsSeen
    unready: Mapping[str, datetime]


def _unnamed(name: str) -> Unseen:
    what = f'the operator\'s settings name no Prometheus "{name}"'
    return Unseen(f"{what}: the cluster's administrator must add it, or the owner correct monitor.prometheusRef")


class _NothingToldError(Exception):
    def __init__(self, none: NoData) -> None:
        super().__init__(none.message)


@dataclass(frozen=True)
class Look:
    """One look at one pool's frontends, question by question; the first that fails ends it."""

    endpoint: PrometheusEndpoint
    pool: Pool
    now: datetime
    unready: Mapping[str, datetime] = field(default_factory=dict)
    late: Callable[[], bool] = lambda: False
    """Whether the look has taken too long."""

    def taken(self) -> Taken | Unseen:
        """Never raises for what the server, the network or the settings' files do."""
        try:
            return self._taken()
        except _NothingToldError as none:
            return Unseen(f'Prometheus "{self.endpoint.name}" of the operator\'s settings: {none}')

    def _taken(self) -> Taken:
        clock = self._number(queries.NOW).at_seconds
        found = queries.read_states(
            self._ask(queries.states(self._labels), LARGEST_STATES_BYTES),
            clock,
            self.pool.spec.model.name,
            self.unready,
        )
        if isinstance(found, NoData):
            raise _NothingToldError(found)
        at = datetime.fromtimestamp(clock, UTC)
        since = counts_from(self.pool, self.now)
        seen = MetricsSeen(
            asked_at=at,
            lately=self._lately(at),
            changed_at=since,
            since_change=self._since(at, since),
            unready_since=_first(found),
        )
        return Taken(seen, found.unready_since)

    def _lately(self, at: datetime) -> Served:
        """The last hour; while nothing is on, the last day where the hour held too little to be compared with."""
        hour = self._served(at, HOUR_SECONDS)
        on = any(entry.enabled for entry in self.pool.status.capabilities)
        return hour if on or hour.requests >= LEAST_REQUESTS else self._served(at, DAY_SECONDS)

    def _since(self, at: datetime, since: datetime | None) -> Served | None:
        """None where Prometheus knew no frontend then: what it counted would be of an older time too."""
        seconds = int((at - since).total_seconds()) if since is not None else 0
        if seconds <= 0 or self._number(queries.known_before(self._labels, seconds)).value == 0:
            return None
        return self._served(at, seconds)

    def _served(self, at: datetime, seconds: int) -> Served:
        """`failures` holds what came to an end by a failure, of which `errors` counts some again: never both."""
        told = {name: self._number(query).value for name, query in queries.counts(self._labels, seconds).items()}
        failed = max(told["errors"], told["failures"])
        return Served(
            until=at,
            seconds=timedelta(seconds=seconds).total_seconds(),
            requests=told["good"] + failed,
            failed=failed,
            prompt_tokens=told["prompt_tokens"],
            cached_tokens=told["cached_tokens"],
            ttft_seconds=told["ttft_seconds"],
            first_tokens=told["first_tokens"],
        )

    @property
    def _labels(self) -> Labels:
        return Labels.of(self.endpoint.matchers, self.pool.namespace, self.pool.spec.target_ref.name)

    def _number(self, query: str) -> Number:
        found = queries.read_number(self._ask(query))
        if isinstance(found, NoData):
            raise _NothingToldError(found)
        return found

    def _ask(self, query: str, largest_bytes: int | None = None) -> object:
        if self.late():
            what = f"its answers took more than {ROUND_SECONDS:g} s together"
            who = "the cluster's administrator must see whether it is overloaded"
            raise _NothingToldError(NoData(NoDataReason.TIMED_OUT, f"{what}; {who}"))
        found = ask(self.endpoint, query, largest_bytes=largest_bytes)
        if isinstance(found, NoData):
            raise _NothingToldError(found)
        return found


def _first(states: States) -> datetime | None:
    return min(states.unready_since.values(), default=None)


@dataclass(frozen=True)
class PrometheusReaders:
    """What a cluster's ground reads through Prometheus: the rate of requests and the GPUs' power, for information, and
    what is judged."""

    rate: Callable[[Pool], float | None] = lambda _: None
    metrics: MetricsLooks | None = None
    power: PowerReader = no_prometheus

    def seen(self, pool: Pool) -> MetricsSeen | None:
        return self.metrics.seen(pool) if self.metrics is not None else None

    def forget(self, key: str) -> None:
        if self.metrics is not None:
            self.metrics.forget(key)
