"""KV-event payloads of vLLM, SGLang, TensorRT-LLM and Dynamo's event plane, and any bytes whatever."""

from __future__ import annotations

import json
from pathlib import Path

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvgate_probe.kvevents_payload import Batch, Event, EventKind, Hashes, Malformed, Wire, decode
from kvgate_probe.kvevents_tally import Link, State, Tally

DATA = Path(__file__).parents[1] / "data"
PAYLOADS: dict[str, str] = json.loads((DATA / "kv-event-payloads.json").read_text("utf-8"))
PLANE = [
    bytes.fromhex(frame) for frame in json.loads((DATA / "kv-event-plane.json").read_text("utf-8"))["mocker_stored"]
]


def message(name: str, number: int = 0, topic: bytes = b"kv-events") -> list[bytes]:
    return [topic, number.to_bytes(8, "big"), bytes.fromhex(PAYLOADS[name])]


def batch(name: str) -> Batch:
    read = decode(message(name))
    assert isinstance(read, Batch), read
    return read


def stored(read: Batch) -> Event:
    return next(event for event in read.events if event.kind is EventKind.STORED)


def tally(*messages: list[bytes], rank: int | None = None) -> Tally:
    held = Tally(rank, Link.ZMQ)
    for frames in messages:
        held.add(frames)
    return held


@pytest.mark.parametrize(
    ("name", "kinds", "rank"),
    [
        pytest.param("vllm_legacy_medium", "stored removed cleared", 0, id="vLLM's arrays, with a medium"),
        pytest.param("vllm_legacy_full", "stored", 3, id="vLLM's arrays in full, of rank 3"),
        pytest.param("vllm_map", "stored removed cleared", 0, id="vLLM's maps"),
        pytest.param("vllm_bytes_hash", "stored", 0, id="hashes of 32 bytes"),
        pytest.param("sglang_min_no_rank", "stored", None, id="SGLang: two elements, and no rank"),
        pytest.param("sglang_meta_at_7", "stored", None, id="SGLang: metadata where vLLM has the LoRA name"),
        pytest.param("sglang_bigram", "stored", 0, id="SGLang: pairs of tokens"),
        pytest.param("trtllm_map_str_token", "stored", 1, id="TensorRT-LLM: a token that is a word"),
        pytest.param("swa_group1", "stored", 0, id="a sliding window"),
        pytest.param("unknown_tag", "unknown removed", 0, id="a kind of event that is not known"),
        pytest.param("cpu_tier_only", "stored", 0, id="blocks in the host's memory"),
        pytest.param("empty_events", "", 0, id="no events"),
        pytest.param("block_size_2096", "stored", 0, id="a block of 2,096 tokens"),
    ],
)
def test_every_shape_is_read(name: str, kinds: str, rank: int | None) -> None:
    read = batch(name)
    assert (read.wire, " ".join(event.kind for event in read.events), read.rank) == (Wire.ENGINE, kinds, rank)


def test_a_signed_hash_is_the_same_number_unsigned() -> None:
    assert stored(batch("vllm_legacy_full")).hashes == (18446744073709551611,)


def test_hashes_of_bytes_are_told_apart() -> None:
    assert stored(batch("vllm_bytes_hash")).named_by is Hashes.BYTES


def test_pairs_of_tokens_are_read_as_tokens() -> None:
    assert stored(batch("sglang_bigram")).tokens == (10, 11, 12, 13, 14)


def test_sglangs_two_blocks() -> None:
    assert (stored(batch("sglang_min_no_rank")).blocks, stored(batch("sglang_min_no_rank")).block_tokens) == (2, 4)


def test_a_sliding_window_is_filtered_and_neither_applied_nor_lost() -> None:
    held = tally(message("swa_group1"))
    assert (held.filtered, held.stored, held.sequences.lost) == (1, 0, 0)
    assert held.state(4) is State.FILTERED


def test_the_event_plane_of_a_real_worker() -> None:
    read = decode(PLANE)
    assert isinstance(read, Batch)
    assert (read.wire, read.topic, read.sequence, read.rank) == (Wire.PLANE, "kv-events", 0, 0)
    assert [(event.kind, event.blocks, event.named_by) for event in read.events] == [
        (EventKind.STORED, 7, Hashes.NUMBERS)
    ]


@pytest.mark.parametrize(
    ("names", "wanted", "state"),
    [
        pytest.param(["vllm_legacy_medium"], 4, State.FLOWS, id="what is wanted"),
        pytest.param(["vllm_legacy_medium"], None, State.FLOWS, id="any size is wanted"),
        pytest.param(["block_size_2096"], 16, State.OTHER_BLOCK_SIZE, id="another block size"),
        pytest.param(["vllm_bytes_hash"], 4, State.BYTES, id="hashes of bytes"),
        pytest.param(["empty_events"], 16, State.NOTHING, id="batches without events"),
        pytest.param([], 16, State.NOTHING, id="not a message"),
    ],
)
def test_what_is_the_matter(names: list[str], wanted: int | None, state: State) -> None:
    held = tally(*(message(name, number) for number, name in enumerate(names)))
    assert held.state(wanted) is state
    assert held.said(wanted, 30)


@pytest.mark.parametrize(
    "frames",
    [
        pytest.param([b"payload"], id="one frame"),
        pytest.param([b"topic", b"payload"], id="two frames"),
        pytest.param([b"topic", b"\0" * 8, b"p", b"", b""], id="five frames"),
        pytest.param([b"", b"\0" * 7, msgpack.packb([0, []])], id="a short sequence"),
        pytest.param([b"", b"\0" * 8, b"\xc1"], id="no msgpack"),
        pytest.param([b"", b"\0" * 8, msgpack.packb({"a": 1})], id="a map"),
        pytest.param([b"", b"\0" * 8, msgpack.packb([1.0, "no"])], id="events that are a word"),
        pytest.param([b"", b"\0" * 8, msgpack.packb([1.0, [["BlockStored", 5]]])], id="a stored event cut short"),
        pytest.param([b"", b"\0" * 8, msgpack.packb([1.0, [[7]]])], id="an event without a type"),
        pytest.param([b"t", b"\0" * 8, b"\0" * 8, b"\x02\0\0\0\0"], id="an envelope of another version"),
        pytest.param([*PLANE[:3], PLANE[3][:-1]], id="an envelope that is cut off"),
    ],
)
def test_what_is_no_batch_is_garbage(frames: list[bytes]) -> None:
    assert isinstance(decode(frames), Malformed)
    assert tally(frames).state(16) is State.GARBAGE


def test_garbage_among_batches_is_counted_apart() -> None:
    held = tally(message("vllm_legacy_medium"), [b"x"])
    assert (held.state(4), sum(held.malformed.values())) == (State.FLOWS, 1)


def numbered(*numbers: int, rank: int = 0) -> list[list[bytes]]:
    payload = msgpack.packb([1.0, [], rank])
    return [[b"", number.to_bytes(8, "big"), payload] for number in numbers]


@pytest.mark.parametrize(
    ("messages", "late", "lost", "repeated", "resets"),
    [
        pytest.param(numbered(7, 8, 9, 10), True, 0, 0, 0, id="joined late, and nothing lost"),
        pytest.param(numbered(0, 1, 2, 5, 6), False, 2, 0, 0, id="two lost"),
        pytest.param(numbered(0, 1, 1, 2), False, 0, 1, 0, id="a replay that overlaps"),
        pytest.param(
            [m for pair in zip(numbered(0, 1, 2), numbered(0, 1, 2, rank=1), strict=True) for m in pair],
            False,
            0,
            0,
            0,
            id="two ranks on one socket",
        ),
        pytest.param(numbered(5, 6, 0, 1), True, 0, 0, 1, id="the engine began anew"),
        pytest.param(numbered(3, 2**64 - 1), True, 0, 0, 0, id="the mark at the end of a replay"),
        pytest.param(numbered(3, 900), True, 896, 0, 0, id="a replay that cannot reach back"),
    ],
)
def test_gaps_are_counted_by_rank(
    messages: list[list[bytes]], late: bool, lost: int, repeated: int, resets: int
) -> None:
    seen = tally(*messages).sequences
    assert (seen.late, seen.lost, seen.repeated, seen.resets) == (late, lost, repeated, resets)


def test_a_batch_that_tells_no_rank_has_that_of_its_port() -> None:
    held = tally(message("sglang_min_no_rank"), rank=3)
    assert list(held.sequences.last) == [3]


@pytest.mark.parametrize("link", list(Link))
def test_without_a_handshake_nothing_else_counts(link: Link) -> None:
    expected = {Link.NONE: State.NOT_REACHABLE, Link.TCP: State.NOT_ZMQ, Link.ZMQ: State.NOTHING}
    assert Tally(link=link).state(16) is expected[link]


def test_a_topic_cannot_steer_a_terminal() -> None:
    held = tally(message("empty_events", topic=b"\x1b[31m\n" + b"k" * 200))
    assert held.topics == {"??31m?" + "k" * 58}


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=6)
    | st.binary(max_size=6),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=20,
)
TAGS = st.sampled_from(["BlockStored", "BlockRemoved", "AllBlocksCleared", "X"])
EVENTS = st.builds(lambda tag, rest: [tag, *rest], TAGS, st.lists(VALUES, max_size=12)) | st.builds(
    lambda tag, rest: {"type": tag, **rest},
    TAGS,
    st.dictionaries(
        st.sampled_from(["block_hashes", "token_ids", "block_size", "medium", "group_idx", "kv_cache_spec_kind"]),
        VALUES,
    ),
)


@given(st.lists(st.binary(max_size=80), max_size=6))
def test_no_frames_raise(frames: list[bytes]) -> None:
    tally(frames).said(16, 30)


@given(VALUES)
def test_no_msgpack_raises(value: object) -> None:
    tally([b"", b"\0" * 8, msgpack.packb(value)]).said(16, 30)


@given(st.lists(EVENTS, max_size=5), VALUES)
def test_no_events_raise(events: list[object], rank: object) -> None:
    tally([b"", b"\0" * 8, msgpack.packb([1.0, events, rank])]).said(16, 30)


@given(VALUES, VALUES)
def test_no_envelope_raises(payload: object, more: object) -> None:
    body = msgpack.packb({"payload": msgpack.packb(payload), "topic": more})
    tally([b"t", b"\0" * 8, b"\0" * 8, b"\x01" + len(body).to_bytes(4, "big") + body]).said(None, 30)


@given(st.data())
def test_no_damage_to_a_real_payload_raises(data: st.DataObject) -> None:
    frames = data.draw(st.sampled_from([PLANE, *(message(name) for name in PAYLOADS)]))
    held = bytearray(frames[-1])
    for _ in range(data.draw(st.integers(1, 4))):
        held[data.draw(st.integers(0, len(held) - 1))] = data.draw(st.integers(0, 255))
    tally([*frames[:-1], bytes(held[: data.draw(st.integers(0, len(held)))])]).said(16, 30)
