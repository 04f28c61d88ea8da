"""A STAND-IN for NVIDIA Dynamo's Kubernetes operator, which no package registry holds, so that tests have its rollouts.

It plays what is documented of the operator's path of Deployments on single nodes: the worker hash over all worker
components' rendered pods and not their numbers; one Dynamo namespace per generation; a managed rolling update with
surge, each component alone and by pod availability; `status.components`, `rollingUpdate`, the Ready condition and
`observedGeneration`; the annotation of the current hash, written by a full update; the pods' labels, the environment
that it injects, the Services of discovery; its webhook's rules on topology and scaling adapters (`admission.yaml`).

It does not play: Grove and LeaderWorkerSet, several nodes, restarts, topology, checkpoints, `valueFrom` and defaulting
webhooks, the DynamoComponentDeployment objects between a graph and its Deployments, GPUs and their scarcity. A
frontend's pods roll by the same steps as the workers', in batches of their own, where the operator leaves that to one
Deployment. Model servers are Dynamo's own mock workers (`mapping.py` says what of a vLLM command line they honour).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Protocol

from tests.dynamo_stage.beside import Turning
from tests.dynamo_stage.standin.adapters import Adapters
from tests.dynamo_stage.standin.batches import Batch, BatchKey, Runtime
from tests.dynamo_stage.standin.graph import CURRENT_HASH, Component, Document, Graph, read_graph
from tests.dynamo_stage.standin.rollout import Budget, step
from tests.dynamo_stage.standin.status import Seen, render_status


class ChangedError(Exception):
    """Somebody wrote the object since it was read; the next turn reads it again."""


class Source(Protocol):
    def graphs(self) -> Sequence[Document]: ...

    def update(self, document: Document) -> None:
        """Write the whole object; raises ChangedError where its resourceVersion is not the latest."""
        ...

    def update_status(self, document: Document) -> None:
        """Write the status alone; raises ChangedError where the object is gone or has changed."""
        ...


@dataclass
class StandIn(Turning):
    """`with StandIn(source, runtime):` takes turns until the block ends; the runtime's processes are its owner's."""

    title = "stand-in for Dynamo's operator"
    source: Source
    runtime: Runtime
    adapters: Adapters | None = None
    _known: set[tuple[str, str]] = field(default_factory=set)

    def turn(self) -> None:
        """Read every graph once and bring it one step nearer to what it asks for."""
        graphs = [read_graph(document) for document in self.source.graphs()]
        for gone in self._known - {graph.key for graph in graphs}:
            self.runtime.forget(gone)
        self._known = {graph.key for graph in graphs}
        for graph in graphs:
            try:
                self._bring(graph)
            except ChangedError:
                continue

    def _bring(self, graph: Graph) -> None:
        seen = Seen(graph, self.runtime.observe(graph))
        if not graph.current_hash or (seen.rolling() and seen.workers_rolled()):
            self.source.update(_annotated(graph))
            return
        scaled = self.adapters.scaled(graph) if self.adapters else None
        if scaled is not None:
            self.source.update(scaled)
            return
        for component in graph.components:
            self._roll(seen, component)
        status = render_status(seen, datetime.now(UTC))
        if status != graph.document.get("status"):
            self.source.update_status({**graph.document, "status": status})

    def _roll(self, seen: Seen, component: Component) -> None:
        batch = Batch(seen.graph, component)
        budget = Budget(component.replicas, component.surge, component.unavailable, component.recreates)
        for generation, replicas in step(budget, batch.key.generation, seen.all_of(component)).items():
            if generation == batch.key.generation:
                self.runtime.ask(batch, replicas)
            else:
                self.runtime.shrink(seen.graph, BatchKey(component.name, generation), replicas)


def _annotated(graph: Graph) -> Document:
    metadata = graph.document["metadata"]
    annotations = {**metadata.get("annotations", {}), CURRENT_HASH: graph.worker_hash}
    return {**graph.document, "metadata": {**metadata, "annotations": annotations}}
