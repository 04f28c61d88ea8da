"""The one place that talks to the API server: every call bounded, none repeated, each refusal an error of ours."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote

import urllib3
from kubernetes import client as kubernetes

from kvgate.api.wire import API_VERSION
from kvgate.dynamo.metadata import WORKER_METADATA_KIND, WORKER_METADATA_VERSION
from kvgate.dynamo.words import V1ALPHA1, V1BETA1
from kvgate.edge.cluster.refusals import Refused, Unavailable, refusal
from kvgate.edge.connection import CALL_SECONDS

PAGE = 250
MOST_PAGES = 400
CONNECTIONS = 32
AT_ONCE = 16
"""How many requests of `together` are under way at a time."""
APPLY, MERGE, JSON = "application/apply-patch+yaml", "application/merge-patch+json", "application/json"
JSON_PATCH = "application/json-patch+json"
Document = Mapping[str, Any]


@dataclass(frozen=True)
class Resource:
    """A kind as the API server serves it."""

    api_version: str
    kind: str
    plural: str
    namespaced: bool = True

    def path(self, namespace: str, name: str = "", subresource: str = "") -> str:
        root = "/api" if "/" not in self.api_version else "/apis"
        within = ("namespaces", namespace) if self.namespaced else ()
        parts = (*within, self.plural, *filter(None, (name, subresource)))
        return "/".join((root, self.api_version, *(quote(part, safe="") for part in parts)))


POOLS = Resource(API_VERSION, "InferencePool", "inferencepools")
APPROVALS = Resource(API_VERSION, "GateApproval", "gateapprovals")
REPORTS = Resource(API_VERSION, "FabricReport", "fabricreports")
BENCHMARKS = Resource(API_VERSION, "BenchmarkReport", "benchmarkreports")
TARGETS = Resource(V1BETA1, "DynamoGraphDeployment", "dynamographdeployments")
ALPHA_TARGETS = replace(TARGETS, api_version=V1ALPHA1)
"""For clusters that serve nothing newer."""
CONFIG_MAPS = Resource("v1", "ConfigMap", "configmaps")
PODS = Resource("v1", "Pod", "pods")
WORKERS = Resource(WORKER_METADATA_VERSION, WORKER_METADATA_KIND, "dynamoworkermetadatas")
NODES = Resource("v1", "Node", "nodes", namespaced=False)
JOBS = Resource("batch/v1", "Job", "jobs")
CORE_EVENTS = Resource("v1", "Event", "events")
EVENTS = Resource("events.k8s.io/v1", "Event", "events")


@dataclass(frozen=True)
class Query:
    """What narrows a list, by label and by field selector."""

    labels: str = ""
    fields: str = ""


Observer = Callable[[str, str], Callable[[int], None]]
"""Is told method and plural when a request begins; what it returns is called with the HTTP status when it ends, and
with 0 where no answer came."""


def _unobserved(method: str, resource: str) -> Callable[[int], None]:
    del method, resource
    return lambda _: None


class Client:
    """An API server as one user. All methods raise ClusterError, and take CALL_SECONDS at most per request."""

    def __init__(
        self,
        configuration: kubernetes.Configuration,
        agent: str = "kvgate",
        before_write: Callable[[], None] = lambda: None,
        observer: Observer = _unobserved,
    ) -> None:
        """`before_write` is called before each request that may change something: what it raises goes to the caller,
        and nothing is sent."""
        configuration.retries = False
        configuration.connection_pool_maxsize = CONNECTIONS
        self._api = kubernetes.ApiClient(configuration)
        self._api.user_agent = agent
        self._before_write = before_write
        self._observer = observer
        self._readers = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="reader")

    def together(self, *asks: Callable[[], Sequence[Document]]) -> tuple[Sequence[Document], ...]:
        """The answers of reads that are under way at the same time; raises what the first of them does that fails.

        For each list that must be fresh the server asks etcd first, and one after another these waits add up.
        """
        asked = [self._readers.submit(ask) for ask in asks]
        return tuple(answer.result() for answer in asked)

    def get(self, resource: Resource, namespace: str, name: str) -> Document:
        return self._object("GET", resource, resource.path(namespace, name), f"{resource.kind} {namespace}/{name}")

    def list(self, resource: Resource, namespace: str = "", query: Query | None = None) -> tuple[Document, ...]:
        """Every object, read in pages. The API server leaves out an item's kind; here each says what it is."""
        return tuple(self.each(resource, namespace, query))

    def each(self, resource: Resource, namespace: str = "", query: Query | None = None) -> Iterator[Document]:
        """The same, of which no more than a page is held at a time."""
        asked = query or Query()
        what = f"{resource.kind} list of {namespace or 'the cluster'}"
        told = {"apiVersion": resource.api_version, "kind": resource.kind}
        token = ""
        for _ in range(MOST_PAGES):
            narrowed = {"labelSelector": asked.labels, "fieldSelector": asked.fields, "continue": token}
            page = self._object("GET", resource, resource.path(namespace), what, query={"limit": str(PAGE), **narrowed})
            yield from (told | _lightened(item, resource.kind) for item in page.get("items") or ())
            token = (page.get("metadata") or {}).get("continue") or ""
            if not token:
                return
        raise Refused(f"{what}: holds more than {PAGE * MOST_PAGES} objects")

    def create(self, resource: Resource, namespace: str, body: Document) -> Document:
        what = f"{resource.kind} {namespace}/{_name(body)}"
        return self._object("POST", resource, resource.path(namespace), what, body=body)

    def replace(self, resource: Resource, namespace: str, body: Document, subresource: str = "") -> Document:
        """By PUT; a resourceVersion and a uid in the body must still be the object's, else Conflict."""
        path, what = resource.path(namespace, _name(body), subresource), f"{resource.kind} {namespace}/{_name(body)}"
        return self._object("PUT", resource, path, what, body=body)

    def merge(self, resource: Resource, namespace: str, name: str, patch: Document) -> Document:
        what = f"{resource.kind} {namespace}/{name}"
        return self._object("PATCH", resource, resource.path(namespace, name), what, body=patch, content=MERGE)

    def apply(self, resource: Resource, namespace: str, body: Document, manager: str, *, force: bool) -> Document:
        """Server-side apply. Raises HeldByOthers when another manager holds a field and `force` is not set."""
        path, what = resource.path(namespace, _name(body)), f"{resource.kind} {namespace}/{_name(body)}"
        query = {"fieldManager": manager, "force": str(force).lower()}
        return self._object("PATCH", resource, path, what, body=body, query=query, content=APPLY)

    def patch_json(
        self, resource: Resource, namespace: str, name: str, operations: Sequence[Document], manager: str
    ) -> Document:
        """By RFC 6902. Raises Conflict where a `test` operation does not find what it names, or a path is gone."""
        path, what = resource.path(namespace, name), f"{resource.kind} {namespace}/{name}"
        query = {"fieldManager": manager}
        return self._object("PATCH", resource, path, what, body=list(operations), query=query, content=JSON_PATCH)

    def delete(self, resource: Resource, namespace: str, name: str, uid: str) -> None:
        """Delete that very object, in the background: what it owns goes with it."""
        options = {"propagationPolicy": "Background", "preconditions": {"uid": uid}}
        what = f"{resource.kind} {namespace}/{name}"
        self._ask("DELETE", resource.path(namespace, name), what, body=options, plural=resource.plural)

    def discover(self, api_version: str) -> Document:
        """The kinds that are served in a version of a group. Raises NotFound where there is no such version."""
        resource = Resource(api_version, "APIResourceList", "", namespaced=False)
        return self._object("GET", resource, resource.path("").rstrip("/"), f"the kinds of {api_version}")

    def log(self, namespace: str, pod: str, container: str, most_bytes: int) -> str:
        query = {"container": container, "limitBytes": str(most_bytes)}
        path, what = PODS.path(namespace, pod, "log"), f"log of pod {namespace}/{pod}"
        return self._ask("GET", path, what, query=query, plural="pods/log")

    def _object(self, method: str, resource: Resource, path: str, what: str, **rest: Any) -> Document:
        answer = self._ask(method, path, what, plural=resource.plural, **rest)
        try:
            read = json.loads(answer)
        except (ValueError, RecursionError) as error:
            raise Unavailable(f"{what}: the API server's answer is no JSON; it is asked again") from error
        if not isinstance(read, dict):
            raise Unavailable(f"{what}: the API server's answer is no {resource.kind}; it is asked again")
        return read

    def _ask(
        self,
        method: str,
        path: str,
        what: str,
        *,
        plural: str = "",
        body: Document | Sequence[Document] | None = None,
        query: Mapping[str, str] | None = None,
        content: str = JSON,
    ) -> str:
        headers = {"Accept": "application/json, */*", "Content-Type": content}
        asked = [(key, value) for key, value in (query or {}).items() if value]
        request = self._api.param_serialize(
            method, path, query_params=asked, header_params=headers, body=body, auth_settings=["BearerToken"]
        )
        if method != "GET":
            self._before_write()
        ended, status = self._observer(method, plural), 0
        try:
            answer: Any = self._api.call_api(*request, _request_timeout=CALL_SECONDS)
            told: str = answer.read().decode("utf-8", errors="replace")
            status = answer.status
        except (urllib3.exceptions.HTTPError, kubernetes.ApiException, OSError) as error:
            why = f"the API server gave no answer within {CALL_SECONDS:.0f} s"
            raise Unavailable(f"{what}: {why} ({type(error).__name__}); it is asked again") from error
        finally:
            ended(status)
        if not 200 <= status < 300:
            raise refusal(status, told, what)
        return told


_UNREAD = {
    "Node": (("metadata", "managedFields"), ("status", "images")),
    "Pod": (("metadata", "managedFields"),),
    "Job": (("metadata", "managedFields"),),
}
"""What nobody here reads, and what most of a thousand of these objects is made of."""


def _lightened(item: dict[str, Any], kind: str) -> dict[str, Any]:
    for part, key in _UNREAD.get(kind, ()):
        held = item.get(part)
        if isinstance(held, dict):
            held.pop(key, None)
    return item


def _name(body: Document) -> str:
    metadata = body.get("metadata") or {}
    return str(metadata.get("name") or metadata.get("generateName") or "")
