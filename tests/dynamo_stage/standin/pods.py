"""Pods of the stand-in as pods of a real cluster: a Deployment and a discovery Service for each batch.

The container called `main` runs a real frontend or a mock worker in its place, from the image that the graph
names. Requests and limits are left out: nothing here has a GPU. Pods reach the API server at its own address, since the
tests' cluster has no kube-proxy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from kubernetes import client
from kubernetes.client.exceptions import ApiException

from tests.cluster.access import Access
from tests.dynamo_stage.client import UserDoor
from tests.dynamo_stage.image import MODEL, PROGRAMS
from tests.dynamo_stage.specs import Frontend, Worker
from tests.dynamo_stage.stage import HTTP_PORT, SYSTEM_PORT
from tests.dynamo_stage.standin.batches import Batch, BatchKey
from tests.dynamo_stage.standin.graph import Document, Graph
from tests.dynamo_stage.standin.mapping import Refused, events_port, frontend_of, worker_of
from tests.dynamo_stage.standin.rollout import Counts
from tests.dynamo_stage.standin.service import Service

ANYWHERE = "0.0.0.0"
GRAPH_LABEL = "nvidia.com/dynamo-graph-deployment-name"
COMPONENT_LABEL = "nvidia.com/dynamo-component"
BATCH_LABEL = "standin.kvgate.dev/generation"
"""The operator's own labels carry no generation of a frontend."""
DISCOVERY = {"nvidia.com/dynamo-discovery-enabled": "true", "nvidia.com/dynamo-discovery-backend": "kubernetes"}
NIXL_PORT = 19090


@dataclass
class PodRuntime:
    """`shape` and `frontend_shape` change what a batch would run, as those of LocalRuntime do."""

    access: Access
    shape: Callable[[Batch, Worker], Worker] = lambda _, worker: worker
    frontend_shape: Callable[[Batch, Frontend], Frontend] = lambda _, frontend: frontend
    services: dict[tuple[str, str], Service] = field(default_factory=dict)
    _api: client.ApiClient | None = None
    _prepared: set[tuple[str, str]] = field(default_factory=set)

    def door(self, name: str, namespace: str = "default") -> UserDoor:
        """Where users send their requests, in place of the Service that kube-proxy would serve."""
        key = (namespace, name)
        if key not in self.services:
            self.services[key] = Service(lambda: self._backends(key))
        return UserDoor(self.services[key].base)

    def observe(self, graph: Graph) -> Mapping[BatchKey, Counts]:
        selector = f"{GRAPH_LABEL}={graph.name}"
        deployments = self._apps.list_namespaced_deployment(graph.namespace, label_selector=selector).items
        pods = self._core.list_namespaced_pod(graph.namespace, label_selector=selector).items
        existing = [_key(pod.metadata.labels) for pod in pods if pod.status.phase not in {"Succeeded", "Failed"}]
        return {
            key: Counts(one.spec.replicas, existing.count(key), one.status.available_replicas or 0)
            for one in deployments
            if (key := _key(one.metadata.labels)) is not None
        }

    def ask(self, batch: Batch, replicas: int) -> None:
        self._prepare(batch.graph)
        if self._scale(batch.graph.namespace, batch.name, replicas):
            return
        namespace = batch.graph.namespace
        self._create(self._core.create_namespaced_service, namespace, self._service(batch))
        self._create(self._apps.create_namespaced_deployment, namespace, self._deployment(batch, replicas))

    def shrink(self, graph: Graph, key: BatchKey, replicas: int) -> None:
        name = f"{graph.name}-{key.component.lower()}-{key.generation}"
        counts = self.observe(graph).get(key)
        if replicas == 0 and counts is not None and counts.existing == 0:
            self._delete(graph.namespace, name)
        else:
            self._scale(graph.namespace, name, replicas)

    def forget(self, key: tuple[str, str]) -> None:
        """Nothing: what belongs to a graph carries its owner's reference, and the garbage collector takes it."""
        self._prepared.discard(key)

    def _backends(self, key: tuple[str, str]) -> Sequence[tuple[str, int]]:
        selector = f"{GRAPH_LABEL}={key[1]},nvidia.com/dynamo-component-type=frontend"
        pods = self._core.list_namespaced_pod(key[0], label_selector=selector).items
        ready = [pod for pod in pods if pod.metadata.deletion_timestamp is None and _is_ready(pod)]
        return [(pod.status.pod_ip, HTTP_PORT) for pod in ready]

    def _scale(self, namespace: str, name: str, replicas: int) -> bool:
        """Whether there is such a Deployment."""
        try:
            held = self._apps.read_namespaced_deployment(name, namespace)
            if held.spec.replicas != replicas:
                self._apps.patch_namespaced_deployment(name, namespace, {"spec": {"replicas": replicas}})
        except ApiException as error:
            if error.status != 404:
                raise
            return False
        return True

    def _create(self, create: Callable[[str, Document], Any], namespace: str, document: Document) -> None:
        """One that a turn before left half made is kept."""
        try:
            create(namespace, document)
        except ApiException as error:
            if error.status != 409:
                raise

    def _delete(self, namespace: str, name: str) -> None:
        for delete in (self._apps.delete_namespaced_deployment, self._core.delete_namespaced_service):
            try:
                delete(name, namespace)
            except ApiException as error:
                if error.status != 404:
                    raise

    def _prepare(self, graph: Graph) -> None:
        """The account of the pods, with the rights of discovery."""
        if graph.key not in self._prepared:
            self.access.apply(*_account(graph))
            self._prepared.add(graph.key)

    def _service(self, batch: Batch) -> Document:
        port = HTTP_PORT if batch.component.frontend else SYSTEM_PORT
        return {
            "metadata": self._metadata(batch, {**DISCOVERY, "nvidia.com/dynamo-component": batch.component.name}),
            "spec": {"clusterIP": "None", "selector": _selector(batch), "ports": [{"name": "system", "port": port}]},
        }

    def _deployment(self, batch: Batch, replicas: int) -> Document:
        labels = {**batch.labels(), **_selector(batch)}
        template = batch.component.inputs["podTemplate"]
        written = template.get("metadata", {})
        pod_labels = {**written.get("labels", {}), **labels, **DISCOVERY}
        return {
            "metadata": self._metadata(batch, labels),
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": _selector(batch)},
                "template": {
                    "metadata": {"labels": pod_labels, "annotations": written.get("annotations", {})},
                    "spec": self._pod(batch, template.get("spec", {})),
                },
            },
        }

    def _pod(self, batch: Batch, written: Document) -> Document:
        others = [one for one in written.get("containers", ()) if one.get("name") != "main"]
        return {
            "terminationGracePeriodSeconds": 20,
            "enableServiceLinks": False,
            **written,
            "serviceAccountName": _account_name(batch.graph),
            "containers": [self._main(batch), *others],
        }

    def _main(self, batch: Batch) -> Document:
        port = HTTP_PORT if batch.component.frontend else SYSTEM_PORT
        words, variables = self._rendered(batch)
        probe = {"httpGet": {"path": "/health", "port": port}, "periodSeconds": 2, "timeoutSeconds": 2}
        return {
            "name": "main",
            "image": batch.component.container["image"],
            "imagePullPolicy": "IfNotPresent",
            "command": ["python3"],
            "args": list(words),
            "env": [*({"name": name, "value": text} for name, text in variables.items()), *_downward()],
            "ports": [{"name": "http" if batch.component.frontend else "system", "containerPort": port}],
            "readinessProbe": {**probe, "initialDelaySeconds": 3},
        }

    def _rendered(self, batch: Batch) -> tuple[tuple[str, ...], dict[str, str]]:
        common = {**self._injected(), "DYN_NAMESPACE": batch.graph.dynamo_namespace}
        if batch.component.frontend:
            frontend = self.frontend_shape(batch, frontend_of(batch))
            return frontend.command(HTTP_PORT, ANYWHERE), {**common, **frontend.variables()}
        worker, zmq_port = worker_of(batch), events_port(batch.component.words)
        if isinstance(worker, Refused):
            return ("-c", f"raise SystemExit({worker.message!r})"), common
        worker = self.shape(batch, worker)
        words = [_inside(word) for word in worker.command(f"/{MODEL}", zmq_port)]
        return tuple(words), {**common, **_injected_into_workers(), **worker.variables(zmq_port)}

    def _injected(self) -> dict[str, str]:
        server = urlsplit(self.access.server)
        return {
            "DYN_DISCOVERY_BACKEND": "kubernetes",
            "DYN_REQUEST_PLANE": "tcp",
            "DYN_EVENT_PLANE": "zmq",
            "DYN_LOG": "info",
            "HOME": "/tmp",
            "KUBERNETES_SERVICE_HOST": str(server.hostname),
            "KUBERNETES_SERVICE_PORT": str(server.port),
        }

    def _metadata(self, batch: Batch, labels: Mapping[str, str]) -> Document:
        document = batch.graph.document
        owner = {
            "apiVersion": document["apiVersion"],
            "kind": document["kind"],
            "name": batch.graph.name,
            "uid": batch.graph.uid,
            "controller": True,
        }
        return {"name": batch.name, "labels": dict(labels), "ownerReferences": [owner]}

    @property
    def _client(self) -> client.ApiClient:
        self._api = self._api or self.access.api_client()
        return self._api

    @property
    def _apps(self) -> Any:
        return client.AppsV1Api(self._client)

    @property
    def _core(self) -> Any:
        return client.CoreV1Api(self._client)


def _key(labels: Mapping[str, str]) -> BatchKey | None:
    return BatchKey(labels[COMPONENT_LABEL], labels[BATCH_LABEL]) if BATCH_LABEL in labels else None


def _selector(batch: Batch) -> dict[str, str]:
    key = batch.key
    return {GRAPH_LABEL: batch.graph.name, COMPONENT_LABEL: key.component, BATCH_LABEL: key.generation}


def _is_ready(pod: Any) -> bool:
    return any(one.type == "Ready" and one.status == "True" for one in pod.status.conditions or ())


def _inside(word: str) -> str:
    """A program of the stage at its place in the image."""
    return f"/{PROGRAMS}/claims.py" if word.endswith("/dynamo_stage/claims.py") else word


def _injected_into_workers() -> dict[str, str]:
    return {
        "DYN_SYSTEM_ENABLED": "true",
        "DYN_SYSTEM_PORT": str(SYSTEM_PORT),
        "DYN_SYSTEM_USE_ENDPOINT_HEALTH_STATUS": '["generate"]',
        "NIXL_TELEMETRY_ENABLE": "n",
        "NIXL_TELEMETRY_EXPORTER": "prometheus",
        "NIXL_TELEMETRY_PROMETHEUS_PORT": str(NIXL_PORT),
    }


def _downward() -> list[Document]:
    fields = {
        "POD_NAME": "metadata.name",
        "POD_NAMESPACE": "metadata.namespace",
        "POD_UID": "metadata.uid",
        "POD_IP": "status.podIP",
    }
    return [{"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in fields.items()]


def _account_name(graph: Graph) -> str:
    return f"{graph.name}-k8s-service-discovery"


def _account(graph: Graph) -> Sequence[Document]:
    metadata = {"name": _account_name(graph), "namespace": graph.namespace}
    everything = ["get", "list", "watch", "create", "update", "patch", "delete"]
    rbac = "rbac.authorization.k8s.io"
    return (
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata},
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "Role",
            "metadata": metadata,
            "rules": [
                {"apiGroups": ["nvidia.com"], "resources": ["dynamoworkermetadatas"], "verbs": everything},
                {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["get", "list", "watch"]},
                {"apiGroups": [""], "resources": ["pods", "endpoints"], "verbs": ["get", "list", "watch"]},
            ],
        },
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": rbac, "kind": "Role", "name": metadata["name"]},
            "subjects": [{"kind": "ServiceAccount", **metadata}],
        },
    )
