"""The status that the operator writes, in the shape of the CRD and with the operator's own reasons."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from tests.dynamo_stage.standin.batches import Batch, BatchKey
from tests.dynamo_stage.standin.graph import Component, Document, Graph
from tests.dynamo_stage.standin.rollout import NONE, Counts


@dataclass(frozen=True)
class Seen:
    """A graph with the counts of every batch of it."""

    graph: Graph
    counts: Mapping[BatchKey, Counts]

    def new(self, component: Component) -> Counts:
        return self.counts.get(BatchKey(component.name, self.graph.generation_of(component)), NONE)

    def all_of(self, component: Component) -> Mapping[str, Counts]:
        return {key.generation: held for key, held in self.counts.items() if key.component == component.name}

    def rolled(self, component: Component) -> bool:
        """Whether only pods of the new generation are left, all of them available."""
        held = self.all_of(component)
        old = sum(c.existing + c.asked for generation, c in held.items() if generation != self._new(component))
        return old == 0 and self.new(component).available >= component.replicas

    def workers_rolled(self) -> bool:
        return all(self.rolled(component) for component in self.graph.components if component.worker)

    def rolling(self) -> bool:
        """Whether the workers are on their way from one generation to another."""
        return bool(self.graph.current_hash) and self.graph.current_hash != self.graph.worker_hash

    def _new(self, component: Component) -> str:
        return self.graph.generation_of(component)


def render_status(seen: Seen, now: datetime) -> Document:
    """`now` stamps what changed since the status that the document carries."""
    before = seen.graph.document.get("status") or {}
    ready = all(seen.rolled(component) for component in seen.graph.components) and not seen.rolling()
    return {
        **{key: value for key, value in before.items() if key != "rollingUpdate"},
        "state": "successful" if ready else "pending",
        "observedGeneration": seen.graph.generation,
        "components": {component.name: _component(seen, component) for component in seen.graph.components},
        "conditions": [_ready(seen, before, ready=ready, now=now)],
        **_rolling_update(seen, before.get("rollingUpdate"), now),
    }


def _component(seen: Seen, component: Component) -> Document:
    held, new = seen.all_of(component), seen.new(component)
    available = sum(counts.available for counts in held.values())
    return {
        "componentKind": "Deployment",
        "componentNames": [Batch(seen.graph, component).name],
        "runtimeNamespace": seen.graph.runtime_namespace(component),
        "replicas": sum(counts.existing for counts in held.values()),
        "updatedReplicas": new.existing,
        "readyReplicas": available,
        "availableReplicas": available,
    }


def _ready(seen: Seen, before: Document, *, ready: bool, now: datetime) -> Document:
    lacking = [c.name for c in seen.graph.components if seen.new(c).available < c.replicas]
    if ready:
        status, reason, message = "True", "all_resources_are_ready", "All resources are ready"
    elif seen.rolling():
        status, reason, message = "False", "rolling_update_in_progress", "Rolling update is in progress"
    elif lacking:
        status, reason, message = "False", "some_resources_are_not_ready", f"Resources not ready: {', '.join(lacking)}"
    else:
        status, reason, message = "False", "updating", "Old pods are being removed"
    said = {"type": "Ready", "status": status, "reason": reason, "message": message}
    return {**said, "observedGeneration": seen.graph.generation, "lastTransitionTime": _since(before, status, now)}


def _since(before: Document, status: str, now: datetime) -> str:
    held = next((one for one in before.get("conditions", ()) if one["type"] == "Ready"), None)
    return str(held["lastTransitionTime"]) if held and held["status"] == status else stamp(now)


def _rolling_update(seen: Seen, before: Any, now: datetime) -> Document:
    if seen.rolling():
        started = before["startTime"] if before and before.get("phase") == "InProgress" else stamp(now)
        updated = [c.name for c in seen.graph.components if c.worker and seen.rolled(c)]
        return {"rollingUpdate": {"phase": "InProgress", "startTime": started, "updatedComponents": updated}}
    if before and before.get("phase") == "InProgress":
        updated = [c.name for c in seen.graph.components if c.worker]
        return {"rollingUpdate": {**before, "phase": "Completed", "endTime": stamp(now), "updatedComponents": updated}}
    return {"rollingUpdate": before} if before else {}


def stamp(now: datetime) -> str:
    return now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
