"""A cluster as the ring's ground: a pool and its world read once, its status and its steps written back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime

from kvgate.api.status import PoolStatus
from kvgate.core.serving import ServingSeen
from kvgate.core.steps import (
    Abandon,
    AbandonBenchmark,
    AbandonListening,
    AskWorkers,
    Collect,
    CollectBenchmark,
    CollectListening,
    Enable,
    HoldDeletion,
    Introduce,
    LetGo,
    Listen,
    Measure,
    Prepare,
    Recommend,
    Revert,
    StartBenchmark,
    Step,
    Verify,
)
from kvgate.core.world import Pool, World
from kvgate.edge import serving
from kvgate.edge.cluster import writing
from kvgate.edge.cluster.bench_ground import BenchmarkGround
from kvgate.edge.cluster.client import POOLS, Client, Document
from kvgate.edge.cluster.event_listening import EventListening
from kvgate.edge.cluster.patches import Patches
from kvgate.edge.cluster.reading import ReadPool, read_all
from kvgate.edge.cluster.sweep_ground import SweepGround
from kvgate.edge.cluster.sweeps import ProbePolicy
from kvgate.edge.cluster.unreadable import Unreadable
from kvgate.edge.errors import EdgeError, PoolGoneError, StatusUnreadableError
from kvgate.edge.event_canaries import EventCanaries
from kvgate.edge.metrics import PrometheusReaders
from kvgate.edge.observe import ConfigReader, world_of
from kvgate.edge.scrapes import EventLooks, watched_pods
from kvgate.edge.verifier import Verifier
from kvgate.edge.worker_config import WorkerConfigs


class ClusterGround:
    """The ground of the operator. What is written rests on the versions that `observe` read; `policy` is asked anew
    each time, for the operator's settings may change."""

    def __init__(
        self,
        client: Client,
        policy: Callable[[], ProbePolicy],
        clock: Callable[[], datetime],
        prometheus: PrometheusReaders | None = None,
        instance: str = "kvgate",
        worker_config: ConfigReader | None = None,
        namespaces: Sequence[str] = (),
        verifier: Verifier | None = None,
    ) -> None:
        """`namespaces` are those that the operator serves, all where none is named: their pools' sweeps are counted."""
        self._client = client
        self._policy = policy
        self._clock = clock
        self._prometheus = prometheus or PrometheusReaders()
        self._instance = instance
        self._worker_config = worker_config or WorkerConfigs()
        self._namespaces = tuple(namespaces) or ("",)
        self._verifier = verifier or Verifier(clock)
        self._events = EventLooks(clock)
        self._canaries = EventCanaries(clock, self._verifier.leads)
        self._listening = EventListening(client, lambda: self._policy().image, clock)
        self._benchmarks = BenchmarkGround(
            client, lambda: self._policy().image, clock, self._worker_config, self._prometheus.power
        )
        self._sweeps = SweepGround(client, policy, clock, self._pools)
        self._patches = Patches(client)
        self._unreadable = Unreadable(client, clock, instance)
        self._uids: dict[str, str] = {}
        """Which pool was last read under a key: another of the same name has a past of its own."""
        self._written: dict[str, str] = {}

    def observe(self, key: str) -> tuple[ReadPool, World]:
        """Raises PoolGoneError when there is no such pool."""
        namespace, _, name = key.partition("/")
        try:
            pool = read_all(self._client, namespace, name, self._policy().allowed_nodes)
        except PoolGoneError:
            self._forget(key)
            self._sweeps.gone(key)
            raise
        except StatusUnreadableError as error:
            self._unreadable.tell(error)
            raise
        if self._uids.get(key) != pool.uid:
            self._forget(key)
            self._uids[key] = pool.uid
        world = world_of(pool, pool.objects, self._worker_config, signals=self._policy().signals)
        world = replace(
            world,
            serving=self._served(pool, world),
            events=self._canaries.known(key, self._events.seen(pool, lambda: watched_pods(pool, world, pool.objects))),
            observed_requests_per_second=self._prometheus.rate(pool),
            metrics=self._prometheus.seen(pool),
        )
        for part in (self._sweeps, self._patches, self._benchmarks, self._listening):
            world = part.seen(pool, world)
        return pool, world

    def _forget(self, key: str) -> None:
        """Whatever was remembered of the pool that was last read under this key."""
        for by_key in (self._verifier, self._prometheus, self._canaries):
            by_key.forget(key)
        uid = self._uids.pop(key, "")
        self._written.pop(key, None)
        for by_uid in (self._events, self._listening, self._benchmarks, self._patches, self._sweeps):
            by_uid.forget(uid)

    def _served(self, pool: ReadPool, world: World) -> ServingSeen:
        seen = serving.seen(self._verifier, pool, world.pods, pool.objects)
        return replace(seen, own=(*seen.own, *self._canaries.own(pool.key)))

    def _pools(self) -> Iterator[Document]:
        return (body for namespace in self._namespaces for body in self._client.each(POOLS, namespace))

    def write_status(self, pool: Pool, status: PoolStatus) -> None:
        """Raises WriteConflictError when the pool was written since it was read, and when a sweep would begin while
        those of other pools fill the limit."""
        with self._sweeps.writing(pool, status):
            self._written[pool.key] = writing.write_status(self._client, _read(pool), status)

    def written(self, key: str) -> str:
        """The version of the pool that the last write of its status by this process made; empty before the first."""
        return self._written.get(key, "")

    def carry_out(self, pool: Pool, world: World, step: Step) -> None:
        """Raises MeasureError for a sweep that cannot be run or collected, and EdgeError for any other step."""
        read = _read(pool)
        match step:
            case Measure() | Introduce() | Collect() | Abandon():
                self._sweeps.do(read, world, step)
            case StartBenchmark() | CollectBenchmark() | AbandonBenchmark():
                self._benchmarks.do(read, world, step)
            case Enable() | Revert() | Recommend():
                self._patches.do(read, step)
            case Prepare() | Verify() | AskWorkers():
                self._ask(read, world, step)
            case Listen() | CollectListening() | AbandonListening():
                self._listening.do(read, world, step)
            case HoldDeletion() | LetGo():
                writing.set_finalizer(self._client, read, held=isinstance(step, HoldDeletion))

    def _ask(self, pool: ReadPool, world: World, step: Prepare | Verify | AskWorkers) -> None:
        if isinstance(step, AskWorkers):
            self._canaries.start(pool.key, pool.spec.model.name, serving.frontends(world.pods), step.canaries)
        else:
            serving.ask(self._verifier, pool, world.pods, step)

    def tell(self, pool: Pool, events: Sequence[tuple[str, str, str]]) -> None:
        """Post Events about the pool."""
        writing.tell(self._client, _read(pool), events, self._clock(), self._instance)


def _read(pool: Pool) -> ReadPool:
    if not isinstance(pool, ReadPool):
        raise EdgeError(f"InferencePool {pool.key}: was not read from this cluster")
    return pool
