"""The deployment that is to serve an A/B: what its workers agree on, and whether it is like the target."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from kvgate.core.workers import PodRole, WorkerPod
from kvgate.dynamo.document import shown
from kvgate.dynamo.metadata import ModelCard, WorkerMetadata
from kvgate.dynamo.projection import ProjectedContainer, target_projection
from kvgate.dynamo.shape import Target

_SERVES = frozenset({"aggregated", "prefill", ""})


@dataclass(frozen=True)
class ServingFacts:
    """What an A/B must know of its deployment. `namespace` is Dynamo's own, of the generation that serves; `cards` the
    digest of what the workers publish, their identities left out; `worker_pods` are all that serve, decode workers
    among them."""

    model: str
    namespace: str
    workers: int
    block_tokens: int
    cache_blocks: int
    cards: str
    frontends: tuple[WorkerPod, ...]
    worker_pods: tuple[str, ...] = ()


@dataclass(frozen=True)
class NotServing:
    """Why no A/B can be run on it, and who must act."""

    message: str


def serving_facts(
    deployment: Target, pods: Iterable[WorkerPod], metadata: Iterable[WorkerMetadata]
) -> ServingFacts | NotServing:
    """What the ready workers agree on. A decode worker is none that a router chooses by its cache."""
    name, held = shown(deployment.name), tuple(pods)
    frontends = tuple(pod for pod in held if pod.role is PodRole.FRONTEND and pod.ready and not pod.leaving)
    cards = _cards(held, metadata)
    if not frontends or not cards:
        lacks = "no ready frontend" if not frontends else "no ready worker that publishes a model card"
        return NotServing(f"{name} has {lacks}: its deployer must start it")
    models, namespaces = {card.name for card in cards}, {card.endpoint.namespace for card in cards}
    blocks, caches = {card.block_tokens for card in cards}, {card.total_blocks for card in cards}
    if len(models) > 1 or len(namespaces) > 1 or len(blocks) > 1:
        what = "models, Dynamo namespaces or block sizes"
        return NotServing(f"the ready workers of {name} differ in their {what}: wait for its rollout to end")
    block, cache = blocks.pop(), min((count for count in caches if count), default=0)
    if not block or not cache or not namespaces:
        return NotServing(f"the workers of {name} publish no KV block size or no count of KV blocks")
    serve = tuple(sorted(pod.pod for pod in held if pod.ready and not pod.leaving and pod.role is not PodRole.FRONTEND))
    return ServingFacts(models.pop(), namespaces.pop(), len(cards), block, cache, _digest(cards), frontends, serve)


def _cards(pods: Iterable[WorkerPod], metadata: Iterable[WorkerMetadata]) -> tuple[ModelCard, ...]:
    ready = {(pod.pod, pod.uid) for pod in pods if pod.ready and not pod.leaving and pod.role is not PodRole.FRONTEND}
    told = (entry for entry in metadata if (entry.pod, entry.pod_uid) in ready)
    return tuple(card for entry in told for card in entry.cards if card.worker_type in _SERVES)


def _digest(cards: Iterable[ModelCard]) -> str:
    """Of what the cards say, and not of who says it: the load generator watches the workers' identities itself."""
    said = sorted(json.dumps(_said(card)) for card in cards)
    return hashlib.sha256("\n".join(said).encode()).hexdigest()[:32]


def _said(card: ModelCard) -> list[object]:
    checksum = card.config.checksum if card.config else ""
    return [card.name, card.worker_type, card.block_tokens, card.total_blocks, card.kv_events, checksum]


def differences(staging: Target, target: Target) -> tuple[str, ...]:
    """In what a staging deployment is not like the target: image, command, args, environment or resources (the GPUs
    among them) of a component. What switches capabilities is left out, and so are names that only a deployment has."""
    ours, theirs = (_by_component(target_projection(each)) for each in (target, staging))
    if ours.keys() != theirs.keys():
        return ("its components",)
    fields = ("image", "command", "args", "env", "resources")
    return tuple(
        f"{field} of {shown(ours[name].component)}"
        for name in sorted(ours)
        for field in fields
        if asdict(ours[name])[field] != asdict(theirs[name])[field]
    )


def _by_component(projection: Iterable[ProjectedContainer]) -> dict[str, ProjectedContainer]:
    return {container.component.lower(): container for container in projection}
