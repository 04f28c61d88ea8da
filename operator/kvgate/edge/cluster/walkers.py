"""What Jobs, pods and events say about the walkers of a sweep: documents in, walkers out, nothing asked."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol

from kvgate.api.status import SweepJob
from kvgate.core.world import Walker, WalkerState
from kvgate.dynamo.document import at, mapping, mappings, text
from kvgate.edge.cluster import troubles
from kvgate.edge.cluster.client import Document
from kvgate.edge.nodes import NodeView
from kvgate.probe.attached import Attached, attached
from kvgate.probe.jobs import COMPANION, NODE, PEERS, POOL_UID, RUN, Owner, job_name
from kvgate_probe.seats import is_companion, node_of, walker_at

_AT_WORK = frozenset({WalkerState.PENDING, WalkerState.RUNNING})
_RUNNING, _SUCCEEDED, _FAILED = "Running", "Succeeded", "Failed"


class Meetings(Protocol):
    """Who takes part in a sweep, and who has tests with whom."""

    @property
    def nodes(self) -> tuple[str, ...]: ...

    def partners_of(self, node: str) -> tuple[str, ...]: ...


@dataclass(frozen=True)
class Seen:
    """What lies in the namespace with the label of one run: Jobs, pods, and events about Jobs that have no pod."""

    jobs: Sequence[Document] = ()
    pods: Sequence[Document] = ()
    events: Sequence[Document] = field(default=())

    @cached_property
    def _by_job(self) -> dict[str, list[Document]]:
        found: dict[str, list[Document]] = {}
        for pod in self.pods:
            found.setdefault(controller_of(pod), []).append(pod)
        return found

    def pod_of(self, job_uid: str) -> Document:
        return pod_of(job_uid, self._by_job.get(job_uid, ()))

    def addresses(self, jobs: Iterable[SweepJob]) -> dict[str, str]:
        """By walker, of the Jobs' pods that have one."""
        told = ((walker_of(job), address_of(self.pod_of(job.uid))) for job in jobs)
        return {node: address for node, address in told if address}


def is_owned(document: Document, uid: str) -> bool:
    """Whether the object's controller is the one with this UID."""
    references = mappings(at(document, "metadata", "ownerReferences"))
    return any(reference.get("uid") == uid and reference.get("controller") is True for reference in references)


def controller_of(document: Document) -> str:
    """The UID of the object's controller; empty where it has none."""
    references = mappings(at(document, "metadata", "ownerReferences"))
    return next((text(reference.get("uid")) for reference in references if reference.get("controller") is True), "")


def is_of_run(document: Document, owner: Owner, run_id: str) -> bool:
    """Whether this pool made it for this run: by owner reference, and by both labels."""
    labels = mapping(at(document, "metadata", "labels"))
    marked = labels.get(POOL_UID) == owner.uid and labels.get(RUN) == run_id
    return marked and is_owned(document, owner.uid)


def has_ended(job: Document) -> bool:
    return bool(troubles.condition(job, "Complete") or troubles.condition(job, "Failed"))


def sweep_jobs(jobs: Iterable[Document], owner: Owner, run_id: str) -> tuple[SweepJob, ...]:
    """The run's Jobs that are ours, by node; one that is being deleted counts as gone."""
    ours = (job for job in jobs if is_of_run(job, owner, run_id) and not at(job, "metadata", "deletionTimestamp"))
    told = (_job(job) for job in ours)
    return tuple(sorted((j for j in told if j.name == job_name(owner, run_id, walker_of(j))), key=walker_of))


def _job(job: Document) -> SweepJob:
    metadata = mapping(job.get("metadata"))
    node = text(mapping(metadata.get("annotations")).get(NODE))
    second = text(mapping(metadata.get("annotations")).get(COMPANION)) == "true"
    return SweepJob(node=node, name=text(metadata.get("name")), uid=text(metadata.get("uid")), companion=second)


def walker_of(job: SweepJob) -> str:
    """The name by which the schedule means what runs in the Job."""
    return walker_at(job.node, companion=job.companion)


def walkers(meetings: Meetings, known: Iterable[SweepJob], found: Sequence[SweepJob], seen: Seen) -> tuple[Walker, ...]:
    """One per node, and its companion where the schedule has one. `known` are the Jobs that the status remembers,
    `found` those that exist and are ours."""
    remembered, existing = {walker_of(job): job for job in known}, {walker_of(job): job for job in found}
    bodies = {text(at(job, "metadata", "uid")): job for job in seen.jobs}
    addresses = seen.addresses(found)
    every = sorted({*meetings.nodes, *remembered, *existing})
    told = (_walker(node, remembered.get(node), existing.get(node), bodies, seen) for node in every)
    told = (_unmade(one) if remembered and not one.job_uid else one for one in told)
    return tuple(
        replace(w, address=addresses.get(name_of(w), ""), untold=_untold(w, meetings, addresses, seen)) for w in told
    )


def _unmade(walker: Walker) -> Walker:
    """Once the others' Jobs are remembered, nobody makes the one that is missing any more."""
    what = f"JobNotMade: the API server refused the Job of node {walker} for as long as it was tried"
    return replace(walker, state=WalkerState.GONE, trouble=f"{what}; the quota or policy that did must admit it")


def _walker(
    name: str,
    remembered: SweepJob | None,
    job: SweepJob | None,
    bodies: Mapping[str, Document],
    seen: Seen,
) -> Walker:
    node, second = node_of(name), is_companion(name)
    if job is None or (remembered is not None and remembered.uid != job.uid):
        if remembered is None:
            return Walker(node, "", WalkerState.PENDING, companion=second)
        gone = f"JobDeleted: Job {remembered.name} was deleted"
        return Walker(node, remembered.uid, WalkerState.GONE, trouble=gone, companion=second)
    pod = seen.pod_of(job.uid)
    state, trouble = _state(bodies[job.uid], pod, [e for e in seen.events if _regards(e, job)])
    unplaced = second and state is WalkerState.PENDING and bool(trouble) and not _placed(pod)
    stuck = trouble.startswith(troubles.DEVICE_HELD) or unplaced
    return Walker(node, job.uid, state, trouble=trouble, stuck=stuck, companion=second)


def _placed(pod: Document) -> bool:
    """Whether a node has room for it. A companion that has none keeps no sweep waiting until its time is up; one whose
    image is still to come is waited for as any other walker."""
    return bool(at(pod, "spec", "nodeName"))


def name_of(walker: Walker) -> str:
    return walker_at(walker.node, companion=walker.companion)


def _untold(walker: Walker, meetings: Meetings, addresses: Mapping[str, str], seen: Seen) -> bool:
    running = walker.state is WalkerState.RUNNING
    return running and bool(to_tell(name_of(walker), seen.pod_of(walker.job_uid), meetings, addresses))


def to_tell(node: str, pod: Document, meetings: Meetings, addresses: Mapping[str, str]) -> dict[str, str]:
    """The addresses of those that the node's walker has tests with, as far as they are known; none where its pod was
    told them all. A large sweep's pods could not hold, nor an operator read, everybody's addresses in each of them."""
    wanted = {partner: addresses[partner] for partner in meetings.partners_of(node) if partner in addresses}
    told = peers_of(pod)
    return {} if all(told.get(partner) == address for partner, address in wanted.items()) else wanted


def on_nodes(told: Iterable[Walker], nodes: Iterable[NodeView]) -> tuple[Walker, ...]:
    """The same walkers, with what their nodes say: where one is gone or does not report, its pod's word is old."""
    standing = {node.identity.name: node for node in nodes}
    return tuple(replace(w, trouble=_on_node(w, standing.get(w.node))) for w in told)


def _on_node(walker: Walker, node: NodeView | None) -> str:
    if walker.state in _AT_WORK and node is None:
        what = f"NodeGone: node {walker.node} was deleted, or the operator's settings no longer allow it"
        return f"{what}; bring it back, or take it out of the pool's nodes"
    if walker.state in _AT_WORK and node is not None and not node.ready:
        what = f"NodeNotReady: the kubelet of node {walker.node} no longer reports, and what its pod does is not known"
        return f"{what}; bring the node back, or take it out of the pool's nodes"
    if walker.trouble.startswith(troubles.POD_DELETED) and node is not None and not node.schedulable:
        what = f"NodeDraining: node {walker.node} takes no pods now, and its probe's pod was deleted, as in a drain"
        return f"{what}; measure again once the node is back"
    return walker.trouble


def pod_of(job_uid: str, pods: Iterable[Document]) -> Document:
    """The pod that the Job controls, the youngest of several; empty when there is none."""
    controlled = [pod for pod in pods if is_owned(pod, job_uid)]
    return max(controlled, key=lambda pod: text(at(pod, "metadata", "creationTimestamp")), default={})


def address_of(pod: Document) -> str:
    """On the network that its worker attaches, where there is one with an address; else the pod's first."""
    first = text(at(pod, "status", "podIP"))
    return (network_of(pod).address or first) if first else ""


def network_of(pod: Document) -> Attached:
    """Where the pod's plugins say that it stands beside its first network."""
    containers = mappings(at(pod, "spec", "containers"))
    env = [entry for container in containers[:1] for entry in mappings(container.get("env"))]
    devices = next((text(entry.get("value")) for entry in env if entry.get("name") == "UCX_NET_DEVICES"), "")
    notes = mapping(at(pod, "metadata", "annotations"))
    return attached({key: text(value) for key, value in notes.items()}, devices)


def peers_of(pod: Document) -> Mapping[str, object]:
    """The addresses that the pod was told, by node; empty when it was told none."""
    try:
        told = json.loads(text(at(pod, "metadata", "annotations", PEERS)))
    except (ValueError, RecursionError):
        return {}
    return mapping(told)


def _state(job: Document, pod: Document, events: Sequence[Document]) -> tuple[WalkerState, str]:
    phase = text(at(pod, "status", "phase"))
    if has_ended(job) or phase in {_SUCCEEDED, _FAILED}:
        return WalkerState.ENDED, troubles.of_an_end(job, pod, events)
    if phase == _RUNNING:
        return WalkerState.RUNNING, troubles.of_a_leaving(pod)
    if not pod:
        return WalkerState.PENDING, troubles.of_a_podless(text(at(job, "metadata", "annotations", NODE)), events)
    return WalkerState.PENDING, troubles.of_a_leaving(pod) or troubles.of_a_pending(pod)


def _regards(event: Document, job: SweepJob) -> bool:
    """Whether it is about the Job, or about a pod that the Job made: those have its name with an ending."""
    regarded = mapping(event.get("involvedObject"))
    if regarded.get("kind") == "Pod":
        return text(regarded.get("name")).rpartition("-")[0] == job.name
    return regarded.get("uid") == job.uid
