"""How long a pool at rest may be left alone: for as long as time by itself changes nothing about it."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from kvgate.core.decide import IDLE_SECONDS, decide
from kvgate.core.moments import later
from kvgate.core.steps import Decision, Recommend
from kvgate.core.windows import WindowError, next_opening
from kvgate.core.world import Pool, World


def rest_seconds(pool: Pool, world: World, decision: Decision, now: datetime, wanted: float) -> float:
    """Seconds until the next look: those that the decision asks for or, of a pool at rest, up to those wanted.

    Evidence that expires, an approval that ends and a sweep that falls due are found no later than they would be else:
    the pool is judged for a later moment, with what was read now, and left alone until one at which nothing differs.
    """
    if _busy(decision) or decision.requeue_after_seconds < IDLE_SECONDS:
        return decision.requeue_after_seconds
    seconds = min(wanted, _until_a_window_opens(pool, now))
    while seconds > IDLE_SECONDS:
        if stands(pool, world, decision, later(now, timedelta(seconds=seconds))):
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


def _until_a_window_opens(pool: Pool, now: datetime) -> float:
    """A window may open and close before the later moment: whatever waits for it would miss it."""
    try:
        opens = next_opening(pool.spec.change_windows, now)
    except WindowError:
        return IDLE_SECONDS
    return float("inf") if opens is None else (opens - now).total_seconds()
