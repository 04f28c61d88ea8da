"""Spoilt objects before a real API server: each is refused with a message, or one look of the ring bears it."""

from __future__ import annotations

import random
import time
from collections import Counter
from dataclasses import dataclass, field

from kubernetes import client

from kvgate.app.ring import look
from kvgate.edge.errors import EdgeError
from tests.api import documents
from tests.edge.cluster.yard import Document, Yard, in_namespace, sample
from tests.fuzz.mutations import spoilt_tree

PLURALS = {
    "InferencePool": "inferencepools",
    "GateApproval": "gateapprovals",
    "FabricReport": "fabricreports",
    "BenchmarkReport": "benchmarkreports",
    "DynamoGraphDeployment": "dynamographdeployments",
}
NAME = "spoilt"
REFUSED, JUDGED, TOLD = "refused", "judged", "told as an error"


@dataclass
class Seen:
    """What became of the objects of each kind, and what broke, as sentences."""

    fates: dict[str, Counter[str]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    crashes: list[str] = field(default_factory=list)

    @property
    def objects(self) -> int:
        return sum(fates.total() for fates in self.fates.values())


def corpus(yard: Yard) -> tuple[Document, ...]:
    """One good object of each kind, all of the sample pool but the pools themselves and the deployment."""
    uid = yard.get("kvpool", "qwen3")["metadata"]["uid"]
    pools = (yard.get("kvpool", "qwen3"), documents.full_pool())
    found = (
        *({"apiVersion": "kvgate.dev/v1alpha1", "kind": "InferencePool", "spec": one["spec"]} for one in pools),
        documents.approval(),
        documents.shard(**{"poolRef.uid": uid}),
        documents.index(**{"poolRef.uid": uid}),
        documents.benchmark(**{"poolRef.uid": uid}),
        {key: yard.manifest()[key] for key in ("apiVersion", "kind", "spec")},
    )
    return tuple(in_namespace({**one, "metadata": {"name": NAME}}, yard.namespace) for one in found)


def watcher(yard: Yard) -> None:
    """A pool whose target is the deployment that will be spoilt."""
    pool = in_namespace(sample("pool.yaml"), yard.namespace)
    pool["metadata"]["name"] = "watcher"
    pool["spec"]["targetRef"] = {"name": NAME}
    yard.kubectl("create", "-f", "-", document=pool)


def fuzz(yard: Yard, seed: int, objects: int) -> Seen:
    """The same objects for the same seed."""
    watcher(yard)
    good, chance, seen = corpus(yard), random.Random(seed), Seen()
    for _ in range(objects):
        document = chance.choice(good)
        document = {**document, "spec": spoilt_tree(chance, document["spec"])}
        began = time.monotonic()
        kind = str(document["kind"])
        try:
            fate = _try(yard, document)
        except Exception as error:  # noqa: BLE001  whatever a look lets out is what is looked for
            seen.crashes.append(f"{kind}: {type(error).__name__}: {str(error)[:300]} of {str(document['spec'])[:600]}")
            fate = "crashed"
        seen.fates.setdefault(kind, Counter())[fate] += 1
        seen.seconds[kind] = seen.seconds.get(kind, 0.0) + time.monotonic() - began
    return seen


def _try(yard: Yard, document: Document) -> str:
    group, version = document["apiVersion"].split("/")
    where = (group, version, yard.namespace, PLURALS[document["kind"]])
    api = client.CustomObjectsApi(yard.access.api_client())
    try:
        api.create_namespaced_custom_object(*where, document)
    except client.ApiException as refusal:
        if refusal.status not in {400, 413, 422} or '"message"' not in (refusal.body or ""):
            raise
        return REFUSED
    try:
        return _look(yard, document["kind"])
    finally:
        api.delete_namespaced_custom_object(*where, NAME)


def _look(yard: Yard, kind: str) -> str:
    """Observed, decided and written, as a turn begins; what cannot be read is told by an error with a message."""
    pool = {"InferencePool": NAME, "DynamoGraphDeployment": "watcher"}.get(kind, "qwen3")
    try:
        seen = look(yard.ground, f"{yard.namespace}/{pool}", yard.clock)
    except EdgeError as told:
        return TOLD if str(told) else "told nothing"
    assert seen.decision.status.conditions, kind
    return JUDGED
