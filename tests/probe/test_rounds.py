"""Packed rounds: a million paths fit one ConfigMap, are read back as they were, and nothing else is taken for them."""

from __future__ import annotations

import base64
import json
import zlib
from array import array
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

from kvgate.api.words import Phase
from kvgate.core.at_once import AtOnce, PlaceLimit
from kvgate.core.evidence import Path
from kvgate.probe.jobs import LARGEST_SCHEDULE_BYTES
from kvgate.probe.plan import LinkTest, plan_paths
from kvgate_probe.fields import WireError
from kvgate_probe.rounds import Rounds
from kvgate_probe.wire import (
    PACKED_VERSION,
    PLAIN_PAIRS,
    Pair,
    Schedule,
    decode_schedule,
    encode_schedule,
    schedule_digest,
)

TEST = LinkTest(10.0, 4, 5201)
LEFT, RIGHT = [f"p{number:04}" for number in range(1000)], [f"d{number:04}" for number in range(1000)]


def planned(paths: list[Path], at_once: AtOnce | None = None) -> Schedule:
    return plan_paths("run", "uid", paths, TEST, Phase.ISOLATED, at_once or AtOnce()).schedule


def side(count: int) -> list[Path]:
    return [Path(a, b) for a, b in product(LEFT[:count], RIGHT[:count])]


def mixed(count: int) -> list[Path]:
    return [Path(a, b) for a, b in product(LEFT[:count], repeat=2) if a != b]


RACKS = AtOnce(None, (PlaceLimit(4, {name: f"rack-{int(name[1:]) // 8}" for name in (*LEFT, *RIGHT)}),))


@pytest.mark.parametrize(
    ("make", "most"),
    [
        pytest.param(lambda: planned(side(400)), 100_000, id="400 × 400 nodes with one role"),
        pytest.param(lambda: planned(mixed(300)), 100_000, id="300 nodes with both roles"),
        pytest.param(lambda: planned(side(200), RACKS), 100_000, id="200 × 200 with a limit for each rack"),
        pytest.param(
            lambda: planned([p for n, p in enumerate(side(200)) if n * 7919 % 10]), 100_000, id="most of 200 × 200"
        ),
    ],
)
def test_a_large_schedule_fits_a_config_map_and_is_read_back(make: Callable[[], Schedule], most: int) -> None:
    schedule = make()
    text = encode_schedule(schedule)
    assert len(text) < most < LARGEST_SCHEDULE_BYTES
    read = decode_schedule(text)
    assert read == schedule
    assert schedule_digest(read) == schedule_digest(schedule)


def test_a_walker_finds_its_own_tests_as_in_the_list_of_all() -> None:
    schedule = decode_schedule(encode_schedule(planned(side(40))))
    for node in (LEFT[0], LEFT[39], RIGHT[7]):
        assert schedule.tests_of(node) == tuple(
            t for t in schedule.tests() if node in (t.pair.source, t.pair.destination)
        )
    assert schedule.tests_of("stranger") == ()
    assert schedule.count == len(schedule.tests()) == 1600


def test_a_small_schedule_is_written_out_in_full() -> None:
    few, many = planned(side(2)), planned(side(PLAIN_PAIRS // 25))
    assert json.loads(encode_schedule(few))["rounds"][0][0] == {"from": "p0000", "to": "d0000"}
    assert json.loads(encode_schedule(many))["version"] == PACKED_VERSION


def packed(*numbers: int) -> str:
    return base64.b64encode(zlib.compress(array("H", numbers).tobytes())).decode()


@pytest.mark.parametrize(
    ("change", "word"),
    [
        pytest.param({"packed": packed(1, 0, 1), "version": 4}, "version", id="another version"),
        pytest.param({"packed": "no base64"}, "packed", id="no base64"),
        pytest.param({"packed": base64.b64encode(b"plain").decode()}, "packed", id="nothing compressed"),
        pytest.param({"packed": packed(1, 0, 1)[:-8] + "AAAAAAA="}, "packed", id="a sum that does not fit"),
        pytest.param({"packed": base64.b64encode(zlib.compress(b"abc")).decode()}, "packed", id="half a number"),
        pytest.param(
            {"packed": base64.b64encode(zlib.compress(bytes(65 * 1024 * 1024))).decode()}, "packed", id="a bomb"
        ),
        pytest.param({"packed": packed(2, 0, 1)}, "packed", id="an end within a round"),
        pytest.param({"packed": packed(1, 0, 3)}, "rounds[0]", id="a node that is not listed"),
        pytest.param({"packed": packed(1, 1, 1)}, "rounds[0]", id="a path on one node"),
        pytest.param({"packed": packed(1, 0, 1, 2, 0, 1, 1, 1)}, "rounds[1]", id="a node twice in a round"),
        pytest.param({"nodes": ["b", "a", "c"]}, "nodes", id="nodes out of order"),
        pytest.param({"nodes": ["a", "a", "b"]}, "nodes", id="a node twice"),
        pytest.param({"nodes": ["a", "b\n", "c"]}, "nodes", id="a node with a line end"),
        pytest.param({"nodes": [1, 2, 3]}, "nodes", id="nodes that are numbers"),
    ],
)
def test_a_wrong_packed_schedule_is_refused_by_name(change: dict[str, Any], word: str) -> None:
    good = {
        "version": PACKED_VERSION, "runID": "r", "poolUID": "u", "tool": "iperf3", "durationSeconds": 1, "streams": 1,
        "port": 5201, "phase": "Isolated", "nodes": ["a", "b", "c"], "packed": packed(1, 0, 1),
    }  # fmt: skip
    assert decode_schedule(json.dumps(good)).rounds == ((Pair("a", "b"),),)
    with pytest.raises(WireError) as caught:
        decode_schedule(json.dumps(good | change))
    assert word in str(caught.value)


def test_more_nodes_than_there_are_numbers_are_refused() -> None:
    with pytest.raises(WireError):
        Rounds.of([(Pair(f"a{number}", f"b{number}") for number in range(40_000))])
