"""The one model configuration that a deployment's workers publish, or why there is not one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kvgate.core.workers import PodRole, WorkerPod
from kvgate.dynamo.document import shown
from kvgate.dynamo.metadata import ModelCard, Served, WorkerMetadata

NOT_READ = "no running worker's config.json was read; supply spec.model.kvCache.bytesPerToken or configFrom"
_REMEDY = "one pool judges one model: make them alike, or wait for the rollout that does"


@dataclass(frozen=True)
class Offer:
    """One worker pod that serves the configuration, and where."""

    pod: str
    pod_uid: str
    address: str
    served: Served


@dataclass(frozen=True)
class Published:
    """What all workers agree on; `offers` all have the same checksum, Ready pods first. `block_tokens` is None where no
    card says it."""

    checksum: str
    offers: tuple[Offer, ...]
    block_tokens: int | None = None


@dataclass(frozen=True)
class Unpublished:
    """Why no configuration is agreed on, and who must act."""

    message: str


Said = tuple[WorkerPod, ModelCard]


def published(metadata: Iterable[WorkerMetadata], pods: Iterable[WorkerPod]) -> Published | Unpublished:
    """What the cards of these pods agree on. Pods that are leaving have no say, for a rollout ends with them."""
    said = _said(metadata, pods)
    if not said:
        return Unpublished(NOT_READ)
    mute = [pod for pod, card in said if card.config is None]
    if mute:
        return Unpublished(f"worker pod {shown(mute[0].pod)} publishes no config.json: {NOT_READ}")
    if told := _different_models(said) or _different_blocks(said):
        return Unpublished(f"{told}; {_REMEDY}")
    offers = tuple(_offer(pod, card.config) for pod, card in said if card.config is not None)
    blocks = {card.block_tokens for _, card in said} - {None}
    return Published(offers[0].served.checksum, offers, blocks.pop() if blocks else None)


def _said(metadata: Iterable[WorkerMetadata], pods: Iterable[WorkerPod]) -> tuple[Said, ...]:
    held = {(told.pod, told.pod_uid): told for told in metadata if told.pod_uid}
    workers = [pod for pod in pods if pod.role is not PodRole.FRONTEND and not pod.leaving]
    ordered = sorted(workers, key=lambda pod: (not pod.ready, pod.pod))
    return tuple((pod, card) for pod in ordered if (found := held.get((pod.pod, pod.uid))) for card in found.cards)


def _different_models(said: tuple[Said, ...]) -> str:
    """Two workers whose configurations differ; empty when there are none."""
    first = said[0]
    other = next((one for one in said if _checksum(one) != _checksum(first)), None)
    return f"{_model(first)}, and {_model(other)}" if other else ""


def _checksum(said: Said) -> str:
    return said[1].config.checksum if said[1].config else ""


def _model(said: Said) -> str:
    pod, card = said
    return f"worker pod {shown(pod.pod)} serves {shown(card.name)} (config.json {shown(_checksum(said)[:19])})"


def _different_blocks(said: tuple[Said, ...]) -> str:
    """Two workers whose KV blocks differ; one that says nothing contradicts nobody."""
    telling = [one for one in said if one[1].block_tokens is not None]
    other = next((one for one in telling if one[1].block_tokens != telling[0][1].block_tokens), None)
    return f"{_sized(telling[0])}, and {_sized(other)}" if other else ""


def _sized(said: Said) -> str:
    pod, card = said
    return f"worker pod {shown(pod.pod)} has {card.block_tokens} tokens per KV block"


def _offer(pod: WorkerPod, served: Served) -> Offer:
    return Offer(pod.pod, pod.uid, pod.address, served)
