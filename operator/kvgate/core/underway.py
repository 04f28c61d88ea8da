"""What a sweep that is under way needs next: introductions while addresses appear, and an end."""

from __future__ import annotations

from datetime import datetime, timedelta

from kvgate.core.steps import Collect, Introduce
from kvgate.core.world import Sweep, WalkerState

LOOK_AGAIN_SECONDS = 2.0
_AT_WORK = frozenset({WalkerState.PENDING, WalkerState.RUNNING})


def next_step(sweep: Sweep, timeout: timedelta, now: datetime) -> Introduce | Collect | None:
    """Collect once every walker has ended or time is up; introduce whenever somebody has not been told of all."""
    at_work = tuple(walker.node for walker in sweep.walkers if walker.state in _AT_WORK)
    if not at_work:
        return Collect(sweep.run_id)
    if now - sweep.started_at >= timeout:
        return Collect(sweep.run_id, late=at_work)
    known = frozenset(walker.node for walker in sweep.walkers if walker.address)
    untold = any(walker.state is WalkerState.RUNNING and not known <= walker.told for walker in sweep.walkers)
    return Introduce(sweep.run_id) if untold else None
