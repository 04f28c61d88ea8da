"""What the stand-in asks of whatever runs pods, and what it is told: pods of one component and one generation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from tests.dynamo_stage.standin.graph import Component, Graph
from tests.dynamo_stage.standin.rollout import Counts


@dataclass(frozen=True)
class BatchKey:
    component: str
    generation: str


@dataclass(frozen=True)
class Batch:
    """Rendered from the document of its own time: an old generation keeps what it was started with."""

    graph: Graph
    component: Component

    @property
    def key(self) -> BatchKey:
        return BatchKey(self.component.name, self.graph.generation_of(self.component))

    @property
    def name(self) -> str:
        """As the operator names a DynamoComponentDeployment: `<dgd>-<component>-<hash>`."""
        return f"{self.graph.name}-{self.component.name.lower()}-{self.key.generation}"

    def labels(self) -> dict[str, str]:
        labels = {
            "nvidia.com/dynamo-graph-deployment-name": self.graph.name,
            "nvidia.com/dynamo-component": self.component.name,
            "nvidia.com/dynamo-component-type": self.component.type,
            "nvidia.com/dynamo-namespace": self.graph.runtime_namespace(self.component),
            "nvidia.com/metrics-enabled": "true",
        }
        return labels | ({"nvidia.com/dynamo-worker-hash": self.key.generation} if self.component.worker else {})


class Runtime(Protocol):
    def observe(self, graph: Graph) -> Mapping[BatchKey, Counts]:
        """Every batch of the graph that has pods or was asked for some."""
        ...

    def ask(self, batch: Batch, replicas: int) -> None:
        """Have so many pods of this batch; a key seen before keeps the batch that it was first asked with."""
        ...

    def shrink(self, graph: Graph, key: BatchKey, replicas: int) -> None:
        """Have so many pods of a batch of an earlier generation."""
        ...

    def forget(self, key: tuple[str, str]) -> None:
        """End everything of a graph that was deleted."""
        ...
