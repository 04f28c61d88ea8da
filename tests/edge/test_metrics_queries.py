"""What is asked about frontends, and how answers are read: readiness, its age, and numbers."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from kvgate.edge.metrics_queries import (
    READY,
    UP,
    Labels,
    Number,
    States,
    counted,
    counts,
    read_number,
    read_states,
    states,
)
from kvgate.edge.promql import DEFAULT_MATCHER, NoData, read_matchers

NOW = 1_800_000_000.0
LABELS = Labels.of(read_matchers(DEFAULT_MATCHER), "serving", "qwen3")


def series(
    metric: str, values: str, *, until: float = NOW, every: float = 5.0, instance: str = "f1", model: str = "m"
) -> object:
    """One digit a sample, the last one at `until`."""
    times = [until - every * (len(values) - 1 - index) for index in range(len(values))]
    labels = {"__name__": metric, "instance": instance} | ({"model": model} if metric == READY else {})
    return {"metric": labels, "values": [[at, value] for at, value in zip(times, values, strict=True)]}


def at(seconds_back: float) -> datetime:
    return datetime.fromtimestamp(NOW - seconds_back, UTC)


@pytest.mark.parametrize(
    ("result", "unready"),
    [
        pytest.param([series(READY, "1111")], {}, id="ready"),
        pytest.param([series(READY, "1100")], {"f1": at(5)}, id="unready since the first 0 of the last run"),
        pytest.param([series(READY, "0001")], {}, id="ready again"),
        pytest.param(
            [series(READY, "1100"), series(READY, "1111", instance="f2")], {"f1": at(5)}, id="one frontend of two"
        ),
        pytest.param(
            [series(READY, "1100", model="other"), series(READY, "1111", model="M")],
            {},
            id="another model's is not ours",
        ),
        pytest.param(
            [series(READY, "100", until=NOW - 60), series(UP, "1111")],
            {"f1": at(65)},
            id="its last worker went and the gauge with it, while the frontend is up",
        ),
        pytest.param(
            [series(READY, "000", until=NOW - 60), series(READY, "11", instance="f2"), series(UP, "11", instance="f2")],
            {},
            id="a frontend that is gone, and the one that took its place",
        ),
    ],
)
def test_readiness_is_told_by_frontend(result: object, unready: dict[str, datetime]) -> None:
    assert read_states(result, NOW, "m") == States(unready)


def test_a_run_of_zeros_that_fills_the_whole_time_began_when_an_earlier_look_saw_it() -> None:
    assert read_states([series(READY, "000")], NOW, "m", {"f1": at(900)}) == States({"f1": at(900)})
    assert read_states([series(READY, "011")], NOW, "m", {"f1": at(900)}) == States({})


@pytest.mark.parametrize(
    ("result", "words"),
    [
        pytest.param([], "no frontend of the deployment is known by up, dynamo_frontend_model_ready", id="no series"),
        pytest.param(
            [series(READY, "111", until=NOW - 11.5)], "older than 2 scrape intervals", id="11.5 s at 5 s: stale"
        ),
        pytest.param([series(UP, "000")], "all 1 targets of the deployment are down", id="up is 0"),
        pytest.param(
            [series(READY, "111", until=NOW - 60), series(UP, "000")],
            "targets of the deployment are down",
            id="went down",
        ),
        pytest.param([series(READY, "1"), series(UP, "110")], "targets of the deployment are down", id="down just now"),
        pytest.param(
            [series(READY, "1", until=NOW - 20), series(UP, "111", until=NOW - 20)],
            "older than 2 scrape intervals",
            id="one sample, and the pace of its target",
        ),
        pytest.param([series(UP, "111")], "no frontend of the deployment", id="up, and no model was ever known"),
    ],
)
def test_what_is_absent_old_or_down_is_no_number(result: object, words: str) -> None:
    found = read_states(result, NOW, "m")
    assert isinstance(found, NoData)
    assert words in found.message
    assert "administrator must" in found.message


def test_two_intervals_and_a_second_are_borne() -> None:
    assert read_states([series(READY, "111", until=NOW - 10.5)], NOW, "m") == States({})
    assert read_states([series(READY, "1", until=NOW - 60)], NOW, "m") == States({}), "one sample: an interval of 60 s"


@pytest.mark.parametrize(
    "result",
    [None, {}, [1], [{"metric": {}, "value": [1, "2"]}], [{"metric": {"__name__": 1}, "values": []}]],
    ids=["null", "object", "number", "a vector instead of a matrix", "a name that is none"],
)
def test_anything_else_is_unreadable(result: object) -> None:
    assert isinstance(read_states(result, NOW, "m"), NoData)


@pytest.mark.parametrize(
    ("result", "value"),
    [
        ([{"metric": {}, "value": [NOW, "12.5"]}], 12.5),
        ([{"metric": {}, "value": [NOW, "0"]}], 0.0),
        ([{"metric": {}, "value": [NOW, "NaN"]}], None),
        ([{"metric": {}, "value": [NOW, "-1"]}], None),
        ([{"metric": {"pod": "x"}, "value": [NOW, "1"]}], None),
        ([], None),
        ("x", None),
    ],
)
def test_numbers_are_finite_and_not_negative(result: object, value: float | None) -> None:
    found = read_number(result)
    assert found == Number(value, NOW) if value is not None else isinstance(found, NoData)


def test_every_question_is_narrowed_to_the_deployment() -> None:
    asked = [*counts(LABELS, 600).values(), states(LABELS)]
    assert all('namespace="serving",dynamo_namespace="serving-qwen3"' in query for query in asked)


def test_a_counter_that_is_born_counts_with_its_first_value() -> None:
    assert counted("x{}", 60) == (
        "(sum(increase(x{}[60s])) or vector(0)) + (sum(min_over_time(x{}[60s]) unless x{} offset 60s) or vector(0))"
    )
