"""Generated documents that are nearly right: a good one with a few values replaced, dropped or added."""

import copy
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

from tests.api.documents import (
    DIGEST,
    HASH,
    Document,
    approval,
    benchmark,
    benchmark_shard,
    full_pool,
    index,
    pool,
    shard,
)

GOOD = (pool(), full_pool(), shard(), index(), benchmark(), benchmark_shard(), approval())
FIELDS = ("foo", "Mode", "targetPorts", "selector", "name", "tokens", "share", "values", "minThroughput")
NUMBERS: tuple[Any, ...] = (0, 1, -1, 4.0, 0.5, 1e300, 2**53, 2.0**53, 2**63 - 1, 2**63, 10**30, True, False, None)
TEXTS = (
    *("", "a", "A/b", "x y", "é", "a\n", "x" * 400, "../x", DIGEST, DIGEST + "\n", HASH),
    *("0", "0.0", "1", "4", "10", "1.", "0.99", "1.0", "1.5"),
    *("10GB/s", "0GB/s", "10Gb/s", "1e3MB/s", "0.5Mbit/s", "100%", "100.0%", "100.1%", "101%", "0%", "-1%", "33.3%"),
    *("0s", "10s", "10s\n", "1h30m", "1.5h", "-1s", "9999999h", "99999999h", "0.0h0m"),
    *("2026-12-31T00:00:00Z", "2026-12-31t00:00:00z", "2026-12-31T00:00:00.123456789+01:00", "2026-12-31 00:00:00Z"),
    *("2026-12-31", "2026-02-30T00:00:00Z", "2026-12-31T24:00:00Z", "1700000000"),
    *("* * * * *", "* * * *", "@daily", "UTC", "Europe/Berlin"),
)
TREES: tuple[Any, ...] = (
    *([], {}, [None], [1], ["a"], [{}], ["x"] * 40, {"a": None}, {"a": 1}, {"a": "b"}),
    *({"name": "x"}, {"name": "X"}, {"name": "a/b"}, {"tokens": 1}, [{"tokens": 1}], [{"tokens": 0}]),
    *([{"tokens": 5, "share": "100%"}], [{"tokens": 5}, {"tokens": 6, "share": "100%"}]),
    *({"matchLabels": {}}, {"matchLabels": {"a": "b"}}, {"matchExpressions": []}),
    *({"fromWorkers": {}}, {"fromWorkers": {}, "bytesPerToken": 4}),
)
VALUES = st.sampled_from(NUMBERS) | st.sampled_from(TEXTS) | st.sampled_from(TREES)


@st.composite
def near_misses(draw: st.DrawFn) -> Document:
    document = copy.deepcopy(draw(st.sampled_from(GOOD)))
    for _ in range(draw(st.integers(1, 2))):
        parents = list(_places(document["spec"]))
        if parents:
            _disturb(draw, *draw(st.sampled_from(parents)))
    return document


def _places(node: Any) -> Iterator[tuple[Any, Any]]:
    steps = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for step, child in steps:
        yield node, step
        yield from _places(child)


def _disturb(draw: st.DrawFn, parent: Any, step: Any) -> None:
    act = draw(st.sampled_from(("replace", "replace", "replace", "drop", "add")))
    if act == "drop":
        del parent[step]
    elif act == "replace":
        parent[step] = copy.deepcopy(draw(VALUES))
    elif isinstance(parent[step], dict):
        parent[step][draw(st.sampled_from(FIELDS))] = copy.deepcopy(draw(VALUES))
