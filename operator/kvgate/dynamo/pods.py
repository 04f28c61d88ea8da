"""Which pods are a deployment's, by the label that Dynamo's operator sets, and what each of them does there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from kvgate.core.workers import PodRole, WorkerPod
from kvgate.dynamo.document import Document, at, mapping, mappings, text, whole
from kvgate.dynamo.metadata import ModelCard, WorkerMetadata
from kvgate.dynamo.shape import Target
from kvgate.dynamo.split_rules import assigned
from kvgate.dynamo.words import MAIN, Role

DEPLOYMENT_LABEL = "nvidia.com/dynamo-graph-deployment-name"
COMPONENT_LABEL = "nvidia.com/dynamo-component"
TYPE_LABEL = "nvidia.com/dynamo-component-type"
GENERATION_LABEL = "nvidia.com/dynamo-worker-hash"
_ENDED = frozenset({"Succeeded", "Failed"})
_ROLES = {Role.FRONTEND: PodRole.FRONTEND, Role.PREFILL: PodRole.PREFILL, Role.DECODE: PodRole.DECODE}
_TYPES = {role.value: role for role in (PodRole.FRONTEND, PodRole.PREFILL, PodRole.DECODE, PodRole.WORKER)}


def pods_of(
    deployment: str, pods: Iterable[Document], read: Target | None, metadata: Iterable[WorkerMetadata]
) -> tuple[WorkerPod, ...]:
    """The pods of one namespace that carry exactly this deployment's name and have not ended, by name. Never raises.

    A role is that of the component in the spec, else that of the pod's own type label. What a worker publishes counts
    where it names the very pod, by name and UID.
    """
    roles, cards = _roles(read), _cards(metadata)
    ours = (pod for pod in pods if _labels(pod).get(DEPLOYMENT_LABEL) == deployment)
    here = (_pod(pod, roles, cards) for pod in ours if at(pod, "status", "phase") not in _ENDED)
    return tuple(sorted(here, key=lambda pod: (pod.pod, pod.uid)))


def _labels(pod: Document) -> Document:
    return mapping(at(pod, "metadata", "labels"))


def _roles(read: Target | None) -> Mapping[str, PodRole]:
    """By component in lower case, as Dynamo tells names apart."""
    if read is None:
        return {}
    split = {worker.name.lower(): _ROLES.get(role, PodRole.WORKER) for worker, role in assigned(read)}
    return split | {frontend.name.lower(): PodRole.FRONTEND for frontend in read.frontends}


def _cards(metadata: Iterable[WorkerMetadata]) -> Mapping[tuple[str, str], ModelCard]:
    return {(told.pod, told.pod_uid): told.cards[0] for told in metadata if told.pod_uid and told.cards}


def _pod(pod: Document, roles: Mapping[str, PodRole], cards: Mapping[tuple[str, str], ModelCard]) -> WorkerPod:
    labels = _labels(pod)
    name, uid = text(at(pod, "metadata", "name")), text(at(pod, "metadata", "uid"))
    component, card = text(labels.get(COMPONENT_LABEL)), cards.get((name, uid))
    ready = _ready(pod)
    return WorkerPod(
        pod=name,
        uid=uid,
        component=component,
        role=roles.get(component.lower()) or _TYPES.get(text(labels.get(TYPE_LABEL)), PodRole.OTHER),
        node=text(at(pod, "spec", "nodeName")),
        address=text(at(pod, "status", "podIP")),
        ready=bool(ready),
        ready_since=_moment(ready.get("lastTransitionTime")),
        leaving=at(pod, "metadata", "deletionTimestamp") is not None,
        generation=text(labels.get(GENERATION_LABEL)),
        instance=card.instance if card else None,
        serves_as=card.worker_type if card else "",
        restarts=_restarts(pod),
    )


def _ready(pod: Document) -> Document:
    """The Ready condition while it is True; else empty."""
    held = mappings(at(pod, "status", "conditions"))
    return next((entry for entry in held if entry.get("type") == "Ready" and entry.get("status") == "True"), {})


def _restarts(pod: Document) -> int:
    held = mappings(at(pod, "status", "containerStatuses"))
    return next((whole(entry.get("restartCount")) or 0 for entry in held if entry.get("name") == MAIN), 0)


def _moment(value: object) -> datetime | None:
    try:
        read = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None
    return read if read is not None and read.tzinfo is not None else None
