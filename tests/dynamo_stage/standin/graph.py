"""A DynamoGraphDeployment (v1beta1) as the stand-in understands it: components, what their pods would run, the hash."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Document = dict[str, Any]
GROUP, VERSION, PLURAL = "nvidia.com", "v1beta1", "dynamographdeployments"
SURGE = "nvidia.com/deployment-rolling-update-max-surge"
UNAVAILABLE = "nvidia.com/deployment-rolling-update-max-unavailable"
STRATEGY = "nvidia.com/deployment-strategy"
CURRENT_HASH = "nvidia.com/current-worker-hash-v2"
HASH_LENGTH = 8
_WORKERS = frozenset({"worker", "prefill", "decode"})


@dataclass(frozen=True)
class Component:
    """`inputs` is what a pod of it is rendered from, and what is hashed: all but the numbers of pods."""

    name: str
    type: str
    replicas: int
    scaled_by_adapter: bool
    inputs: Document

    @property
    def worker(self) -> bool:
        return self.type in _WORKERS

    @property
    def frontend(self) -> bool:
        return self.type == "frontend"

    @property
    def container(self) -> Document:
        """The one that must be called `main`; empty where there is none."""
        held = self.inputs["podTemplate"].get("spec", {}).get("containers", ())
        return next((container for container in held if container.get("name") == "main"), {})

    @property
    def environment(self) -> dict[str, str]:
        """Plain values by name, the component's over the graph's."""
        return {**_plain(self.inputs["env"]), **_plain(self.container.get("env", ()))}

    @property
    def words(self) -> tuple[str, ...]:
        return (*map(str, self.container.get("command", ())), *map(str, self.container.get("args", ())))

    def annotation(self, key: str) -> str:
        return str(self.inputs["annotations"].get(key, ""))

    @property
    def surge(self) -> int:
        return self._share(SURGE, math.ceil)

    @property
    def unavailable(self) -> int:
        share = self._share(UNAVAILABLE, math.floor)
        return share if share or self.surge else 1

    @property
    def recreates(self) -> bool:
        return self.annotation(STRATEGY) == "Recreate"

    def _share(self, key: str, rounded: Any) -> int:
        """A number of pods, or a percentage of the replicas; a quarter where nothing is written."""
        written = self.annotation(key) or "25%"
        if written.endswith("%"):
            return int(rounded(self.replicas * int(written[:-1]) / 100))
        return int(written)


@dataclass(frozen=True)
class Graph:
    name: str
    namespace: str
    uid: str
    generation: int
    current_hash: str
    components: tuple[Component, ...]
    document: Document

    @property
    def key(self) -> tuple[str, str]:
        return self.namespace, self.name

    @property
    def dynamo_namespace(self) -> str:
        """What frontends take as a prefix and workers extend by their generation."""
        return f"{self.namespace}-{self.name}"

    @property
    def worker_hash(self) -> str:
        """Over all worker components together, so that a change of one rolls them all. Numbers of pods do not count,
        nor does the order of the list, which a server-side apply of some of them changes."""
        workers = sorted((component for component in self.components if component.worker), key=lambda held: held.name)
        return digest([component.inputs for component in workers])

    def generation_of(self, component: Component) -> str:
        """A worker's is that of all workers; another component's is its own, and no namespace follows from it."""
        return self.worker_hash if component.worker else digest([component.inputs])

    def runtime_namespace(self, component: Component) -> str:
        return f"{self.dynamo_namespace}-{self.worker_hash}" if component.worker else self.dynamo_namespace


def digest(inputs: list[Document]) -> str:
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()[:HASH_LENGTH]


def read_graph(document: Document) -> Graph:
    metadata, spec = document["metadata"], document["spec"]
    return Graph(
        name=metadata["name"],
        namespace=metadata["namespace"],
        uid=metadata.get("uid", ""),
        generation=metadata.get("generation", 1),
        current_hash=metadata.get("annotations", {}).get(CURRENT_HASH, ""),
        components=tuple(_component(entry, spec) for entry in spec.get("components", ())),
        document=document,
    )


def _component(entry: Document, spec: Document) -> Component:
    template = entry.get("podTemplate") or {}
    annotations = {**spec.get("annotations", {}), **template.get("metadata", {}).get("annotations", {})}
    inputs = {
        "name": entry["name"],
        "type": entry.get("type", ""),
        "env": spec.get("env", []),
        "annotations": annotations,
        "podTemplate": template,
    }
    replicas = entry.get("replicas")
    return Component(
        name=entry["name"],
        type=entry.get("type", ""),
        replicas=1 if replicas is None else replicas,
        scaled_by_adapter="scalingAdapter" in entry,
        inputs=inputs,
    )


def _plain(entries: Any) -> Mapping[str, str]:
    return {entry["name"]: str(entry.get("value", "")) for entry in entries if "valueFrom" not in entry}
