"""Which tests of a concurrent phase ran at once, by the walkers' own times."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from statistics import median_low

from kvgate.api.words import Phase
from kvgate_probe.wire import Pair, Result, Role, Schedule

LEAST_OVERLAP = 0.8
"""Tests ran at once while all of them did for at least this share of the longest."""

Place = tuple[Pair, int, int]
"""A pair, the round in which it meets, and the place of a test among those for which it does."""
Span = tuple[float, float]


def slots(schedule: Schedule, results: Iterable[Result]) -> Mapping[Place, int]:
    """The slot of each test of a concurrent phase; none of one that ran alone, or beside others for too short a time.

    The times are of the nodes' clocks: where these differ by more than a fifth of a test, nothing is said to have run
    at once, and so nothing to share a link.
    """
    rounds: dict[tuple[int, int], dict[Place, Span]] = defaultdict(dict)
    for result in results:
        concurrent = schedule.phase_of(result.round) == Phase.CONCURRENT
        if concurrent and result.role is Role.SOURCE and result.trouble is None:
            place = (result.pair, result.round, result.step)
            rounds[result.round, result.step][place] = (result.started_at, result.ended_at)
    at_once = (_together(spans) for _, spans in sorted(rounds.items()))
    return {place: number for number, places in enumerate(filter(None, at_once)) for place in places}


def _together(spans: Mapping[Place, Span]) -> tuple[Place, ...]:
    """All that ran at once but for stragglers: those that are left once the ones furthest from the middle are out."""
    middle = median_low(start + end for start, end in spans.values())
    nearest = sorted(spans, key=lambda place: (abs(sum(spans[place]) - middle), place))
    while len(nearest) > 1 and not _overlap([spans[place] for place in nearest]):
        nearest.pop()
    enough = len(nearest) > 1 and len(nearest) > len(spans) / 2
    return tuple(sorted(nearest)) if enough else ()


def _overlap(spans: Collection[Span]) -> bool:
    together = min(end for _, end in spans) - max(start for start, _ in spans)
    return together >= LEAST_OVERLAP * max(end - start for start, end in spans)
