"""What would serve a pool's A/B: the deployment that it names, its ready workers, and one of its frontends."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kvgate.api.pool import Benchmark
from kvgate.core.ab.evidence import BenchmarkGround
from kvgate.core.text import listed
from kvgate.dynamo.bench_ground import NotServing, ServingFacts, differences, serving_facts
from kvgate.dynamo.document import at, shown
from kvgate.dynamo.metadata import read_metadata
from kvgate.dynamo.pods import DEPLOYMENT_LABEL, pods_of
from kvgate.dynamo.published import Published, Unpublished, published
from kvgate.dynamo.shape import Target, read_target
from kvgate.edge.cluster.client import PODS, TARGETS, WORKERS, Client, Document, Query
from kvgate.edge.cluster.reading import LONGEST_LABEL, ReadPool
from kvgate.edge.cluster.refusals import NotFound
from kvgate.edge.cluster.runs import NO_IMAGE


@dataclass(frozen=True)
class Serving:
    """What would serve an A/B: what the judgement sees of it, what the plan needs, a live frontend's pod, and where its
    workers' config.json can be read."""

    ground: BenchmarkGround
    facts: ServingFacts | None = None
    frontend: Document | None = None
    config: Published | Unpublished | None = None


def serving(client: Client, pool: ReadPool, image: str) -> Serving | None:
    """None where the pool asks for no A/B. Two lists and a get, none of which is made for pools that don't."""
    asked = asked_of(pool)
    if asked is None:
        return None
    name = asked.target_ref.name if asked.target_ref else pool.spec.target_ref.name
    on_live = name == pool.spec.target_ref.name
    ground = BenchmarkGround(ran_on=name, on_live=on_live)
    if on_live and not asked.allow_live:
        what = (
            "criteria.routing.benchmark.targetRef names the target itself: set allowLive, or name a staging deployment"
        )
        return Serving(replace(ground, problem=what))
    if not image:
        return Serving(replace(ground, problem=NO_IMAGE))
    found = _deployment(client, pool.namespace, name)
    if found is None:
        what = f"there is no DynamoGraphDeployment {name} that can be read: its deployer must create it"
        return Serving(replace(ground, problem=what))
    return _read(client, pool, ground, found)


def asked_of(pool: ReadPool) -> Benchmark | None:
    criteria = pool.spec.criteria.routing
    asked = criteria.benchmark if criteria else None
    return asked if asked is not None and (asked.target_ref is not None or asked.allow_live) else None


def _deployment(client: Client, namespace: str, name: str) -> Target | None:
    try:
        read = read_target(dict(client.get(TARGETS, namespace, name)))
    except NotFound:
        return None
    return read if isinstance(read, Target) else None


def _read(client: Client, pool: ReadPool, ground: BenchmarkGround, found: Target) -> Serving:
    if len(found.name) > LONGEST_LABEL:
        return Serving(replace(ground, problem=f"{found.name} is longer than a label: its pods cannot be told"))
    documents = client.list(PODS, pool.namespace, Query(labels=f"{DEPLOYMENT_LABEL}={found.name}"))
    metadata = [read_metadata(body) for body in _published(client, pool.namespace)]
    pods = pods_of(found.name, documents, found, metadata)
    facts = serving_facts(found, pods, metadata)
    known = replace(ground, generation=found.generation or 0)
    if isinstance(facts, NotServing):
        return Serving(replace(known, problem=facts.message))
    unlike = "" if ground.on_live else _unlike(client, pool, found)
    ready = {pod.pod for pod in facts.frontends}
    frontend = next((body for body in documents if at(body, "metadata", "name") in ready), None)
    return Serving(replace(known, cards=facts.cards, problem=unlike), facts, frontend, published(metadata, pods))


def _published(client: Client, namespace: str) -> tuple[Document, ...]:
    try:
        return client.list(WORKERS, namespace)
    except NotFound:
        return ()


def _unlike(client: Client, pool: ReadPool, staging: Target) -> str:
    target = _deployment(client, pool.namespace, pool.spec.target_ref.name)
    unlike = differences(staging, target) if target is not None else ()
    if not unlike:
        return ""
    what = f"{shown(staging.name)} differs from {pool.spec.target_ref.name} in {listed(unlike)}"
    return f"{what}: its deployer must make them alike, or the A/B says nothing about the target"
