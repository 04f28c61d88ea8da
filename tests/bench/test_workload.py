"""Traces and workloads: what is read, what is refused, and what keeps the prompts of two runs apart."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from itertools import pairwise
from statistics import fmean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvgate_bench import workload
from kvgate_bench.trace import HASH_TOKENS, MOST_BYTES, TraceError, TraceRequest, read_trace
from kvgate_bench.wire import ARMS, SALT_BLOCKS, TRACE
from kvgate_bench.workload import Salt
from tests.bench.plans import PLAN, plan

LINE = {"timestamp": 27_482, "input_length": 1023, "output_length": 52, "hash_ids": [46, 47]}


def jsonl(*lines: object) -> bytes:
    return "\n".join(json.dumps(line) for line in lines).encode()


@pytest.mark.parametrize("packing", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_a_trace_is_read_in_the_order_of_its_timestamps(packing: Callable[[bytes], bytes]) -> None:
    later = LINE | {"timestamp": 30_000.5, "input_length": 5, "hash_ids": [9]}
    read = read_trace(packing(jsonl(later, LINE) + b"\n\n"), 10)
    assert read == (TraceRequest(1023, 52, (46, 47)), TraceRequest(5, 52, (9,)))
    assert len(read_trace(jsonl(LINE, LINE, LINE), 2)) == 2


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        pytest.param(b"", "holds no request", id="empty"),
        pytest.param(b"\xff\xfe", "neither UTF-8 text nor gzip", id="no text"),
        pytest.param(b"\x1f\x8bxx", "neither UTF-8 text nor gzip", id="broken gzip"),
        pytest.param(b"{}", "line 1 of the trace needs timestamp", id="no fields"),
        pytest.param(b"[" * 5000, "line 1 of the trace needs", id="a deep list"),
        pytest.param(jsonl(LINE, LINE | {"hash_ids": "x"}), "line 2 of the trace: lengths and", id="no list of IDs"),
        pytest.param(
            jsonl(LINE | {"hash_ids": [46.5, 47]}), "must be whole numbers", id="an ID that is no whole number"
        ),
        pytest.param(jsonl(LINE | {"input_length": -1}), "must be whole numbers", id="a negative length"),
        pytest.param(jsonl(LINE | {"timestamp": "now"}), "timestamp must be a number", id="a timestamp that is text"),
        pytest.param(jsonl(LINE | {"input_length": 512}), "must fit its hash_ids", id="an ID too many"),
        pytest.param(jsonl(LINE | {"input_length": 1025}), "must fit its hash_ids", id="an ID too few"),
        pytest.param(jsonl(LINE | {"hash_ids": []}), "must fit its hash_ids", id="no ID at all"),
        pytest.param(gzip.compress(b" " * (MOST_BYTES + 1)), "larger than", id="a bomb"),
    ],
)
def test_a_trace_that_cannot_be_used_says_where_and_never_what(raw: bytes, said: str) -> None:
    with pytest.raises(TraceError, match=said) as refused:
        read_trace(raw, 10)
    assert "now" not in str(refused.value)


def trace(count: int, size: int = 5) -> list[TraceRequest]:
    """Families of `size` prompts that share two blocks of three."""
    return [
        TraceRequest(3 * HASH_TOKENS, 8, (10 * (n // size), 10 * (n // size) + 1, 100_000 + n)) for n in range(count)
    ]


def test_a_long_trace_gives_each_block_its_own_part_and_a_short_one_its_beginning() -> None:
    asked = plan(workload=TRACE, requests_per_run=10)
    first, second = workload.requests_of(asked, trace(20))
    assert [due.family for due in first] == [0] * 5 + [1] * 5
    assert [due.family for due in second] == [2] * 5 + [3] * 5
    again = workload.requests_of(asked, trace(19))
    assert again[0] == again[1] == first


def test_what_the_run_has_sent_before_is_known_in_whole_kv_blocks() -> None:
    [part, _] = workload.requests_of(plan(workload=TRACE, requests_per_run=10), trace(10))
    salt = SALT_BLOCKS * PLAN.block_tokens
    assert [due.repeated_tokens for due in part[:3]] == [0, salt + 2 * HASH_TOKENS, salt + 2 * HASH_TOKENS]
    assert part[5].repeated_tokens == 0


def test_the_same_block_behind_another_is_not_the_same() -> None:
    apart = [TraceRequest(1024, 4, (1, 2)), TraceRequest(1024, 4, (3, 2)), TraceRequest(1024, 4, (1, 4))] * 4
    [part, _] = workload.requests_of(plan(workload=TRACE, requests_per_run=5), apart)
    assert [due.repeated_tokens for due in part[:3]] == [0, 0, 32 + 512]


@pytest.mark.parametrize(
    ("count", "changes", "said"),
    [
        (9, {}, "the trace has 9 requests, a run needs 10"),
        (10, {"cache_blocks": 100}, "more than 20% of one worker's 100: give a trace with shorter prompts"),
    ],
)
def test_a_trace_that_does_not_fit_is_refused(count: int, changes: dict[str, object], said: str) -> None:
    with pytest.raises(TraceError, match=said):
        workload.requests_of(plan(workload=TRACE, requests_per_run=10, **changes), trace(count))


def test_the_blocks_of_a_run_are_counted_once() -> None:
    [part, _] = workload.requests_of(plan(workload=TRACE, requests_per_run=10), trace(10))
    assert workload.cache_blocks(PLAN, part) == (2 * 2 + 10) * 32 + 2 * 2 + 10


def test_the_built_in_workload_has_families_of_the_asked_size_that_come_and_go() -> None:
    asked = plan(blocks=4, requests_per_run=200, family_size=12)
    parts = workload.requests_of(asked, None)
    sizes: dict[int, int] = {}
    for due in (due for part in parts for due in part):
        sizes[due.family] = sizes.get(due.family, 0) + 1
    assert sorted(sizes.values())[-50:] == [12] * 50
    assert all(due.input_tokens in asked.prompts for part in parts for due in part)
    shared = [due.repeated_tokens / (due.input_tokens + 32) for part in parts for due in part if due.repeated_tokens]
    assert 0.8 < fmean(shared) < 0.95


SEEDS = st.tuples(st.integers(0, 2**40), st.integers(0, 63), st.sampled_from(ARMS))


def _dues() -> list[workload.Due]:
    return [due for part in workload.requests_of(PLAN, None) for due in part]


@given(SEEDS, SEEDS, st.integers(0, 100))
@settings(max_examples=40, deadline=None)
def test_no_two_runs_share_even_the_first_kv_block(
    one: tuple[int, int, str], other: tuple[int, int, str], at: int
) -> None:
    due = _DUES[at]
    mine, theirs = (workload.prompt(PLAN, due, Salt(*salt)) for salt in (one, other))
    assert (mine[: PLAN.block_tokens] == theirs[: PLAN.block_tokens]) == (one == other)


_DUES = _dues()


@given(SEEDS, st.integers(0, 100), st.integers(0, 100))
@settings(max_examples=40, deadline=None)
def test_within_a_run_prompts_share_exactly_what_their_hash_ids_do(
    salt: tuple[int, int, str], first: int, second: int
) -> None:
    one, other = _DUES[first], _DUES[second]
    common = next(
        (n for n, pair in enumerate(zip(one.hash_ids, other.hash_ids, strict=False)) if pair[0] != pair[1]), None
    )
    prompts = [workload.prompt(PLAN, due, Salt(*salt)) for due in (one, other)]
    same = next((n for n, pair in enumerate(zip(*prompts, strict=False)) if pair[0] != pair[1]), len(prompts[0]))
    if one.family != other.family:
        assert same < PLAN.block_tokens
    elif common is not None:
        assert 0 <= same - (SALT_BLOCKS + common) * PLAN.block_tokens < PLAN.block_tokens


def test_prompts_have_their_length_and_keep_to_the_vocabulary() -> None:
    for due in _DUES[:20]:
        tokens = workload.prompt(PLAN, due, Salt(7, 0, "KV"))
        assert len(tokens) == due.input_tokens + SALT_BLOCKS * PLAN.block_tokens
        assert PLAN.first_token <= min(tokens) <= max(tokens) <= PLAN.last_token


def test_arrivals_are_the_same_for_both_arms_differ_by_block_and_keep_the_rate() -> None:
    asked = plan(requests_per_run=5000, requests_per_second=50.0)
    moments = workload.arrivals(asked, 0)
    assert moments == workload.arrivals(asked, 0) != workload.arrivals(asked, 1)
    assert moments[-1] == pytest.approx(100, rel=0.1)
    assert all(before <= after for before, after in pairwise(moments))


def test_the_coin_gives_either_arm_the_first_turn() -> None:
    orders = [workload.order(PLAN, block) for block in range(64)]
    assert 16 < sum(order[0] == "KV" for order in orders) < 48
    assert {frozenset(order) for order in orders} == {frozenset(ARMS)}


def test_prompts_for_calibration_are_spread_over_the_lengths() -> None:
    lengths = [due.input_tokens for due in workload.samples(_DUES, 5)]
    assert lengths == sorted(lengths)
    assert set(lengths) == set(PLAN.prompts)
