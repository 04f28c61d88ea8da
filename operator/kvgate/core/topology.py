"""Where nodes stand: which labels tell it, in what class that puts a path, and which shared links it crosses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from kvgate.core.evidence import NodeIdentity, Path

KEYS = (
    "nvidia.com/gpu.clique",
    "network.topology.nvidia.com/accelerator",
    "topology.kubernetes.io/rack",
    "network.topology.nvidia.com/leaf",
    "cloud.google.com/gce-topology-subblock",
    "topology.k8s.aws/network-node-layer-3",
    "topology.kubernetes.io/block",
    "network.topology.nvidia.com/spine",
    "cloud.google.com/gce-topology-block",
    "topology.k8s.aws/network-node-layer-2",
    "network.topology.nvidia.com/core",
    "topology.k8s.aws/network-node-layer-1",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
)
"""The well-known labels that say where a node stands, the narrowest first: NVLink domain, rack, block, zone."""

UNLABELLED = "unlabelled"
SAME_NODE = "same node"


@dataclass(frozen=True, order=True)
class Crossing:
    """A link that all traffic between two places shares, or all out of one, or all into one (the other end empty)."""

    key: str
    source: str
    destination: str

    def __str__(self) -> str:
        what = short(self.key)
        if self.source and self.destination:
            return f"from {what} {self.source} to {what} {self.destination}"
        return f"out of {what} {self.source}" if self.source else f"into {what} {self.destination}"


@dataclass(frozen=True)
class Places:
    """What the labels of each node say about where it stands; `keys` are the labels that count, narrowest first."""

    labels: Mapping[str, Mapping[str, str]]
    keys: tuple[str, ...] = KEYS

    def stratum(self, path: Path) -> str:
        """The narrowest place that both ends share: `same rack`; else `other zone` by the widest that both name."""
        if path.same_node:
            return SAME_NODE
        shared = [key for key in self.keys if self._both(path, key)]
        same = next((key for key in shared if self._place(path.source, key) == self._place(path.destination, key)), "")
        if same:
            return f"same {short(same)}"
        return f"other {short(shared[-1])}" if shared else UNLABELLED

    def crossings(self, path: Path) -> Iterator[Crossing]:
        """The shared links on the way, for each label by which the ends stand apart."""
        for key in self.keys:
            source, destination = self._place(path.source, key), self._place(path.destination, key)
            if source and destination and source != destination:
                yield Crossing(key, source, destination)
                yield Crossing(key, source, "")
                yield Crossing(key, "", destination)

    def _both(self, path: Path, key: str) -> bool:
        return bool(self._place(path.source, key)) and bool(self._place(path.destination, key))

    def _place(self, node: str, key: str) -> str:
        return self.labels.get(node, {}).get(key, "")


def places(nodes: Iterable[NodeIdentity], keys: tuple[str, ...] = KEYS) -> Places:
    """The places of these nodes; one that is named twice stands where it is named last."""
    return Places({node.name: dict(node.labels) for node in nodes if node.labels}, keys)


def located(labels: Mapping[str, str], keys: Iterable[str] = KEYS) -> tuple[tuple[str, str], ...]:
    """Those of a node's labels that say where it stands, in the order of the keys."""
    return tuple((key, labels[key]) for key in keys if labels.get(key))


def short(key: str) -> str:
    """`zone` of `topology.kubernetes.io/zone`."""
    return key.rpartition("/")[2]
