"""A sweep in the cluster: how it stands, how it is started, how its walkers hear of each other, how it is cleared."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import lru_cache

from kvgate.api.selectors import LabelSelector
from kvgate.api.status import SweepJob
from kvgate.core.evidence import Path
from kvgate.core.shoes import Shoes
from kvgate.core.steps import Measure
from kvgate.core.vetoes import KNOWN, Signal
from kvgate.core.world import Pool, Sweep, World
from kvgate.dynamo.document import at, mapping, mappings, text
from kvgate.dynamo.shape import Target
from kvgate.dynamo.view import shoes
from kvgate.dynamo.words import Role
from kvgate.edge.cluster.client import CONFIG_MAPS, CORE_EVENTS, JOBS, PODS, Client, Document, Query
from kvgate.edge.cluster.reading import ReadPool
from kvgate.edge.cluster.refusals import Conflict, NotFound
from kvgate.edge.cluster.runs import NO_IMAGE, make, of_run
from kvgate.edge.cluster.troubles import TOLD_OF_PODLESS
from kvgate.edge.cluster.walkers import (
    Seen,
    is_of_run,
    on_nodes,
    sweep_jobs,
    to_tell,
    walker_of,
    walkers,
)
from kvgate.edge.errors import MeasureError
from kvgate.edge.nodes import NodeView
from kvgate.edge.observe import target_document, target_of
from kvgate.probe.asked import further_steps, memory_for
from kvgate.probe.jobs import (
    HOSTNAME,
    LARGEST_SCHEDULE_BYTES,
    PEERS,
    SCHEDULE_DIGEST,
    SCHEDULE_KEY,
    Owner,
    PodStyle,
    Seat,
    Walk,
    schedule_config_map,
    schedule_name,
    walk_of,
    walker_job,
)
from kvgate.probe.plan import LinkTest, plan_phases
from kvgate_probe.fields import WireError
from kvgate_probe.rounds import Rounds
from kvgate_probe.seats import is_companion, node_of
from kvgate_probe.wire import Schedule, decode_schedule, encode_schedule

_SWEEP = "sweep"
_TOLERATION = ("key", "operator", "value", "effect", "tolerationSeconds")


@dataclass(frozen=True)
class ProbePolicy:
    """What the operator's settings say of probes; without an image no sweep is started.

    `most_sweeps` may run at a time over all pools, `least_interval` lies between a pool's scheduled ones, and
    `most_bytes` is what one may send over all its paths, None for no limit.
    """

    image: str = ""
    allowed_nodes: LabelSelector | None = None
    signals: tuple[Signal, ...] = KNOWN
    """What speaks against a node."""
    allow_host_network: bool = False
    capabilities: tuple[str, ...] = ()
    most_sweeps: int = 1
    least_interval: timedelta = timedelta(0)
    most_bytes: int | None = None

    def problem(self, pool: Pool) -> str:
        """Why no sweep of this pool may be started, and who must act; empty when one may."""
        if not self.image:
            return NO_IMAGE
        if pool.spec.fabric.probe.host_network and not self.allow_host_network:
            what = "fabric.probe.hostNetwork is not allowed here"
            return f"{what}: leave it out, or have the operator's administrator set probe.allowHostNetwork"
        return ""


@dataclass(frozen=True)
class Standing:
    """A sweep as it was found: None once nothing of it is left, and its Jobs that are ours."""

    sweep: Sweep | None = None
    jobs: tuple[SweepJob, ...] = ()


def stored_schedule(client: Client, owner: Owner, run_id: str) -> Schedule | None:
    """The schedule that the run's walkers were given; None when it is not there or not ours."""
    try:
        found = client.get(CONFIG_MAPS, owner.namespace, schedule_name(owner, run_id))
    except NotFound:
        return None
    return _schedule_in(found, owner, run_id)


def _schedule_in(found: Document, owner: Owner, run_id: str) -> Schedule | None:
    if not is_of_run(found, owner, run_id):
        return None
    try:
        schedule = _decoded(text(at(found, "data", SCHEDULE_KEY)))
    except WireError:
        return None
    return schedule if (schedule.run_id, schedule.pool_uid) == (run_id, owner.uid) else None


@lru_cache(maxsize=4)
def _decoded(told: str) -> Schedule:
    """A schedule never changes, and is looked at every few seconds while its walkers walk."""
    return decode_schedule(told)


def look(client: Client, owner: Owner, run_id: str) -> Seen:
    """The Jobs and pods that carry the run's labels; events are asked for only where a Job has no pod."""
    query = of_run(owner, run_id)
    jobs, pods = client.list(JOBS, owner.namespace, query), client.list(PODS, owner.namespace, query)
    seen = Seen(jobs, pods)
    podless = any(not seen.pod_of(text(at(job, "metadata", "uid"))) for job in jobs)
    asked = (Query(fields=f"reason={reason},involvedObject.kind={kind}") for kind, reason in TOLD_OF_PODLESS)
    events = [event for query in asked for event in client.list(CORE_EVENTS, owner.namespace, query)] if podless else []
    return Seen(jobs, pods, events)


def standing(client: Client, pool: ReadPool, *, collected: bool) -> Standing:
    """How the sweep that the status means stands. Once its evidence is kept, what is left of it has no walkers."""
    fence = pool.status.sweep
    if fence is None:
        return Standing()
    seen, schedule = look(client, pool.owner, fence.run_id), stored_schedule(client, pool.owner, fence.run_id)
    found = sweep_jobs(seen.jobs, pool.owner, fence.run_id)
    if collected:
        left = Sweep(fence.run_id, fence.started_at, ()) if found or schedule else None
        return Standing(left, found)
    if not found and not schedule and not fence.jobs:
        return Standing()
    told = on_nodes(walkers(_meetings(schedule), fence.jobs, found, seen), pool.objects.nodes)
    return Standing(Sweep(fence.run_id, fence.started_at, told), found)


def _meetings(schedule: Schedule | None) -> Rounds:
    return schedule.packed if schedule else Rounds((), ())


def paths_of(schedule: Schedule | None) -> tuple[Path, ...]:
    pairs = {pair for pairs in schedule.rounds for pair in pairs} if schedule else ()
    return tuple(Path(node_of(pair.source), node_of(pair.destination)) for pair in sorted(pairs))


def start(client: Client, pool: ReadPool, step: Measure, policy: ProbePolicy) -> None:
    """Make the schedule and a Job per walker, or what is missing of them. Raises MeasureError where it may not be.

    Where an earlier attempt left a schedule that lacks nodes of this one, it is cleared, to be made anew next time.
    """
    problem = policy.problem(pool)
    if problem:
        raise MeasureError(problem)
    planned = _planned(pool, step, policy)
    schedule = _settled_schedule(client, pool, planned)
    if not set(planned.nodes) <= set(schedule.nodes):
        clear(client, pool.owner, step.run_id)
        return
    styles = {role: _style(pool, policy, role) for role in (Role.PREFILL, Role.DECODE)}
    walk = walk_of(schedule, pool.spec.fabric.schedule.sweep_timeout.seconds)
    seats = {node.identity.name: _seat(node) for node in pool.objects.nodes}
    for walker in sorted(schedule.nodes, key=is_companion):
        node, second = node_of(walker), is_companion(walker)
        style = styles[Role.DECODE if second or not step.stands_for_prefill(node) else Role.PREFILL]
        seat = replace(seats.get(node, Seat(node, node)), companion=second)
        manifest = walker_job(pool.owner, walk, seat, style)
        try:
            _make_job(client, pool.owner, walk, manifest)
        except MeasureError as error:
            raise MeasureError(f"node {node}{', second pod' if second else ''}: {error}") from error


def _seat(node: NodeView) -> Seat:
    name = node.identity.name
    return Seat(name, node.labels.get(HOSTNAME, "") or name, node.identity.boot_id)


def _style(pool: ReadPool, policy: ProbePolicy, role: Role) -> PodStyle:
    """A walker stands in the shoes of the worker of its node's role; of what the settings forbid, it does without."""
    source = target_document(pool, pool.objects)
    read = target_of(source) if source else None
    worn = shoes(read, role) if isinstance(read, Target) else Shoes()
    return PodStyle(
        image=policy.image,
        tolerations=tolerations(pool),
        host_network=pool.spec.fabric.probe.host_network,
        capabilities=policy.capabilities,
        shoes=worn.allowed(policy.capabilities, host_network=policy.allow_host_network),
        memory=memory_for(pool.spec.fabric.probe),
    )


def _planned(pool: Pool, step: Measure, policy: ProbePolicy) -> Schedule:
    probe = pool.spec.fabric.probe
    test = LinkTest(
        probe.link.duration.seconds,
        probe.link.streams,
        probe.port,
        tool=probe.link.tool.value,
        most_bytes=policy.most_bytes,
        further=further_steps(probe, step.descriptor_bytes),
    )
    return plan_phases(step, pool.uid, test, probe.phases).schedule


def _settled_schedule(client: Client, pool: ReadPool, planned: Schedule) -> Schedule:
    """The planned schedule, or the one that an earlier attempt at this run left behind: walkers may have it already."""
    owner, size = pool.owner, len(encode_schedule(planned))
    if size > LARGEST_SCHEDULE_BYTES:
        what = f"the schedule of {planned.packed.pairs} paths is {size} bytes long, at most {LARGEST_SCHEDULE_BYTES}"
        raise MeasureError(f"{what} fit a ConfigMap: lower fabric.schedule.maxPaths, and samples take turns")
    manifest = schedule_config_map(owner, planned)
    return make(client, CONFIG_MAPS, manifest, planned, lambda: stored_schedule(client, owner, planned.run_id), _SWEEP)


def _make_job(client: Client, owner: Owner, walk: Walk, manifest: Mapping[str, object]) -> None:
    """A Job of this name is the one that an earlier attempt made, or the sweep cannot be run."""
    name = text(at(manifest, "metadata", "name"))

    def kept() -> Mapping[str, object] | None:
        found = client.get(JOBS, owner.namespace, name)
        given = at(found, "metadata", "annotations", SCHEDULE_DIGEST)
        ours = is_of_run(found, owner, walk.run_id) and given == walk.schedule_digest
        return found if ours else None

    make(client, JOBS, manifest, manifest, kept, _SWEEP)


def tolerations(pool: ReadPool) -> tuple[Document, ...]:
    """What the target's own pods tolerate, so that the probe may stand where they do."""
    source = target_document(pool, pool.objects)
    components = mappings(at(source.body, "spec", "components")) if source else ()
    given = [t for part in components for t in mappings(at(part, "podTemplate", "spec", "tolerations"))]
    plain = [{key: entry[key] for key in _TOLERATION if key in entry} for entry in given]
    return tuple({json.dumps(entry, sort_keys=True): entry for entry in plain}.values())


def introduce(client: Client, owner: Owner, run_id: str, jobs: Sequence[SweepJob]) -> None:
    """Annotate every running walker's pod with its partners' addresses, where it was not told the same already."""
    seen, schedule = look(client, owner, run_id), stored_schedule(client, owner, run_id)
    addresses = seen.addresses(jobs)
    for job in jobs:
        pod = seen.pod_of(job.uid)
        wanted = to_tell(walker_of(job), pod, _meetings(schedule), addresses)
        if wanted and at(pod, "status", "phase") == "Running":
            told = {"metadata": {"annotations": {PEERS: json.dumps(wanted, sort_keys=True)}}}
            _annotate(client, owner.namespace, text(at(pod, "metadata", "name")), told)


def _annotate(client: Client, namespace: str, pod: str, told: Document) -> None:
    try:
        client.merge(PODS, namespace, pod, told)
    except (NotFound, Conflict):
        return


def clear(client: Client, owner: Owner, run_id: str) -> None:
    """Delete the run's Jobs with their pods, and its schedule; what is gone already is no error."""
    for kind in (JOBS, CONFIG_MAPS):
        for found in client.list(kind, owner.namespace, of_run(owner, run_id)):
            if is_of_run(found, owner, run_id):
                metadata = mapping(found.get("metadata"))
                try:
                    client.delete(kind, owner.namespace, text(metadata.get("name")), text(metadata.get("uid")))
                except (NotFound, Conflict):
                    continue


def recorded_jobs(pool: ReadPool, world: World) -> tuple[SweepJob, ...]:
    """The Jobs whose logs count: those that the status held when it was read, or that this turn has written into it."""
    fence = pool.status.sweep
    return fence.jobs if fence is not None and fence.jobs else world.sweep_jobs
