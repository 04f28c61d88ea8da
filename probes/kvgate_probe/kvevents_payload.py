"""KV-event messages as engines and Dynamo's event plane put them on ZMQ, decoded without trusting a byte of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import msgpack

MOST_BYTES = 16 * 1024 * 1024
MOST_EVENTS = 100_000
_SEQUENCE_BYTES = 8
_PLANE_VERSION = 1
_PLANE_HEADER = 5
_U64 = 2**64
_FULL_KINDS = ("full_attention", "mla_attention", "sink_full_attention")
_DEVICE = frozenset({"", "gpu", "device"})
_FIELDS = (
    "type",
    "block_hashes",
    "parent_block_hash",
    "token_ids",
    "block_size",
    "lora_id",
    "medium",
    "lora_name",
    "extra_keys",
    "group_idx",
    "kv_cache_spec_kind",
    "kv_cache_spec_sliding_window",
)
"""A stored event as an array, in the order in which its fields were added over the years; the last may be missing."""
_REMOVED_FIELDS = ("type", "block_hashes", "medium", "group_idx")


class Wire(StrEnum):
    """Whose form a message has."""

    ENGINE = "engine"
    """vLLM's, SGLang's or TensorRT-LLM's own: topic, sequence, batch."""
    PLANE = "plane"
    """Dynamo's event plane: topic, publisher, sequence, envelope. It tells no block size."""


class EventKind(StrEnum):
    STORED = "stored"
    REMOVED = "removed"
    CLEARED = "cleared"
    UNKNOWN = "unknown"


class Hashes(StrEnum):
    """What the blocks are named by; Dynamo's relay takes whole numbers of 64 bits alone."""

    NUMBERS = "numbers"
    BYTES = "bytes"
    OTHER = "other"
    NONE = "none"


@dataclass(frozen=True)
class Event:
    """One event. `hashes` are numbers from 0 below 2^64; `tokens` are those that can be read as numbers.

    `filtered`: of a kind of attention that a router does not index. `device`: of the GPU's own memory.
    """

    kind: EventKind
    blocks: int = 0
    block_tokens: int | None = None
    named_by: Hashes = Hashes.NONE
    hashes: tuple[int, ...] = ()
    tokens: tuple[int, ...] = ()
    filtered: bool = False
    device: bool = True


@dataclass(frozen=True)
class Batch:
    """One message; `rank` is None where it does not say."""

    wire: Wire
    topic: str
    sequence: int
    rank: int | None
    events: tuple[Event, ...]


@dataclass(frozen=True)
class Malformed:
    """Why a message is none of these; nothing of its content is repeated."""

    why: str


class _MalformedError(ValueError):
    pass


def decode(frames: Sequence[bytes]) -> Batch | Malformed:
    """One multipart message. Total over any frames."""
    try:
        return _batch(frames)
    except _MalformedError as error:
        return Malformed(str(error))


def _batch(frames: Sequence[bytes]) -> Batch:
    if sum(map(len, frames)) > MOST_BYTES:
        raise _MalformedError(f"more than {MOST_BYTES} bytes")
    match len(frames):
        case 3:
            return _engine_batch(*frames)
        case 4:
            return _plane_batch(frames[0], frames[2], frames[3])
        case count:
            raise _MalformedError(f"{count} frames, and it takes 3 or 4")


def _engine_batch(topic: bytes, sequence: bytes, payload: bytes) -> Batch:
    held = _unpacked(payload)
    if not isinstance(held, list) or not 2 <= len(held) <= 8 or not isinstance(held[1], list):
        raise _MalformedError("the batch is no array of time and events")
    if len(held[1]) > MOST_EVENTS:
        raise _MalformedError(f"more than {MOST_EVENTS} events in one batch")
    rank = _whole(held[2]) if len(held) > 2 else None
    events = tuple(_engine_event(event) for event in held[1])
    return Batch(Wire.ENGINE, _word(topic), _number(sequence), rank, events)


def _engine_event(event: object) -> Event:
    fields = _named(event)
    match fields.get("type"):
        case "BlockStored":
            return _stored(fields)
        case "BlockRemoved":
            return _removed(fields)
        case "AllBlocksCleared":
            return Event(EventKind.CLEARED)
        case str():
            return Event(EventKind.UNKNOWN)
    raise _MalformedError("an event has no type")


def _named(event: object) -> Mapping[str, object]:
    """The fields by name: of a map that names them, or of an array by their places."""
    if isinstance(event, dict):
        return {str(key): value for key, value in event.items()}
    if not isinstance(event, list) or not event:
        raise _MalformedError("an event is neither map nor array")
    names = _REMOVED_FIELDS if event[0] == "BlockRemoved" else _FIELDS
    return dict(zip(names, event, strict=False))


def _stored(fields: Mapping[str, object]) -> Event:
    blocks, size = fields.get("block_hashes"), _whole(fields.get("block_size"))
    if not isinstance(blocks, list) or size is None or not isinstance(fields.get("token_ids"), list):
        raise _MalformedError("a stored event lacks its hashes, tokens or block size")
    return Event(
        EventKind.STORED,
        blocks=len(blocks),
        block_tokens=size,
        named_by=_named_by(blocks),
        hashes=_hashes(blocks),
        tokens=_tokens(fields.get("token_ids")),
        filtered=_filtered(fields),
        device=str(fields.get("medium") or "").lower() in _DEVICE,
    )


def _removed(fields: Mapping[str, object]) -> Event:
    blocks = fields.get("block_hashes")
    if not isinstance(blocks, list):
        raise _MalformedError("a removed event lacks its hashes")
    return Event(EventKind.REMOVED, blocks=len(blocks), named_by=_named_by(blocks), hashes=_hashes(blocks))


def _filtered(fields: Mapping[str, object]) -> bool:
    """As Dynamo's relay does: by the kind where it is told, else by the group, of which the first is the full one."""
    kind = fields.get("kv_cache_spec_kind")
    if isinstance(kind, str) and kind:
        return kind not in _FULL_KINDS
    return fields.get("group_idx") not in (None, 0)


def _named_by(blocks: list[object]) -> Hashes:
    if not blocks:
        return Hashes.NONE
    if all(_u64(block) is not None for block in blocks):
        return Hashes.NUMBERS
    return Hashes.BYTES if all(isinstance(block, bytes) for block in blocks) else Hashes.OTHER


def _hashes(blocks: list[object]) -> tuple[int, ...]:
    return tuple(number for block in blocks if (number := _u64(block)) is not None)


def _u64(value: object) -> int | None:
    """Builds write the same 64 bits signed or unsigned."""
    if not isinstance(value, int) or isinstance(value, bool) or not -(_U64 // 2) <= value < _U64:
        return None
    return value % _U64


def _tokens(value: object) -> tuple[int, ...]:
    """Token ids; of pairs, as speculative decoding writes them, the first of each and the second of the last."""
    held = value if isinstance(value, list) else []
    pairs = [pair for pair in held if isinstance(pair, list) and len(pair) == 2]
    if pairs and len(pairs) == len(held):
        held = [*(pair[0] for pair in pairs), pairs[-1][1]]
    return tuple(token for token in held if isinstance(token, int) and not isinstance(token, bool))


def _plane_batch(topic: bytes, sequence: bytes, envelope: bytes) -> Batch:
    """A version byte, the length in four bytes, and a map whose payload is msgpack again."""
    if len(envelope) < _PLANE_HEADER or envelope[0] != _PLANE_VERSION:
        raise _MalformedError("the envelope is of no known version")
    if int.from_bytes(envelope[1:_PLANE_HEADER], "big") != len(envelope) - _PLANE_HEADER:
        raise _MalformedError("the envelope is cut off")
    held = _unpacked(envelope[_PLANE_HEADER:])
    payload = held.get("payload") if isinstance(held, dict) else None
    told = _unpacked(payload) if isinstance(payload, bytes) else None
    if not isinstance(told, list) or len(told) > MOST_EVENTS:
        raise _MalformedError("the envelope holds no list of events")
    events = [_plane_event(entry) for entry in told]
    ranks = {rank for rank, _ in events if rank is not None}
    rank = ranks.pop() if len(ranks) == 1 else None
    return Batch(Wire.PLANE, _word(topic), _number(sequence), rank, tuple(event for _, event in events))


def _plane_event(entry: object) -> tuple[int | None, Event]:
    event = entry.get("event") if isinstance(entry, dict) else None
    data = event.get("data") if isinstance(event, dict) else None
    if not isinstance(entry, dict) or not isinstance(event, dict):
        raise _MalformedError("an entry of the envelope is no event")
    device = str(entry.get("storage_tier") or "").lower() in _DEVICE
    return _whole(event.get("dp_rank")), _plane_data(data, device=device)


def _plane_data(data: object, *, device: bool) -> Event:
    if data == "cleared":
        return Event(EventKind.CLEARED, device=device)
    if not isinstance(data, dict) or len(data) != 1:
        return Event(EventKind.UNKNOWN, device=device)
    (name, body), *_ = data.items()
    match name:
        case "stored":
            blocks = [block.get("block_hash") for block in _maps(body, "blocks")]
            return Event(EventKind.STORED, len(blocks), None, _named_by(blocks), _hashes(blocks), device=device)
        case "removed":
            hashes = body.get("block_hashes") if isinstance(body, dict) else None
            held = hashes if isinstance(hashes, list) else []
            return Event(EventKind.REMOVED, len(held), None, _named_by(held), _hashes(held), device=device)
        case "cleared":
            return Event(EventKind.CLEARED, device=device)
    return Event(EventKind.UNKNOWN, device=device)


def _maps(body: object, name: str) -> list[dict[object, object]]:
    held = body.get(name) if isinstance(body, dict) else None
    if not isinstance(held, list) or not all(isinstance(item, dict) for item in held):
        raise _MalformedError("a stored event of the envelope lacks its blocks")
    return held


def _unpacked(payload: bytes) -> object:
    try:
        return msgpack.unpackb(payload, raw=False, strict_map_key=True)
    except (ValueError, TypeError, RecursionError, MemoryError):
        raise _MalformedError("a part is no msgpack") from None


def _word(topic: bytes) -> str:
    """A topic fit for a message: plain characters, at most 64."""
    told = topic[:64].decode("ascii", "replace")
    return "".join(letter if letter.isalnum() or letter in "-_./@:" else "?" for letter in told)


def _number(frame: bytes) -> int:
    if len(frame) != _SEQUENCE_BYTES:
        raise _MalformedError("the sequence is not of 8 bytes")
    return int.from_bytes(frame, "big")


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31 else None
