"""Everything that one turn may look at, read once from the API server and turned into the objects of the ring."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path

from kvgate.api.objects import InferencePool, read_pool
from kvgate.api.selectors import LabelSelector
from kvgate.api.wire import GROUP
from kvgate.core.world import Pool
from kvgate.dynamo.document import at, mappings, text
from kvgate.dynamo.pods import DEPLOYMENT_LABEL
from kvgate.edge.cluster.client import (
    ALPHA_TARGETS,
    APPROVALS,
    BENCHMARKS,
    CONFIG_MAPS,
    NODES,
    PODS,
    POOLS,
    REPORTS,
    TARGETS,
    WORKERS,
    Client,
    Document,
    Query,
)
from kvgate.edge.cluster.client import Resource as Kind
from kvgate.edge.cluster.refusals import NotFound, Refused
from kvgate.edge.errors import EdgeError, PoolGoneError, StatusUnreadableError
from kvgate.edge.nodes import NodeView, selected
from kvgate.edge.objects import Objects, Source, completed, sorted_by_kind
from kvgate.edge.observe import pool_of
from kvgate.edge.traces import trace_of
from kvgate.probe.jobs import POOL_UID, Owner

FINALIZER = f"{GROUP}/revert"
_NEVER = datetime(1970, 1, 1, tzinfo=UTC)
"""Objects of an API server carry their own creation time; this one is never used."""

LONGEST_LABEL = 63
TARGET_NAME = "spec.targetRef.name"
"""A field that pools can be selected by."""


@dataclass(frozen=True)
class ReadPool(Pool):
    """A pool with the version that was read, and the objects that were read with it: what is written rests on these."""

    resource_version: str = ""
    objects: Objects = field(default_factory=Objects, repr=False, compare=False)

    @property
    def owner(self) -> Owner:
        return Owner(self.name, self.namespace, self.uid)


def read_all(client: Client, namespace: str, name: str, allowed: LabelSelector | None) -> ReadPool:
    """The pool with all it depends on. Raises PoolGoneError, and EdgeError for a pool that cannot be read."""
    stored = stored_pool(_own(client, namespace, name), f"{namespace}/{name}")
    target, mine = stored.spec.target_ref.name, Query(labels=f"{POOL_UID}={stored.metadata.uid}")
    nodes, *depends = client.together(
        lambda: client.list(NODES),
        lambda: _rivals(client, stored),
        lambda: client.list(APPROVALS, namespace),
        lambda: client.list(REPORTS, namespace, mine),
        lambda: client.list(BENCHMARKS, namespace, mine),
        lambda: target_of(client, namespace, target),
        lambda: _present(client, CONFIG_MAPS, namespace, _config_maps(stored)),
        lambda: _pods(client, namespace, target),
        lambda: _worker_metadata(client, namespace),
    )
    objects = sorted_by_kind(source_of(body) for body in chain(*depends, nodes))
    usable = _usable(objects.nodes, nodes, allowed)
    return _read(stored, replace(objects, pools=(*objects.pools, stored), nodes=usable))


def _own(client: Client, namespace: str, name: str) -> Document:
    try:
        return client.get(POOLS, namespace, name)
    except NotFound as error:
        raise PoolGoneError(f"InferencePool {namespace}/{name} is gone") from error


def _rivals(client: Client, own: InferencePool) -> Sequence[Document]:
    """The other pools that name the same target. Before Kubernetes 1.31 they cannot be asked for, and all are."""
    namespace, target, name = own.metadata.namespace, own.spec.target_ref.name, own.metadata.name
    try:
        found = client.list(POOLS, namespace, Query(fields=f"{TARGET_NAME}={target}"))
    except Refused:
        found = client.list(POOLS, namespace)
    named = (body for body in found if at(body, "spec", "targetRef", "name") == target)
    return [body for body in named if at(body, "metadata", "name") != name]


def stored_pool(body: Document, key: str) -> InferencePool:
    read = read_pool(completed(source_of(body)))
    if isinstance(read, InferencePool):
        return read
    remedy = "the CRD in the cluster and this operator differ: apply crds/"
    if read[0].path.startswith("status."):
        remedy = f"whoever wrote it by hand must correct it (kubectl edit --subresource=status), else {remedy}"
        why = f"InferencePool {key}: {read[0]}; nothing is judged or patched until then; {remedy}"
        raise StatusUnreadableError(why, body)
    raise EdgeError(f"InferencePool {key}: {read[0]}; nothing is judged or patched until then; {remedy}")


def _read(stored: InferencePool, objects: Objects) -> ReadPool:
    pool = pool_of(stored)
    known = {entry.name: getattr(pool, entry.name) for entry in fields(pool)}
    return ReadPool(
        **known | {"finalizer": FINALIZER in stored.metadata.finalizers},
        resource_version=stored.metadata.resource_version,
        objects=objects,
    )


def _config_maps(stored: InferencePool) -> list[str]:
    asked, trace = stored.spec.model.kv_cache.config_from, trace_of(stored.spec)
    model = (asked.config_map_key_ref, asked.quant_config_map_key_ref) if asked is not None else ()
    return sorted({ref.name for ref in (*model, trace) if ref is not None})


def _present(client: Client, kind: Kind, namespace: str, names: Iterable[str]) -> list[Document]:
    """Those that exist; that one is missing is for the judgement to say."""
    found: list[Document] = []
    for name in names:
        try:
            found.append(client.get(kind, namespace, name))
        except NotFound:
            continue
    return found


def target_of(client: Client, namespace: str, name: str) -> list[Document]:
    """The deployment, where there is one. As v1beta1, and as v1alpha1 from a cluster that serves nothing newer."""
    return _present(client, TARGETS, namespace, [name]) or _present(client, ALPHA_TARGETS, namespace, [name])


def _pods(client: Client, namespace: str, target: str) -> tuple[Document, ...]:
    """The target's pods. No label holds a longer name, so that such a target has none."""
    if len(target) > LONGEST_LABEL:
        return ()
    return client.list(PODS, namespace, Query(labels=f"{DEPLOYMENT_LABEL}={target}"))


def _worker_metadata(client: Client, namespace: str) -> tuple[Document, ...]:
    """What the namespace's workers publish: nothing where this cluster does not know the kind."""
    try:
        return client.list(WORKERS, namespace)
    except NotFound:
        return ()


def source_of(body: Document) -> Source:
    metadata = body.get("metadata") or {}
    place = Path(str(body.get("kind")), str(metadata.get("namespace", "")), str(metadata.get("name")))
    return Source(place, 0, body, _NEVER)


def _usable(
    nodes: tuple[NodeView, ...], bodies: Iterable[Document], allowed: LabelSelector | None
) -> tuple[NodeView, ...]:
    """Nodes that the operator's settings allow; one that is not Ready is as little schedulable as a cordoned one."""
    ready = {text(at(body, "metadata", "name")) for body in bodies if _ready(body)}
    stands = ((node, node.identity.name in ready) for node in nodes)
    seen = tuple(replace(node, schedulable=node.schedulable and well, ready=well) for node, well in stands)
    return seen if allowed is None else selected(seen, allowed)


def _ready(node: Document) -> bool:
    conditions = mappings(at(node, "status", "conditions"))
    return any(entry.get("type") == "Ready" and entry.get("status") == "True" for entry in conditions)
