"""The cluster's part in sweeps: how a pool's stands, and the steps that make, introduce, collect and clear it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from datetime import datetime, timedelta

from kvgate.api.status import PoolStatus
from kvgate.core.steps import Abandon, Collect, Introduce, Measure
from kvgate.core.world import Pool, World
from kvgate.edge.cluster import collecting, sweeps
from kvgate.edge.cluster.client import Client, Document
from kvgate.edge.cluster.faults import Faults
from kvgate.edge.cluster.reading import ReadPool
from kvgate.edge.cluster.slots import SweepSlots
from kvgate.edge.cluster.sweeps import ProbePolicy
from kvgate.edge.errors import MeasureError

RETRY_AFTER = timedelta(seconds=55)
"""How long a sweep that could not be started is told as such; it is tried again after a minute."""
Step = Measure | Introduce | Collect | Abandon


class SweepGround:
    """Remembers who sweeps over all pools, and why a step of a pool's sweep could not be done."""

    def __init__(
        self,
        client: Client,
        policy: Callable[[], ProbePolicy],
        clock: Callable[[], datetime],
        pools: Callable[[], Iterable[Document]],
    ) -> None:
        """`pools` lists every pool whose sweeps count, as it is stored."""
        self._client, self._policy, self._clock = client, policy, clock
        self._slots = SweepSlots(pools, clock)
        self._faults = Faults(clock, RETRY_AFTER)

    def seen(self, pool: ReadPool, world: World) -> World:
        """The world with the sweep that is under way, or what one waits for. A fault is told for as long as the sweep
        is meant, and a while longer where it gave its turn back."""
        policy, fence = self._policy(), pool.status.sweep
        found = sweeps.standing(self._client, pool, collected=_collected(pool))
        return replace(
            world,
            sweep=found.sweep,
            sweep_jobs=found.jobs,
            sweep_problem=policy.problem(pool) or self._faults.of(pool.uid, stays=fence is not None),
            sweep_waits="" if fence else self._slots.waits(pool, policy.most_sweeps),
            least_sweep_interval=policy.least_interval,
        )

    def gone(self, key: str) -> None:
        self._slots.gone(key)

    def forget(self, uid: str) -> None:
        self._slots.forget(uid)
        self._faults.forget(uid)

    @contextmanager
    def writing(self, pool: Pool, status: PoolStatus) -> Iterator[None]:
        """While the status is written. Raises WriteConflictError when a sweep would begin with it while those of other
        pools fill the limit."""
        begins = pool.status.sweep is None and status.sweep is not None
        with self._slots.begin(pool, self._policy().most_sweeps) if begins else nullcontext():
            yield
            self._slots.wrote(pool, status)

    def do(self, pool: ReadPool, world: World, step: Step) -> None:
        """Raises MeasureError for a sweep that cannot be run or collected; the next look tells why."""
        if isinstance(step, Abandon):
            sweeps.clear(self._client, pool.owner, step.run_id)
            return
        with self._faults.noted(pool.uid):
            match step:
                case Measure():
                    self._start(pool, step)
                case Introduce():
                    sweeps.introduce(self._client, pool.owner, step.run_id, sweeps.recorded_jobs(pool, world))
                case Collect():
                    self._collect(pool, world, step)

    def _start(self, pool: ReadPool, step: Measure) -> None:
        if _collected(pool):
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


def _collected(pool: ReadPool) -> bool:
    fence = pool.status.sweep
    return fence is not None and any(
        report.spec.run_id == fence.run_id and report.spec.shards and report.spec.pool_ref.uid == pool.uid
        for report in pool.objects.reports
    )
