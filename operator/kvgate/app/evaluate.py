"""`kvgate evaluate`: the operator's verdict on files, without a cluster and without touching anything."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

from kvgate.app.output import Report, approval_template
from kvgate.core.decide import decide
from kvgate.core.explain import explain
from kvgate.core.world import Pool
from kvgate.edge.errors import EdgeError
from kvgate.edge.files import objects_of, read_sources
from kvgate.edge.objects import Objects
from kvgate.edge.observe import pool_of, world_of
from kvgate.edge.targets import preview


def evaluate_files(pool: Path, evidence: Iterable[Path], target: Path | None, now: datetime) -> tuple[Report, ...]:
    """A report per pool. Raises EdgeError when a file, or a document of ours in one, cannot be read."""
    files = [pool, *evidence, *((target,) if target else ())]
    objects = objects_of(read_sources(files))
    if not objects.pools:
        raise EdgeError(f"{pool}: holds no InferencePool of kvgate.dev/v1alpha1")
    if target and not objects.targets:
        raise EdgeError(f"{target}: holds no DynamoGraphDeployment of nvidia.com")
    return tuple(_report(pool_of(stored), objects, now, target_needed=target is not None) for stored in objects.pools)


def _report(pool: Pool, objects: Objects, now: datetime, *, target_needed: bool) -> Report:
    world = world_of(pool, objects, target_needed=target_needed, nodes_needed=False)
    decision, told = decide(pool, world, now), explain(pool, world, now)
    return Report(
        pool=pool,
        status=decision.status,
        explanation=told,
        patch=preview(pool, objects, decision.steps),
        approval=approval_template(pool, decision.status, told),
    )
