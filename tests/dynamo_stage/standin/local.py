"""Pods of the stand-in as local processes of a Stage, each at a loopback address of its own with the ports of a pod."""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tests.cluster.processes import Process
from tests.dynamo_stage.client import UserDoor
from tests.dynamo_stage.specs import Frontend, Worker
from tests.dynamo_stage.stage import HTTP_PORT, Running, RunningFrontend, RunningWorker, Stage
from tests.dynamo_stage.standin.batches import Batch, BatchKey
from tests.dynamo_stage.standin.graph import Graph
from tests.dynamo_stage.standin.mapping import Refused, frontend_of, worker_of
from tests.dynamo_stage.standin.rollout import Counts
from tests.dynamo_stage.standin.service import Service

FIRST_BACK_OFF_SECONDS, LONGEST_BACK_OFF_SECONDS = 0.5, 8.0
GRACE_SECONDS = 20.0
PROBE_SECONDS = 2.0
"""From healthy to available: the kubelet probes every few seconds, and that pause matters.

A frontend is healthy before it knows a model, and a worker before every frontend has read its card. Where old pods went
at the instant at which new ones were healthy, 404 and 503 were seen in one switch of ten.
"""
GraphKey = tuple[str, str]
Shape = Callable[[Batch, Worker], Worker]
FrontendShape = Callable[[Batch, Frontend], Frontend]


def loopback_addresses() -> Iterator[str]:
    """Loopback addresses that nobody else is likely to use, in a row from a random start."""
    second, third = random.randrange(16, 250), random.randrange(256)
    for number in range(1, 255 * 200):
        yield f"127.{second}.{(third + number // 254) % 256}.{number % 254 + 1}"


@dataclass
class LocalPod:
    """`running` is None between a crash and the next start, as in CrashLoopBackOff."""

    batch: Batch
    name: str
    uid: str
    address: str
    running: Running | None = None
    restarts: int = 0
    next_start_seconds: float = 0.0
    available: bool = False
    healthy_since: float | None = None

    @property
    def port(self) -> int:
        return HTTP_PORT


class Mirror(Protocol):
    """Shows local pods to somebody else, such as an API server."""

    def show(self, pods: Sequence[LocalPod]) -> None: ...


@dataclass
class LocalRuntime:
    """`shape` and `frontend_shape` change what a batch would run: that is how a test makes a new generation faulty."""

    stage: Stage
    shape: Shape = lambda _, worker: worker
    frontend_shape: FrontendShape = lambda _, frontend: frontend
    mirror: Mirror | None = None
    probe_seconds: float = PROBE_SECONDS
    pods: dict[GraphKey, list[LocalPod]] = field(default_factory=dict)
    asked: dict[GraphKey, dict[BatchKey, tuple[Batch, int]]] = field(default_factory=dict)
    ending: list[tuple[GraphKey, BatchKey, Process, float]] = field(default_factory=list)
    services: dict[GraphKey, Service] = field(default_factory=dict)
    _addresses: Iterator[str] = field(default_factory=loopback_addresses)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def door(self, name: str, namespace: str = "default") -> UserDoor:
        """Where users send their requests: the graph's Service, from before its first pod until the test ends."""
        with self._lock:
            key = (namespace, name)
            if key not in self.services:
                self.services[key] = Service(lambda: self._backends(key))
            return UserDoor(self.services[key].base)

    def workers(self, name: str, namespace: str = "default") -> list[RunningWorker]:
        found = [pod.running for pod in self.pods_of(name, namespace)]
        return [running for running in found if isinstance(running, RunningWorker)]

    def frontends(self, name: str, namespace: str = "default") -> list[RunningFrontend]:
        found = [pod.running for pod in self.pods_of(name, namespace)]
        return [running for running in found if isinstance(running, RunningFrontend)]

    def pods_of(self, name: str, namespace: str = "default") -> list[LocalPod]:
        with self._lock:
            return list(self.pods.get((namespace, name), ()))

    def observe(self, graph: Graph) -> Mapping[BatchKey, Counts]:
        with self._lock:
            self._tend(graph.key)
            keys = {*self.asked.get(graph.key, {}), *(one[1] for one in self.ending if one[0] == graph.key)}
            return {key: self._counts(graph.key, key) for key in keys}

    def ask(self, batch: Batch, replicas: int) -> None:
        with self._lock:
            asked = self.asked.setdefault(batch.graph.key, {})
            kept = asked[batch.key][0] if batch.key in asked else batch
            asked[batch.key] = (kept, replicas)
            self._bring(batch.graph.key, batch.key)

    def shrink(self, graph: Graph, key: BatchKey, replicas: int) -> None:
        with self._lock:
            asked = self.asked.setdefault(graph.key, {})
            if key not in asked:
                return
            asked[key] = (asked[key][0], replicas)
            self._bring(graph.key, key)
            if replicas == 0 and not self._of(graph.key, key):
                del asked[key]

    def forget(self, key: GraphKey) -> None:
        with self._lock:
            self.asked.pop(key, None)
            for pod in self.pods.pop(key, []):
                self._end(key, pod)
            self._show()

    def _backends(self, key: GraphKey) -> Sequence[tuple[str, int]]:
        pods = list(self.pods.get(key, ()))
        return [(pod.address, pod.port) for pod in pods if pod.batch.component.frontend and pod.available]

    def _of(self, key: GraphKey, batch: BatchKey) -> list[LocalPod]:
        return [pod for pod in self.pods.get(key, ()) if pod.batch.key == batch]

    def _counts(self, key: GraphKey, batch: BatchKey) -> Counts:
        pods = self._of(key, batch)
        leaving = sum(one[:2] == (key, batch) for one in self.ending)
        asked = self.asked.get(key, {}).get(batch)
        return Counts(asked[1] if asked else 0, len(pods) + leaving, sum(pod.available for pod in pods))

    def _bring(self, key: GraphKey, batch: BatchKey) -> None:
        rendered, replicas = self.asked[key][batch]
        pods = self._of(key, batch)
        for pod in sorted(pods, key=lambda pod: pod.available)[: max(0, len(pods) - replicas)]:
            self.pods[key].remove(pod)
            self._end(key, pod)
        for _ in range(replicas - len(pods)):
            uid = str(uuid.uuid4())
            made = LocalPod(rendered, f"{rendered.name}-{uid[:5]}", uid, next(self._addresses))
            self.pods.setdefault(key, []).append(made)
            self._start(made)
        self._show()

    def _start(self, pod: LocalPod) -> None:
        """One that is refused by its engine counts as one that ended."""
        name = f"{pod.name}.{pod.restarts}"
        if pod.batch.component.frontend:
            spec = self.frontend_shape(pod.batch, frontend_of(pod.batch))
            pod.running = self.stage.frontend(name, spec, wait=False, address=pod.address)
            return
        worker = worker_of(pod.batch)
        if not isinstance(worker, Refused):
            shaped = self.shape(pod.batch, worker)
            pod.running = self.stage.worker(name, shaped, wait=False, address=pod.address)

    def _end(self, key: GraphKey, pod: LocalPod) -> None:
        if pod.running is not None and pod.running.runs():
            process = self.stage.terminate(pod.running.name)
            self.ending.append((key, pod.batch.key, process, time.monotonic()))

    def _tend(self, key: GraphKey) -> None:
        """Note who is available, start again what has crashed, and kill what was asked to end long ago."""
        now = time.monotonic()
        for pod in self.pods.get(key, ()):
            self._tend_one(pod, now)
        for one in [one for one in self.ending if one[0] == key]:
            if not one[2].runs() or now > one[3] + GRACE_SECONDS:
                self.stage.reap(one[2])
                self.ending.remove(one)
        self._show()

    def _tend_one(self, pod: LocalPod, now: float) -> None:
        if pod.running is not None and pod.running.runs():
            pod.healthy_since = (pod.healthy_since or now) if _healthy(pod.running) else None
            pod.available = pod.healthy_since is not None and now >= pod.healthy_since + self.probe_seconds
            return
        if pod.next_start_seconds == 0.0:
            pod.available, pod.healthy_since = False, None
            back_off = min(FIRST_BACK_OFF_SECONDS * 2**pod.restarts, LONGEST_BACK_OFF_SECONDS)
            pod.next_start_seconds = now + back_off
        if now >= pod.next_start_seconds:
            if pod.running is not None:
                self.stage.reap(self.stage.terminate(pod.running.name))
            pod.running, pod.restarts, pod.next_start_seconds = None, pod.restarts + 1, 0.0
            self._start(pod)

    def _show(self) -> None:
        if self.mirror is not None:
            self.mirror.show([pod for pods in self.pods.values() for pod in pods])


def _healthy(running: Running) -> bool:
    """The readiness probe that the operator sets on both kinds."""
    assert isinstance(running, RunningFrontend | RunningWorker)
    return running.door.get("/health", seconds=2.0)[0] == 200
