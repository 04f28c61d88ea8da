"""Shows local pods in a real API server as what a cluster would show: Pod objects and what each worker publishes.

A DynamoWorkerMetadata holds what the worker really wrote into file discovery, under the names that Kubernetes discovery
uses; what a container published before it began anew is gone with it. No kubelet stands behind the nodes that are
named: a test makes these itself.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from kubernetes import client
from kubernetes.client.exceptions import ApiException

from tests.dynamo_stage.beside import Turning
from tests.dynamo_stage.stage import HTTP_PORT, SYSTEM_PORT
from tests.dynamo_stage.standin.batches import Batch
from tests.dynamo_stage.standin.graph import GROUP, Document
from tests.dynamo_stage.standin.local import LocalPod
from tests.dynamo_stage.standin.status import stamp

METADATA = (GROUP, "v1alpha1", "dynamoworkermetadatas")
PARTS = {
    "instances": "endpoints",
    "event_channels": "event_channels",
    "event_sources": "event_sources",
    "mdc": "model_cards",
}
"""Folder of file discovery → part of DynamoWorkerMetadata."""


@dataclass(frozen=True)
class Face:
    """What a Pod object says of a local pod at one moment."""

    batch: Batch
    name: str
    address: str
    available: bool
    restarts: int


@dataclass
class ApiMirror(Turning):
    """`with ApiMirror(api, stage.discovery, node_of) as mirror:` and `LocalRuntime(stage, mirror=mirror)`.

    `node_of` gives the node that a batch's pods say they run on; empty is none. Pods say that they became ready by
    `aged` earlier than they did, so that a test need not wait until they are old enough to be judged.
    """

    title = "mirror of pods"
    api: client.ApiClient
    discovery: Path
    node_of: Callable[[Batch], str] = lambda _: ""
    aged: timedelta = timedelta()
    wanted: Mapping[tuple[str, str], Face] = field(default_factory=dict)
    shown: dict[tuple[str, str], Face] = field(default_factory=dict)
    uids: dict[tuple[str, str], str] = field(default_factory=dict)
    published: dict[tuple[str, str], Document] = field(default_factory=dict)

    def show(self, pods: Sequence[LocalPod]) -> None:
        faces = (Face(pod.batch, pod.name, pod.address, pod.available, pod.restarts) for pod in pods)
        self.wanted = {(face.batch.graph.namespace, face.name): face for face in faces}

    def last(self) -> None:
        self.wanted = {}
        self.turn()

    def turn(self) -> None:
        wanted = self.wanted
        for key in set(self.shown) - set(wanted):
            self._remove(key)
        written = list(_written(self.discovery)) if wanted else []
        for key, face in wanted.items():
            if key not in self.shown:
                made = self._core.create_namespaced_pod(key[0], pod_document(face, self.node_of(face.batch)))
                self.uids[key] = made.metadata.uid
            if self.shown.get(key) != face:
                body = {"status": pod_status(face, datetime.now(UTC) - self.aged)}
                self._core.patch_namespaced_pod_status(key[1], key[0], body)
                self.shown[key] = face
            self._publish(key, worker_metadata(written, face.address))

    def _publish(self, key: tuple[str, str], data: Document) -> None:
        if not data or self.published.get(key) == data:
            return
        owner = {"apiVersion": "v1", "kind": "Pod", "name": key[1], "uid": self.uids[key], "controller": True}
        body = {
            "apiVersion": f"{GROUP}/{METADATA[1]}",
            "kind": "DynamoWorkerMetadata",
            "metadata": {"name": key[1], "namespace": key[0], "ownerReferences": [owner]},
            "spec": {"data": data},
        }
        where = (METADATA[0], METADATA[1], key[0], METADATA[2])
        if key in self.published:
            merged = {part: {**_gone(held, data[part]), **data[part]} for part, held in self.published[key].items()}
            self._custom.patch_namespaced_custom_object(*where, key[1], {"spec": {"data": merged}})
        else:
            self._custom.create_namespaced_custom_object(*where, body)
        self.published[key] = data

    def _remove(self, key: tuple[str, str]) -> None:
        removals: list[Callable[[], Any]] = [
            lambda: self._core.delete_namespaced_pod(key[1], key[0], grace_period_seconds=0),
            lambda: self._custom.delete_namespaced_custom_object(METADATA[0], METADATA[1], key[0], METADATA[2], key[1]),
        ]
        for remove in removals:
            try:
                remove()
            except ApiException as error:
                if error.status != 404:
                    raise
        for held in (self.shown, self.uids, self.published):
            held.pop(key, None)

    @property
    def _core(self) -> Any:
        return client.CoreV1Api(self.api)

    @property
    def _custom(self) -> Any:
        return client.CustomObjectsApi(self.api)


def pod_document(face: Face, node: str) -> Document:
    component = face.batch.component
    template = component.inputs["podTemplate"]
    port = {"name": "http", "containerPort": HTTP_PORT} if component.frontend else None
    container = {
        **component.container,
        "name": "main",
        "ports": [port or {"name": "system", "containerPort": SYSTEM_PORT}],
    }
    placed = {"nodeName": node} if node else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": face.name,
            "labels": {**template.get("metadata", {}).get("labels", {}), **face.batch.labels()},
            "annotations": template.get("metadata", {}).get("annotations", {}),
        },
        "spec": {
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 0,
            "tolerations": [{"operator": "Exists"}],
            "containers": [container],
            **placed,
        },
    }


def pod_status(face: Face, now: datetime) -> Document:
    word = "True" if face.available else "False"
    changed = stamp(now)
    return {
        "phase": "Running",
        "podIP": face.address,
        "podIPs": [{"ip": face.address}],
        "startTime": changed,
        "conditions": [
            {"type": kind, "status": word, "lastTransitionTime": changed} for kind in ("Ready", "ContainersReady")
        ],
        "containerStatuses": [
            {
                "name": "main",
                "image": str(face.batch.component.container.get("image", "")),
                "imageID": "",
                "ready": face.available,
                "restartCount": face.restarts,
                "state": {"running": {"startedAt": changed}},
            }
        ],
    }


def _written(discovery: Path) -> Iterator[tuple[str, str, str]]:
    """(part, key, JSON text) of everything that the processes have written; what vanishes meanwhile is left out."""
    for folder, part in PARTS.items():
        for path in sorted((discovery / "v1" / folder).glob("*")):
            try:
                yield part, unquote(path.name), path.read_text("utf-8")
            except OSError:
                continue


def _gone(held: Mapping[str, object], kept: Mapping[str, object]) -> dict[str, None]:
    """What a merge patch takes away."""
    return dict.fromkeys(key for key in held if key not in kept)


def worker_metadata(written: Sequence[tuple[str, str, str]], address: str) -> Document:
    """What the process at this address wrote, in the shape of `spec.data`; empty before it wrote its first endpoint."""
    data: dict[str, dict[str, object]] = {part: {} for part in PARTS.values()}
    for part, key, text in written:
        if f"{address}:" in text:
            try:
                data[part][key] = json.loads(text)
            except ValueError:
                return {}
    return data if data["endpoints"] else {}
