"""How long a pool at rest may be left alone: for as long as time by itself changes nothing about it."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import datetime, timedelta

from kvgate.core.benchmarking import REST as BENCHMARK_REST
from kvgate.core.decide import IDLE_SECONDS, decide
from kvgate.core.moments import later
from kvgate.core.steps import Decision, Recommend
from kvgate.core.windows import WindowError, next_closing, next_opening
from kvgate.core.world import Pool, World

MOMENT = timedelta(seconds=1)


def rest_seconds(pool: Pool, world: World, decision: Decision, now: datetime, wanted: float) -> float:
    """Seconds until the next look: those that the decision asks for or, of a pool at rest, up to those wanted.

    Evidence that expires, an approval that ends and a sweep that falls due are found no later than they would be else:
    the pool is judged for a later moment, with what was read now, and left alone until one at which nothing differs.
    Whatever keeps a sweep from starting now, which is told of no pool whose sweep is not due, is over by then.
    """
    if _busy(decision) or decision.requeue_after_seconds < IDLE_SECONDS:
        return decision.requeue_after_seconds
    seconds = min(wanted, decision.watched_within_seconds, _until_windows_change(pool, now), _until_tried_again(world))
    if seconds <= IDLE_SECONDS:
        return IDLE_SECONDS
    settled, free = replace(pool, status=decision.status), replace(world, sweep_waits="", sweep_problem="")
    today = decide(settled, free, now)
    while seconds > IDLE_SECONDS:
        if stands(settled, free, today, later(now, timedelta(seconds=seconds))):
            return seconds
        seconds /= 2
    return IDLE_SECONDS


def stands(pool: Pool, world: World, decision: Decision, at: datetime) -> bool:
    """Whether the pool, with the status that was decided, would be judged the same at that moment, and left alone."""
    if _busy(decision):
        return False
    again = decide(replace(pool, status=decision.status), world, at)
    return again.steps == decision.steps and again.status == decision.status


def _busy(decision: Decision) -> bool:
    return any(not isinstance(step, Recommend) for step in decision.steps)


def _until_windows_change(pool: Pool, now: datetime) -> float:
    """A window may open and close before the later moment, or what falls due meanwhile may find it closed by then:
    either would miss it. A window that is open is judged as such, a moment before it closes."""
    windows = pool.spec.change_windows
    try:
        opens, closes = next_opening(windows, now), next_closing(windows, now)
    except WindowError:
        return IDLE_SECONDS
    ends = (opens, closes - MOMENT if closes else None)
    return min(((end - now).total_seconds() for end in ends if end is not None), default=math.inf)


def _until_tried_again(world: World) -> float:
    """What keeps an A/B from starting may be over by itself, and its pods' coming is no event."""
    ground = world.benchmark_ground
    return BENCHMARK_REST.total_seconds() if ground is not None and ground.problem else math.inf
