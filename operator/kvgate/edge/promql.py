"""What is asked of a Prometheus about a deployment's load, and how its answer is read: text and numbers alone."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

REQUESTS = "dynamo_frontend_requests_total"
NAMESPACE, DEPLOYMENT = "{namespace}", "{deployment}"
DEFAULT_MATCHER = f'namespace="{NAMESPACE}",dynamo_namespace="{NAMESPACE}-{DEPLOYMENT}"'
MOST_MATCHERS = 8
_MATCHER = r'\s*([a-zA-Z_][a-zA-Z0-9_]{0,127})\s*(=~|!~|!=|=)\s*"([^"\\\x00-\x1f\x7f]*)"\s*'
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?", re.ASCII)


class MatchOperator(StrEnum):
    EQUAL = "="
    NOT_EQUAL = "!="
    MATCHES = "=~"
    MATCHES_NOT = "!~"


@dataclass(frozen=True)
class LabelMatcher:
    """One label matcher whose value may hold the placeholders {namespace} and {deployment}."""

    label: str
    operator: MatchOperator
    value: str

    def text(self, names: Mapping[str, str]) -> str:
        """The matcher in PromQL. A name is one literal, also within a regular expression."""
        regex = self.operator in {MatchOperator.MATCHES, MatchOperator.MATCHES_NOT}
        known = {placeholder: literal(name) if regex else name for placeholder, name in names.items()}
        value = re.sub(r"\{[a-z]+\}", lambda found: known.get(found.group(), found.group()), self.value)
        return f"{self.label}{self.operator}{json.dumps(value, ensure_ascii=False)}"


def literal(name: str) -> str:
    return re.sub(r"[\\.+*?()|\[\]{}^$]", lambda found: f"\\{found.group()}", name)


def read_matchers(text: str) -> tuple[LabelMatcher, ...]:
    """The label matchers that an operator setting spells. Raises ValueError with what is wrong.

    The namespace is matched whole, so no name in a pool reaches the series of another namespace.
    """
    if not re.fullmatch(f"{_MATCHER}(,{_MATCHER})*", text):
        raise ValueError(f"must be label matchers without backslashes, for example {DEFAULT_MATCHER}")
    found = tuple(LabelMatcher(label, MatchOperator(sign), value) for label, sign, value in re.findall(_MATCHER, text))
    if len(found) > MOST_MATCHERS:
        raise ValueError(f"has {len(found)} label matchers; the limit is {MOST_MATCHERS}")
    if any(matcher.label == "__name__" for matcher in found):
        raise ValueError(f"must not match __name__; the metric is {REQUESTS}")
    if not any(matcher.operator == MatchOperator.EQUAL and matcher.value == NAMESPACE for matcher in found):
        raise ValueError(f'must hold a matcher label="{NAMESPACE}", so that a pool sees its own namespace alone')
    if not any(_names_deployment(matcher) for matcher in found):
        raise ValueError(f"must hold {DEPLOYMENT} in a matcher with = or =~, so that a pool sees its own deployment")
    return found


def _names_deployment(matcher: LabelMatcher) -> bool:
    return DEPLOYMENT in matcher.value and matcher.operator in {MatchOperator.EQUAL, MatchOperator.MATCHES}


@dataclass(frozen=True)
class PrometheusEndpoint:
    """A Prometheus as the operator's settings describe it; `name` is what pools and messages call it."""

    name: str
    url: str
    matchers: tuple[LabelMatcher, ...]
    ca_file: str = ""
    insecure_skip_verify: bool = False
    bearer_token_file: str = ""


def request_rate_query(matchers: tuple[LabelMatcher, ...], namespace: str, deployment: str, window_seconds: int) -> str:
    """The PromQL of requests per second over the window, summed over all frontends; without series it is empty."""
    names = {NAMESPACE: namespace, DEPLOYMENT: deployment}
    labels = ",".join(matcher.text(names) for matcher in matchers)
    return f"sum(rate({REQUESTS}{{{labels}}}[{window_seconds}s]))"


class NoDataReason(StrEnum):
    """Why there is no number."""

    NO_SERIES = "NoSeries"
    UNREACHABLE = "Unreachable"
    TIMED_OUT = "TimedOut"
    REFUSED = "Refused"
    SERVER_ERROR = "ServerError"
    UNREADABLE = "Unreadable"
    TOO_LARGE = "TooLarge"
    MISCONFIGURED = "Misconfigured"


@dataclass(frozen=True)
class NoData:
    """No number, which is not zero: why, and who must act."""

    reason: NoDataReason
    message: str


@dataclass(frozen=True)
class Rate:
    """A mean rate over a window."""

    requests_per_second: float
    window_seconds: int


def read_rate(result: object, window_seconds: int) -> Rate | NoData:
    """The rate in `data.result` of an instant query that sums all series away: one element, or none."""
    if result == []:
        what = f"no frontend of the deployment has reported {REQUESTS} in the last {window_seconds} s"
        who = "if requests are served, the cluster's administrator must check that it is scraped, and namespaceMatcher"
        return NoData(NoDataReason.NO_SERIES, f"{what}, which is not zero requests; {who}")
    match result:
        case [{"metric": {**labels}, "value": [int() | float(), str(text)]}] if not labels:
            return _read_value(text, window_seconds)
    return _unreadable("the answer is not one number")


def _read_value(text: str, window_seconds: int) -> Rate | NoData:
    number = float(text) if len(text) <= 64 and _NUMBER.fullmatch(text) else math.nan
    if not math.isfinite(number):
        return _unreadable("the answer holds no finite number")
    if number < 0:
        return _unreadable("the answer is a rate below 0 requests/s")
    return Rate(number, window_seconds)


def _unreadable(what: str) -> NoData:
    who = "the cluster's administrator must check that the url of the operator's settings is a Prometheus"
    return NoData(NoDataReason.UNREADABLE, f"{what}; {who}")
