"""Metrics pages of frontends: which workers serve, what their router counts, and how users fare."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

REGISTERED = "dynamo_component_router_worker_registered"
TTFT = "dynamo_frontend_time_to_first_token_seconds_bucket"
REQUESTS = "dynamo_frontend_requests_total"
FAILURES = "dynamo_frontend_failures_total"
REJECTED = "dynamo_frontend_model_rejection_total"
ACTIVE = "dynamo_frontend_worker_active_decode_blocks"
CAPACITY = "dynamo_frontend_model_total_kv_blocks"
KV_COUNTERS = ("dynamo_component_kv_cache_events_applied", "dynamo_component_router_kv_event_source_mismatch_workers")
"""In round-robin mode a frontend does not show these at all."""
_PARSE_ERRORS = (ValueError, IndexError, KeyError, TypeError, AttributeError, OverflowError)
"""What the parser was seen to raise, or may, for text that is no exposition."""
_REFUSALS = frozenset({"overload", "unavailable"})
_REFUSED = frozenset({"Unavailable", "CapacityExhausted"})


@dataclass(frozen=True)
class Page:
    """Every sample of one page; a page that cannot be read is None elsewhere, never an empty one."""

    samples: tuple[Sample, ...]

    def named(self, name: str) -> tuple[Sample, ...]:
        bare = name.removesuffix("_total")
        return tuple(sample for sample in self.samples if sample.name in {name, bare})

    def total(self, name: str) -> float:
        return sum(sample.value for sample in self.named(name))


def read_page(text: str) -> Page | None:
    """None for what is no exposition; never raises."""
    try:
        families = list(text_string_to_metric_families(text))
    except _PARSE_ERRORS:
        return None
    return Page(tuple(sample for family in families for sample in family.samples))


def workers(page: Page) -> tuple[str, ...]:
    """Instance IDs of the workers that the router has registered, in decimal."""
    found = {sample.labels.get("router_worker_id", "") for sample in page.named(REGISTERED) if sample.value > 0}
    return tuple(sorted(found - {""}))


def kv_families(page: Page) -> tuple[str, ...]:
    return tuple(name for name in KV_COUNTERS if page.named(name))


@dataclass(frozen=True)
class LiveLook:
    """What a frontend that users reach had counted: requests by TTFT bucket, refused ones, and its load now."""

    at: float
    buckets: Mapping[float, float]
    requests: float
    refused: float
    utilization: float | None


def look(page: Page, at: float) -> LiveLook:
    buckets: dict[float, float] = {}
    for sample in page.named(TTFT):
        limit = _limit(sample)
        buckets[limit] = buckets.get(limit, 0.0) + sample.value
    return LiveLook(at, buckets, page.total(REQUESTS), _refused(page), _utilization(page))


def _limit(sample: Sample) -> float:
    """Of a histogram's bucket; one that is no number counts with the last, which holds all."""
    try:
        return float(sample.labels.get("le", "inf"))
    except ValueError:
        return math.inf


def _refused(page: Page) -> float:
    """Requests that users saw answered with 503 or 529: the former are in the failures alone, not in the requests."""
    counted = sum(s.value for s in page.named(REQUESTS) if s.labels.get("error_type") in _REFUSALS)
    failures = sum(s.value for s in page.named(FAILURES) if s.labels.get("class") in _REFUSED)
    return max(counted, failures) + page.total(REJECTED)


def _utilization(page: Page) -> float | None:
    """KV blocks in use over those there are, of the busiest worker; None where the page does not tell."""
    active = [sample.value for sample in page.named(ACTIVE)]
    capacity = max((sample.value for sample in page.named(CAPACITY)), default=0.0)
    return max(active) / capacity if active and capacity > 0 else None
