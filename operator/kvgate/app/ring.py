"""The ring: observe, decide, carry out, write the status difference. One function per arrow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from kvgate.api.status import PoolStatus
from kvgate.core.decide import decide
from kvgate.core.steps import Decision, Recommend, Step
from kvgate.core.world import Pool, World
from kvgate.edge.errors import EdgeError

MOST_TURNS = 12
"""A pool on still ground settles in six: measure, confirm, enable, record, and one look that changes nothing."""

Clock = Callable[[], datetime]


class Ground(Protocol):
    """Where pools live: a directory of YAML here, a cluster elsewhere."""

    def observe(self, key: str) -> tuple[Pool, World]:
        """Read everything that one turn may look at, once."""
        ...

    def write_status(self, pool: Pool, status: PoolStatus) -> None:
        """Write the status of the pool as it was read; refuse when it was written since."""
        ...

    def carry_out(self, pool: Pool, world: World, step: Step) -> None:
        """Do one step."""
        ...


@dataclass(frozen=True)
class Turn:
    """What one turn saw and did."""

    pool: Pool
    world: World
    decision: Decision
    at: datetime


def look(ground: Ground, key: str, clock: Clock) -> Turn:
    """What a turn sees, means and writes into the status; its steps are yet to be done."""
    pool, world = ground.observe(key)
    now = clock()
    decision = decide(pool, world, now)
    if decision.status != pool.status:
        ground.write_status(pool, decision.status)
    return Turn(pool, world, decision, now)


def turn(ground: Ground, key: str, clock: Clock, told: Callable[[Turn], None] = lambda _: None) -> Turn:
    """One turn. What is meant stands in the status before any step, so that a death in between loses nothing; `told`
    hears of it then.

    A step that fails keeps no other from being tried: a patch that is refused ends no sweep. The first failure is
    raised in the end, with the time within which what is watched is to be looked at again.
    """
    seen = look(ground, key, clock)
    told(seen)
    failed: list[EdgeError] = []
    for step in seen.decision.steps:
        try:
            ground.carry_out(seen.pool, seen.world, step)
        except EdgeError as error:
            failed.append(error)
    if failed:
        failed[0].within_seconds = seen.decision.watched_within_seconds
        raise failed[0]
    return seen


def settle(ground: Ground, key: str, clock: Clock) -> tuple[Turn, ...]:
    """Turns until one does nothing and changes nothing, or the limit: no pool can keep this busy for ever."""
    turns: list[Turn] = []
    for _ in range(MOST_TURNS):
        turns.append(turn(ground, key, clock))
        last = turns[-1]
        if not _busy(last.decision) and last.decision.status == last.pool.status:
            break
    return tuple(turns)


def _busy(decision: Decision) -> bool:
    """Whether a step may show something new to the next look; a recommendation is for a person alone."""
    return any(not isinstance(step, Recommend) for step in decision.steps)
