"""What a Dynamo worker publishes of itself: a DynamoWorkerMetadata read into frozen facts, total over any content."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from kvgate.dynamo.document import Document, at, mapping, mappings, sequence, text, whole
from kvgate.dynamo.words import GROUP

WORKER_METADATA_KIND = "DynamoWorkerMetadata"
WORKER_METADATA_VERSION = f"{GROUP}/v1alpha1"
KV_EVENTS = "kv-events"
_LARGEST_ID = 2**64
_LARGEST_KEPT_ID = 2**63
_HEX_ID = re.compile("[0-9a-f]{1,16}")
Ids = Mapping[float, int]


@dataclass(frozen=True, order=True)
class Served:
    """A file that the worker serves over HTTP: where, its checksum as `algorithm:hex`, and its bytes where stated."""

    url: str
    checksum: str
    size: int | None = None


@dataclass(frozen=True, order=True)
class Endpoint:
    """Whom requests reach: Dynamo's namespace, component and endpoint, which is not Kubernetes' namespace."""

    namespace: str
    component: str
    name: str


@dataclass(frozen=True)
class ModelCard:
    """One model that the worker serves.

    `worker_type` is `aggregated`, `prefill` or `decode`, empty where the card says none. `needs` are alternatives of
    worker types that must live beside it. `kv_events` is whether its engine publishes KV events; None where not said.
    """

    instance: int | None
    endpoint: Endpoint
    name: str = ""
    worker_type: str = ""
    needs: tuple[tuple[str, ...], ...] = ()
    block_tokens: int | None = None
    total_blocks: int | None = None
    kv_events: bool | None = None
    config: Served | None = None


@dataclass(frozen=True)
class EventSource:
    """A publisher of events that the worker announces: which topic, by which publisher, for which worker and rank."""

    topic: str
    endpoint: Endpoint
    publisher: int | None = None
    worker: int | None = None
    rank: int | None = None


@dataclass(frozen=True)
class EventChannel:
    """Where a topic's events can be had. `address` is a ZMQ one, `tcp://host:port`, and empty for another transport."""

    topic: str
    endpoint: Endpoint
    publisher: int | None = None
    address: str = ""


@dataclass(frozen=True)
class WorkerMetadata:
    """All that one worker publishes. `pod` and `pod_uid` are its controller, empty where that is no Pod."""

    name: str
    namespace: str
    pod: str
    pod_uid: str
    cards: tuple[ModelCard, ...] = ()
    sources: tuple[EventSource, ...] = ()
    channels: tuple[EventChannel, ...] = ()

    @property
    def kv_event_sources(self) -> tuple[EventSource, ...]:
        return tuple(source for source in self.sources if source.topic == KV_EVENTS)

    @property
    def kv_event_addresses(self) -> tuple[str, ...]:
        """The ZMQ addresses at which its KV events can be had."""
        return tuple(channel.address for channel in self.channels if channel.topic == KV_EVENTS and channel.address)


def read_metadata(document: object) -> WorkerMetadata:
    """The facts of a DynamoWorkerMetadata; whatever is absent or of another shape reads as nothing. Never raises."""
    metadata, data = mapping(at(document, "metadata")), at(document, "spec", "data")
    owner, ids = _pod(metadata), _named(data)
    return WorkerMetadata(
        name=text(metadata.get("name")),
        namespace=text(metadata.get("namespace")),
        pod=text(owner.get("name")),
        pod_uid=text(owner.get("uid")),
        cards=tuple(_card(entry, ids) for entry in _entries(data, "model_cards", "Model")),
        sources=tuple(_source(entry, ids) for entry in _entries(data, "event_sources", "EventSource")),
        channels=tuple(_channel(entry, ids) for entry in _entries(data, "event_channels", "EventChannel")),
    )


def _pod(metadata: Document) -> Document:
    owners = mappings(metadata.get("ownerReferences"))
    pods = (o for o in owners if (o.get("apiVersion"), o.get("kind"), o.get("controller")) == ("v1", "Pod", True))
    return next(pods, {})


def _entries(data: object, section: str, kind: str) -> tuple[Document, ...]:
    """In the order of their keys, so that the same content reads the same."""
    held = mapping(at(data, section))
    named = ((str(key), mapping(entry)) for key, entry in held.items())
    return tuple(entry for _, entry in sorted(named, key=lambda pair: pair[0]) if entry.get("type") == kind)


def _card(entry: Document, ids: Ids) -> ModelCard:
    card = mapping(entry.get("card_json"))
    runtime = mapping(card.get("runtime_config"))
    return ModelCard(
        instance=_identity(entry.get("instance_id"), ids),
        endpoint=_endpoint(entry, "endpoint"),
        name=text(card.get("display_name")),
        worker_type=text(card.get("worker_type")),
        needs=tuple(tuple(text(kind) for kind in sequence(group)) for group in sequence(card.get("needs"))),
        block_tokens=whole(card.get("kv_cache_block_size")) or None,
        total_blocks=whole(runtime.get("total_kv_blocks")),
        kv_events=_flag(runtime.get("kv_event_publishing_enabled")),
        config=_served(at(card, "model_info", "hf_config_json")),
    )


def _source(entry: Document, ids: Ids) -> EventSource:
    worker = mapping(at(entry, "metadata", "worker"))
    return EventSource(
        topic=text(entry.get("topic")),
        endpoint=_scope(entry),
        publisher=_identity(entry.get("publisher_id"), ids),
        worker=_identity(worker.get("worker_id"), ids),
        rank=whole(worker.get("dp_rank")),
    )


def _channel(entry: Document, ids: Ids) -> EventChannel:
    transport = mapping(entry.get("transport"))
    zmq = text(transport.get("kind")).lower() == "zmq"
    return EventChannel(
        topic=text(entry.get("topic")),
        endpoint=_scope(entry),
        publisher=_identity(entry.get("instance_id"), ids),
        address=text(at(transport, "config", "endpoint")) if zmq else "",
    )


def _scope(entry: Document) -> Endpoint:
    return _endpoint(mapping(at(entry, "scope", "endpoint")), "name")


def _endpoint(entry: Document, name: str) -> Endpoint:
    return Endpoint(text(entry.get("namespace")), text(entry.get("component")), text(entry.get(name)))


def _served(entry: object) -> Served | None:
    url, checksum = text(at(entry, "path")), text(at(entry, "checksum"))
    return Served(url, checksum, whole(at(entry, "size"))) if url or checksum else None


def _flag(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


def _named(data: object) -> Ids:
    """The ids that the keys of the sections end with, in hexadecimal, by what a reader of JSON may make of them."""
    tails = (str(key).rpartition("/")[2] for section in mapping(data).values() for key in mapping(section))
    return {float(number): number for tail in tails if _HEX_ID.fullmatch(tail) for number in [int(tail, 16)]}


def _identity(value: object, ids: Ids) -> int | None:
    """Dynamo's instance and publisher ids are whole numbers of 64 bits. The API server rounds those above 63 bits,
    and the key has them whole."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 20:
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _LARGEST_ID:
        return None
    exact = ids.get(float(value), value) if value >= _LARGEST_KEPT_ID else value
    return exact if exact < _LARGEST_ID else None
