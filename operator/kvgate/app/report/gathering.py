"""Where a report's evidence comes from: saved files, or a pool in a cluster, which is only read."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

from kvgate.app.people.cluster import Cluster
from kvgate.app.report.subject import Subject, of_evidence, of_pool
from kvgate.core.decide import decide
from kvgate.core.world import Pool
from kvgate.edge.errors import EdgeError
from kvgate.edge.files import objects_of, read_saved
from kvgate.edge.objects import Objects
from kvgate.edge.observe import pool_of, world_of
from kvgate.probe.reports import read_reports

_SUFFIXES = (".yaml", ".yml", ".json")


def gathered(words: Iterable[str], cluster: Cluster, now: datetime) -> tuple[Subject, ...]:
    """A subject per pool. A word is a file where there is one of that name or it looks like one, else a pool's name.

    Raises EdgeError for what cannot be read, and where a pool has no evidence.
    """
    named = list(dict.fromkeys(words))
    files = [Path(word) for word in named if _is_file(word)]
    if files and len(files) < len(named):
        pool = next(word for word in named if not _is_file(word))
        raise EdgeError(f"{pool}: is no file, and pools of a cluster and files can't be mixed")
    return _of_files(files, now) if files else tuple(_of_cluster(name, cluster, now) for name in named)


def _is_file(word: str) -> bool:
    return "/" in word or word.endswith(_SUFFIXES) or Path(word).exists()


def _of_files(files: list[Path], now: datetime) -> tuple[Subject, ...]:
    objects = objects_of(read_saved(files))
    if not objects.pools:
        return _without_pool(objects, files)
    pools = [pool_of(stored) for stored in objects.pools]
    reported = {(one.metadata.namespace, one.spec.pool_ref.name) for one in objects.reports}
    meant = [pool for pool in pools if (pool.namespace, pool.name) in reported] or pools
    left = tuple(
        f"InferencePool {pool.key}: its FabricReports are not in the files" for pool in pools if pool not in meant
    )
    return tuple(_of_saved(pool, objects, now, left) for pool in meant)


def _of_saved(pool: Pool, objects: Objects, now: datetime, left: tuple[str, ...]) -> Subject:
    world = world_of(pool, objects, target_needed=False, nodes_needed=False)
    notes = (*left, *_spoilt(world.evidence_problem))
    subject = of_pool(pool, world, decide(pool, world, now).status, now, notes)
    if subject is None:
        why = world.evidence_problem or "its FabricReports are not in the files"
        raise EdgeError(f"InferencePool {pool.key}: there is no evidence ({why})")
    return subject


def _without_pool(objects: Objects, files: list[Path]) -> tuple[Subject, ...]:
    """The newest sweep of each pool that the reports name."""
    owners = dict.fromkeys((r.metadata.namespace, r.spec.pool_ref.name, r.spec.pool_ref.uid) for r in objects.reports)
    if not owners:
        raise EdgeError(f"{files[0]}: holds neither an InferencePool nor a FabricReport of kvgate.dev/v1alpha1")
    return tuple(_newest(objects, *owner) for owner in owners)


def _newest(objects: Objects, namespace: str, name: str, uid: str) -> Subject:
    found, bad = read_reports((r for r in objects.reports if r.metadata.namespace == namespace), uid)
    if not found:
        why = bad[0].message if bad else "no index with measuredAt is among them"
        raise EdgeError(f"FabricReports of {namespace}/{name}: no sweep can be read ({why})")
    notes = ("the InferencePool was not given, so nothing is judged", *(one.message for one in bad))
    return of_evidence(name, namespace, found[0], notes)


def _of_cluster(name: str, cluster: Cluster, now: datetime) -> Subject:
    from kvgate.edge.cluster.report_desk import read_for_report  # noqa: PLC0415  it takes longer to load than a lint

    at = cluster.place()
    read = read_for_report(at.client, at.namespace, name)
    pool = pool_of(read.pool)
    world = world_of(pool, read.objects, target_needed=False, nodes_needed=False)
    notes = (*read.notes, *_spoilt(world.evidence_problem))
    subject = of_pool(pool, world, pool.status, now, notes)
    if subject is None:
        why = world.evidence_problem or "it has no FabricReport yet; kubectl kvgate status says what it waits for"
        raise EdgeError(f"InferencePool {pool.key}: there is no evidence ({why})")
    return subject


def _spoilt(problem: str) -> tuple[str, ...]:
    return (problem,) if problem else ()
