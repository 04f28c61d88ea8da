"""When an A/B must end for the sake of users: slower answers, refusals, or a deployment that is too busy."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from kvgate_bench.pages import LiveLook

MOST_RISE = 1.10
FEWEST_ANSWERS = 50
"""A 99th percentile of fewer says nothing."""


def objection(before: Sequence[LiveLook], during: Sequence[LiveLook], most_utilization: float) -> str:
    """Why the A/B must end, or empty. `before` are looks while it sent nothing, `during` those since; at least one of
    each is needed to object. One frontend's looks, oldest first."""
    if not during:
        return ""
    last = during[-1]
    if last.utilization is not None and last.utilization > most_utilization:
        busy = f"{last.utilization:.0%} of its KV blocks"
        return f"the deployment's busiest worker is at {busy}, above {most_utilization:.0%}"
    if not before:
        return ""
    refused = last.refused - before[-1].refused
    if refused > 0:
        return f"{refused:.0f} requests of users were answered with 503 or 529"
    return _slower(before, (before[-1], *during))


def _slower(before: Sequence[LiveLook], during: Sequence[LiveLook]) -> str:
    quiet, loaded = growth(before), growth(during)
    if min(_count(quiet), _count(loaded)) < FEWEST_ANSWERS:
        return ""
    then, now = percentile(quiet, 0.99), percentile(loaded, 0.99)
    if then > 0 and now > MOST_RISE * then:
        return f"p99 TTFT of users rose from {then * 1000:.0f} ms to {now * 1000:.0f} ms, more than 10%"
    return ""


def growth(looks: Sequence[LiveLook]) -> Mapping[float, float]:
    """What each bucket gained over these looks."""
    first, last = looks[0].buckets, looks[-1].buckets
    return {limit: max(0.0, count - first.get(limit, 0.0)) for limit, count in last.items()}


def _count(buckets: Mapping[float, float]) -> float:
    return max(buckets.values(), default=0.0)


def percentile(buckets: Mapping[float, float], share: float) -> float:
    """The value below which `share` of the observations lie, interpolated within its bucket as Prometheus does; the
    last finite limit where it lies above all of them."""
    limits = sorted(buckets)
    wanted = share * _count(buckets)
    low, seen = 0.0, 0.0
    for limit in limits:
        if buckets[limit] >= wanted and buckets[limit] > seen:
            if math.isinf(limit):
                return low
            return low + (limit - low) * (wanted - seen) / (buckets[limit] - seen)
        low, seen = (low if math.isinf(limit) else limit), buckets[limit]
    return low


def live_rate(looks: Sequence[LiveLook]) -> float | None:
    """Requests per second that users sent over these looks."""
    if len(looks) < 2 or looks[-1].at <= looks[0].at:
        return None
    return max(0.0, looks[-1].requests - looks[0].requests) / (looks[-1].at - looks[0].at)
