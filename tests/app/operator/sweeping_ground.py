"""Pools in memory whose sweeps take time, under the operator's own count of sweeps.

Played are the API server (a list takes a moment, a write rests on what was read) and the walkers; who may begin is
decided by the SweepSlots that ship, called as ClusterGround calls them.
"""

from __future__ import annotations

import time
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from kvgate.api.status import PoolStatus, SweepJob
from kvgate.core.evidence import Evidence
from kvgate.core.steps import Collect, Measure, Step
from kvgate.core.world import Pool, Sweep, Walker, WalkerState, World
from kvgate.dynamo.document import Document
from kvgate.edge.cluster.slots import SweepSlots
from kvgate.edge.errors import PoolGoneError
from tests.app.operator.memory_ground import MemoryGround
from tests.core import cases


def clock() -> datetime:
    return datetime.now(UTC)


def stored(pool: Pool) -> Document:
    """A pool as the API server lists it."""
    metadata = {"namespace": pool.namespace, "name": pool.name, "uid": pool.uid}
    status = pool.status.model_dump(mode="json", by_alias=True, exclude_none=True)
    return {"metadata": metadata, "spec": pool.spec.model_dump(mode="json", by_alias=True), "status": status}


@dataclass
class SweepingGround(MemoryGround):
    """`most_at_once` is how many pools' statuses meant a sweep at the same moment; `began` who did, in order."""

    most: int = 1
    sweep_seconds: float = 0.05
    list_seconds: float = 0.01
    most_at_once: int = 0
    began: list[str] = field(default_factory=list)
    evidence: dict[str, tuple[Evidence, ...]] = field(default_factory=dict)
    walks: dict[str, float] = field(default_factory=dict)
    slots: SweepSlots = field(init=False)

    def __post_init__(self) -> None:
        self.slots = SweepSlots(self.listed, clock)

    def listed(self) -> tuple[Document, ...]:
        with self.lock:
            found = tuple(map(stored, self.pools.values()))
        time.sleep(self.list_seconds)
        return found

    def observe(self, key: str) -> tuple[Pool, World]:
        try:
            pool, world = super().observe(key)
        except PoolGoneError:
            self.slots.gone(key)
            raise
        fence = pool.status.sweep
        jobs = (SweepJob(node="p1", name="job", uid="job-uid"),)
        walking = self.walks.get(pool.uid)
        state = WalkerState.RUNNING if walking and time.monotonic() < walking else WalkerState.ENDED
        walker = Walker("p1", "job-uid", state, "10.0.0.1")
        return pool, replace(
            world,
            nodes=cases.nodes(("p1",), ("d1",)),
            evidence=self.evidence.get(pool.uid, ()),
            sweep=Sweep(fence.run_id, fence.started_at, (walker,)) if fence and walking else None,
            sweep_jobs=(*jobs, replace_node(jobs[0], "d1")) if walking else (),
            sweep_waits="" if fence else self.slots.waits(pool, self.most),
            least_sweep_interval=timedelta(hours=1),
        )

    def write_status(self, pool: Pool, status: PoolStatus) -> None:
        begins = pool.status.sweep is None and status.sweep is not None
        with self.slots.begin(pool, self.most) if begins else nullcontext():
            super().write_status(pool, status)
            self.slots.wrote(pool, status)
        with self.lock:
            self.began += [pool.key] if begins else []
            meant = sum(kept.status.sweep is not None for kept in self.pools.values())
            self.most_at_once = max(self.most_at_once, meant)

    def carry_out(self, pool: Pool, world: World, step: Step) -> None:
        super().carry_out(pool, world, step)
        if isinstance(step, Measure):
            self.walks[pool.uid] = time.monotonic() + self.sweep_seconds
        if isinstance(step, Collect):
            ended = clock()
            samples = cases.everywhere(250e6, run_id=step.run_id, measured_at=ended)
            told = cases.evidence(samples, run_id=step.run_id, measured_at=ended, pool_uid=pool.uid)
            self.evidence[pool.uid] = (told, *self.evidence.get(pool.uid, ()))
            self.walks.pop(pool.uid, None)

    def swept(self) -> set[str]:
        return {uid for uid, told in self.evidence.items() if told}


def replace_node(job: SweepJob, node: str) -> SweepJob:
    return job.model_copy(update={"node": node, "uid": f"{job.uid}-{node}"})
