"""The cluster's part in A/Bs: what each look finds, and the steps that make, collect and clear one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from kvgate.core.ab.experiment import Experiment
from kvgate.core.ab.power import Efficiency, NoPower
from kvgate.core.benchmarking import REST
from kvgate.core.steps import AbandonBenchmark, CollectBenchmark, StartBenchmark
from kvgate.core.vocabulary import vocabulary_size
from kvgate.core.world import World
from kvgate.dynamo.published import Published
from kvgate.edge.cluster import bench_collecting, bench_serving, benchmarks
from kvgate.edge.cluster.bench_collecting import Receipt
from kvgate.edge.cluster.bench_serving import Serving
from kvgate.edge.cluster.benchmarks import Known
from kvgate.edge.cluster.client import Client
from kvgate.edge.cluster.faults import Faults
from kvgate.edge.cluster.reading import ReadPool
from kvgate.edge.cluster.sweeps import clear
from kvgate.edge.observe import ConfigReader
from kvgate.edge.power import PowerReader, no_prometheus
from kvgate.edge.worker_config import WorkerConfig

Step = StartBenchmark | CollectBenchmark | AbandonBenchmark


class BenchmarkGround:
    """Remembers between a look and its steps what would serve each pool's A/B, and why one could not be started."""

    def __init__(
        self,
        client: Client,
        image: Callable[[], str],
        clock: Callable[[], datetime],
        worker_config: ConfigReader,
        power: PowerReader = no_prometheus,
    ) -> None:
        self._client, self._image, self._clock, self._config = client, image, clock, worker_config
        self._power = power
        self._serves: dict[str, Serving | None] = {}
        self._faults = Faults(clock, REST)

    def seen(self, pool: ReadPool, world: World) -> World:
        """The world with what an A/B of this pool would run on, and the Job of the one that is under way."""
        serves = self._serves[pool.uid] = bench_serving.serving(self._client, pool, self._image())
        job = benchmarks.standing(self._client, pool)
        refused = self._faults.of(pool.uid)
        refused = (world.trace.problem if world.trace else "") or refused
        if refused and job is None and serves is not None and not serves.ground.problem:
            serves = replace(serves, ground=replace(serves.ground, problem=refused))
        return replace(world, benchmark_ground=serves.ground if serves else None, benchmark_job=job)

    def forget(self, uid: str) -> None:
        self._serves.pop(uid, None)
        self._faults.forget(uid)

    def do(self, pool: ReadPool, world: World, step: Step) -> None:
        """Raises MeasureError for an A/B that cannot be run or collected; the next look tells why."""
        match step:
            case StartBenchmark():
                self._start(pool, step, world.trace.digest if world.trace else "")
            case CollectBenchmark():
                received_at = self._clock().replace(microsecond=0)
                bench_collecting.collect(self._client, pool, world, Receipt(received_at, step.aborted, self._powered))
            case AbandonBenchmark():
                clear(self._client, pool.owner, step.run_id)

    def _start(self, pool: ReadPool, step: StartBenchmark, trace_digest: str) -> None:
        with self._faults.noted(pool.uid):
            found = self._serves.get(pool.uid)
            known = Known(self._vocabulary_size(found), trace_digest)
            benchmarks.start(self._client, pool, step.run_id, found, self._image(), known)

    def _powered(self, pool: ReadPool, experiment: Experiment) -> Efficiency | NoPower:
        """Who serves now served all along, or the A/B is void."""
        found = self._serves.get(pool.uid)
        return self._power(pool, experiment, found.facts.worker_pods if found and found.facts else ())

    def _vocabulary_size(self, found: Serving | None) -> int | None:
        """By the config.json that the workers serve; None where it cannot be read or does not say."""
        told = found.config if found else None
        read = self._config(told) if isinstance(told, Published) else None
        return vocabulary_size(read.text) if isinstance(read, WorkerConfig) else None
