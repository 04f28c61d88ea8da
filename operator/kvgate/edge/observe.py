"""From objects to the world of one pool: the one place where what was read becomes what is judged."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from kvgate.api.objects import BenchmarkReport, InferencePool
from kvgate.api.pool import ConfigFrom, PoolSpec
from kvgate.api.selectors import LabelSelector
from kvgate.api.wire import KeyRef
from kvgate.core.ab.evidence import BenchmarkEvidence
from kvgate.core.approvals import GivenApproval
from kvgate.core.evidence import Evidence, NodeIdentity
from kvgate.core.kvsource import ConfigTexts, kv_size
from kvgate.core.target import TargetProblem, TargetView
from kvgate.core.text import listed
from kvgate.core.topology import KEYS, located
from kvgate.core.vetoes import KNOWN, Signal, vetoes
from kvgate.core.workers import WorkerPod, path_weights
from kvgate.core.world import Nodes, Pool, World
from kvgate.dynamo.document import at
from kvgate.dynamo.pods import pods_of
from kvgate.dynamo.published import NOT_READ, Published, Unpublished, published
from kvgate.dynamo.shape import Target, read_target
from kvgate.dynamo.shape import TargetProblem as UnreadTarget
from kvgate.dynamo.view import block_tokens, kv_dtype, placement, shoes, view
from kvgate.dynamo.words import Role
from kvgate.edge.nodes import NodeView, selected, unpaired
from kvgate.edge.objects import Objects, Source, completed
from kvgate.edge.traces import trace_seen
from kvgate.edge.worker_config import NoConfig, WorkerConfig
from kvgate.probe.benchmark_reports import read_benchmarks
from kvgate.probe.indexes import BadReport
from kvgate.probe.reports import read_reports

MEASURE_REQUESTED_AT = "kvgate.dev/measure-requested-at"
LARGEST_CONFIG_BYTES = 1024 * 1024

ConfigReader = Callable[[Published], WorkerConfig | NoConfig]


def no_worker_asked(_: Published) -> NoConfig:
    """Where only files are read, nobody is asked."""
    return NoConfig(NOT_READ)


def pool_of(stored: InferencePool) -> Pool:
    """The pool as the ring handles it. A stored pool always has a creation time: the door gives it one."""
    metadata = stored.metadata
    if metadata.creation_timestamp is None:
        raise ValueError(f"pool {metadata.name} has no creationTimestamp")
    return Pool(
        name=metadata.name,
        namespace=metadata.namespace,
        uid=metadata.uid,
        generation=metadata.generation,
        spec=stored.spec,
        status=stored.status,
        created_at=metadata.creation_timestamp,
        measure_requested_at=metadata.annotations.get(MEASURE_REQUESTED_AT, ""),
        deleted=metadata.deletion_timestamp is not None,
    )


def world_of(
    pool: Pool,
    objects: Objects,
    worker_config: ConfigReader = no_worker_asked,
    *,
    target_needed: bool = True,
    nodes_needed: bool = True,
    signals: tuple[Signal, ...] = KNOWN,
) -> World:
    """Everything that a turn may look at, read once from these objects, and of a worker where the pool asks for it.

    `signals` are what health tools set on nodes that speaks against them.
    """
    evidence, bad = read_reports((r for r in objects.reports if r.metadata.namespace == pool.namespace), pool.uid)
    benchmarks, bad_benchmarks = read_benchmarks(_own_benchmarks(pool, objects), pool.uid)
    found = target_document(pool, objects)
    read = None if found is None else target_of(found)
    deployed = read if isinstance(read, Target) else None
    pods, told = _workers(pool, objects, deployed)
    return World(
        target=_target(pool, read, target_needed=target_needed),
        kv=kv_size(pool.spec.model.kv_cache, _config(pool, objects, deployed, told, worker_config)),
        nodes=vetoed(
            _nodes(pool.spec, objects.nodes, () if nodes_needed else evidence, deployed), objects.nodes, pods, signals
        ),
        evidence=evidence,
        pods=pods,
        approvals=_approvals(pool, objects),
        claimed_by=_rival(pool, objects),
        evidence_problem=_spoilt(evidence, bad),
        benchmarks=benchmarks,
        benchmark_problem=_spoilt(benchmarks, bad_benchmarks),
        trace=trace_seen(pool, objects, needed=target_needed),
    )


def _own_benchmarks(pool: Pool, objects: Objects) -> tuple[BenchmarkReport, ...]:
    return tuple(report for report in objects.benchmarks if report.metadata.namespace == pool.namespace)


def _spoilt(evidence: Sequence[Evidence | BenchmarkEvidence], bad: tuple[BadReport, ...]) -> str:
    """Unreadable evidence counts unless newer evidence is readable: an edited report never brings back an old one."""
    newest = evidence[0].measured_at if evidence else None
    later = [b for b in bad if newest is None or b.measured_at is None or b.measured_at >= newest]
    return later[0].message if later else ""


def target_document(pool: Pool, objects: Objects) -> Source | None:
    return objects.targets.get((pool.namespace, pool.spec.target_ref.name))


def target_of(source: Source) -> Target | UnreadTarget:
    return read_target(completed(source))


def _target(pool: Pool, read: Target | UnreadTarget | None, *, target_needed: bool) -> TargetView | TargetProblem:
    name = pool.spec.target_ref.name
    if read is not None:
        return view(read)
    if not target_needed:
        return TargetView(uid="")
    what = (
        f"there is no DynamoGraphDeployment {name} in namespace {pool.namespace}; create it or correct spec.targetRef"
    )
    return TargetProblem("TargetNotFound", what)


def _workers(
    pool: Pool, objects: Objects, deployed: Target | None
) -> tuple[tuple[WorkerPod, ...], Published | Unpublished]:
    """The target's pods, and the model configuration that they agree on."""
    metadata = tuple(told for told in objects.metadata if told.namespace == pool.namespace)
    near = (body for body in objects.pods if at(body, "metadata", "namespace") == pool.namespace)
    pods = pods_of(pool.spec.target_ref.name, near, deployed, metadata)
    return pods, published(metadata, pods)


def _config(
    pool: Pool, objects: Objects, deployed: Target | None, told: Published | Unpublished, read: ConfigReader
) -> ConfigTexts:
    asked = pool.spec.model.kv_cache
    block = told.block_tokens if isinstance(told, Published) else None
    if block is None and deployed is not None:
        block = block_tokens(deployed)
    if asked.bytes_per_token is not None:
        return ConfigTexts(block_tokens=block)
    dtype = "" if deployed is None else kv_dtype(deployed)
    found = _of_workers(told, read) if asked.config_from is None else _config_maps(pool, asked.config_from, objects)
    return replace(found, block_tokens=block, dtype=dtype)


def _of_workers(told: Published | Unpublished, read: ConfigReader) -> ConfigTexts:
    if isinstance(told, Unpublished):
        return ConfigTexts(problem=told.message)
    found = read(told)
    if isinstance(found, NoConfig):
        return ConfigTexts(problem=found.message, look_again_seconds=found.look_again_seconds)
    return ConfigTexts(found.text, source=f"worker pod {found.pod}")


def _config_maps(pool: Pool, asked: ConfigFrom, objects: Objects) -> ConfigTexts:
    texts: list[str] = []
    for ref in (asked.config_map_key_ref, asked.quant_config_map_key_ref):
        text = "" if ref is None else _entry(pool, ref, objects)
        if ref is not None and (problem := _config_problem(pool, ref, text)):
            return ConfigTexts(problem=problem)
        texts.append(text or "")
    named = asked.config_map_key_ref
    return ConfigTexts(texts[0], texts[1], f"ConfigMap {named.name}/{named.key}")


def _entry(pool: Pool, ref: KeyRef, objects: Objects) -> str | None:
    data = objects.config_maps.get((pool.namespace, ref.name))
    return None if data is None else data.get(ref.key)


def _config_problem(pool: Pool, ref: KeyRef, text: str | None) -> str:
    where = f"ConfigMap {pool.namespace}/{ref.name}, key {ref.key}"
    if text is None:
        return f"{where} does not exist; create it or correct spec.model.kvCache.configFrom"
    if len(text.encode(errors="replace")) > LARGEST_CONFIG_BYTES:
        return f"{where} is larger than {LARGEST_CONFIG_BYTES} bytes; give the model's config.json alone"
    return ""


def _nodes(spec: PoolSpec, nodes: tuple[NodeView, ...], evidence: tuple[Evidence, ...], target: Target | None) -> Nodes:
    """The nodes that the pool's selectors and the target's own both match; without any Node, those of the evidence."""
    if not nodes and evidence:
        planned = evidence[0].planned
        sources, destinations = {path.source for path in planned}, {path.destination for path in planned}
        return Nodes(tuple(sorted(sources)), tuple(sorted(destinations)))
    prefill = _side(spec.fabric.prefill_nodes, "prefillNodes", Role.PREFILL, nodes, target)
    decode = _side(spec.fabric.decode_nodes, "decodeNodes", Role.DECODE, nodes, target)
    for side in (prefill, decode):
        if isinstance(side, str):
            return Nodes(problem=side)
    why = _unpaired(spec, [node for node in prefill if node in decode], target)
    identities = _identities((*prefill, *decode), label_keys(spec))
    return Nodes(_names(prefill), _names(decode), identities=identities, unpaired=why)


def _unpaired(spec: PoolSpec, shared: Sequence[NodeView | str], target: Target | None) -> str:
    """Why no path from a node to itself can be measured between two pods."""
    roles = (Role.PREFILL, Role.DECODE)
    on_host = spec.fabric.probe.host_network or (target and any(shoes(target, role).host_network for role in roles))
    if shared and on_host:
        what = "on the host network two pods of a node have one address, so that no test tells them apart"
        return f"{what}; the owner gives prefill and decode nodes of their own"
    return next((why for node in shared if isinstance(node, NodeView) and (why := unpaired(node))), "")


def vetoed(
    found: Nodes, nodes: Iterable[NodeView], pods: Iterable[WorkerPod], signals: tuple[Signal, ...] = KNOWN
) -> Nodes:
    """With what speaks against the nodes in use: those that a sweep may measure, and those that KV bytes of worker pods
    travel between now, cordoned or not."""
    used = {
        *found.prefill,
        *found.decode,
        *(end for path in path_weights(pods) for end in (path.source, path.destination)),
    }
    names = ((node.identity.name, node.told) for node in nodes)
    return replace(found, vetoes=tuple(v for name, told in names if name in used for v in vetoes(name, told, signals)))


def _side(
    asked: LabelSelector | None, field: str, role: Role, nodes: tuple[NodeView, ...], target: Target | None
) -> tuple[NodeView, ...] | str:
    own = {} if target is None else placement(target, role)
    if asked is None and not own:
        what = f"neither fabric.{field} nor a nodeSelector of the target's {role.value} worker names nodes"
        return f"{what}; the pool's owner must correct it"
    wanted = [selector for selector in (asked, LabelSelector(match_labels=own) if own else None) if selector]
    found = tuple(node for node in nodes if all(selected((node,), selector) for selector in wanted))
    usable = tuple(node for node in found if node.schedulable)
    if not usable:
        by = " and the target's nodeSelector" if asked is not None and own else ""
        return f"fabric.{field}{by} match {_away(found, len(nodes))}"
    return tuple(sorted(usable, key=lambda node: node.identity.name))


def _away(matched: tuple[NodeView, ...], count: int) -> str:
    if not matched:
        return f"none of {count} nodes; the pool's owner must correct it"
    names = listed(tuple(sorted(node.identity.name for node in matched)))
    return f"only nodes that take no pods now: {names}; uncordon them, or see why they are not Ready"


def _names(side: tuple[NodeView, ...] | str) -> tuple[str, ...]:
    return () if isinstance(side, str) else tuple(node.identity.name for node in side)


def label_keys(spec: PoolSpec) -> tuple[str, ...]:
    """The labels that say where a node stands: as the pool names them, and those by which it limits sweeps."""
    schedule = spec.fabric.schedule
    return tuple(dict.fromkeys((*(schedule.topology_keys or KEYS), *(limit.key for limit in schedule.per_place))))


def _identities(nodes: Iterable[NodeView | str], keys: tuple[str, ...]) -> tuple[NodeIdentity, ...]:
    seen = (node for node in nodes if isinstance(node, NodeView))
    return tuple({node.identity.name: placed(node, keys) for node in seen}.values())


def placed(node: NodeView, keys: tuple[str, ...]) -> NodeIdentity:
    """Who the node is, with the labels of these keys alone."""
    return replace(node.identity, labels=located(node.labels, keys))


def _approvals(pool: Pool, objects: Objects) -> tuple[GivenApproval, ...]:
    return tuple(
        GivenApproval(a.metadata.name, a.metadata.creation_timestamp, a.spec)
        for a in objects.approvals
        if a.metadata.namespace == pool.namespace and a.metadata.creation_timestamp is not None
    )


def _rival(pool: Pool, objects: Objects) -> str:
    """The older pool that names the same target: by creation time, then by uid."""
    rivals = [
        pool_of(other)
        for other in objects.pools
        if other.metadata.namespace == pool.namespace and other.spec.target_ref == pool.spec.target_ref
    ]
    oldest = min(rivals, key=lambda rival: (rival.created_at, rival.uid), default=pool)
    return "" if oldest.uid == pool.uid else oldest.name
