"""What keeps a walker from starting, or ended it before its time: said with its node, a word, and who must act."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from kvgate.dynamo.document import at, mapping, mappings, shown, text
from kvgate.edge.cluster.client import Document
from kvgate.probe.jobs import NODE

POD_DELETED = "PodDeleted"
_IMAGE = frozenset({"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError"})
_NOT_STARTED = frozenset({"CreateContainerConfigError", "CreateContainerError", "RunContainerError"})
_FAILED_SCHEDULING, _SCHEDULED, _FAILED = "FailedScheduling", "Scheduled", "Failed"
TOLD_OF_PODLESS = (("Job", "FailedCreate"), ("Pod", _FAILED_SCHEDULING), ("Pod", _SCHEDULED), ("Pod", _FAILED))
"""The kind that an event regards, and its reason: what is asked for where a Job has no pod, or has none any more."""
_SCHEDULER_SAYS = (
    ("were unschedulable", "cordoned"),
    ("untolerated taint", "tainted"),
    ("Insufficient cpu", "short of CPU"),
    ("Insufficient memory", "short of memory"),
    ("Too many pods", "full of pods"),
)
"""Words of the scheduler's sentence, which is about all nodes, and what they mean for the one that a walker is for."""
DEVICE_HELD = "DeviceHeld"
_DEVICE = re.compile(r"Insufficient ([a-z0-9.-]{1,253}/[A-Za-z0-9_.-]{1,63})")
_FREE_IT = (
    "the cluster's administrator must have its device plugin offer one more, or the deployer scale down a worker of "
    "that node while it is measured"
)
_REFUSED = (
    (
        ("violates PodSecurity",),
        "ProbeForbiddenByPodSecurity: the namespace's Pod Security level refuses the probe's pod; relax one of them",
    ),
    (("exceeded quota",), "QuotaExceeded: a ResourceQuota of the namespace has no room for the probe's pod; raise it"),
    (
        ("must specify", "maximum ", "minimum "),
        "LimitRange: the namespace's quota or LimitRange refuses the probe's resources; admit 250m to 4 CPUs",
    ),
    (
        ("ValidatingAdmissionPolicy", "admission webhook"),
        "AdmissionDenied: a policy or webhook of the cluster denies the probe's pod; have whoever set it admit it",
    ),
)
"""Words of what the Job controller was answered, and what is said of it."""
_LEFT = {
    "DeletionByTaintManager": "NodeTainted: a taint of the effect NoExecute sent the pod away; remove the taint, or "
    "have the target's pods tolerate it",
    "PreemptionByScheduler": "Preempted: a pod of higher priority took the probe's place; make room for 250m CPU and "
    "64Mi",
    "DeletionByPodGC": "NodeGone: the node was deleted; bring it back, or take it out of the pool's nodes",
    "TerminationByKubelet": "NodeShutdown: the node was shut down; measure again once it is back",
}
_DRAINING = "NodeDraining: the pod was told to leave its node; measure again once the node is back"
_SHORT_OF = re.compile(r"low on resource: ([a-z-]{1,32})")
_PORT_IN_USE = re.compile(r"PortInUse: control port (\d{1,5})\b")
_CANNOT_READ, _KILLED = 2, 137


def condition(document: Document, kind: str) -> Document:
    """The condition of this type, if it is True; else empty."""
    held = mappings(at(document, "status", "conditions"))
    return next((entry for entry in held if entry.get("type") == kind and entry.get("status") == "True"), {})


def of_an_end(job: Document, pod: Document, events: Sequence[Document]) -> str:
    """Why a walker that has ended did not end well; empty when it did. `pod` is empty where it is gone."""
    node = text(at(job, "metadata", "annotations", NODE))
    if condition(job, "Failed").get("reason") == "DeadlineExceeded":
        waited = of_a_pending(pod) if pod else _never_started(node, events)
        what = f"the walker of node {node} did not end within its Job's activeDeadlineSeconds"
        return f"DeadlineExceeded: {what}{_why(waited)}"
    if left := of_a_leaving(pod):
        return left
    statuses = mappings(at(pod, "status", "containerStatuses"))
    ends = [mapping(at(status, "state", "terminated")) for status in statuses]
    failed = next((told for ended in ends if (told := _of_an_exit(node, job, ended))), "")
    if failed or not condition(job, "Failed"):
        return failed
    if pod:
        return "WalkerFailed: the Job failed without a word of its pod"
    return f"{POD_DELETED}: the pod of node {node} is gone, and its log with it: somebody deleted it; measure again"


def _of_an_exit(node: str, job: Document, ended: Mapping[str, object]) -> str:
    code = ended.get("exitCode")
    if not isinstance(code, int) or code == 0:
        return ""
    if ended.get("reason") == "OOMKilled":
        what = f"the walker on node {node} was killed for want of memory: its limit is {_limit(job)}"
        return f"OutOfMemory: {what}; have the operator's administrator look at the node if it recurs"
    if taken := _PORT_IN_USE.search(text(ended.get("message"))):
        what = f"port {taken.group(1)} of node {node} is taken by another program, or by another pool's probe"
        return f"PortInUse: {what}; free it, or give the pool another fabric.probe.port"
    if code == _CANNOT_READ:
        what = "the probe's image cannot read what this operator asks"
        return f"WalkerFailed: {what} (exit code 2); set probe.image in the operator's settings to this version's"
    if code == _KILLED or code > _KILLED:
        what = f"the walker on node {node} was killed from outside (exit code {code}), as when its node restarts"
        return f"WalkerKilled: {what}; measure again once the node stands"
    return f"WalkerFailed: the walker ended with exit code {code}; its pod's log says why"


def _limit(job: Document) -> str:
    containers = mappings(at(job, "spec", "template", "spec", "containers"))
    return shown(text(at(containers[0], "resources", "limits", "memory"))) if containers else "not known"


def _why(trouble: str) -> str:
    return f" ({trouble})" if trouble else ""


def of_a_leaving(pod: Document) -> str:
    """Why a pod was sent away from its node, or is about to be."""
    if at(pod, "status", "reason") == "Evicted":
        return _evicted(text(at(pod, "metadata", "annotations", NODE)), text(at(pod, "status", "message")))
    disrupted = condition(pod, "DisruptionTarget")
    return _LEFT.get(text(disrupted.get("reason")), _DRAINING) if disrupted else ""


def _evicted(node: str, said: str) -> str:
    short = _SHORT_OF.search(said)
    why = f": the node is short of {short.group(1)}" if short else ""
    return f"Evicted: the kubelet of node {node} evicted the probe's pod{why}; make room there, and measure again"


def of_a_pending(pod: Document) -> str:
    node = text(at(pod, "metadata", "annotations", NODE))
    for status in mappings(at(pod, "status", "containerStatuses")):
        reason = text(at(status, "state", "waiting", "reason"))
        if reason in _IMAGE:
            return _image(node)
        if reason in _NOT_STARTED:
            return f"ContainerNotStarted: node {node} cannot start the probe's container ({reason})"
    held = mappings(at(pod, "status", "conditions"))
    scheduled = next((entry for entry in held if entry.get("type") == "PodScheduled"), {})
    if scheduled.get("status") == "False" and scheduled.get("reason") == "Unschedulable":
        return _unschedulable(node, text(scheduled.get("message")))
    return ""


def _never_started(node: str, events: Sequence[Document]) -> str:
    """The pod goes with the deadline: what the scheduler and the kubelet said of it stays a while."""
    if "pull image" in _said(events, _FAILED):
        return _image(node)
    scheduled = any(event.get("reason") == _SCHEDULED for event in events)
    said = _said(events, _FAILED_SCHEDULING)
    return _unschedulable(node, said) if said and not scheduled else ""


def _image(node: str) -> str:
    return f"ImagePull: node {node} cannot pull the probe's image; check probe.image in the operator's settings"


def _unschedulable(node: str, said: str) -> str:
    if device := _DEVICE.search(said):
        what = f"node {node} has no {device.group(1)} left for the probe: its workers hold all of it, or it has none"
        return f"{DEVICE_HELD}: {what}; {_FREE_IT}"
    found = tuple(meaning for words, meaning in _SCHEDULER_SAYS if words in said)
    what = " or ".join(found) if found else "cordoned, tainted, full or gone"
    remedy = "uncordon it, make room for 250m CPU and 64Mi, or take it out of the pool's nodes"
    return f"Unschedulable: node {node} takes no probe pod: it is {what}; {remedy}"


def of_a_podless(node: str, events: Sequence[Document]) -> str:
    """Why a Job has no pod yet, or none any more: at its deadline a pod goes before its Job says that it has failed."""
    said = _said(events, "FailedCreate")
    told = next((meaning for words, meaning in _REFUSED if any(word in said for word in words)), "")
    refused = told or ("PodNotCreated: the Job's pod is refused; kubectl describe job says by whom" if said else "")
    return refused or _never_started(node, events)


def _said(events: Iterable[Document], reason: str) -> str:
    return " ".join(text(event.get("message")) for event in events if event.get("reason") == reason)
