"""From the logs of a sweep's pods to its evidence, stored as FabricReports; older ones go."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from kvgate.api.objects import FabricReport, read_report
from kvgate.api.status import SweepJob
from kvgate.api.wire import API_VERSION
from kvgate.core.evidence import Evidence, NodeIdentity
from kvgate.core.packed import PackedTexts
from kvgate.core.shoes import OFF_HOST_NETWORK
from kvgate.core.steps import Collect
from kvgate.core.world import WalkerState, World
from kvgate.dynamo.document import at, mapping, mappings, shown, text
from kvgate.edge.cluster.client import REPORTS, Client, Document, Query
from kvgate.edge.cluster.reading import ReadPool
from kvgate.edge.cluster.refusals import AlreadyExists, ClusterError, Conflict, NotFound, Refused
from kvgate.edge.cluster.sweeps import look, paths_of, stored_schedule
from kvgate.edge.cluster.walkers import address_of, controller_of, is_owned, network_of, walker_of
from kvgate.edge.errors import MeasureError
from kvgate.probe.identities import identified, tools
from kvgate.probe.indexes import report_name
from kvgate.probe.jobs import (
    BOOT,
    CONTAINER,
    COPIED,
    ELSEWHERE,
    HOST_NETWORK,
    POOL_UID,
    SCHEDULE_DIGEST,
    Owner,
    labels,
    owned_by,
)
from kvgate.probe.reports import NamedSpec, superseded, to_reports
from kvgate.probe.results import MOST_LOG_CHARACTERS, Elsewhere, Reading, Setting, read_logs
from kvgate_probe.seats import is_companion, node_of
from kvgate_probe.wire import Schedule, schedule_digest


def is_collected(client: Client, pool: ReadPool, run_id: str) -> bool:
    """Whether the run's evidence is kept: its index is written last."""
    try:
        found = client.get(REPORTS, pool.namespace, index_name(pool, run_id))
    except NotFound:
        return False
    if at(found, "spec", "poolRef", "uid") != pool.uid or at(found, "spec", "runID") != run_id:
        raise MeasureError(f"FabricReport {pool.namespace}/{index_name(pool, run_id)} is not ours: delete it")
    return True


def index_name(pool: ReadPool, run_id: str) -> str:
    return report_name(pool.name, run_id)


def gather(
    client: Client, pool: ReadPool, world: World, step: Collect, recorded: Sequence[SweepJob], received_at: datetime
) -> Evidence:
    """The evidence of the run, from the logs of pods that the recorded Jobs control, and of no others."""
    seen, schedule = look(client, pool.owner, step.run_id), stored_schedule(client, pool.owner, step.run_id)
    known, problems = _of_recorded(seen.pods, recorded)
    if schedule is None or not _as_given(schedule, seen.jobs, recorded):
        problems.append("the schedule that the walkers were given is gone or altered: nothing they say can be read")
        schedule = None
    logs = _logs(client, pool, known, step, problems) if schedule else PackedTexts()
    addresses = {node: frozenset({address_of(pod)}) for node, pod in known.items() if address_of(pod)}
    fence = pool.status.sweep
    began_at = fence.started_at if fence and fence.run_id == step.run_id else None
    away = elsewhere(known, _notes(seen.jobs, recorded))
    setting = Setting(received_at, addresses, elsewhere=away, began_at=began_at)
    read = read_logs(schedule, logs, setting) if schedule else Reading(())
    planned = paths_of(schedule) or world.nodes.testable
    used = {node for path in planned for node in (path.source, path.destination)}
    as_begun, rebooted = identities_as_begun(world.nodes.identities, seen.jobs, recorded)
    return Evidence(
        run_id=step.run_id,
        pool_uid=pool.uid,
        planned=planned,
        samples=read.samples,
        measured_at=received_at,
        in_use=len({*planned, *world.nodes.testable}),
        nodes=identified(
            (node for node in as_begun if node.name in used),
            read.interfaces,
            {node: image_of([pod]) for node, pod in known.items() if not is_companion(node)},
        ),
        image=image_of(known.values()),
        tools=tools(read.samples),
        problems=(*_troubles(world, step), *rebooted, *problems, *read.problems),
        copied=copied_by(seen.jobs, recorded),
    )


def identities_as_begun(
    now: Iterable[NodeIdentity], jobs: Sequence[Document], recorded: Sequence[SweepJob]
) -> tuple[tuple[NodeIdentity, ...], tuple[str, ...]]:
    """The nodes with the boots that they had when the sweep began, and what is to be said of those that rebooted
    since: their numbers are of a boot that is over, so that they count no more than before a reboot after the sweep."""
    notes = _notes(jobs, recorded)
    begun = {node: text(note.get(BOOT)) for node, note in notes.items()}
    every = tuple(now)
    rebooted = [one.name for one in every if begun.get(one.name) and one.boot_id and begun[one.name] != one.boot_id]
    told = tuple(f"NodeRebooted: node {name} booted anew during the sweep: it is measured again" for name in rebooted)
    was = {name: begun[name] for name in rebooted}
    return tuple(replace(one, boot_id=was.get(one.name, one.boot_id)) for one in every), told


def image_of(pods: Iterable[Document]) -> str:
    """The digest of the image that all these pods ran; nothing where they differ, or one does not tell."""
    statuses = [mappings(at(pod, "status", "containerStatuses")) for pod in pods]
    digests = {text(entry.get("imageID")) for entries in statuses for entry in entries[:1]}
    return digests.pop() if len(digests) == 1 and all(statuses) else ""


def copied_by(jobs: Sequence[Document], recorded: Sequence[SweepJob]) -> tuple[str, ...]:
    """What the pods of the recorded Jobs had from the workers that they stood for, each with its node."""
    told = ((node, text(note.get(COPIED))) for node, note in sorted(_notes(jobs, recorded).items()))
    return tuple(f"{node}: {shown(word)}" for node, copied in told for word in _words(copied))


def elsewhere(pods: Mapping[str, Document], notes: Mapping[str, Document]) -> Mapping[str, Elsewhere]:
    """The nodes whose pod was not on the network of the worker that it stood for: as its Job says, or as the network
    plugins left it."""
    off = {node: Elsewhere(OFF_HOST_NETWORK) for node, note in notes.items() if note.get(ELSEWHERE) == HOST_NETWORK}
    bare = {node: why for node, pod in pods.items() if (why := network_of(pod).why)}
    return {node: Elsewhere(f"{why}; {_ADDRESSES}", tcp_alone=True) for node, why in bare.items()} | off


_ADDRESSES = "TCP was measured on another: the cluster's administrator must give that network addresses (IPAM)"


def _notes(jobs: Sequence[Document], recorded: Sequence[SweepJob]) -> dict[str, Document]:
    """The annotations of the recorded Jobs, by walker."""
    nodes = {job.uid: walker_of(job) for job in recorded}
    found = ((nodes.get(text(at(job, "metadata", "uid")), ""), job) for job in jobs)
    return {node: mapping(at(job, "metadata", "annotations")) for node, job in found if node}


def _words(note: str) -> tuple[str, ...]:
    try:
        found = json.loads(note or "[]")
    except ValueError:
        return ()
    return tuple(word for word in found if isinstance(word, str)) if isinstance(found, list) else ()


def _of_recorded(pods: Sequence[Document], recorded: Sequence[SweepJob]) -> tuple[dict[str, Document], list[str]]:
    """The one pod of each node's Job; one that no recorded Job controls, or that stands elsewhere, is a problem, and
    so are two for one Job, which never makes a second."""
    claims: dict[str, list[Document]] = {walker_of(job): [] for job in recorded}
    problems: list[str] = []
    by_uid = {job.uid: job for job in recorded}
    for pod in pods:
        job = by_uid.get(controller_of(pod))
        name = shown(text(at(pod, "metadata", "name")))
        if job is None:
            problems.append(f"pod {name}: is not of a Job that kvgate recorded: its log is ignored")
        elif text(at(pod, "spec", "nodeName")) not in {job.node, ""}:
            problems.append(f"pod {name}: does not stand on node {job.node}: its log is ignored")
        else:
            claims[walker_of(job)].append(pod)
    problems += [problem for node, found in claims.items() if (problem := _miscounted(node, len(found)))]
    return {node: found[0] for node, found in claims.items() if len(found) == 1}, problems


def _miscounted(node: str, count: int) -> str:
    if count == 0:
        return f"walker of {node}: its pod is gone, and its log"
    return f"walker of {node}: {count} pods say they are it: their logs are ignored" if count > 1 else ""


def _as_given(schedule: Schedule, jobs: Sequence[Document], recorded: Sequence[SweepJob]) -> bool:
    """Whether the schedule is the one that the recorded Jobs were made with."""
    uids = {job.uid for job in recorded}
    ours = [job for job in jobs if at(job, "metadata", "uid") in uids]
    given = {at(job, "metadata", "annotations", SCHEDULE_DIGEST) for job in ours}
    return given <= {schedule_digest(schedule)}


def _logs(
    client: Client, pool: ReadPool, known: Mapping[str, Document], step: Collect, problems: list[str]
) -> PackedTexts:
    """A log that cannot be read now is asked for again while there is patience, unless its node is gone, or its walker
    late. Raises MeasureError then."""
    logs = PackedTexts()
    ready = {node.identity.name for node in pool.objects.nodes if node.ready}
    for node, pod in known.items():
        if not mappings(at(pod, "status", "containerStatuses")) or at(pod, "status", "phase") == "Pending":
            continue
        try:
            name = text(at(pod, "metadata", "name"))
            logs.keep(node, client.log(pool.namespace, name, CONTAINER, MOST_LOG_CHARACTERS + 1))
        except ClusterError as error:
            if step.patient and node_of(node) in ready and not isinstance(error, NotFound | Refused):
                until = "it is asked for again until fabric.schedule.sweepTimeout is over"
                raise MeasureError(f"node {node}: {_UNREADABLE_LOG}; {until}") from error
            problems.append(f"log of {node}: cannot be read ({type(error).__name__}): {_UNREADABLE_LOG}")
    return logs


_UNREADABLE_LOG = "the API server does not get the walker's log from the kubelet; look at the kubelet of that node"


def _troubles(world: World, step: Collect) -> tuple[str, ...]:
    """First the walkers that something still ails: others may have failed, or be late, for having waited for them."""
    walkers = sorted(world.sweep.walkers if world.sweep else (), key=lambda w: w.state is WalkerState.ENDED)
    ailing = tuple(f"walker of {walker}: {walker.trouble}" for walker in walkers if walker.trouble)
    late = tuple(f"walker of {node}: not done within fabric.schedule.sweepTimeout, ended" for node in step.late)
    return (*ailing, *late)


def store(client: Client, pool: ReadPool, evidence: Evidence) -> None:
    """Shards first, then the index that names them; what an attempt that died left of them is replaced."""
    *shards, index = to_reports(evidence, pool.name)
    for shard in shards:
        _create(client, pool, shard)
    _create(client, pool, index)


def _create(client: Client, pool: ReadPool, report: NamedSpec) -> None:
    spec = report.spec.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_defaults=True)
    metadata = {
        "name": report.name,
        "namespace": pool.namespace,
        "labels": labels(pool.owner, report.spec.run_id),
        "ownerReferences": _owners(pool),
    }
    body = {"apiVersion": API_VERSION, "kind": "FabricReport", "metadata": metadata, "spec": spec}
    try:
        client.create(REPORTS, pool.namespace, body)
    except AlreadyExists:
        _remove_orphan(client, pool, report)
        client.create(REPORTS, pool.namespace, body)


def _owners(pool: ReadPool) -> list[dict[str, object]]:
    return [] if pool.spec.fabric.reports.retain_on_delete else owned_by(Owner(pool.name, pool.namespace, pool.uid))


def _remove_orphan(client: Client, pool: ReadPool, report: NamedSpec) -> None:
    """A shard of this very run that no index names yet; anything else of that name is not touched."""
    found = client.get(REPORTS, pool.namespace, report.name)
    ours = at(found, "spec", "poolRef", "uid") == pool.uid and at(found, "spec", "runID") == report.spec.run_id
    if not ours:
        raise MeasureError(f"FabricReport {pool.namespace}/{report.name} is not ours: delete it")
    client.delete(REPORTS, pool.namespace, report.name, text(at(found, "metadata", "uid")))


def tidy(client: Client, pool: ReadPool, run_id: str) -> None:
    """Give the run's shards to its index, and delete sweeps beyond `reports.keep`, indexes first."""
    listed = client.list(REPORTS, pool.namespace, Query(labels=f"{POOL_UID}={pool.uid}"))
    stored = [report for report in map(read_report, listed) if isinstance(report, FabricReport)]
    own = [report for report in stored if report.spec.pool_ref.uid == pool.uid]
    index = next((r for r in own if r.metadata.name == index_name(pool, run_id) and r.spec.shards), None)
    if index is not None:
        _own_shards(client, pool, index, listed)
    _own_indexes(client, pool, listed)
    fabric, stored_at = pool.spec.fabric, index.spec.measured_at if index else None
    for report in superseded(own, fabric.reports.keep, fabric.evidence_ttl.delta, stored_at):
        try:
            client.delete(REPORTS, pool.namespace, report.metadata.name, report.metadata.uid)
        except (NotFound, Conflict):
            continue


def _own_shards(client: Client, pool: ReadPool, index: FabricReport, listed: Sequence[Document]) -> None:
    named = {shard.name for shard in index.spec.shards}
    reference = {"apiVersion": API_VERSION, "kind": "FabricReport"}
    owner = reference | {"name": index.metadata.name, "uid": index.metadata.uid}
    for found in listed:
        name, held = text(at(found, "metadata", "name")), mappings(at(found, "metadata", "ownerReferences"))
        if name in named and not any(entry.get("uid") == index.metadata.uid for entry in held):
            client.merge(REPORTS, pool.namespace, name, {"metadata": {"ownerReferences": [owner]}})


def _own_indexes(client: Client, pool: ReadPool, listed: Sequence[Document]) -> None:
    """As reports.retainOnDelete says now, whatever it said when they were written."""
    wanted = _owners(pool)
    for found in listed:
        ours = at(found, "spec", "poolRef", "uid") == pool.uid and bool(at(found, "spec", "shards"))
        if ours and is_owned(found, pool.uid) != bool(wanted):
            name = text(at(found, "metadata", "name"))
            client.merge(REPORTS, pool.namespace, name, {"metadata": {"ownerReferences": wanted or None}})
