"""Which pods of a deployment are looked at for KV events, at which port, and what is known without asking them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kvgate.core.events_seen import Advert, Declared, Declares, FrontendSeen, Routes, WorkerSeen
from kvgate.core.serving import WorkerType
from kvgate.core.workers import PodRole, WorkerPod
from kvgate.dynamo.component import Component
from kvgate.dynamo.document import Document, at, mappings, text, whole
from kvgate.dynamo.metadata import WorkerMetadata
from kvgate.dynamo.publishing import declared, must_publish, routes
from kvgate.dynamo.shape import Target
from kvgate.dynamo.words import MAIN

HTTP_PORT, SYSTEM_PORT = 8000, 9090
"""Where frontends answer and workers expose their metrics: the Dynamo operator sets both. A named container port moves
the metrics."""
_SILENT_TYPES = frozenset({"decode", "encode"})
_NOT_IN_SPEC = Declared(Declares.UNKNOWN, "its component is not in the deployment's spec")


@dataclass(frozen=True)
class WatchedWorker:
    """A worker without looks yet, what it says of itself, and where its metrics are. `uid` is that of its process:
    looks at another one tell nothing of it."""

    uid: str
    address: str
    port: int
    worker: WorkerSeen
    advert: Advert | None


@dataclass(frozen=True)
class WatchedFrontend:
    """A frontend replica without looks yet, and where its metrics are."""

    uid: str
    address: str
    port: int
    frontend: FrontendSeen


@dataclass(frozen=True)
class Watched:
    """All pods of one deployment that are looked at."""

    routes: Routes
    workers: tuple[WatchedWorker, ...] = ()
    frontends: tuple[WatchedFrontend, ...] = ()


def watched(
    target: Target, pods: Iterable[WorkerPod], documents: Iterable[Document], metadata: Iterable[WorkerMetadata]
) -> Watched:
    """The deployment's pods that are neither ended nor leaving; `documents` are the pods as Kubernetes has them, and
    `metadata` what workers publish. Never raises."""
    staying = [pod for pod in pods if not pod.leaving]
    ports = {text(at(body, "metadata", "uid")): body for body in documents}
    adverts = {(told.pod, told.pod_uid): advert_of(told) for told in metadata if told.pod_uid}
    components = {part.name.lower(): part for part in target.components}
    return Watched(
        routes(target),
        tuple(_worker(pod, components, adverts, ports) for pod in staying if _works(pod, components)),
        tuple(
            WatchedFrontend(
                _process(pod),
                pod.address,
                _port(ports.get(pod.uid, {}), "http", HTTP_PORT),
                FrontendSeen(pod.pod, pod.ready_since),
            )
            for pod in staying
            if pod.role is PodRole.FRONTEND
        ),
    )


def advert_of(told: WorkerMetadata) -> Advert:
    """What a worker's metadata says of its KV events. Of several cards, one that publishes is enough."""
    said = [card.kv_events for card in told.cards if card.kv_events is not None]
    return Advert(
        publishing=any(said) if said else None,
        has_source=bool(told.kv_event_sources) if told.sources or told.channels else None,
        addresses=told.kv_event_addresses,
        block_tokens=next((card.block_tokens for card in told.cards if card.block_tokens), None),
    )


def _works(pod: WorkerPod, components: Mapping[str, Component]) -> bool:
    part = components.get(pod.component.lower())
    return part.worker if part is not None else pod.role not in (PodRole.FRONTEND, PodRole.OTHER)


def _worker(
    pod: WorkerPod,
    components: Mapping[str, Component],
    adverts: Mapping[tuple[str, str], Advert],
    ports: Mapping[str, Document],
) -> WatchedWorker:
    part = components.get(pod.component.lower())
    worker = WorkerSeen(
        pod=pod.pod,
        component=pod.component,
        must_publish=_must_publish(pod, part),
        ready_since=pod.ready_since,
        instance=pod.instance,
        restarts=pod.restarts,
        prefills=pod.serves_as == WorkerType.PREFILL,
        generation=pod.generation,
        declared=declared(part) if part is not None else _NOT_IN_SPEC,
    )
    port = _port(ports.get(pod.uid, {}), "system", SYSTEM_PORT)
    return WatchedWorker(_process(pod), pod.address, port, worker, adverts.get((pod.pod, pod.uid)))


def _process(pod: WorkerPod) -> str:
    """A pod keeps its UID when its container begins anew, and all that was counted there is gone."""
    return f"{pod.uid}/{pod.restarts}"


def _must_publish(pod: WorkerPod, part: Component | None) -> bool:
    """By what the running worker serves as, else by the spec, which may be ahead of the pods."""
    if pod.serves_as:
        return pod.serves_as not in _SILENT_TYPES
    return must_publish(part) if part is not None else pod.role is not PodRole.DECODE


def _port(pod: Document, name: str, default: int) -> int:
    """The port that the main container gives this name."""
    containers = mappings(at(pod, "spec", "containers"))
    ports = (port for c in containers if c.get("name") == MAIN for port in mappings(c.get("ports")))
    found = (whole(port.get("containerPort")) for port in ports if port.get("name") == name)
    return next((port for port in found if port and port <= 65535), default)
