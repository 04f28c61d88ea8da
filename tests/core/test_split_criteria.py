"""Each criterion on the split: the KV size, the throughput with its unit, the budget, and the load."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

import pytest

from kvgate.api.words import Outcome
from kvgate.core import split_criteria as criteria
from kvgate.core.findings import Concern
from kvgate.core.judging import Case
from kvgate.core.kvcache.layout import Window
from kvgate.core.world import KVKnown, KVUnknown
from tests.core.cases import MIB, case, everywhere, evidence, kv, layout, nodes, target, uplink

MINIMUM = "criteria.disaggregation.minThroughput"
BUDGET = "criteria.disaggregation.ttftBudget"
PROMPTS = "workload.prompts"
PEAK = "workload.peakRequestsPerSecond"


def carrying(bytes_per_second: float, changes: Mapping[str, object] | None = None, **fields: object) -> Case:
    return case(changes, measured=evidence(everywhere(bytes_per_second), **fields))


UNKNOWN_SIZE = KVUnknown("KVBytesUnknown", "model type x is not known: supply bytesPerToken")
NO_BYTES = dataclasses.replace(kv(), size=dataclasses.replace(layout(), bytes_per_token=0), bytes_per_token=0)
WINDOWED = dataclasses.replace(
    NO_BYTES, size=dataclasses.replace(layout(), bytes_per_token=0, windows=(Window(64, 128),))
)


@pytest.mark.parametrize(
    ("seen", "outcome", "reason"),
    [
        pytest.param(case(), Outcome.PASS, "KVBytesKnown", id="a known size"),
        pytest.param(case(size=UNKNOWN_SIZE), Outcome.UNKNOWN, "KVBytesUnknown", id="a model that is not known"),
        pytest.param(case(size=NO_BYTES), Outcome.UNKNOWN, "KVBytesUnknown", id="zero bytes would let any link pass"),
        pytest.param(case(size=WINDOWED), Outcome.PASS, "KVBytesKnown", id="windows alone are bytes too"),
    ],
)
def test_kv_size_known(seen: Case, outcome: Outcome, reason: str) -> None:
    found = criteria.kv_size_known(seen)
    assert (found.outcome, found.reason, found.concern) == (outcome, reason, Concern.MODEL)


@pytest.mark.parametrize("size", [UNKNOWN_SIZE, NO_BYTES], ids=["an unknown model", "zero bytes per token"])
def test_without_kv_bytes_the_remedy_is_named(size: KVKnown | KVUnknown) -> None:
    assert "bytesPerToken" in criteria.kv_size_known(case(size=size)).message


@pytest.mark.parametrize(
    ("bytes_per_second", "minimum", "outcome"),
    [
        pytest.param(1e9, "1GB/s", Outcome.PASS, id="exactly 1 GB/s is enough for 1GB/s"),
        pytest.param(1e9 - 1, "1GB/s", Outcome.FAIL, id="a byte less than 1 GB/s is not"),
        pytest.param(1e9, "1GiB/s", Outcome.FAIL, id="1 GB/s is less than 1GiB/s"),
        pytest.param(2**30, "1GiB/s", Outcome.PASS, id="2^30 bytes are 1GiB"),
        pytest.param(125e6, "1Gbit/s", Outcome.PASS, id="125 MB/s are 1Gbit/s, bits and not bytes"),
        pytest.param(125e6 - 1, "1Gbit/s", Outcome.FAIL, id="a byte less than 1Gbit/s"),
        pytest.param(104e6, "104MB/s", Outcome.PASS, id="104 MB/s are 104MB/s"),
        pytest.param(104e6, "104MiB/s", Outcome.FAIL, id="104 MB/s are less than 104MiB/s"),
        pytest.param(104 * MIB, "104MiB/s", Outcome.PASS, id="104 MiB/s are 104MiB/s"),
        pytest.param(1.25e6, "10Mbit/s", Outcome.PASS, id="1.25 MB/s are 10Mbit/s"),
    ],
)
def test_min_throughput_in_its_own_unit(bytes_per_second: float, minimum: str, outcome: Outcome) -> None:
    found = criteria.throughput_enough(carrying(bytes_per_second, {MINIMUM: minimum}))
    reason = {Outcome.PASS: "ThroughputEnough", Outcome.FAIL: "ThroughputTooLow"}[outcome]
    assert (found.outcome, found.reason) == (outcome, reason)
    assert minimum in found.message


@pytest.mark.parametrize(
    ("seen", "outcome", "reason"),
    [
        pytest.param(case(), Outcome.PASS, "NoMinimum", id="no minimum asked for"),
        pytest.param(case({MINIMUM: "1MB/s"}, measured=None), Outcome.UNKNOWN, "NotMeasured", id="nothing measured"),
        pytest.param(carrying(math.nan, {MINIMUM: "1MB/s"}), Outcome.UNKNOWN, "NotMeasured", id="not a number"),
        pytest.param(carrying(0.0, {MINIMUM: "1MB/s"}), Outcome.UNKNOWN, "NotMeasured", id="zero samples worth"),
    ],
)
def test_throughput_enough(seen: Case, outcome: Outcome, reason: str) -> None:
    found = criteria.throughput_enough(seen)
    assert (found.outcome, found.reason) == (outcome, reason)


GOLDEN = 104 * MIB
IDLE = {PROMPTS: [{"tokens": 3216}], PEAK: None}
"""3,216 tokens at 104 MiB/s: 3.382 s, and no wait to add."""


@pytest.mark.parametrize(
    ("changes", "outcome"),
    [
        pytest.param({BUDGET: "3383ms"}, Outcome.PASS, id="the transfer alone, just within the budget"),
        pytest.param({BUDGET: "3382ms"}, Outcome.FAIL, id="the transfer alone, just beyond the budget"),
        pytest.param({BUDGET: "3482ms", "workload.fixedOverhead": "100ms"}, Outcome.FAIL, id="fixedOverhead counts"),
        pytest.param({BUDGET: "3483ms", "workload.fixedOverhead": "100ms"}, Outcome.PASS, id="room for fixedOverhead"),
        pytest.param(
            {BUDGET: "6s", "fabric.probe.loadDerating": "0.5"}, Outcome.FAIL, id="derated by half takes double"
        ),
        pytest.param({BUDGET: "7s", "fabric.probe.loadDerating": "0.5"}, Outcome.PASS, id="room for a derated path"),
        pytest.param(
            {BUDGET: "2s", PROMPTS: [{"tokens": 1000}, {"tokens": 3216}]}, Outcome.FAIL, id="every prompt size counts"
        ),
        pytest.param(
            {BUDGET: "2s", PROMPTS: [{"tokens": 1000, "share": "99%"}, {"tokens": 3216, "share": "1%"}]},
            Outcome.FAIL,
            id="also one of a hundred requests",
        ),
        pytest.param({BUDGET: "2s", PROMPTS: [{"tokens": 1608}]}, Outcome.PASS, id="a shorter prompt passes"),
    ],
)
def test_within_budget(changes: Mapping[str, object], outcome: Outcome) -> None:
    found = criteria.within_budget(carrying(GOLDEN, {**IDLE, **changes}))
    reason = {Outcome.PASS: "TTFTWithinBudget", Outcome.FAIL: "TTFTBudgetExceeded"}[outcome]
    assert (found.outcome, found.reason) == (outcome, reason)


def test_the_message_holds_bytes_seconds_rate_and_limit() -> None:
    message = criteria.within_budget(carrying(GOLDEN, {**IDLE, BUDGET: "4s"})).message
    for part in ("3216 tokens", "351.75 MiB", "3.38 s", "109.1 MB/s", "ttftBudget is 4s"):
        assert part in message


def test_a_pass_says_that_it_is_an_estimate() -> None:
    assert "estimate" in criteria.within_budget(case()).message


BUSY = {PROMPTS: [{"tokens": 1600}], PEAK: "1", "workload.skew": "1.0"}
"""On one node each way at 1600 × 114,688 B per 2 s: S 2 s; half a request a second would fill it."""
HALF_SPEED = 1600 * 114_688 / 2.0


@pytest.mark.parametrize(
    ("budget", "outcome"),
    [
        pytest.param("2999ms", Outcome.FAIL, id="a budget that forgets the wait"),
        pytest.param("3001ms", Outcome.PASS, id="a budget with room for the wait"),
    ],
)
def test_the_wait_counts(budget: str, outcome: Outcome) -> None:
    """λ 0.25/s, S 2 s: ρ 0.5, wait 0.25·4/(2·0.5) = 1 s, in all 3 s."""
    seen = case(
        {**BUSY, PEAK: "0.25", BUDGET: budget},
        measured=evidence(everywhere(HALF_SPEED)),
        on=nodes(("p1",), ("d1",)),
    )
    assert criteria.within_budget(seen).outcome is outcome


def test_a_full_node_waits_without_end_and_fails_any_budget() -> None:
    seen = case({**BUSY, BUDGET: "999h"}, measured=evidence(everywhere(HALF_SPEED)), on=nodes(("p1",), ("d1",)))
    found = criteria.within_budget(seen)
    assert (found.outcome, found.reason) == (Outcome.FAIL, "TTFTBudgetExceeded")
    assert "unbounded" in found.message


@pytest.mark.parametrize(
    "seen",
    [
        pytest.param(case(measured=None), id="no sweep yet"),
        pytest.param(case(size=UNKNOWN_SIZE), id="no KV size"),
        pytest.param(carrying(math.nan), id="no believable number"),
    ],
)
def test_without_a_rate_or_a_size_budget_and_load_are_unknown(seen: Case) -> None:
    for criterion in (criteria.within_budget, criteria.load_bearable):
        found = criterion(seen)
        assert (found.outcome, found.reason) == (Outcome.UNKNOWN, "NotMeasured")


def test_decode_ranks_of_the_worker_count_when_the_pool_says_fewer() -> None:
    size = dataclasses.replace(layout(), kv_heads=1)
    seen = case(size=dataclasses.replace(kv(), size=size), deployment=target(decode_tensor_parallel=4))
    alone = case(size=dataclasses.replace(kv(), size=size))
    assert seen.transfer is not None
    assert alone.transfer is not None
    assert seen.transfer.kv_bytes(16) == 4 * alone.transfer.kv_bytes(16)


LIMIT = "criteria.disaggregation.maxUtilization"


def loaded(changes: Mapping[str, object], prefill: int = 1, decode: int = 1, aggregate: float | None = None) -> Case:
    """S is 2 s on each path, and nodes enough on both sides for the rows to say."""
    names = tuple(f"p{index}" for index in range(prefill)), tuple(f"d{index}" for index in range(decode))
    on = nodes(*names, identities=())
    uplinks = (uplink(aggregate),) if aggregate is not None else ()
    swept = evidence(everywhere(HALF_SPEED, on.paths), planned=on.paths, uplinks=uplinks)
    return case({**BUSY, **changes}, measured=swept, on=on)


@pytest.mark.parametrize(
    ("seen", "outcome", "reason", "told"),
    [
        pytest.param(loaded({PEAK: "0.34"}), Outcome.PASS, "LoadBearable", "68%", id="below maxUtilization"),
        pytest.param(loaded({PEAK: "0.35"}), Outcome.PASS, "LoadBearable", "70%", id="exactly at maxUtilization"),
        pytest.param(loaded({PEAK: "0.36"}), Outcome.FAIL, "PathOversubscribed", "72%", id="above maxUtilization"),
        pytest.param(loaded({PEAK: "0.5"}), Outcome.FAIL, "PathOversubscribed", "100%", id="a full node"),
        pytest.param(
            loaded({PEAK: "0.36", LIMIT: "80%"}), Outcome.PASS, "LoadBearable", "72%", id="a higher limit bears more"
        ),
        pytest.param(loaded({PEAK: "0.36"}, 2, 2), Outcome.PASS, "LoadBearable", "36%", id="two nodes each way share"),
        pytest.param(
            loaded({PEAK: "0.36"}, 2, 1), Outcome.FAIL, "PathOversubscribed", "decode nodes", id="one decode node"
        ),
        pytest.param(
            loaded({PEAK: "0.36"}, 1, 2), Outcome.FAIL, "PathOversubscribed", "prefill nodes", id="one prefill node"
        ),
        pytest.param(
            loaded({PEAK: "0.34", "workload.skew": "1.25"}), Outcome.FAIL, "PathOversubscribed", "85%", id="skew counts"
        ),
        pytest.param(
            loaded({PEAK: "0.36"}, 4, 4, HALF_SPEED),
            Outcome.FAIL,
            "PathOversubscribed",
            "uplink spine",
            id="a thin uplink",
        ),
        pytest.param(
            loaded({PEAK: "1", PROMPTS: [{"tokens": 160, "share": "90%"}, {"tokens": 1600, "share": "10%"}]}),
            Outcome.PASS,
            "LoadBearable",
            "38%",
            id="prompts count by their share",
        ),
        pytest.param(
            loaded({PEAK: "1", PROMPTS: [{"tokens": 160}, {"tokens": 1600}]}),
            Outcome.FAIL,
            "PathOversubscribed",
            "200%",
            id="without shares every request is the largest",
        ),
        pytest.param(
            loaded({PEAK: None}), Outcome.UNKNOWN, "PeakRateUnknown", "peakRequestsPerSecond", id="no peak rate"
        ),
    ],
)
def test_load_bearable(seen: Case, outcome: Outcome, reason: str, told: str) -> None:
    found = criteria.load_bearable(seen)
    assert (found.outcome, found.reason, found.concern) == (outcome, reason, Concern.LOAD)
    assert told in found.message
