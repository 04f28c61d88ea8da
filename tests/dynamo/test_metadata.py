"""What a worker publishes: a real object's facts, and nothing but blanks from whatever else stands in its place."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kvgate.dynamo.metadata import Endpoint, EventSource, ModelCard, Served, WorkerMetadata, read_metadata

REAL = Path(__file__).parents[1] / "data" / "dynamo-worker-metadata.yaml"
GENERATE = Endpoint("dynamo", "backend", "generate")
INSTANCE = 4479298245005818


def real() -> dict[str, Any]:
    """What a mocker worker of Dynamo 1.6.1 wrote in a real cluster."""
    return cast("dict[str, Any]", yaml.safe_load(REAL.read_text(encoding="utf-8")))


def card_entry(document: dict[str, Any]) -> dict[str, Any]:
    return cast("dict[str, Any]", next(iter(document["spec"]["data"]["model_cards"].values())))


def test_a_real_workers_object_is_read() -> None:
    found = read_metadata(real())

    assert (found.name, found.namespace) == ("w1", "default")
    assert (found.pod, found.pod_uid) == ("w1", "6605356a-e077-497a-bd45-5f14af85487f")
    assert found.cards == (
        ModelCard(
            instance=INSTANCE,
            endpoint=GENERATE,
            name="tiny",
            worker_type="aggregated",
            needs=(),
            block_tokens=16,
            total_blocks=2048,
            kv_events=True,
            config=Served(
                url="http://10.88.2.2:9090/v1/metadata/dynamo/backend/generate/tiny/_base/config.json",
                checksum="blake3:81ac26e946c2da9a5bde35cde9c6bbc0c70ec1525a0be9b92c00b8c28d554190",
                size=444,
            ),
        ),
    )
    assert found.sources == (EventSource("kv-events", GENERATE, 3334085067925952, INSTANCE, 0),)
    assert found.kv_event_sources == found.sources
    assert found.kv_event_addresses == ("tcp://10.88.2.2:44533",)
    assert [channel.topic for channel in found.channels] == [
        "active_sequences_events",
        "forward-pass-metrics",
        "kv-events",
        "kv_metrics",
    ]


def test_what_a_decode_worker_needs_is_read_as_alternatives() -> None:
    document = real()
    card_entry(document)["card_json"] |= {"worker_type": "decode", "needs": [["prefill"], ["encode", "aggregated"]]}

    [card] = read_metadata(document).cards
    assert (card.worker_type, card.needs) == ("decode", (("prefill",), ("encode", "aggregated")))


@pytest.mark.parametrize(
    ("owner", "pod"),
    [
        pytest.param({}, "w1", id="its Pod"),
        pytest.param({"kind": "Deployment"}, "", id="another kind"),
        pytest.param({"apiVersion": "example.com/v1"}, "", id="another group's Pod"),
        pytest.param({"controller": False}, "", id="a Pod that is not the controller"),
    ],
)
def test_the_pod_is_the_one_that_controls_the_object(owner: dict[str, Any], pod: str) -> None:
    document = real()
    document["metadata"]["ownerReferences"][0] |= owner
    assert read_metadata(document).pod == pod


@pytest.mark.parametrize(
    ("field", "value", "read"),
    [
        pytest.param("kv_cache_block_size", 0, None, id="no block of zero tokens"),
        pytest.param("kv_cache_block_size", "many", None, id="no block that is a word"),
        pytest.param("kv_cache_block_size", 32, 32, id="a block of 32 tokens"),
    ],
)
def test_the_block_size(field: str, value: object, read: int | None) -> None:
    document = real()
    card_entry(document)["card_json"][field] = value
    assert read_metadata(document).cards[0].block_tokens == read


@pytest.mark.parametrize(
    ("named", "kept"),
    [
        pytest.param("e418acd8f2eb2fb1", 16436076887877038000, id="above 63 bits it keeps 53 of them"),
        pytest.param("ffffffffffffffff", 2**64, id="the largest is rounded beyond 64 bits"),
        pytest.param("fe9e5e4bc91fa", INSTANCE, id="a small one is the same in both"),
    ],
)
def test_an_id_that_the_api_server_rounds_is_taken_from_its_key(named: str, kept: int) -> None:
    document = real()
    (key, entry), *_ = document["spec"]["data"]["model_cards"].items()
    document["spec"]["data"]["model_cards"] = {f"{key.rpartition('/')[0]}/{named}": entry}
    entry["instance_id"] = kept
    assert read_metadata(document).cards[0].instance == int(named, 16)


@pytest.mark.parametrize(
    ("value", "read"),
    [
        pytest.param(2**64 - 1, 2**64 - 1, id="the largest"),
        pytest.param("12", 12, id="in quotes"),
        pytest.param(2**64, None, id="too large"),
        pytest.param(10**5000, None, id="far too large"),
        pytest.param(-1, None, id="negative"),
        pytest.param(True, None, id="a truth value"),
        pytest.param(1.5, None, id="a fraction"),
        pytest.param("1" * 5000, None, id="a long text of digits"),
    ],
)
def test_an_instance_id_is_a_whole_number_of_64_bits(value: object, read: int | None) -> None:
    document = real()
    card_entry(document)["instance_id"] = value
    assert read_metadata(document).cards[0].instance == read


KEYS = st.sampled_from(
    ["spec", "data", "metadata", "ownerReferences", "model_cards", "event_sources", "event_channels", "card_json"]
)
ANYTHING: st.SearchStrategy[object] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS | st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


@given(ANYTHING)
def test_anything_is_read_without_raising(document: object) -> None:
    assert isinstance(read_metadata(document), WorkerMetadata)


def places(value: object, path: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
    """The path to every value within a document."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, held in inner for place in places(held, (*path, key)))]


@given(st.data(), st.none() | st.booleans() | st.integers() | st.text(max_size=3) | st.lists(st.text(), max_size=2))
def test_a_real_object_with_any_one_value_replaced_is_read_without_raising(data: st.DataObject, value: object) -> None:
    document: Any = real()
    *parents, last = data.draw(st.sampled_from(places(document)[1:]))
    place = document
    for key in parents:
        place = place[key]
    place[last] = value
    assert isinstance(read_metadata(document), WorkerMetadata)
