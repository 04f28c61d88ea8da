"""From the log of an A/B's pod to its evidence, stored as BenchmarkReports; older ones go."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from kvgate.api.objects import BenchmarkReport, read_benchmark
from kvgate.api.status import BenchmarkRun
from kvgate.api.wire import API_VERSION
from kvgate.core.ab.evidence import BenchmarkEvidence, Provenance, Subject
from kvgate.core.ab.experiment import Experiment
from kvgate.core.ab.power import Efficiency, NoPower
from kvgate.core.world import World
from kvgate.dynamo.document import at, mapping, mappings, shown, text
from kvgate.edge.cluster.benchmarks import job_of, stored_plan
from kvgate.edge.cluster.client import BENCHMARKS, Client, Document, Query, Resource
from kvgate.edge.cluster.reading import ReadPool
from kvgate.edge.cluster.refusals import AlreadyExists, Conflict, NotFound, Refused
from kvgate.edge.cluster.runs import pods_of
from kvgate.edge.cluster.sweeps import clear
from kvgate.edge.cluster.walkers import address_of, pod_of
from kvgate.edge.errors import MeasureError
from kvgate.probe.benchmark_job import CONTAINER, PLAN_DIGEST
from kvgate.probe.benchmark_reports import NamedBenchmark, superseded_benchmarks, to_benchmark_reports
from kvgate.probe.benchmark_results import MOST_LOG_CHARACTERS, Seen, live_rate, read_experiment
from kvgate.probe.indexes import report_name
from kvgate.probe.jobs import POOL_UID, labels, owned_by


@dataclass(frozen=True)
class Receipt:
    """When an A/B is collected, why it was ended early if it was, and who tells how many tokens a joule brought."""

    at: datetime
    aborted: str
    powered: Callable[[ReadPool, Experiment], Efficiency | NoPower]


def collect(client: Client, pool: ReadPool, world: World, receipt: Receipt) -> None:
    """Keep what the Job's pod told as a BenchmarkReport, and clear the A/B away. Each part finds what an earlier
    attempt did of it, so that it may die anywhere."""
    fence = pool.status.benchmark
    if fence is None:
        return
    if not _is_kept(client, pool, fence.run_id):
        evidence = _evidence(client, pool, world, fence, receipt)
        for report in to_benchmark_reports(evidence, pool.name):
            _create(client, pool, report)
    _tidy(client, pool)
    clear(client, pool.owner, fence.run_id)


def _is_kept(client: Client, pool: ReadPool, run_id: str) -> bool:
    name = report_name(pool.name, run_id)
    try:
        found = client.get(BENCHMARKS, pool.namespace, name)
    except NotFound:
        return False
    if not _is_ours(found, pool, run_id):
        raise MeasureError(f"BenchmarkReport {pool.namespace}/{name} is not ours: delete it")
    return True


def _is_ours(found: Document, pool: ReadPool, run_id: str) -> bool:
    return at(found, "spec", "poolRef", "uid") == pool.uid and at(found, "spec", "runID") == run_id


def _evidence(client: Client, pool: ReadPool, world: World, fence: BenchmarkRun, receipt: Receipt) -> BenchmarkEvidence:
    job, kept = job_of(client, pool.owner, fence.run_id), stored_plan(client, pool.owner, fence.run_id)
    if job is None or kept is None or at(job, "metadata", "annotations", PLAN_DIGEST) != kept[1]:
        raise MeasureError(
            "the A/B's Job or the plan that it was given is gone or altered: nothing it says can be read"
        )
    plan, uid = kept[0], text(at(job, "metadata", "uid"))
    pod = pod_of(uid, pods_of(client, pool.owner, fence.run_id))
    log = _log(client, pool.namespace, pod)
    now = world.benchmark_ground
    after = Seen(now.generation, now.cards) if now else Seen(0, "")
    experiment = read_experiment(plan, log, Seen(fence.generation, fence.cards), after)
    if receipt.aborted:
        experiment = replace(experiment, aborted=receipt.aborted)
    power = receipt.powered(pool, experiment)
    return BenchmarkEvidence(
        run_id=fence.run_id,
        pool_uid=pool.uid,
        measured_at=receipt.at,
        subject=Subject(fence.target_uid, fence.projection, fence.split, fence.workload),
        experiment=experiment,
        provenance=Provenance(
            seed=plan.seed,
            ran_on=fence.ran_on,
            live=fence.on_live,
            requests_per_second=plan.requests_per_second,
            live_requests_per_second=live_rate(plan, log),
            versions=_images(pod),
            tokens_per_joule=() if isinstance(power, NoPower) else power,
            no_power=power.message if isinstance(power, NoPower) else "",
        ),
    )


def _log(client: Client, namespace: str, pod: Document) -> str:
    """A pod that is gone has told nothing; a log that cannot be read now is asked for again in the next turn."""
    name = text(at(pod, "metadata", "name"))
    if not name or not address_of(pod):
        return ""
    try:
        return client.log(namespace, name, CONTAINER, MOST_LOG_CHARACTERS + 1)
    except (NotFound, Refused):
        return ""


def _images(pod: Document) -> tuple[str, ...]:
    containers = (*mappings(at(pod, "spec", "initContainers")), *mappings(at(pod, "spec", "containers")))
    return tuple(sorted({shown(text(container.get("image"))) for container in containers} - {""}))


def _create(client: Client, pool: ReadPool, report: NamedBenchmark) -> None:
    spec = report.spec.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_defaults=True)
    owners = [] if pool.spec.fabric.reports.retain_on_delete else owned_by(pool.owner)
    metadata = {
        "name": report.name,
        "namespace": pool.namespace,
        "labels": labels(pool.owner, report.spec.run_id),
        "ownerReferences": owners,
    }
    body: Mapping[str, object] = {
        "apiVersion": API_VERSION,
        "kind": "BenchmarkReport",
        "metadata": metadata,
        "spec": spec,
    }
    try:
        client.create(BENCHMARKS, pool.namespace, body)
    except AlreadyExists:
        _remove_orphan(client, pool, report)
        client.create(BENCHMARKS, pool.namespace, body)


def _remove_orphan(client: Client, pool: ReadPool, report: NamedBenchmark) -> None:
    """A shard of this very run that no index names yet; anything else of that name is not touched."""
    found = client.get(BENCHMARKS, pool.namespace, report.name)
    if not _is_ours(found, pool, report.spec.run_id):
        raise MeasureError(f"BenchmarkReport {pool.namespace}/{report.name} is not ours: delete it")
    _delete(client, BENCHMARKS, pool.namespace, found)


def _tidy(client: Client, pool: ReadPool) -> None:
    kept = client.list(BENCHMARKS, pool.namespace, Query(labels=f"{POOL_UID}={pool.uid}"))
    stored = [report for report in map(read_benchmark, kept) if isinstance(report, BenchmarkReport)]
    own = [report for report in stored if report.spec.pool_ref.uid == pool.uid]
    bodies = {text(at(body, "metadata", "name")): body for body in kept}
    for report in superseded_benchmarks(own, pool.spec.fabric.reports.keep):
        _delete(client, BENCHMARKS, pool.namespace, bodies[report.metadata.name])


def _delete(client: Client, kind: Resource, namespace: str, found: Document) -> None:
    metadata = mapping(found.get("metadata"))
    try:
        client.delete(kind, namespace, text(metadata.get("name")), text(metadata.get("uid")))
    except (NotFound, Conflict):
        return
