"""What is asked of a Prometheus about the requests and readiness of a deployment's frontends, and how it is read."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from statistics import median

from kvgate.edge.promql import DEPLOYMENT, NAMESPACE, REQUESTS, LabelMatcher, NoData, NoDataReason

FAILURES, READY, UP = "dynamo_frontend_failures_total", "dynamo_frontend_model_ready", "up"
INPUT_TOKENS, CACHED_TOKENS = "dynamo_frontend_input_sequence_tokens_sum", "dynamo_frontend_cached_tokens_sum"
TTFT_SUM, TTFT_COUNT = (f"dynamo_frontend_time_to_first_token_seconds_{end}" for end in ("sum", "count"))
SPOILT_BY_CLIENT = "|validation|not_found|cancelled|not_implemented"
"""`error_type` of requests that the client spoilt or gave up; empty for those that went well."""
CLIENT_CLASSES = "InvalidRequest|Unauthenticated|PermissionDenied|NotFound|PayloadTooLarge|NotImplemented|Cancelled"
"""`class` of failures likewise. NotFound also counts every question about a model's readiness while it has none."""
STATES_SECONDS = 600
"""How far back readiness is read."""
UNKNOWN_INTERVAL_SECONDS = 60.0
"""The interval between two scrapes where one sample is all there is: Prometheus's own default."""
INTERVALS_BORNE = 2.0
TRIED = f"{UP}, {READY}, {REQUESTS} and {FAILURES}"


@dataclass(frozen=True)
class Labels:
    """The label matchers that narrow a query to one deployment, as text."""

    text: str

    @classmethod
    def of(cls, matchers: Iterable[LabelMatcher], namespace: str, deployment: str) -> Labels:
        names = {NAMESPACE: namespace, DEPLOYMENT: deployment}
        return cls(",".join(matcher.text(names) for matcher in matchers))

    def series(self, metric: str, more: str = "") -> str:
        return f"{metric}{{{self.text}{',' if more else ''}{more}}}"


def counted(series: str, seconds: int) -> str:
    """The growth of all counters over the time; one that was born in it counts with its first value too, since a
    labelled family appears with its first event, which `increase` does not see."""
    born = f"sum(min_over_time({series}[{seconds}s]) unless {series} offset {seconds}s)"
    return f"(sum(increase({series}[{seconds}s])) or vector(0)) + ({born} or vector(0))"


def counts(labels: Labels, seconds: int) -> Mapping[str, str]:
    """One query for each number of `Served`."""
    asked = {
        "good": labels.series(REQUESTS, 'error_type=""'),
        "errors": labels.series(REQUESTS, f'error_type!~"{SPOILT_BY_CLIENT}"'),
        "failures": labels.series(FAILURES, f'class!~"{CLIENT_CLASSES}"'),
        "prompt_tokens": labels.series(INPUT_TOKENS),
        "cached_tokens": labels.series(CACHED_TOKENS),
        "ttft_seconds": labels.series(TTFT_SUM),
        "first_tokens": labels.series(TTFT_COUNT),
    }
    return {name: counted(series, seconds) for name, series in asked.items()}


def known_before(labels: Labels, seconds: int) -> str:
    """How many series of readiness were known at the beginning of the time: none where Prometheus is younger."""
    return f"count({labels.series(READY)} offset {seconds}s) or vector(0)"


def states(labels: Labels, seconds: int = STATES_SECONDS) -> str:
    """The samples of readiness and of `up`, as they were scraped."""
    inner = f'__name__=~"{UP}|{READY}"'
    return f"{{{inner},{labels.text}}}[{seconds}s]"


NOW = "vector(time())"


@dataclass(frozen=True)
class Number:
    """A number, and the time at which Prometheus gave it."""

    value: float
    at_seconds: float


def read_number(result: object) -> Number | NoData:
    """The one element of an instant vector without labels."""
    match result:
        case [{"metric": {**labels}, "value": [int() | float() as at, str(text)]}] if not labels:
            value = _float(text)
            return Number(value, float(at)) if math.isfinite(value) and value >= 0 else _unreadable()
    return _unreadable()


def _float(text: str) -> float:
    try:
        return float(text) if len(text) <= 64 else math.nan
    except ValueError:
        return math.nan


def _unreadable() -> NoData:
    who = "the cluster's administrator must check that the url of the operator's settings is a Prometheus"
    return NoData(NoDataReason.UNREADABLE, f"the answer is not what was asked for; {who}")


@dataclass(frozen=True)
class Samples:
    """One series as it was scraped, oldest first."""

    metric: str
    instance: str
    model: str
    values: tuple[tuple[float, float], ...]

    @property
    def last_seconds(self) -> float:
        return self.values[-1][0]

    @property
    def interval_seconds(self) -> float | None:
        gaps = [later[0] - earlier[0] for earlier, later in zip(self.values, self.values[1:], strict=False)]
        return median(gaps) if gaps else None

    def fresh(self, now_seconds: float, beside: float | None = None) -> bool:
        """`beside` is the interval of another series of the same target, where this one has a single sample."""
        interval = self.interval_seconds or beside or UNKNOWN_INTERVAL_SECONDS
        return now_seconds - self.last_seconds <= INTERVALS_BORNE * interval + 1.0

    @property
    def zero_since(self) -> float | None:
        """When the run of zeros at the end begins; None where the last value is none."""
        since = None
        for at, value in reversed(self.values):
            if value != 0:
                break
            since = at
        return since


@dataclass(frozen=True)
class States:
    """Since when the model is unready, by the scraped address; nothing for those behind which it is ready."""

    unready_since: Mapping[str, datetime]


def read_states(
    result: object, now_seconds: float, model: str, earlier: Mapping[str, datetime] | None = None
) -> States | NoData:
    """Readiness now, or why it is not known. `earlier` is what an earlier look found: a run of zeros that fills the
    whole time began before it. The gauge of a model vanishes when its last worker does, while its frontend stays up."""
    series = _series(result)
    if series is None:
        return _unreadable()
    gauges = _of_model([one for one in series if one.metric == READY], model)
    up = [one for one in series if one.metric == UP and one.fresh(now_seconds)]
    alive, dead = ({one.instance for one in up if one.values[-1][1] == state} for state in (1, 0))
    paces = {one.instance: one.interval_seconds for one in series if one.metric == UP}
    known = [one for one in gauges if one.instance not in dead]
    fresh = [one for one in known if one.fresh(now_seconds, paces.get(one.instance))]
    vanished = [one for one in gauges if one not in fresh and one.instance in alive]
    if not fresh and not vanished:
        return _nothing(gauges, up)
    found = {one.instance: since for one in fresh if (since := one.zero_since) is not None}
    gone = {one.instance: one.zero_since or one.last_seconds for one in vanished}
    told = {name: datetime.fromtimestamp(at, UTC) for name, at in {**gone, **found}.items()}
    return States({name: min(at, (earlier or {}).get(name, at)) for name, at in told.items()})


def _of_model(gauges: list[Samples], model: str) -> list[Samples]:
    """Those of the pool's model where the label tells, whatever its case; else all."""
    named = [one for one in gauges if one.model.casefold() == model.casefold()]
    return named or gauges


def _nothing(gauges: Sequence[Samples], up: Sequence[Samples]) -> NoData:
    admin = "the cluster's administrator must check that the frontends are scraped"
    if up and all(one.values[-1][1] == 0 for one in up):
        what = f"all {len(up)} targets of the deployment are down: {UP} is 0"
        return NoData(NoDataReason.NO_SERIES, f"{what}; {admin} and whether they run")
    if gauges:
        newest = max(one.last_seconds for one in gauges)
        when = f"{datetime.fromtimestamp(newest, UTC):%Y-%m-%dT%H:%M:%SZ}"
        what = f"the newest sample of {READY} is of {when}, older than {INTERVALS_BORNE:.0f} scrape intervals"
        return NoData(NoDataReason.NO_SERIES, f"{what}; {admin}")
    what = f"no frontend of the deployment is known by {TRIED}, which is not zero requests"
    return NoData(NoDataReason.NO_SERIES, f"{what}; {admin}, and namespaceMatcher")


def _series(result: object) -> list[Samples] | None:
    if not isinstance(result, list):
        return None
    found = [_samples(element) for element in result]
    return None if None in found else [one for one in found if one is not None and one.values]


def _samples(element: object) -> Samples | None:
    match element:
        case {"metric": {"__name__": str(name), **labels}, "values": list(values)}:
            read = tuple((float(at), _float(text)) for at, text in _pairs(values))
            return Samples(name, str(labels.get("instance", "")), str(labels.get("model", "")), read)
    return None


def _pairs(values: Iterable[object]) -> Iterable[tuple[float, str]]:
    for value in values:
        match value:
            case [int() | float() as at, str(text)]:
                yield float(at), text
