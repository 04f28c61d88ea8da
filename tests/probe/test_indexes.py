"""Rows of a report are spread over shards that keep to their limit, whatever stands in them."""

from __future__ import annotations

import base64
import random

import pytest

from kvgate.probe.indexes import Body, Rows
from kvgate.probe.shards import SHARD_CHARACTERS

ROWS = Rows[str]("rows", list, per_shard=4)


def noise(kilobytes: int, seed: int = 1) -> str:
    """Text that packs to 4/3 of so many kilobytes."""
    return base64.b64encode(random.Random(seed).randbytes(kilobytes * 1000)).decode()


@pytest.mark.parametrize(
    ("rows", "frame", "shards"),
    [
        pytest.param([], {}, 1, id="nothing is one shard"),
        pytest.param(["a"] * 9, {"of": "all"}, 3, id="rows go by so many a shard"),
        pytest.param([noise(400, 1), noise(400, 2)], {}, 2, id="rows that are too large together stand apart"),
        pytest.param([noise(400, 1)], {"of": noise(400, 2)}, 2, id="a frame stands alone where a row does not fit"),
    ],
)
def test_each_shard_keeps_to_the_limit(rows: list[str], frame: Body, shards: int) -> None:
    packed = list(ROWS.packed(rows, frame))
    assert len(packed) == shards
    assert all(len(text) <= SHARD_CHARACTERS for text in packed)


@pytest.mark.parametrize(
    ("rows", "frame"),
    [
        pytest.param([noise(800)], {}, id="a row"),
        pytest.param([], {"of": noise(800)}, id="a frame"),
    ],
)
def test_what_no_shard_can_hold_is_refused(rows: list[str], frame: Body) -> None:
    with pytest.raises(ValueError, match="larger than a shard"):
        list(ROWS.packed(rows, frame))
