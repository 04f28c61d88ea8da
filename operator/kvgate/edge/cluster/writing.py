"""What kvgate writes outside its sweeps: a pool's status, one patch, a recommendation, Events."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from kvgate.api.status import PoolStatus
from kvgate.api.wire import API_VERSION
from kvgate.api.words import OnConflict
from kvgate.core.steps import Enable, Recommend, Revert
from kvgate.dynamo.alpha import json_patch
from kvgate.dynamo.document import at, mapping, sequence, shown, text
from kvgate.dynamo.patch import ApplyProblem, apply_patch, apply_to_document, conflicts, field_manager, holds
from kvgate.dynamo.patch import Conflict as FieldConflict
from kvgate.dynamo.shape import Target
from kvgate.dynamo.steps import Change
from kvgate.dynamo.words import V1ALPHA1
from kvgate.edge.cluster.client import ALPHA_TARGETS, CONFIG_MAPS, EVENTS, POOLS, TARGETS, Client, Document
from kvgate.edge.cluster.reading import FINALIZER, ReadPool
from kvgate.edge.cluster.refusals import AlreadyExists, HeldByOthers, NotFound
from kvgate.edge.cluster.walkers import is_owned
from kvgate.edge.errors import EdgeError, WriteConflictError
from kvgate.edge.objects import Source
from kvgate.edge.observe import target_document, target_of
from kvgate.edge.targets import change_of, recommendation
from kvgate.probe.jobs import owned_by

_CONTROLLER = "kvgate.dev/operator"
_STEM, _EVENT_STEM = 220, 40
"""What is kept of a pool's name, of up to 253 characters, in names that are longer."""
_REMEDY = "drop that line from their manifest, or set enforcement.onConflict: TakeOver"


def write_status(client: Client, pool: ReadPool, status: PoolStatus) -> str:
    """By PUT on the version that was read; what the server says it stored must be what was sent. The new version."""
    metadata = {"name": pool.name, "namespace": pool.namespace, "uid": pool.uid}
    sent = status.model_dump(mode="json", by_alias=True, exclude_none=True)
    body = {
        "apiVersion": API_VERSION,
        "kind": "InferencePool",
        "metadata": metadata | {"resourceVersion": pool.resource_version},
        "status": sent,
    }
    stored = client.replace(POOLS, pool.namespace, body, "status")
    if PoolStatus.model_validate(stored.get("status") or {}) != status:
        what = f"InferencePool {pool.key}: the API server keeps another status than was written"
        raise EdgeError(f"{what}; the CRD in the cluster is not this operator's: apply crds/")
    return text(at(stored, "metadata", "resourceVersion"))


def patch(client: Client, pool: ReadPool, step: Enable | Revert) -> bool:
    """One server-side apply of all that the capability's manager owns; False when nothing was left to write.

    A deployment that was read as v1alpha1 gets a JSON patch, which tests what was read.

    It rests on the deployment as this turn read it. Raises WriteConflictError when that changed meanwhile, EdgeError
    when others hold the field or the deployment is not one that can be patched.
    """
    source = target_document(pool, pool.objects)
    if source is None:
        raise EdgeError(f"DynamoGraphDeployment {_target(pool)} is gone; nothing was patched")
    change, target = change_of(step), _readable(pool, source)
    force = pool.spec.enforcement.on_conflict is OnConflict.TAKE_OVER
    if target.api_version == V1ALPHA1:
        return _patch_alpha(client, pool, source, change, () if force else conflicts(target, change))
    if holds(target, change) and not _to_release(source, change):
        return False
    _check_places(pool, source, change)
    body = apply_patch(target, change)
    try:
        client.apply(TARGETS, pool.namespace, body, field_manager(step.capability), force=force)
    except HeldByOthers as error:
        raise EdgeError(f"{error}: {_REMEDY}; nothing was patched") from error
    return True


def _patch_alpha(
    client: Client, pool: ReadPool, source: Source, change: Change, held: tuple[FieldConflict, ...]
) -> bool:
    if held:
        who = ", ".join(sorted({shown(conflict.owner.manager) for conflict in held}))
        what = f"DynamoGraphDeployment {_target(pool)}: the list of variables is held by {who}"
        raise EdgeError(f"{what}: {_REMEDY}; nothing was patched")
    operations = json_patch(source.body, change)
    if isinstance(operations, ApplyProblem):
        raise EdgeError(f"DynamoGraphDeployment {_target(pool)}: {operations.message}; nothing was patched")
    name, manager = pool.spec.target_ref.name, field_manager(change.capability)
    if operations:
        client.patch_json(ALPHA_TARGETS, pool.namespace, name, operations, manager)
    return bool(operations)


def _target(pool: ReadPool) -> str:
    return f"{pool.namespace}/{pool.spec.target_ref.name}"


def _readable(pool: ReadPool, source: Source) -> Target:
    """An apply is an upsert: without uid and resourceVersion it would make a deployment of one field."""
    target = target_of(source)
    if not isinstance(target, Target):
        raise EdgeError(f"DynamoGraphDeployment {_target(pool)}: {target.message}; nothing was patched")
    metadata = mapping(source.body.get("metadata"))
    if not metadata.get("uid") or not metadata.get("resourceVersion"):
        what = f"DynamoGraphDeployment {_target(pool)}: was read without uid or resourceVersion"
        raise EdgeError(f"{what}; nothing was patched")
    return target


def _check_places(pool: ReadPool, source: Source, change: Change) -> None:
    result = apply_to_document(source.body, change)
    if isinstance(result, ApplyProblem):
        raise EdgeError(f"DynamoGraphDeployment {_target(pool)}: {result.message}; nothing was patched")


def _to_release(source: Source, change: Change) -> bool:
    without = Change(change.capability, (), change.releases)
    return bool(change.releases) and apply_to_document(source.body, without) != dict(source.body)


def recommend(client: Client, pool: ReadPool, step: Recommend) -> bool:
    """The patch as text for a repository, in a ConfigMap of the pool's own; False when it stood there already."""
    source = target_document(pool, pool.objects)
    if source is None:
        raise EdgeError(f"DynamoGraphDeployment {_target(pool)} is gone; nothing was recommended")
    name, key = f"{pool.name[:_STEM].rstrip('-.')}-recommendation", f"{step.capability.value.lower()}.yaml"
    told = recommendation(source, step)
    try:
        found = client.get(CONFIG_MAPS, pool.namespace, name)
    except NotFound:
        return _create_recommendation(client, pool, name, {key: told})
    if not is_owned(found, pool.uid):
        raise EdgeError(_not_ours(pool, name))
    if at(found, "data", key) == told:
        return False
    client.replace(CONFIG_MAPS, pool.namespace, {**found, "data": {**mapping(found.get("data")), key: told}})
    return True


def _create_recommendation(client: Client, pool: ReadPool, name: str, data: dict[str, str]) -> bool:
    metadata = {"name": name, "namespace": pool.namespace, "ownerReferences": owned_by(pool.owner)}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
    try:
        client.create(CONFIG_MAPS, pool.namespace, body)
    except AlreadyExists as error:
        raise WriteConflictError(f"ConfigMap {pool.namespace}/{name} appeared meanwhile") from error
    return True


def _not_ours(pool: ReadPool, name: str) -> str:
    return f"ConfigMap {pool.namespace}/{name} is not owned by the pool and is left alone: rename or delete it"


def set_finalizer(client: Client, pool: ReadPool, *, held: bool) -> None:
    """Add our finalizer or take it away beside those of others; nothing is written where it is so already.

    Raises WriteConflictError where the pool is another one by now, its spec changed, or its deletion began: the status
    alone may have been written since it was read. A pool that is gone needs no letting go.
    """
    try:
        found = client.get(POOLS, pool.namespace, pool.name)
        metadata = mapping(found.get("metadata"))
        if (metadata.get("uid"), metadata.get("generation")) != (pool.uid, pool.generation):
            raise WriteConflictError(f"InferencePool {pool.key}: it was changed or replaced since it was read")
        there = tuple(text(name) for name in sequence(metadata.get("finalizers")))
        others = tuple(name for name in there if name != FINALIZER)
        wanted = (*others, FINALIZER) if held else others
        if wanted != there:
            named = {"uid": pool.uid, "resourceVersion": metadata.get("resourceVersion"), "finalizers": list(wanted)}
            client.merge(POOLS, pool.namespace, pool.name, {"metadata": named})
    except NotFound:
        if held:
            raise


def tell(client: Client, pool: ReadPool, events: Sequence[tuple[str, str, str]], now: datetime, instance: str) -> None:
    """Post Events about the pool: each is Normal or Warning, a word for programs, and a sentence for people."""
    tell_of(
        client, {"metadata": {"namespace": pool.namespace, "name": pool.name, "uid": pool.uid}}, events, now, instance
    )


def tell_of(
    client: Client, pool: Document, events: Sequence[tuple[str, str, str]], now: datetime, instance: str
) -> None:
    """The same about a pool that is known by its metadata alone."""
    for told in events:
        client.create(EVENTS, text(at(pool, "metadata", "namespace")), _event(pool, told, now, instance))


def _event(pool: Document, told: tuple[str, str, str], now: datetime, instance: str) -> Document:
    kind, reason, message = told
    namespace, name, uid = (text(at(pool, "metadata", field)) for field in ("namespace", "name", "uid"))
    regarding = {"apiVersion": API_VERSION, "kind": "InferencePool", "namespace": namespace, "name": name}
    return {
        "apiVersion": EVENTS.api_version,
        "kind": "Event",
        "metadata": {"generateName": f"{name[:_EVENT_STEM].rstrip('-.')}-", "namespace": namespace},
        "eventTime": now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "reportingController": _CONTROLLER,
        "reportingInstance": instance[:128],
        "action": "Reconcile",
        "type": kind,
        "reason": reason[:128],
        "note": message[:1024],
        "regarding": regarding | {"uid": uid},
    }
