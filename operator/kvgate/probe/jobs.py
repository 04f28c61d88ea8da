"""The manifests of a sweep in a cluster: one ConfigMap with the schedule, and one Job per node that walks it."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kvgate.api.wire import API_VERSION
from kvgate.core.shoes import BAREFOOT, Shoes
from kvgate_probe.seats import walker_at
from kvgate_probe.wire import Schedule, encode_schedule, schedule_digest

Manifest = dict[str, object]
POOL_UID = "kvgate.dev/pool-uid"
RUN = "kvgate.dev/run"
NODE = "kvgate.dev/node"
COMPANION = "kvgate.dev/companion"
"""On a Job: that its pod is the second on its node."""
PEERS = "kvgate.dev/peers"
BOOT = "kvgate.dev/boot-id"
"""On a Job: the boot of its node when the sweep began, which is the one that its numbers are of."""
COPIED = "kvgate.dev/copied"
"""On a Job: what its pod has from the worker that it stands for, a JSON list of words."""
ELSEWHERE = "kvgate.dev/elsewhere"
"""On a Job whose pod is not on the network of the worker that it stands for: which network that is."""
HOST_NETWORK = "hostNetwork"
SCHEDULE_DIGEST = "kvgate.dev/schedule-digest"
SCHEDULE_KEY = "schedule.json"
CONTAINER = "walker"
HOSTNAME = "kubernetes.io/hostname"
PROBE_USER = 65532
LARGEST_SCHEDULE_BYTES = 1_000_000
"""A ConfigMap is refused above 1 MiB."""
START_SECONDS = 180
"""For scheduling, pulling the image and learning the partners' addresses."""
ROUND_SECONDS = 20
SILENCE_SECONDS = 15
KEPT_SECONDS = 6 * 3600
"""How long a finished Job waits to be collected by an operator that was away."""
_STEM = 17
_NOT_LABEL = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True)
class Owner:
    """The pool that a sweep is for: what it makes is owned by it, and found again by its UID."""

    name: str
    namespace: str
    uid: str


@dataclass(frozen=True)
class Seat:
    """A node that a walker is pinned to, the value of its hostname label, and the node's boot where it is known. Of two
    walkers there one is the `companion`."""

    node: str
    hostname: str
    boot_id: str = ""
    companion: bool = False

    @property
    def walker(self) -> str:
        return walker_at(self.node, companion=self.companion)


@dataclass(frozen=True)
class PodStyle:
    """What the operator's settings and the target decide about the walkers' pods."""

    image: str
    tolerations: Sequence[Mapping[str, object]] = ()
    host_network: bool = False
    capabilities: tuple[str, ...] = ()
    shoes: Shoes = BAREFOOT
    memory: str = "256Mi"
    """The container's limit; tools that hold large buffers need more."""

    @property
    def on_host_network(self) -> bool:
        return self.host_network or self.shoes.host_network

    @property
    def off_host_network(self) -> bool:
        """Whether the worker is on the host network, and the probe may not be."""
        return self.shoes.off_host_network and not self.on_host_network


def schedule_name(owner: Owner, run_id: str) -> str:
    return _name(owner, run_id, "schedule")


def job_name(owner: Owner, run_id: str, walker: str) -> str:
    """The same for the same pool, run and walker, so that a second attempt to make the Job finds the first."""
    return _name(owner, run_id, walker)


def labels(owner: Owner, run_id: str) -> dict[str, str]:
    return {"app.kubernetes.io/managed-by": "kvgate", POOL_UID: owner.uid, RUN: run_id}


def owned_by(owner: Owner) -> list[Manifest]:
    reference: Manifest = {"apiVersion": API_VERSION, "kind": "InferencePool", "name": owner.name, "uid": owner.uid}
    return [reference | {"controller": True, "blockOwnerDeletion": False}]


def deadline_seconds(schedule: Schedule, timeout_seconds: float) -> int:
    """How long one walker may take: its rounds with their overhead, and partners that fall silent; the sweep's own
    timeout at most."""
    rounds = len(schedule.rounds) * (schedule.round_seconds + ROUND_SECONDS * len(schedule.steps))
    return max(1, round(min(timeout_seconds, START_SECONDS + rounds + SILENCE_SECONDS * len(schedule.nodes))))


def config_map(owner: Owner, run_id: str, name: str, data: Mapping[str, str]) -> Manifest:
    """What a run's pods are given to read; it never changes."""
    metadata = _metadata(owner, run_id, name)
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "immutable": True, "data": dict(data)}


@dataclass(frozen=True)
class RunJob:
    """A Job whose pod is started once: its name, the pod's spec, and the annotations of both."""

    name: str
    pod: Manifest
    deadline_seconds: int
    notes: Mapping[str, str]
    pod_notes: Mapping[str, str] = field(default_factory=dict)

    def manifest(self, owner: Owner, run_id: str) -> Manifest:
        pod: Manifest = {"labels": labels(owner, run_id)}
        return {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": _metadata(owner, run_id, self.name) | {"annotations": dict(self.notes)},
            "spec": {
                "backoffLimit": 0,
                "completions": 1,
                "parallelism": 1,
                "activeDeadlineSeconds": self.deadline_seconds,
                "ttlSecondsAfterFinished": KEPT_SECONDS,
                "template": {
                    "metadata": pod | ({"annotations": dict(self.pod_notes)} if self.pod_notes else {}),
                    "spec": self.pod,
                },
            },
        }


def _metadata(owner: Owner, run_id: str, name: str) -> Manifest:
    owners = owned_by(owner)
    return {"name": name, "namespace": owner.namespace, "labels": labels(owner, run_id), "ownerReferences": owners}


def schedule_config_map(owner: Owner, schedule: Schedule) -> Manifest:
    run_id = schedule.run_id
    return config_map(owner, run_id, schedule_name(owner, run_id), {SCHEDULE_KEY: encode_schedule(schedule)})


@dataclass(frozen=True)
class Walk:
    """What the Jobs of one sweep have in common."""

    run_id: str
    schedule_digest: str
    deadline_seconds: int


def walk_of(schedule: Schedule, timeout_seconds: float) -> Walk:
    return Walk(schedule.run_id, schedule_digest(schedule), deadline_seconds(schedule, timeout_seconds))


def walker_job(owner: Owner, walk: Walk, seat: Seat, style: PodStyle) -> Manifest:
    """The Job of one walker. Its pod meets Pod Security `restricted` unless the style asks for what that forbids."""
    run_id = walk.run_id
    return RunJob(
        name=job_name(owner, run_id, seat.walker),
        pod=_pod(schedule_name(owner, run_id), seat, style),
        deadline_seconds=walk.deadline_seconds,
        notes={
            SCHEDULE_DIGEST: walk.schedule_digest,
            NODE: seat.node,
            **({COMPANION: "true"} if seat.companion else {}),
            **({BOOT: seat.boot_id} if seat.boot_id else {}),
            **({COPIED: json.dumps(list(style.shoes.told))} if style.shoes.told else {}),
            **({ELSEWHERE: HOST_NETWORK} if style.off_host_network else {}),
        },
        pod_notes={NODE: seat.node, **dict(style.shoes.annotations)},
    ).manifest(owner, run_id)


def _name(owner: Owner, run_id: str, what: str) -> str:
    """At most 63 characters, for pods carry their Job's name as a label."""
    told = hashlib.sha256(f"{owner.uid}/{run_id}/{what}".encode()).hexdigest()[:6]
    stems = (_stem(owner.name), _stem(run_id), _stem(what), told)
    return "-".join(filter(None, stems))


def _stem(text: str) -> str:
    return _NOT_LABEL.sub("-", text.lower()).strip("-")[:_STEM].strip("-")


def _pod(schedule: str, seat: Seat, style: PodStyle) -> Manifest:
    pod: Manifest = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 10,
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": _only(seat)}},
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": style.shoes.user or PROBE_USER,
            "runAsGroup": style.shoes.group or PROBE_USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(seat.walker, style)],
        "volumes": [
            {"name": "schedule", "configMap": {"name": schedule}},
            {"name": "pod", "downwardAPI": {"items": [{"path": "peers", "fieldRef": _annotation()}]}},
            {"name": "scratch", "emptyDir": {"medium": "Memory", "sizeLimit": "16Mi"}},
        ],
    }
    if style.on_host_network:
        pod |= {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"}
    if style.tolerations:
        pod["tolerations"] = [dict(toleration) for toleration in style.tolerations]
    return pod


def _container(walker: str, style: PodStyle) -> Manifest:
    capabilities: Manifest = {"drop": ["ALL"]}
    if style.capabilities:
        capabilities["add"] = list(style.capabilities)
    requests: Manifest = {"cpu": "250m", "memory": "64Mi"}
    limits: Manifest = {"cpu": "4", "memory": style.memory}
    for ask in style.shoes.resources:
        (limits if ask.section == "limits" else requests)[ask.name] = ask.quantity
    environment = [{"name": name, "value": value} for name, value in style.shoes.environment]
    return ({"env": environment} if environment else {}) | {
        "name": CONTAINER,
        "image": style.image,
        "imagePullPolicy": "IfNotPresent",
        "args": [
            *("walk", "--schedule", f"/etc/kvgate/schedule/{SCHEDULE_KEY}", "--peers", "/etc/kvgate/pod/peers"),
            *("--node", walker, "--termination-log", "/dev/termination-log"),
        ],
        "resources": {"requests": requests, "limits": limits},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": capabilities,
        },
        "volumeMounts": [
            {"name": "schedule", "mountPath": "/etc/kvgate/schedule", "readOnly": True},
            {"name": "pod", "mountPath": "/etc/kvgate/pod", "readOnly": True},
            {"name": "scratch", "mountPath": "/tmp"},  # noqa: S108 - a path in the pod
        ],
    }


def _only(seat: Seat) -> Manifest:
    wanted = {"key": HOSTNAME, "operator": "In", "values": [seat.hostname]}
    return {"nodeSelectorTerms": [{"matchExpressions": [wanted]}]}


def _annotation() -> Manifest:
    return {"fieldPath": f"metadata.annotations['{PEERS}']"}
