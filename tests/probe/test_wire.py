"""The wire between operator and probe: what is written is read back, and anything else is refused by name."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvgate_probe.fields import WireError
from kvgate_probe.summary import MAX_TERMINATION_BYTES, Summary, decode_summary, encode_summary
from kvgate_probe.wire import (
    Pair,
    Result,
    Role,
    Schedule,
    Trouble,
    Unreadable,
    decode_line,
    decode_schedule,
    encode_result,
    encode_schedule,
)

SCHEDULE: dict[str, Any] = {
    "version": 1,
    "runID": "run-1",
    "poolUID": "uid-1",
    "tool": "iperf3",
    "rounds": [[{"from": "a", "to": "b"}], [{"from": "b", "to": "a"}]],
    "durationSeconds": 2,
    "streams": 4,
    "port": 5201,
    "phase": "Isolated",
}
RESULT = Result(
    run_id="run-1",
    pool_uid="uid-1",
    node="a",
    role=Role.SOURCE,
    pair=Pair("a", "b"),
    round=0,
    phase="Isolated",
    tool="iperf3",
    streams=4,
    planned_seconds=2.0,
    started_at=1.5,
    ended_at=3.5,
    attempts=1,
    partner_run="run-1",
    trouble=Trouble.SERVER_BUSY,
)


def test_a_schedule_is_read_back() -> None:
    schedule = decode_schedule(json.dumps(SCHEDULE | {"lineRateBytesPerSecond": 1.25e8, "pacedBitsPerSecond": 10**9}))
    assert schedule.rounds == ((Pair("a", "b"),), (Pair("b", "a"),))
    assert (schedule.line_rate_bytes_per_second, schedule.paced_bits_per_second) == (1.25e8, 10**9)
    assert decode_schedule(encode_schedule(schedule)) == schedule


def test_all_walkers_see_one_order_of_tests() -> None:
    pairs = (Pair("c", "d"), Pair("a", "b"))
    one = Schedule("r", "u", "iperf3", (pairs,), 1.0, 1, 5201, "Isolated")
    other = Schedule("r", "u", "iperf3", (pairs[::-1],), 1.0, 1, 5201, "Isolated")
    assert one.tests() == other.tests()
    assert [test.pair.source for test in one.tests()] == ["a", "c"]
    assert [test.index for test in one.tests_of("d")] == [1]


def test_a_schedule_of_two_phases_says_of_each_round_which_it_is_of() -> None:
    beside = {"phase": "Concurrent", "rounds": 1}
    schedule = decode_schedule(json.dumps(SCHEDULE | {"version": 4, "inOrder": True, "beside": beside}))
    assert [schedule.phase_of(number) for number in range(2)] == ["Isolated", "Concurrent"]
    assert schedule.in_order
    assert decode_schedule(encode_schedule(schedule)) == schedule


@pytest.mark.parametrize(
    ("change", "word"),
    [
        pytest.param({"version": 2}, "version", id="another version"),
        pytest.param({"runID": ""}, "runID", id="an empty run ID"),
        pytest.param({"runID": "a\nb"}, "runID", id="a run ID with a line end"),
        pytest.param({"rounds": {}}, "rounds", id="rounds that are no list"),
        pytest.param({"rounds": [["ab"]]}, "rounds[0]", id="a pair that is no object"),
        pytest.param({"rounds": [[{"from": "a"}]]}, "to", id="a pair without its destination"),
        pytest.param({"rounds": [[{"from": "a", "to": "a"}]]}, "rounds[0]", id="a path on one node"),
        pytest.param(
            {"rounds": [[{"from": "a", "to": "b"}, {"from": "c", "to": "a"}]]},
            "rounds[0]",
            id="a node twice in a round",
        ),
        pytest.param({"durationSeconds": 0}, "durationSeconds", id="no duration"),
        pytest.param({"durationSeconds": "2"}, "durationSeconds", id="a duration that is a word"),
        pytest.param({"durationSeconds": True}, "durationSeconds", id="a duration that is true"),
        pytest.param({"durationSeconds": 10**400}, "durationSeconds", id="a duration beyond every float"),
        pytest.param({"streams": 0}, "streams", id="no stream"),
        pytest.param({"streams": 129}, "streams", id="too many streams"),
        pytest.param({"streams": 1.5}, "streams", id="a stream and a half"),
        pytest.param({"port": 65535}, "port", id="a port with no room for the tool's ports above it"),
        pytest.param({"pacedBitsPerSecond": 0}, "pacedBitsPerSecond", id="a pace of zero"),
        pytest.param({"inOrder": True}, "version", id="rounds in order, for a walker that knows of none"),
        pytest.param({"inOrder": "yes"}, "inOrder", id="an order that is a word"),
        pytest.param(
            {"version": 4, "beside": {"phase": "Concurrent", "rounds": 3}}, "rounds", id="more rounds than there are"
        ),
    ],
)
def test_a_wrong_schedule_is_refused_by_the_name_of_the_field(change: dict[str, Any], word: str) -> None:
    with pytest.raises(WireError) as caught:
        decode_schedule(json.dumps(SCHEDULE | change))
    assert word in str(caught.value)


@pytest.mark.parametrize("text", ["", "[]", "null", "{", '{"a":NaN}', "[" * 100_000])
def test_what_is_no_json_object_is_no_schedule(text: str) -> None:
    with pytest.raises(WireError):
        decode_schedule(text)


def test_a_result_is_read_back() -> None:
    assert decode_line(encode_result(RESULT)) == RESULT


@given(st.text() | st.recursive(st.none() | st.integers() | st.floats() | st.text(), st.lists).map(json.dumps))
def test_no_line_whatever_makes_the_reader_fail(text: str) -> None:
    assert isinstance(decode_line(text), Unreadable)
    assert isinstance(decode_summary(text), Unreadable)


@given(key=st.sampled_from(sorted(json.loads(encode_result(RESULT)))), value=st.none() | st.integers() | st.text())
def test_no_value_in_any_field_makes_the_reader_fail(key: str, value: object) -> None:
    line = decode_line(json.dumps(json.loads(encode_result(RESULT)) | {key: value}))
    assert isinstance(line, (Result, Unreadable))


@given(st.text(max_size=10_000))
def test_a_summary_fits_the_termination_message_whatever_it_says(message: str) -> None:
    text = encode_summary(Summary("r" * 300, "n" * 300, 1, 0, 1, interrupted=True, seconds=1.0, message=message))
    assert len(text.encode()) <= MAX_TERMINATION_BYTES
    assert isinstance(decode_summary(text), Summary)
