"""Documents sorted by kind, as the objects that a turn looks at; what cannot be read is a problem, never a guess."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from kvgate.api.complaints import Complaint
from kvgate.api.objects import (
    BenchmarkReport,
    FabricReport,
    GateApproval,
    InferencePool,
    read_approval,
    read_benchmark,
    read_pool,
    read_report,
)
from kvgate.api.validate import strangers
from kvgate.api.wire import API_VERSION, Wire
from kvgate.dynamo.document import shown
from kvgate.dynamo.metadata import WORKER_METADATA_KIND, WORKER_METADATA_VERSION, WorkerMetadata, read_metadata
from kvgate.dynamo.words import KIND as TARGET_KIND
from kvgate.edge.nodes import NodeView, read_node
from kvgate.edge.yamlfiles import Document

_NAMESPACE = uuid.UUID("6b0d4b5e-8a3f-5c1e-9d53-6f2f3f1f6a41")
Key = tuple[str, str]
T = TypeVar("T", bound=Wire)


@dataclass(frozen=True)
class Source:
    """One document, where it stands, and when its file was last written."""

    path: Path
    index: int
    body: Mapping[str, Any]
    written_at: datetime

    @property
    def where(self) -> str:
        return f"{self.path}, document {self.index + 1}" if self.index else str(self.path)

    @property
    def document(self) -> Document:
        return Document(self.path, self.index, self.body)


@dataclass(frozen=True)
class Problem:
    """A document that cannot be used: what, where, and who must act."""

    where: str
    message: str

    def __str__(self) -> str:
        return f"{self.where}: {self.message}"


@dataclass(frozen=True)
class Objects:
    """Everything of one directory, or of the files of one call, by kind."""

    pools: tuple[InferencePool, ...] = ()
    approvals: tuple[GateApproval, ...] = ()
    reports: tuple[FabricReport, ...] = ()
    benchmarks: tuple[BenchmarkReport, ...] = ()
    targets: Mapping[Key, Source] = field(default_factory=dict)
    config_maps: Mapping[Key, Mapping[str, str]] = field(default_factory=dict)
    binaries: Mapping[Key, Mapping[str, bytes]] = field(default_factory=dict)
    """What ConfigMaps hold as binaryData."""
    nodes: tuple[NodeView, ...] = ()
    pods: tuple[Mapping[str, Any], ...] = ()
    metadata: tuple[WorkerMetadata, ...] = ()
    problems: tuple[Problem, ...] = ()


def sorted_by_kind(sources: Iterable[Source]) -> Objects:
    """The objects of these documents. Lists are opened; kinds that kvgate does not use are passed over.

    A pool or an approval with a field that nobody knows is a problem: a misspelt `suspend` must not act.
    """
    found = _Found()
    for source in sources:
        for item in opened(source):
            found.add(item)
    return found.objects()


def opened(source: Source) -> Iterable[Source]:
    """A `v1 List`, as kubectl prints it, holds documents of its own."""
    items = source.body.get("items")
    if not str(source.body.get("kind", "")).endswith("List") or not isinstance(items, list):
        return (source,)
    return tuple(
        Source(source.path, source.index, item, source.written_at) for item in items if isinstance(item, Mapping)
    )


class _Found:
    """Collects objects while documents are read."""

    def __init__(self) -> None:
        self.seen: dict[tuple[str, str, str, str], str] = {}
        self.pools: list[InferencePool] = []
        self.approvals: list[GateApproval] = []
        self.reports: list[FabricReport] = []
        self.benchmarks: list[BenchmarkReport] = []
        self.targets: dict[Key, Source] = {}
        self.config_maps: dict[Key, Mapping[str, str]] = {}
        self.binaries: dict[Key, Mapping[str, bytes]] = {}
        self.nodes: list[NodeView] = []
        self.pods: list[Mapping[str, Any]] = []
        self.metadata: list[WorkerMetadata] = []
        self.problems: list[Problem] = []

    def add(self, source: Source) -> None:
        kind, version = str(source.body.get("kind", "")), str(source.body.get("apiVersion", ""))
        key = key_of(source.body)
        identity = (version.partition("/")[0], kind, *key)
        if identity in self.seen and key[1]:
            what = f"{shown(kind)} {shown(key[1])} is already defined in {self.seen[identity]}; keep one"
            self.problems.append(Problem(source.where, what))
            return
        self.seen[identity] = source.where
        reader = _READERS.get((version, kind)) or (_READERS[TARGET_KIND,] if kind == TARGET_KIND else None)
        if reader:
            reader(self, source)

    def objects(self) -> Objects:
        return Objects(
            tuple(self.pools),
            tuple(self.approvals),
            tuple(self.reports),
            tuple(self.benchmarks),
            self.targets,
            self.config_maps,
            self.binaries,
            tuple(self.nodes),
            tuple(self.pods),
            tuple(self.metadata),
            tuple(self.problems),
        )

    def pool(self, source: Source) -> None:
        self._take(source, strangers(source.body) or read_pool(completed(source)), self.pools)

    def approval(self, source: Source) -> None:
        self._take(source, strangers(source.body) or read_approval(completed(source)), self.approvals)

    def report(self, source: Source) -> None:
        self._take(source, read_report(completed(source)), self.reports)

    def benchmark(self, source: Source) -> None:
        self._take(source, read_benchmark(completed(source)), self.benchmarks)

    def _take(self, source: Source, read: T | tuple[Complaint, ...], into: list[T]) -> None:
        if isinstance(read, tuple):
            self.problems += [Problem(source.where, str(complaint)) for complaint in read]
        else:
            into.append(read)

    def target(self, source: Source) -> None:
        self.targets[key_of(source.body)] = source

    def config_map(self, source: Source) -> None:
        data = source.body.get("data")
        entries = data if isinstance(data, Mapping) else {}
        self.config_maps[key_of(source.body)] = {str(k): v for k, v in entries.items() if isinstance(v, str)}
        packed = source.body.get("binaryData")
        held = packed.items() if isinstance(packed, Mapping) else ()
        self.binaries[key_of(source.body)] = {str(k): found for k, v in held if (found := _unpacked(v)) is not None}

    def pod(self, source: Source) -> None:
        self.pods.append(completed(source))

    def worker_metadata(self, source: Source) -> None:
        self.metadata.append(read_metadata(completed(source)))

    def node(self, source: Source) -> None:
        read = read_node(completed(source))
        if isinstance(read, NodeView):
            self.nodes.append(read)
        else:
            self.problems.append(Problem(source.where, read))


_READERS = {
    (API_VERSION, "InferencePool"): _Found.pool,
    (API_VERSION, "GateApproval"): _Found.approval,
    (API_VERSION, "FabricReport"): _Found.report,
    (API_VERSION, "BenchmarkReport"): _Found.benchmark,
    ("v1", "ConfigMap"): _Found.config_map,
    ("v1", "Node"): _Found.node,
    ("v1", "Pod"): _Found.pod,
    (WORKER_METADATA_VERSION, WORKER_METADATA_KIND): _Found.worker_metadata,
    (TARGET_KIND,): _Found.target,
}


def key_of(body: Mapping[str, Any]) -> Key:
    """(namespace, name); without a namespace, `default`."""
    metadata = body.get("metadata")
    named = metadata if isinstance(metadata, Mapping) else {}
    return str(named.get("namespace") or "default"), str(named.get("name") or "")


def completed(source: Source) -> dict[str, Any]:
    """The document with the uid and creation time that an API server would have given it.

    A missing uid is UUIDv5(kind/namespace/name), a missing creationTimestamp the time of the file.
    """
    metadata = source.body.get("metadata")
    if not isinstance(metadata, Mapping):
        return dict(source.body)
    namespace, name = key_of(source.body)
    known = {key: value for key, value in metadata.items() if value is not None}
    given = {
        "uid": str(uuid.uuid5(_NAMESPACE, f"{source.body.get('kind')}/{namespace}/{name}")),
        "creationTimestamp": source.written_at.isoformat(),
        "namespace": namespace,
        "generation": 1,
    }
    return {**source.body, "metadata": {**given, **_plain(known)}}


def _plain(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """YAML reads an unquoted time as a datetime; the wire wants its text."""
    return {key: value.isoformat() if isinstance(value, datetime) else value for key, value in metadata.items()}


def _unpacked(value: object) -> bytes | None:
    """None for what is no base64, which no API server hands out."""
    try:
        return base64.b64decode(value, validate=True) if isinstance(value, str) else None
    except ValueError:
        return None
