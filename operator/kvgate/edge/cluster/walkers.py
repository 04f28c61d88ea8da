"""What Jobs, pods and events say about the walkers of a sweep: documents in, walkers out, nothing asked."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from kvgate.api.status import SweepJob
from kvgate.core.world import Walker, WalkerState
from kvgate.dynamo.document import at, mapping, mappings, text
from kvgate.edge.cluster.client import Document
from kvgate.probe.jobs import NODE, PEERS, POOL_UID, RUN, Owner, job_name

_IMAGE = frozenset({"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError"})
_NOT_STARTED = frozenset({"CreateContainerConfigError", "CreateContainerError", "RunContainerError"})
_AT_WORK = frozenset({WalkerState.PENDING, WalkerState.RUNNING})
_RUNNING, _SUCCEEDED, _FAILED = "Running", "Succeeded", "Failed"


_FAILED_SCHEDULING, _SCHEDULED = "FailedScheduling", "Scheduled"
TOLD_OF_PODLESS = (("Job", "FailedCreate"), ("Pod", _FAILED_SCHEDULING), ("Pod", _SCHEDULED))
"""The kind that an event regards, and its reason: what is asked for where a Job has no pod, or has none any more."""
_SCHEDULER_SAYS = (
    ("were unschedulable", "cordoned"),
    ("untolerated taint", "tainted"),
    ("Insufficient cpu", "short of CPU"),
    ("Insufficient memory", "short of memory"),
    ("Too many pods", "full of pods"),
)
"""Words of the scheduler's sentence, which is about all nodes, and what they mean for the one that a walker is for."""


@dataclass(frozen=True)
class Seen:
    """What lies in the namespace with the label of one run: Jobs, pods, and events about Jobs that have no pod."""

    jobs: Sequence[Document] = ()
    pods: Sequence[Document] = ()
    events: Sequence[Document] = field(default=())


def is_owned(document: Document, uid: str) -> bool:
    """Whether the object's controller is the one with this UID."""
    references = mappings(at(document, "metadata", "ownerReferences"))
    return any(reference.get("uid") == uid and reference.get("controller") is True for reference in references)


def is_of_run(document: Document, owner: Owner, run_id: str) -> bool:
    """Whether this pool made it for this run: by owner reference, and by both labels."""
    labels = mapping(at(document, "metadata", "labels"))
    marked = labels.get(POOL_UID) == owner.uid and labels.get(RUN) == run_id
    return marked and is_owned(document, owner.uid)


def has_ended(job: Document) -> bool:
    return bool(_condition(job, "Complete") or _condition(job, "Failed"))


def sweep_jobs(jobs: Iterable[Document], owner: Owner, run_id: str) -> tuple[SweepJob, ...]:
    """The run's Jobs that are ours, by node; one that is being deleted counts as gone."""
    ours = (job for job in jobs if is_of_run(job, owner, run_id) and not at(job, "metadata", "deletionTimestamp"))
    told = (_job(job) for job in ours)
    return tuple(sorted((j for j in told if j.name == job_name(owner, run_id, j.node)), key=lambda j: j.node))


def _job(job: Document) -> SweepJob:
    metadata = mapping(job.get("metadata"))
    node = text(mapping(metadata.get("annotations")).get(NODE))
    return SweepJob(node=node, name=text(metadata.get("name")), uid=text(metadata.get("uid")))


def walkers(
    nodes: Iterable[str], known: Iterable[SweepJob], found: Sequence[SweepJob], seen: Seen
) -> tuple[Walker, ...]:
    """One walker per node. `known` are the Jobs that the status remembers, `found` those that exist and are ours."""
    remembered, existing = {job.node: job for job in known}, {job.node: job for job in found}
    bodies = {text(at(job, "metadata", "uid")): job for job in seen.jobs}
    addresses = {job.node: address_of(pod_of(job.uid, seen.pods)) for job in found}
    every = sorted({*nodes, *remembered, *existing})
    return tuple(_walker(node, remembered.get(node), existing.get(node), bodies, seen, addresses) for node in every)


def _walker(
    node: str,
    remembered: SweepJob | None,
    job: SweepJob | None,
    bodies: Mapping[str, Document],
    seen: Seen,
    addresses: Mapping[str, str],
) -> Walker:
    if job is None or (remembered is not None and remembered.uid != job.uid):
        if remembered is None:
            return Walker(node, "", WalkerState.PENDING)
        return Walker(node, remembered.uid, WalkerState.GONE, trouble=f"JobDeleted: Job {remembered.name} was deleted")
    pod = pod_of(job.uid, seen.pods)
    state, trouble = _state(bodies[job.uid], pod, [e for e in seen.events if _regards(e, job)])
    return Walker(node, job.uid, state, addresses[node], told_of(pod, addresses), trouble)


def on_nodes(told: Iterable[Walker], present: frozenset[str]) -> tuple[Walker, ...]:
    """The same walkers, where one that is at work on a node that is not there any more says so: its pod does not."""
    return tuple(w if w.node in present or w.state not in _AT_WORK else replace(w, trouble=_gone(w.node)) for w in told)


def _gone(node: str) -> str:
    what = f"NodeGone: node {node} was deleted, or the operator's settings no longer allow it"
    return f"{what}; bring it back, or take it out of the pool's nodes"


def pod_of(job_uid: str, pods: Iterable[Document]) -> Document:
    """The pod that the Job controls, the youngest of several; empty when there is none."""
    controlled = [pod for pod in pods if is_owned(pod, job_uid)]
    return max(controlled, key=lambda pod: text(at(pod, "metadata", "creationTimestamp")), default={})


def address_of(pod: Document) -> str:
    return text(at(pod, "status", "podIP"))


def peers_of(pod: Document) -> Mapping[str, object]:
    """The addresses that the pod was told, by node; empty when it was told none."""
    try:
        told = json.loads(text(at(pod, "metadata", "annotations", PEERS)))
    except (ValueError, RecursionError):
        return {}
    return mapping(told)


def told_of(pod: Document, addresses: Mapping[str, str]) -> frozenset[str]:
    """The nodes whose present address the pod was told."""
    told = peers_of(pod)
    return frozenset(node for node, address in addresses.items() if address and told.get(node) == address)


def _state(job: Document, pod: Document, events: Sequence[Document]) -> tuple[WalkerState, str]:
    phase = text(at(pod, "status", "phase"))
    if has_ended(job) or phase in {_SUCCEEDED, _FAILED}:
        return WalkerState.ENDED, _end_trouble(job, pod, events)
    if phase == _RUNNING:
        return WalkerState.RUNNING, _draining(pod)
    return WalkerState.PENDING, _draining(pod) or _pending_trouble(pod) if pod else _podless_trouble(events)


def _condition(document: Document, kind: str) -> Document:
    """The condition of this type, if it is True; else empty."""
    held = mappings(at(document, "status", "conditions"))
    return next((entry for entry in held if entry.get("type") == kind and entry.get("status") == "True"), {})


def _end_trouble(job: Document, pod: Document, events: Sequence[Document]) -> str:
    if _condition(job, "Failed").get("reason") == "DeadlineExceeded":
        node = text(at(job, "metadata", "annotations", NODE))
        waited = _pending_trouble(pod) if pod else _never_scheduled(node, events)
        what = f"the walker of node {node} did not end within its Job's activeDeadlineSeconds"
        return f"DeadlineExceeded: {what}{_why(waited)}"
    if drained := _draining(pod):
        return drained
    codes = [at(status, "state", "terminated", "exitCode") for status in _containers(pod)]
    failed = [code for code in codes if isinstance(code, int) and code != 0]
    if failed:
        return f"WalkerFailed: the walker ended with exit code {failed[0]}; its pod's log says why"
    return "WalkerFailed: the Job failed without a word of its pod" if _condition(job, "Failed") else ""


def _why(trouble: str) -> str:
    return f" ({trouble})" if trouble else ""


def _draining(pod: Document) -> str:
    disrupted = _condition(pod, "DisruptionTarget")
    return "NodeDraining: the pod was told to leave its node; measure again once the node is back" if disrupted else ""


def _pending_trouble(pod: Document) -> str:
    node = text(at(pod, "metadata", "annotations", NODE))
    for status in _containers(pod):
        reason = text(at(status, "state", "waiting", "reason"))
        if reason in _IMAGE:
            return f"ImagePull: node {node} cannot pull the probe's image; check probe.image in the operator's settings"
        if reason in _NOT_STARTED:
            return f"ContainerNotStarted: node {node} cannot start the probe's container ({reason})"
    held = mappings(at(pod, "status", "conditions"))
    scheduled = next((entry for entry in held if entry.get("type") == "PodScheduled"), {})
    if scheduled.get("status") == "False" and scheduled.get("reason") == "Unschedulable":
        return _unschedulable(node, text(scheduled.get("message")))
    return ""


def _never_scheduled(node: str, events: Sequence[Document]) -> str:
    """The pod goes with the deadline: what the scheduler said of it stays a while."""
    scheduled = any(event.get("reason") == _SCHEDULED for event in events)
    said = _said(events, _FAILED_SCHEDULING)
    return _unschedulable(node, said) if said and not scheduled else ""


def _unschedulable(node: str, said: str) -> str:
    found = tuple(meaning for words, meaning in _SCHEDULER_SAYS if words in said)
    what = " or ".join(found) if found else "cordoned, tainted, full or gone"
    remedy = "uncordon it, make room for 250m CPU and 64Mi, or take it out of the pool's nodes"
    return f"Unschedulable: node {node} takes no probe pod: it is {what}; {remedy}"


def _said(events: Sequence[Document], reason: str) -> str:
    return " ".join(text(event.get("message")) for event in events if event.get("reason") == reason)


def _containers(pod: Document) -> tuple[Document, ...]:
    return mappings(at(pod, "status", "containerStatuses"))


def _podless_trouble(events: Sequence[Document]) -> str:
    said = _said(events, "FailedCreate")
    if "violates PodSecurity" in said:
        return (
            "ProbeForbiddenByPodSecurity: the namespace's Pod Security level refuses the probe's pod; relax one of them"
        )
    if "exceeded quota" in said:
        return "QuotaExceeded: a ResourceQuota of the namespace has no room for the probe's pod; raise it"
    if "must specify" in said or "maximum " in said or "minimum " in said:
        return "LimitRange: the namespace's quota or LimitRange refuses the probe's resources; admit 250m to 4 CPUs"
    return "PodNotCreated: the Job's pod is refused; kubectl describe job says by whom" if said else ""


def _regards(event: Document, job: SweepJob) -> bool:
    """Whether it is about the Job, or about a pod that the Job made: those have its name with an ending."""
    regarded = mapping(event.get("involvedObject"))
    if regarded.get("kind") == "Pod":
        return text(regarded.get("name")).rpartition("-")[0] == job.name
    return regarded.get("uid") == job.uid
