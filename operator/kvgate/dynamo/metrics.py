"""What a frontend or a worker exposes at /metrics, read into the few counters that are judged; never raises."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from prometheus_client.parser import text_string_to_metric_families

from kvgate.core.events_seen import FrontendCounts, WorkerCounts

MOST_SERIES = 20_000
_LARGEST = 2**63
_PARSE_ERRORS = (ValueError, IndexError, KeyError, TypeError, AttributeError, OverflowError)


class Family(StrEnum):
    """What is looked for; the value is how messages call it."""

    MISMATCHED = "workers whose KV event source is missing"
    APPLIED = "KV events applied"
    BATCHES = "batches of KV events received"
    INPUT_TOKENS = "input tokens"
    PROMPTS = "prompts whose tokens were counted"
    CACHED_TOKENS = "cached tokens"
    REQUESTS = "requests"
    FAILURES = "failures"
    MODEL_READY = "readiness of the model"
    REGISTERED = "registered workers"
    BLOCK_TOKENS = "the router's block size"
    DROPPED = "KV events dropped by the engine"
    PUBLISHED = "KV events at the publisher"
    FILTERED = "KV events filtered at the publisher"
    UNCONVERTIBLE = "KV events that the publisher could not convert"
    SERVED = "requests served by the worker"
    ENGINE_TOKENS = "prompt tokens of the engine"
    ENGINE_CACHED = "cached tokens of the engine"


_COUNTERS: Mapping[Family, tuple[str, ...]] = {
    Family.APPLIED: ("dynamo_component_kv_cache_events_applied", "dynamo_kvrouter_kv_cache_events_applied"),
    Family.BATCHES: ("dynamo_component_router_kv_zmq_ingress_batches",),
    Family.REQUESTS: ("dynamo_frontend_requests",),
    Family.FAILURES: ("dynamo_frontend_failures",),
    Family.DROPPED: ("dynamo_component_kv_publisher_engines_dropped_events",),
    Family.PUBLISHED: ("dynamo_component_kv_publisher_zmq_events",),
    Family.FILTERED: ("dynamo_component_kv_publisher_zmq_filtered_events",),
    Family.UNCONVERTIBLE: ("dynamo_component_kv_publisher_zmq_conversion_issues",),
    Family.SERVED: ("dynamo_component_requests",),
    Family.ENGINE_TOKENS: ("vllm:prefix_cache_queries", "sglang:prompt_tokens"),
    Family.ENGINE_CACHED: ("vllm:prefix_cache_hits", "sglang:cached_tokens"),
}
"""Without `_total`, which releases write or leave out."""
_OTHERS: Mapping[Family, tuple[str, ...]] = {
    Family.MISMATCHED: ("dynamo_component_router_kv_event_source_mismatch_workers",),
    Family.INPUT_TOKENS: ("dynamo_frontend_input_sequence_tokens_sum",),
    Family.PROMPTS: ("dynamo_frontend_input_sequence_tokens_count",),
    Family.CACHED_TOKENS: ("dynamo_frontend_cached_tokens_sum",),
    Family.MODEL_READY: ("dynamo_frontend_model_ready",),
    Family.REGISTERED: ("dynamo_component_router_worker_registered",),
    Family.BLOCK_TOKENS: ("dynamo_frontend_model_kv_cache_block_size",),
}
NAMES: Mapping[Family, tuple[str, ...]] = {
    **{
        family: tuple(name for stem in stems for name in (f"{stem}_total", stem)) for family, stems in _COUNTERS.items()
    },
    **_OTHERS,
}
"""Every name under which a family is looked for, in this order."""


@dataclass(frozen=True)
class Series:
    """One value with its labels."""

    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True)
class Exposition:
    """The series that are looked for; a family that is absent is not in it, which is not a family at zero."""

    families: Mapping[Family, tuple[Series, ...]]

    def has(self, family: Family) -> bool:
        return family in self.families

    def total(self, family: Family, keep: Callable[[Mapping[str, str]], bool] = lambda _: True) -> int | None:
        """The sum over the series whose labels are kept, a whole number from 0; None where the family is absent or no
        whole number can be made of it."""
        if family not in self.families:
            return None
        return _whole(sum(series.value for series in self.families[family] if keep(series.labels)))

    def values(self, family: Family) -> tuple[float, ...]:
        return tuple(series.value for series in self.families.get(family, ()))

    def absent(self, *families: Family) -> tuple[str, ...]:
        """The names that were tried for those of the families that are not here."""
        return tuple(" or ".join(NAMES[family]) for family in families if family not in self.families)


@dataclass(frozen=True)
class Unreadable:
    """Why a text is no exposition that counts."""

    message: str


def read_exposition(text: str) -> Exposition | Unreadable:
    """The wanted series of a text in Prometheus's format 0.0.4 or OpenMetrics; other lines are passed over.

    The caller bounds the text's size. A text without a single line of metrics is Unreadable, and so is one in which
    a wanted line is broken or appears more than MOST_SERIES times.
    """
    lines = text.splitlines()
    wanted = [line for line in lines if _name(line) in _WANTED]
    if len(wanted) > MOST_SERIES:
        return Unreadable(f"it has {len(wanted)} series of interest, more than the limit of {MOST_SERIES}")
    if not wanted and not any(_looks_like_a_sample(line) for line in lines):
        return Unreadable("it is no Prometheus exposition: no line of it is a metric")
    try:
        return Exposition(_sorted(_parsed(wanted)))
    except _PARSE_ERRORS:
        return Unreadable("a line of a metric that is looked for is broken")


def frontend_counts(text: str) -> FrontendCounts | Unreadable:
    """A frontend's counters, its router's among them."""
    read = read_exposition(text)
    if isinstance(read, Unreadable):
        return read
    return FrontendCounts(
        mismatched=read.total(Family.MISMATCHED),
        stored=read.total(Family.APPLIED, labels_are(event_type="stored", status="ok")),
        refused=read.total(Family.APPLIED, _stored_but_refused),
        batches=read.total(Family.BATCHES),
        input_tokens=read.total(Family.INPUT_TOKENS),
        cached_tokens=read.total(Family.CACHED_TOKENS),
        prompts=read.total(Family.PROMPTS),
        requests=read.total(Family.REQUESTS),
        errors=read.total(Family.REQUESTS, lambda labels: bool(labels.get("error_type"))),
        failures=read.total(Family.FAILURES),
        model_ready=all(read.values(Family.MODEL_READY)) if read.has(Family.MODEL_READY) else None,
        registered_workers=_workers(read),
        block_tokens=_agreed(read.values(Family.BLOCK_TOKENS)),
        absent=read.absent(Family.MISMATCHED, Family.APPLIED, *_after_use(read)),
    )


def worker_counts(text: str) -> WorkerCounts | Unreadable:
    """A worker's counters: those of its publisher, and the engine's own where it has them."""
    read = read_exposition(text)
    if isinstance(read, Unreadable):
        return read
    return WorkerCounts(
        dropped=read.total(Family.DROPPED),
        stored=read.total(Family.PUBLISHED, labels_are(event_type="stored", stage="accepted")),
        received=read.total(Family.PUBLISHED, labels_are(stage="received")),
        filtered=read.total(Family.FILTERED),
        unconvertible=read.total(Family.UNCONVERTIBLE),
        requests=read.total(Family.SERVED, labels_are(dynamo_endpoint="generate")),
        queried_tokens=read.total(Family.ENGINE_TOKENS),
        cached_tokens=read.total(Family.ENGINE_CACHED),
        absent=read.absent(Family.DROPPED),
    )


def labels_are(**wanted: str) -> Callable[[Mapping[str, str]], bool]:
    return lambda labels: all(labels.get(name) == value for name, value in wanted.items())


def _after_use(read: Exposition) -> tuple[Family, ...]:
    """Families that are there once a request was served, and before that need not be."""
    return (Family.INPUT_TOKENS, Family.CACHED_TOKENS) if read.total(Family.REQUESTS) else ()


def _stored_but_refused(labels: Mapping[str, str]) -> bool:
    return labels.get("event_type") == "stored" and labels.get("status") != "ok"


def _workers(read: Exposition) -> int | None:
    """Distinct workers: one has a series for each rank."""
    if not read.has(Family.REGISTERED):
        return None
    held = (series for series in read.families[Family.REGISTERED] if series.value > 0)
    return len({series.labels.get("router_worker_id", "") for series in held})


def _agreed(values: Sequence[float]) -> int | None:
    """The one positive whole number that all series hold."""
    held = {_whole(value) for value in values} - {0}
    return held.pop() if len(held) == 1 else None


_WANTED = frozenset(name for names in NAMES.values() for name in names)


def _name(line: str) -> str:
    return line.partition("{")[0].partition(" ")[0].partition("\t")[0]


def _looks_like_a_sample(line: str) -> bool:
    name, _, rest = line.partition(" ")
    return (
        bool(rest)
        and name.partition("{")[0].replace(":", "_").isidentifier()
        and _is_number(line.rsplit(" ", maxsplit=1)[-1])
    )


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _parsed(lines: Iterable[str]) -> Iterable[tuple[str, Series]]:
    for family in text_string_to_metric_families("\n".join(lines) + "\n"):
        for sample in family.samples:
            yield sample.name, Series(dict(sample.labels), float(sample.value))


def _sorted(series: Iterable[tuple[str, Series]]) -> Mapping[Family, tuple[Series, ...]]:
    """By family; where several names of one are there, the first that is tried counts alone."""
    by_name: dict[str, list[Series]] = {}
    for name, one in series:
        by_name.setdefault(name, []).append(one)
    found = {family: next((by_name[name] for name in NAMES[family] if name in by_name), None) for family in Family}
    return {family: tuple(held) for family, held in found.items() if held}


def _whole(value: float) -> int | None:
    return round(value) if math.isfinite(value) and 0 <= value < _LARGEST else None
