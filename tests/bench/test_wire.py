"""The wire between operator and load generator: what is written is read back, and anything else is refused."""

from __future__ import annotations

import base64
import gzip
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvgate.core.ab.experiment import Arm, Fault, Workload
from kvgate.probe.benchmark_results import Seen, read_experiment
from kvgate_bench.wire import (
    ARMS,
    BUILT_IN,
    FAULTS,
    LINE_CHARACTERS,
    TRACE,
    Asked,
    Ending,
    RunResult,
    Sent,
    decode_log,
    decode_plan,
    encode_ending,
    encode_plan,
    encode_run,
)
from kvgate_probe.fields import WireError
from tests.bench.plans import PLAN, plan

SENT = Sent(0, 0.25, 352, 0, 0.01, 0.001, 0, None, "11", None, 4)
RUN = RunResult(
    0, "KV", 2, (SENT, replace(SENT, first_token_seconds=None, fault="Timeout")), ("applied",), 1000.5, 1031.25
)
ENDING = Ending(("11", "12"), ("11", "12"), 3, (Asked("11", 0.5, 0.1),), "", 1.5, 0.01)
SEEN = Seen(3, "cards")


def lines(*runs: RunResult, ending: Ending | None = ENDING) -> str:
    told = [line for run in runs for line in encode_run("ab1", run)]
    return "\n".join([*told, *([encode_ending("ab1", ending)] if ending else [])])


def test_operator_and_generator_use_the_same_words() -> None:
    assert set(ARMS) == {arm.value for arm in Arm}
    assert set(FAULTS) == {fault.value for fault in Fault}
    assert {BUILT_IN, TRACE} == {entry.value for entry in Workload}


def test_a_plan_is_read_back() -> None:
    asked = plan(live=("http://10.0.0.1:8000",), workload=TRACE, on_live=True, workers=3)
    assert decode_plan(encode_plan(asked)) == asked


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("kvgateBench", 2, "not marked kvgateBench 1"),
        ("blocks", 1, "blocks must be a whole number from 2 to 64"),
        ("blocks", 65, "blocks must be a whole number from 2 to 64"),
        ("requests_per_run", 20_001, "requests_per_run must be"),
        ("requests_per_second", 0, "requests_per_second must be more than 0"),
        ("timeout_seconds", 601, "timeout_seconds must be"),
        ("workload", "Dream", "workload is none of the 2 known words"),
        ("prompts", [], "needs prompts of two KV blocks"),
        ("prompts", [31], "needs prompts of two KV blocks"),
        ("family_size", 0, "and a family size"),
        ("last_token", 300, "at least 256 token IDs"),
        ("live", [4], "a name must be a string"),
        ("kv", "", "kv must be 1 to 255"),
    ],
)
def test_a_plan_that_cannot_be_kept_is_refused_by_name(field: str, value: object, said: str) -> None:
    document = json.loads(encode_plan(PLAN)) | {field: value}
    with pytest.raises(WireError, match=said):
        decode_plan(json.dumps(document))


_seconds = st.integers(0, 10**9).map(lambda micro: round(micro / 1e6, 6))
_counts = st.integers(0, 10**6)
_sent = st.builds(
    Sent,
    family=_counts,
    arrival_seconds=_seconds,
    prompt_tokens=_counts,
    repeated_tokens=_counts,
    first_token_seconds=_seconds,
    token_gap_seconds=st.none() | _seconds,
    cached_tokens=st.none() | _counts,
    overlap_tokens=st.none() | _counts,
    worker=st.text("0123456789", max_size=20),
    answer_tokens=_counts,
) | st.builds(Sent, _counts, _seconds, _counts, _counts, fault=st.sampled_from(FAULTS))


@given(st.lists(_sent, max_size=5).map(tuple), st.sampled_from(ARMS), st.integers(0, 63))
@settings(max_examples=60)
def test_a_run_is_read_back_between_lines_of_others(sent: tuple[Sent, ...], arm: str, block: int) -> None:
    run = RunResult(block, arm, len(sent), sent, ("a",), 1.5, 2.5)
    log = f"a warning\n{lines(run)}\n[]"
    assert decode_log(log, "ab1") == decode_log(lines(run), "ab1")
    assert decode_log(log, "ab1").runs == (run,)
    assert decode_log(log, "ab1").ending == ENDING


def test_a_large_run_is_cut_into_lines_that_no_runtime_splits() -> None:
    many = replace(
        RUN,
        requests=tuple(
            replace(SENT, arrival_seconds=round(n * 0.317 % 1, 6), worker=str(n * 7919)) for n in range(4000)
        ),
    )
    told = list(encode_run("ab1", many))
    assert len(told) > 2
    assert max(map(len, told)) < LINE_CHARACTERS + 300
    assert decode_log("\n".join(reversed(told)), "ab1").runs == (many,)


def _data(body: object) -> str:
    packed = base64.b64encode(gzip.compress(json.dumps(body).encode())).decode()
    head = {"kvgateBench": 1, "runID": "ab1", "line": "run", "block": 0, "arm": "KV", "part": 0, "parts": 1}
    return json.dumps(head | {"data": packed}, separators=(",", ":"))


_BODY: dict[str, Any] = {
    "block": 0,
    "arm": "KV",
    "offered": 1,
    "families": [],
    "began_at": 0,
    "ended_at": 0,
    "requests": [],
}


@pytest.mark.parametrize(
    ("log", "said"),
    [
        pytest.param(lines(RUN).replace('"ab1"', '"ab2"'), "of another run", id="another run's lines"),
        pytest.param(lines(RUN) + "\n" + lines(RUN), "already there", id="a part told twice"),
        pytest.param(lines(RUN).replace('"parts":1', '"parts":2'), "1 of 2 parts", id="a part that is missing"),
        pytest.param('{"kvgateBench":1,', "not JSON", id="half a line"),
        pytest.param('{"kvgateBench":3}', "not marked", id="another version"),
        pytest.param(lines(RUN).replace('"data":"H4', '"data":"!!'), "cannot be unpacked", id="no base64"),
        pytest.param(_data([1]), "must be a JSON object", id="a body that is a list"),
        pytest.param(_data(_BODY | {"block": 1}), "another block or arm", id="a body of another block"),
        pytest.param(_data(_BODY | {"requests": [[1]]}), "a row of eleven", id="a short row"),
        pytest.param(
            _data(_BODY | {"requests": [[0, 0, 1, 0, None, None, None, None, "", "Bored", 0]]}),
            "known faults",
            id="a new fault",
        ),
        pytest.param(
            _data(_BODY | {"requests": [[0, 0, 1, 0, None, None, None, None, "", None, 0]]}),
            "either a first token",
            id="neither a token nor a fault",
        ),
        pytest.param(
            _data(_BODY | {"requests": [[0, 0, 1, 0, -1, None, None, None, "", None, 0]]}),
            "from 0",
            id="a negative wait",
        ),
    ],
)
def test_what_cannot_be_read_is_a_problem_and_no_run(log: str, said: str) -> None:
    read = decode_log(log, "ab1")
    assert any(said in problem for problem in read.problems), read.problems


@given(st.text(max_size=80))
@settings(max_examples=50)
def test_no_log_makes_the_reader_stumble(noise: str) -> None:
    for line in (noise, '{"kvgateBench"' + noise, '{"kvgateBench":1,"runID":"ab1","line":"end",' + noise):
        decode_log(line, "ab1")
        assert read_experiment(PLAN, line, SEEN, SEEN).aborted


def test_an_experiment_is_the_runs_the_ending_and_what_the_operator_saw() -> None:
    found = read_experiment(PLAN, lines(RUN), SEEN, Seen(4, "cards"))
    assert (found.before.workers, found.before.generation, found.after.generation) == (("11", "12"), 3, 4)
    assert (found.template_tokens, found.aborted, found.blocks) == (3, "", 2)
    assert found.runs[0].requests[1].fault is Fault.TIMEOUT
    assert found.runs[0].kv_families == ("applied",)
    assert (found.runs[0].began_at, found.runs[0].ended_at) == (1000.5, 1031.25)
    assert found.runs[0].requests[0].answer_tokens == 4
    assert found.calibration[0].miss_seconds == 0.5


@pytest.mark.parametrize(
    ("log", "why"),
    [
        pytest.param(lines(RUN, ending=None), "did not tell its end", id="a log that is cut short"),
        pytest.param("", "did not tell its end", id="an empty log"),
        pytest.param(lines(RUN, ending=replace(ENDING, aborted="p99 rose")), "p99 rose", id="an aborted one"),
        pytest.param(lines(RUN) + '\n{"kvgateBench":3}', "not marked", id="a log with a foreign line"),
    ],
)
def test_a_log_that_is_not_whole_is_an_aborted_experiment(log: str, why: str) -> None:
    assert why in read_experiment(PLAN, log, SEEN, SEEN).aborted
