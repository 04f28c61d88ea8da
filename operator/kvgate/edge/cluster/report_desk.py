"""All that a report of one pool rests on, read as the person of a kubeconfig: what they may not see is left out."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import chain

from kvgate.api.objects import InferencePool
from kvgate.dynamo.pods import DEPLOYMENT_LABEL
from kvgate.edge.cluster.client import (
    CONFIG_MAPS,
    NODES,
    PODS,
    POOLS,
    REPORTS,
    Client,
    Document,
    Query,
)
from kvgate.edge.cluster.desk import READER, as_person
from kvgate.edge.cluster.reading import LONGEST_LABEL, source_of, stored_pool, target_of
from kvgate.edge.cluster.refusals import Forbidden, NotFound
from kvgate.edge.objects import Objects, sorted_by_kind
from kvgate.probe.jobs import POOL_UID

Ask = Callable[[], Iterable[Document]]


@dataclass(frozen=True)
class ReadForReport:
    """A pool, what was read with it, and what this person may not see."""

    pool: InferencePool
    objects: Objects
    notes: tuple[str, ...]


def read_for_report(client: Client, namespace: str, name: str) -> ReadForReport:
    """The pool and its FabricReports, which must be readable; what else they are judged with, as far as it is. Raises
    EdgeError with a line for that person."""
    key = f"{namespace}/{name}"
    with as_person(f"InferencePool {key}", READER):
        pool = stored_pool(client.get(POOLS, namespace, name), key)
    with as_person(f"the FabricReports of namespace {namespace}", READER):
        reports = client.list(REPORTS, namespace, Query(labels=f"{POOL_UID}={pool.metadata.uid}"))
    asked = _beside(client, pool)
    seen = {what: _allowed(what, ask) for what, ask in asked.items()}
    notes = tuple(
        f"you may not see {what}, so the report does without" for what, found in seen.items() if found is None
    )
    bodies = chain(reports, *(found or () for found in seen.values()))
    return ReadForReport(pool, replace(sorted_by_kind(map(source_of, bodies)), pools=(pool,)), notes)


def _beside(client: Client, pool: InferencePool) -> dict[str, Ask]:
    namespace, target = pool.metadata.namespace, pool.spec.target_ref.name
    labelled = Query(labels=f"{DEPLOYMENT_LABEL}={target}")
    asked: dict[str, Ask] = {
        "the cluster's nodes": lambda: client.list(NODES),
        f"DynamoGraphDeployment {target}": lambda: target_of(client, namespace, target),
    }
    if len(target) <= LONGEST_LABEL:
        asked["the deployment's pods"] = lambda: client.list(PODS, namespace, labelled)
    source = pool.spec.model.kv_cache.config_from
    named = (source.config_map_key_ref, source.quant_config_map_key_ref) if source else ()
    for ref in {ref.name for ref in named if ref}:
        asked[f"ConfigMap {ref}"] = lambda ref=ref: [client.get(CONFIG_MAPS, namespace, ref)]  # type: ignore[misc]
    return asked


def _allowed(what: str, ask: Ask) -> Iterable[Document] | None:
    """None where the person may not; nothing where there is none."""
    with as_person(what, READER):
        try:
            return ask()
        except NotFound:
            return ()
        except Forbidden:
            return None
