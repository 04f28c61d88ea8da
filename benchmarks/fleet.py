"""Nodes that no machine stands behind, and one thread pool that plays all their kubelets towards a real API server."""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.cluster.access import Access
from tests.cluster.controlplane import LOOPBACK, free_port

LEASES = "kube-node-lease"
BEAT_SECONDS = 25.0
"""The node controller takes a node for dead after 50 s without a word."""
WORKERS, BEATERS = 8, 4
Document = dict[str, Any]


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


@dataclass
class Fleet:
    """Runs each pod that the scheduler binds to one of its nodes: with an address of its own, until `walked` says that
    it has ended. `prints` gives what its container wrote, which the API server asks for as it asks a kubelet.

    There is no container and no traffic: what is played is what a kubelet tells of a pod, its log, and its heartbeat.
    """

    access: Access
    namespace: str
    labels: Mapping[str, Mapping[str, str]]
    prints: Callable[[Document], str]
    ends: Callable[[Document], bool]
    pods: dict[str, Document] = field(default_factory=dict)
    running: dict[str, float] = field(default_factory=dict)
    ended: dict[str, float] = field(default_factory=dict)
    _stop: threading.Event = field(default_factory=threading.Event)
    _local: threading.local = field(default_factory=threading.local)

    def _ask(self, verb: str, path: str, body: object, kind: str, **more: Any) -> Any:
        """On a connection of the thread's own."""
        if not hasattr(self._local, "api"):
            self._local.api = self.access.api_client()
        api = self._local.api
        headers = {"Content-Type": kind, "Accept": "application/json"}
        headers["Authorization"] = api.configuration.auth_settings()["BearerToken"]["value"]
        told = None if body is None else json.dumps(body)
        url = f"{api.configuration.host}{path}"
        return api.rest_client.pool_manager.request(verb, url, body=told, headers=headers, **more)

    def call(self, verb: str, path: str, body: object = None, kind: str = "application/json") -> Document:
        answer = self._ask(verb, path, body, kind)
        if answer.status >= 400 and (verb, answer.status) != ("PATCH", 404):
            raise RuntimeError(f"{verb} {path}: {answer.status} {answer.data[:200]!r}")
        found: Document = json.loads(answer.data)
        return found

    @contextmanager
    def up(self) -> Iterator[Fleet]:
        server, names = self._kubelet(), tuple(self.labels)
        with ThreadPoolExecutor(WORKERS) as hands:
            list(hands.map(lambda name: self._register(name, server.server_address[1]), self.labels))
            works: list[Callable[[], object]] = [server.serve_forever, self._follow, partial(self._play, hands)]
            works += [partial(self._beat, names[place::BEATERS]) for place in range(BEATERS)]
            for work in works:
                threading.Thread(target=work, daemon=True).start()
            try:
                yield self
            finally:
                self._stop.set()
                server.shutdown()

    def _register(self, name: str, port: int) -> None:
        labels = {"kubernetes.io/hostname": name, **self.labels[name]}
        self.call(
            "POST", "/api/v1/nodes", {"kind": "Node", "apiVersion": "v1", "metadata": {"name": name, "labels": labels}}
        )
        room = {"cpu": "64", "memory": "512Gi", "pods": "110", "ephemeral-storage": "100Gi"}
        kinds = (("Ready", "True"), ("MemoryPressure", "False"), ("DiskPressure", "False"), ("PIDPressure", "False"))
        conditions = [
            {
                "type": kind,
                "status": status,
                "reason": "Played",
                "lastHeartbeatTime": now(),
                "lastTransitionTime": now(),
            }
            for kind, status in kinds
        ]
        status = {
            "conditions": conditions,
            "capacity": room,
            "allocatable": room,
            "addresses": [{"type": "InternalIP", "address": LOOPBACK}, {"type": "Hostname", "address": name}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
            "nodeInfo": {"bootID": f"boot-{name}", "kernelVersion": "6.1.0", "machineID": name, "systemUUID": name},
        }
        self._patch(f"/api/v1/nodes/{name}/status", {"status": status})
        lease = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": name, "namespace": LEASES},
            "spec": {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": now()},
        }
        self.call("POST", f"/apis/coordination.k8s.io/v1/namespaces/{LEASES}/leases", lease)

    def _patch(self, path: str, body: object) -> None:
        self.call("PATCH", path, body, "application/merge-patch+json")

    def _beat(self, names: Sequence[str]) -> None:
        while not self._stop.is_set():
            began = time.monotonic()
            for name in names:
                path = f"/apis/coordination.k8s.io/v1/namespaces/{LEASES}/leases/{name}"
                self._patch(path, {"spec": {"renewTime": now()}})
                if self._stop.wait(BEAT_SECONDS / len(names) / 4):
                    return
            self._stop.wait(max(0.0, BEAT_SECONDS - (time.monotonic() - began)))

    def _follow(self) -> None:
        """Lists and then watches all pods of the namespace; each as a document, without the client's models."""
        path = f"/api/v1/namespaces/{self.namespace}/pods"
        while not self._stop.is_set():
            found = self.call("GET", path)
            self.pods = {pod["metadata"]["name"]: pod for pod in found["items"]}
            version = found["metadata"]["resourceVersion"]
            watched = f"{path}?watch=1&resourceVersion={version}&timeoutSeconds=600"
            answer = self._ask("GET", watched, None, "application/json", preload_content=False, timeout=600)
            self._take(answer)

    def _take(self, answer: Any) -> None:
        held = b""
        for part in answer.stream(65536, decode_content=False):
            *lines, held = (held + part).split(b"\n")
            for line in lines:
                event = json.loads(line)
                if event["type"] == "ERROR" or self._stop.is_set():
                    return
                pod = event["object"]
                name = pod["metadata"]["name"]
                if event["type"] == "DELETED":
                    self.pods.pop(name, None)
                else:
                    self.pods[name] = pod

    def _play(self, hands: ThreadPoolExecutor) -> None:
        while not self._stop.wait(0.2):
            pods = list(self.pods.values())
            begin = [p for p in pods if p["spec"].get("nodeName") in self.labels and _name(p) not in self.running]
            finish = [p for p in pods if _name(p) in self.running and _name(p) not in self.ended and self.ends(p)]
            for pod in begin:
                self.running[_name(pod)] = time.monotonic()
            for pod in finish:
                self.ended[_name(pod)] = time.monotonic()
            list(hands.map(lambda pod: self._tell(pod, "Running"), begin))
            list(hands.map(lambda pod: self._tell(pod, "Succeeded"), finish))

    def _tell(self, pod: Document, phase: str) -> None:
        going = phase == "Running"
        number = list(self.labels).index(pod["spec"]["nodeName"])
        address = f"10.{number // 65536 + 64}.{number // 256 % 256}.{number % 256}"
        container = {
            "name": "walker", "image": "kvgate.dev/probe:bench", "imageID": "", "ready": going, "restartCount": 0,
            "state": {"running": {"startedAt": now()}} if going else {"terminated": {"exitCode": 0}},
        }  # fmt: skip
        status = {
            "phase": phase, "startTime": now(), "podIP": address, "podIPs": [{"ip": address}],
            "containerStatuses": [container],
        }  # fmt: skip
        self._patch(f"/api/v1/namespaces/{self.namespace}/pods/{_name(pod)}/status", {"status": status})

    def _kubelet(self) -> ThreadingHTTPServer:
        """What answers the API server that asks a node for a container's log."""
        fleet = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                name = self.path.split("?")[0].split("/")[3]
                text = fleet.prints(fleet.pods[name]).encode() if name in fleet.pods else b""
                self.send_response(200 if text else 404)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_: object) -> None:
                return

        server = ThreadingHTTPServer((LOOPBACK, free_port(LOOPBACK)), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.access.directory / "server.crt", self.access.directory / "server.key")
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        server.daemon_threads = True
        return server


def _name(pod: Document) -> str:
    return str(pod["metadata"]["name"])


def bytes_of(items: Sequence[Document]) -> int:
    """As JSON, without spaces, managed fields included: what a list of them takes on the wire."""
    return sum(len(json.dumps(item, separators=(",", ":"))) for item in items)
