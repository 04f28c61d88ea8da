"""A directory as the ring's ground whose deployments run on this host: its processes are shown as a cluster's pods."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from urllib.parse import unquote

from kvgate.core.steps import AskWorkers, Step
from kvgate.core.world import Pool, World
from kvgate.dynamo.metadata import WorkerMetadata, read_metadata
from kvgate.dynamo.pods import COMPONENT_LABEL, DEPLOYMENT_LABEL
from kvgate.edge import serving
from kvgate.edge.directory import Directory, Measurer
from kvgate.edge.event_canaries import EventCanaries
from kvgate.edge.mocks import Mock
from kvgate.edge.observe import world_of
from kvgate.edge.scrapes import EventLooks, watched_pods

_PARTS = {
    "instances": "endpoints",
    "event_channels": "event_channels",
    "event_sources": "event_sources",
    "mdc": "model_cards",
}
"""Folder of Dynamo's file discovery → part of a DynamoWorkerMetadata."""
Body = Mapping[str, object]


class MockGround(Directory):
    """The directory, what its processes publish, and whether their KV events come. They are ready since `ready_at`."""

    def __init__(
        self,
        root: Path,
        measure: Measurer,
        clock: Callable[[], datetime],
        running: Sequence[Mock],
        discovery: Path,
        ready_at: datetime,
    ) -> None:
        super().__init__(root, measure)
        self._running, self._discovery, self._ready_at = running, discovery, ready_at
        self._looks, self._canaries = EventLooks(clock), EventCanaries(clock)

    def observe(self, key: str) -> tuple[Pool, World]:
        pool, _ = super().observe(key)
        ours = [mock for mock in self._running if mock.deployment == pool.spec.target_ref.name]
        objects = replace(
            self._seen,
            pods=tuple(_pod(mock, pool.namespace, self._ready_at) for mock in ours),
            metadata=tuple(_published(mock, pool.namespace, self._discovery) for mock in ours if not mock.frontend),
        )
        world = world_of(pool, objects)
        looks = self._looks.seen(pool, lambda: watched_pods(pool, world, objects))
        return pool, replace(world, events=self._canaries.known(key, looks))

    def carry_out(self, pool: Pool, world: World, step: Step) -> None:
        if isinstance(step, AskWorkers):
            fronts = serving.frontends(world.pods)
            self._canaries.start(pool.key, pool.spec.model.name, fronts, step.canaries)
        else:
            super().carry_out(pool, world, step)

    def end(self) -> None:
        """Send no canary more."""
        for key in self.pools():
            self._canaries.forget(key)


def _uid(mock: Mock) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_OID, f"{mock.pod}/{mock.child.pid}"))


def _pod(mock: Mock, namespace: str, ready_at: datetime) -> Body:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": mock.pod,
            "namespace": namespace,
            "uid": _uid(mock),
            "labels": {DEPLOYMENT_LABEL: mock.deployment, COMPONENT_LABEL: mock.component},
        },
        "status": {
            "phase": "Running",
            "podIP": mock.address,
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": ready_at.isoformat()}],
        },
    }


def _published(mock: Mock, namespace: str, discovery: Path) -> WorkerMetadata:
    """What this worker wrote into discovery, as Kubernetes would hold it."""
    owner = {"apiVersion": "v1", "kind": "Pod", "name": mock.pod, "uid": _uid(mock), "controller": True}
    metadata = {"name": mock.pod, "namespace": namespace, "ownerReferences": [owner]}
    return read_metadata({"metadata": metadata, "spec": {"data": _written(discovery / "v1", mock.address)}})


def _written(discovery: Path, address: str) -> dict[str, dict[str, object]]:
    data: dict[str, dict[str, object]] = {part: {} for part in _PARTS.values()}
    for folder, part in _PARTS.items():
        for path in sorted((discovery / folder).glob("*")):
            entry = _entry(path, address)
            if entry is not None:
                data[part][unquote(path.name)] = entry
    return data


def _entry(path: Path, address: str) -> object:
    """None for another process's, and for what is being written or vanishes now: the next look finds it."""
    try:
        text = path.read_text("utf-8")
        return json.loads(text) if f"{address}:" in text else None
    except (OSError, ValueError):
        return None
