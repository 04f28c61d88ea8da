"""Which tests of a concurrent phase ran at once, by the walkers' own times."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping

from kvgate.api.words import Phase
from kvgate_probe.wire import Pair, Result, Role, Schedule

LEAST_OVERLAP = 0.8
"""Tests ran at once while all of them did for at least this share of the longest."""

Place = tuple[Pair, int]


def slots(schedule: Schedule, results: Iterable[Result]) -> Mapping[Place, int]:
    """The slot of each test of a concurrent phase; none of one that ran alone, or beside others for too short a time.

    The times are of the nodes' clocks: where these differ by more than a fifth of a test, nothing is said to have run
    at once, and so nothing to share a link.
    """
    if schedule.phase != Phase.CONCURRENT:
        return {}
    rounds: dict[tuple[int, int], dict[Place, tuple[float, float]]] = defaultdict(dict)
    for result in results:
        if result.role is Role.SOURCE and result.trouble is None:
            place = (result.pair, result.step)
            rounds[result.round, result.step][place] = (result.started_at, result.ended_at)
    at_once = (spans for _, spans in sorted(rounds.items()) if len(spans) > 1 and _overlap(spans.values()))
    return {place: number for number, spans in enumerate(at_once) for place in spans}


def _overlap(spans: Collection[tuple[float, float]]) -> bool:
    together = min(end for _, end in spans) - max(start for start, _ in spans)
    return together >= LEAST_OVERLAP * max(end - start for start, end in spans)
