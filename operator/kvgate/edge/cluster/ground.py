"""A cluster as the ring's ground: a pool and its world read once, its status and its steps written back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from datetime import datetime, timedelta

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
from kvgate.edge.cluster import collecting, sweeps, writing
from kvgate.edge.cluster.bench_ground import BenchmarkGround
from kvgate.edge.cluster.client import POOLS, Client, Document
from kvgate.edge.cluster.event_listening import EventListening
from kvgate.edge.cluster.reading import ReadPool, read_all
from kvgate.edge.cluster.refusals import Unavailable
from kvgate.edge.cluster.slots import SweepSlots
from kvgate.edge.cluster.sweeps import ProbePolicy
from kvgate.edge.errors import EdgeError, MeasureError, PoolGoneError, WriteConflictError
from kvgate.edge.event_canaries import EventCanaries
from kvgate.edge.metrics import PrometheusReaders
from kvgate.edge.observe import ConfigReader, world_of
from kvgate.edge.scrapes import EventLooks, watched_pods
from kvgate.edge.verifier import Verifier
from kvgate.edge.worker_config import WorkerConfigs

RETRY_AFTER = timedelta(seconds=55)
"""How long a sweep that could not be started is told as such; it is tried again after a minute."""


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
        self._benchmarks = BenchmarkGround(client, lambda: self._policy().image, clock, self._worker_config)
        self._slots = SweepSlots(self._pools, clock)
        self._refused: dict[str, tuple[datetime, str]] = {}
        """When and why a step of a pool's sweep could not be done, by the pool's uid: the next look tells it."""
        self._denied: dict[str, tuple[str, str]] = {}
        """The same for its last patch, with the operation's id."""
        self._landed: dict[str, str] = {}
        """The operation of its last patch that was accepted."""
        self._uids: dict[str, str] = {}
        """Which pool was last read under a key: another of the same name has a past of its own."""

    def observe(self, key: str) -> tuple[ReadPool, World]:
        """Raises PoolGoneError when there is no such pool."""
        namespace, _, name = key.partition("/")
        policy = self._policy()
        try:
            pool = read_all(self._client, namespace, name, policy.allowed_nodes)
        except PoolGoneError:
            self._forget(key)
            raise
        if self._uids.get(key) != pool.uid:
            self._forget(key)
            self._uids[key] = pool.uid
        seen = sweeps.standing(self._client, pool, collected=self._collected(pool))
        world = world_of(pool, pool.objects, self._worker_config)
        world = replace(
            world,
            serving=self._served(pool, world),
            events=self._canaries.known(key, self._events.seen(pool, lambda: watched_pods(pool, world, pool.objects))),
            sweep=seen.sweep,
            sweep_jobs=seen.jobs,
            sweep_problem=policy.problem(pool) or self._refusal(pool),
            sweep_waits="" if pool.status.sweep else self._slots.waits(pool, policy.most_sweeps),
            least_sweep_interval=policy.least_interval,
            patch_problem=self._denial(pool),
            patch_landed=self._landed.get(pool.uid, ""),
            observed_requests_per_second=self._prometheus.rate(pool),
            metrics=self._prometheus.seen(pool),
        )
        return pool, self._listening.seen(pool, self._benchmarks.seen(pool, world))

    def _forget(self, key: str) -> None:
        """Whatever was remembered of the pool that was last read under this key."""
        for by_key in (self._slots, self._verifier, self._prometheus, self._canaries):
            by_key.forget(key)
        uid = self._uids.pop(key, "")
        for by_uid in (self._events, self._listening, self._benchmarks):
            by_uid.forget(uid)
        self._refused.pop(uid, None)
        self._denied.pop(uid, None)
        self._landed.pop(uid, None)

    def _served(self, pool: ReadPool, world: World) -> ServingSeen:
        seen = serving.seen(self._verifier, pool, world.pods, pool.objects)
        return replace(seen, own=(*seen.own, *self._canaries.own(pool.key)))

    def _collected(self, pool: ReadPool) -> bool:
        fence = pool.status.sweep
        return fence is not None and any(
            report.spec.run_id == fence.run_id and report.spec.shards and report.spec.pool_ref.uid == pool.uid
            for report in pool.objects.reports
        )

    def _refusal(self, pool: ReadPool) -> str:
        """Told for as long as the sweep is meant, and a while longer where it gave its turn back."""
        at, why = self._refused.get(pool.uid, (self._clock(), ""))
        if pool.status.sweep is None and not timedelta(0) <= self._clock() - at < RETRY_AFTER:
            self._refused.pop(pool.uid, None)
            return ""
        return why

    def _pools(self) -> tuple[Document, ...]:
        return tuple(body for namespace in self._namespaces for body in self._client.list(POOLS, namespace))

    def write_status(self, pool: Pool, status: PoolStatus) -> None:
        """Raises WriteConflictError when the pool was written since it was read, and when a sweep would begin while
        those of other pools fill the limit."""
        begins = pool.status.sweep is None and status.sweep is not None
        with self._slots.begin(pool, self._policy().most_sweeps) if begins else nullcontext():
            writing.write_status(self._client, _read(pool), status)
            self._slots.wrote(pool, status)

    def carry_out(self, pool: Pool, world: World, step: Step) -> None:
        """Raises MeasureError for a sweep that cannot be run or collected, and EdgeError for any other step."""
        read = _read(pool)
        match step:
            case Measure() | Introduce() | Collect():
                self._sweep(read, world, step)
            case Abandon():
                sweeps.clear(self._client, read.owner, step.run_id)
            case StartBenchmark() | CollectBenchmark() | AbandonBenchmark():
                self._benchmarks.do(read, world, step)
            case Enable() | Revert() | Recommend():
                self._patch(read, step)
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

    def _patch(self, pool: ReadPool, step: Enable | Revert | Recommend) -> None:
        """A refusal is remembered for the condition; what another look or another try may mend is none."""
        operation = "" if isinstance(step, Recommend) else step.operation_id
        try:
            if isinstance(step, Recommend):
                writing.recommend(self._client, pool, step)
            else:
                writing.patch(self._client, pool, step)
        except EdgeError as error:
            if not isinstance(error, WriteConflictError | Unavailable):
                self._denied[pool.uid] = (operation, str(error))
            raise
        self._denied.pop(pool.uid, None)
        if operation:
            self._landed[pool.uid] = operation

    def _denial(self, pool: ReadPool) -> str:
        """Why the operation that the status means could not be written; of a recommendation, which is none, as well."""
        operation, why = self._denied.get(pool.uid, ("", ""))
        if operation == (pool.status.operation.id if pool.status.operation else ""):
            return why
        self._denied.pop(pool.uid, None)
        return ""

    def _sweep(self, pool: ReadPool, world: World, step: Measure | Introduce | Collect) -> None:
        try:
            match step:
                case Measure():
                    self._start(pool, step)
                case Introduce():
                    sweeps.introduce(self._client, pool.owner, step.run_id, sweeps.recorded_jobs(pool, world))
                case Collect():
                    self._collect(pool, world, step)
        except MeasureError as error:
            self._refused[pool.uid] = (self._clock(), str(error))
            raise
        self._refused.pop(pool.uid, None)

    def tell(self, pool: Pool, events: Sequence[tuple[str, str, str]]) -> None:
        """Post Events about the pool."""
        writing.tell(self._client, _read(pool), events, self._clock(), self._instance)

    def _start(self, pool: ReadPool, step: Measure) -> None:
        if self._collected(pool):
            name = collecting.index_name(pool, step.run_id)
            raise MeasureError(f"FabricReport {pool.namespace}/{name} of this sweep cannot be read: delete it")
        sweeps.start(self._client, pool, step, self._policy())

    def _collect(self, pool: ReadPool, world: World, step: Collect) -> None:
        """Each part finds what an earlier attempt did of it, so that it may die anywhere."""
        if not collecting.is_collected(self._client, pool, step.run_id):
            recorded = sweeps.recorded_jobs(pool, world)
            received_at = self._clock().replace(microsecond=0)
            evidence = collecting.gather(self._client, pool, world, step, recorded, received_at)
            collecting.store(self._client, pool, evidence)
        collecting.tidy(self._client, pool, step.run_id)
        sweeps.clear(self._client, pool.owner, step.run_id)


def _read(pool: Pool) -> ReadPool:
    if not isinstance(pool, ReadPool):
        raise EdgeError(f"InferencePool {pool.key}: was not read from this cluster")
    return pool
