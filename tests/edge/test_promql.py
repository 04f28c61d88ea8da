"""What is asked of Prometheus, and what is made of its answer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvgate.edge.promql import (
    DEFAULT_MATCHER,
    NoData,
    NoDataReason,
    Rate,
    read_matchers,
    read_rate,
    request_rate_query,
)


def query(matchers: str, namespace: str = "serving", deployment: str = "qwen3") -> str:
    return request_rate_query(read_matchers(matchers), namespace, deployment, 300)


@pytest.mark.parametrize(
    ("matchers", "labels"),
    [
        pytest.param(DEFAULT_MATCHER, 'namespace="serving",dynamo_namespace="serving-qwen3"', id="the default"),
        pytest.param(
            ' cluster = "eu" , ns="{namespace}",pod=~"{deployment}-.*"', 'cluster="eu",ns="serving",pod=~"qwen3-.*"',
            id="labels of the administrator's choice, with spaces",
        ),
        pytest.param(
            'a="{namespace}",b="{deployment}",job!~"x{1,2}",c!="{other}"',
            'a="serving",b="qwen3",job!~"x{1,2}",c!="{other}"', id="other braces are left as they are",
        ),
    ],
)  # fmt: skip
def test_the_query_sums_the_deployments_frontends(matchers: str, labels: str) -> None:
    assert query(matchers) == f"sum(rate(dynamo_frontend_requests_total{{{labels}}}[300s]))"


@pytest.mark.parametrize(
    ("name", "plain", "regex"),
    [
        pytest.param('a"} or vector(1) #', r"a\"} or vector(1) #", r"a\"\\} or vector\\(1\\) #", id="quotes"),
        pytest.param("a\\", r"a\\", r"a\\\\", id="a backslash"),
        pytest.param("a\nb", r"a\nb", r"a\nb", id="a line break"),
        pytest.param("a.b", "a.b", r"a\\.b", id="a dot, which a regular expression would take for any sign"),
        pytest.param(".*", ".*", r"\\.\\*", id="a regular expression"),
        pytest.param("{namespace}", "{namespace}", r"\\{namespace\\}", id="a placeholder"),
    ],
)
def test_a_name_is_a_literal(name: str, plain: str, regex: str) -> None:
    text = query('ns="{namespace}",d="{deployment}",p=~"x-{deployment}"', deployment=name)
    assert text == f'sum(rate(dynamo_frontend_requests_total{{ns="serving",d="{plain}",p=~"x-{regex}"}}[300s]))'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("", "must be label matchers", id="nothing"),
        pytest.param('ns="{namespace}" d="{deployment}"', "must be label matchers", id="no comma"),
        pytest.param('ns="{namespace}",d="{deployment}",', "must be label matchers", id="a comma at the end"),
        pytest.param(r'ns="{namespace}",d="{deployment}\d"', "without backslashes", id="a backslash"),
        pytest.param('ns="{namespace}",d="{deployment}"}) or x{a="b"', "must be label matchers", id="the query's end"),
        pytest.param('ns="{namespace}",d="a\nb{deployment}"', "must be label matchers", id="a line break"),
        pytest.param('d="{deployment}"', 'label="{namespace}"', id="no namespace"),
        pytest.param('ns=~"{namespace}",d="{deployment}"', 'label="{namespace}"', id="the namespace as a regex"),
        pytest.param('ns!="{namespace}",d="{deployment}"', 'label="{namespace}"', id="every namespace but one"),
        pytest.param('ns="x{namespace}",d="{deployment}"', 'label="{namespace}"', id="part of a namespace"),
        pytest.param('ns="{namespace}"', "{deployment}", id="no deployment"),
        pytest.param('ns="{namespace}",d!="{deployment}"', "{deployment}", id="every deployment but one"),
        pytest.param('ns="{namespace}",d="{deployment}",__name__="up"', "__name__", id="another metric"),
        pytest.param(
            ",".join(['ns="{namespace}"', *(f'd{n}="{{deployment}}"' for n in range(8))]), "9 label matchers",
            id="more than the limit",
        ),
    ],
)  # fmt: skip
def test_matchers_that_would_read_too_much_are_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=r"must|limit") as refused:
        read_matchers(text)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("value", "rate"),
    [
        pytest.param("0.2", 0.2, id="a decimal number"),
        pytest.param("1.5e-05", 1.5e-05, id="an exponent"),
        pytest.param("0", 0.0, id="zero, from a counter that stands still"),
        pytest.param("1e+06", 1e6, id="a large number"),
    ],
)
def test_one_number_is_a_rate(value: str, rate: float) -> None:
    assert read_rate([{"metric": {}, "value": [1767225600.1, value]}], 300) == Rate(rate, 300)


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        pytest.param([], NoDataReason.NO_SERIES, id="no series is no number, least of all zero"),
        pytest.param([{"metric": {}, "value": [1, "NaN"]}], NoDataReason.UNREADABLE, id="NaN"),
        pytest.param([{"metric": {}, "value": [1, "+Inf"]}], NoDataReason.UNREADABLE, id="infinite"),
        pytest.param([{"metric": {}, "value": [1, "1e999"]}], NoDataReason.UNREADABLE, id="beyond a float"),
        pytest.param([{"metric": {}, "value": [1, "-0.5"]}], NoDataReason.UNREADABLE, id="negative"),
        pytest.param([{"metric": {}, "value": [1, ""]}], NoDataReason.UNREADABLE, id="an empty value"),
        pytest.param([{"metric": {}, "value": [1, "1_0"]}], NoDataReason.UNREADABLE, id="a number of Python's alone"),
        pytest.param([{"metric": {}, "value": [1, "٣"]}], NoDataReason.UNREADABLE, id="a digit of another script"),
        pytest.param([{"metric": {}, "value": [1, "1" * 65]}], NoDataReason.UNREADABLE, id="a number without end"),
        pytest.param([{"metric": {}, "value": [1, 0.5]}], NoDataReason.UNREADABLE, id="a value that is no text"),
        pytest.param([{"metric": {}, "value": [1]}], NoDataReason.UNREADABLE, id="no value"),
        pytest.param([{"metric": {}}], NoDataReason.UNREADABLE, id="neither time nor value"),
        pytest.param([{"metric": {"pod": "a"}, "value": [1, "1"]}], NoDataReason.UNREADABLE, id="a sum with labels"),
        pytest.param([{"metric": {}, "value": [1, "1"]}] * 2, NoDataReason.UNREADABLE, id="two numbers"),
        pytest.param([1767225600, "0.5"], NoDataReason.UNREADABLE, id="a scalar"),
        pytest.param({"metric": {}, "value": [1, "1"]}, NoDataReason.UNREADABLE, id="no list"),
        pytest.param("0.5", NoDataReason.UNREADABLE, id="a text"),
        pytest.param(None, NoDataReason.UNREADABLE, id="null"),
    ],
)
def test_anything_else_is_no_data(result: object, reason: NoDataReason) -> None:
    found = read_rate(result, 300)
    assert isinstance(found, NoData)
    assert found.reason == reason
    assert "administrator must" in found.message


@given(st.recursive(st.none() | st.text() | st.floats() | st.integers(), st.lists) | st.text())
def test_any_answer_is_a_finite_rate_or_no_data(result: object) -> None:
    found = read_rate([{"metric": {}, "value": [1, result]}], 300)
    assert isinstance(found, NoData) or 0 <= found.requests_per_second < float("inf")
