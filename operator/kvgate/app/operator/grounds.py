"""The cluster as the operator's workers see it: only the Lease's holder touches it, and what it does there is told."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from kvgate.api.status import PoolStatus
from kvgate.app.operator.logs import say
from kvgate.app.operator.meters import Meters
from kvgate.app.operator.transitions import transitions
from kvgate.app.ring import Ground
from kvgate.core.steps import Step
from kvgate.core.world import Pool, World
from kvgate.edge.errors import EdgeError


class TellingGround(Ground, Protocol):
    """A ground that can also post Events. `observe` raises PoolGoneError where the pool is gone, `write_status` raises
    WriteConflictError where it was written since."""

    def tell(self, pool: Pool, events: Sequence[tuple[str, str, str]]) -> None:
        """Post Events of (type, reason, message) about the pool."""
        ...

    def written(self, key: str) -> str:
        """The version of the pool that the last write of its status by this process made; empty before the first."""
        ...


class GuardedGround:
    """Asks before every look and every write whether we may still act; `require` raises when we may not. Every step
    that was taken is a line of the log, every status that was written is told as Events, and both are metered."""

    def __init__(self, ground: TellingGround, require: Callable[[], None], meters: Meters | None = None) -> None:
        self._ground = ground
        self._require = require
        self._meters = meters or Meters()

    def observe(self, key: str) -> tuple[Pool, World]:
        self._require()
        pool, world = self._ground.observe(key)
        self._meters.seen(pool, pool.status)
        return pool, world

    def write_status(self, pool: Pool, status: PoolStatus) -> None:
        self._require()
        self._ground.write_status(pool, status)
        self._meters.seen(pool, status)
        say(logging.INFO, "status written", pool=pool.key, ready=ready(status))
        self._tell(pool, status)

    def carry_out(self, pool: Pool, world: World, step: Step) -> None:
        self._require()
        self._ground.carry_out(pool, world, step)
        self._meters.step_taken(pool, step)
        say(logging.INFO, "step taken", pool=pool.key, step=type(step).__name__, **described(step))

    def _tell(self, pool: Pool, status: PoolStatus) -> None:
        """Events are news, not memory: one that cannot be posted is lost, and the turn goes on."""
        events = transitions(pool.status, status)
        if not events:
            return
        try:
            self._require()
            self._ground.tell(pool, events)
        except EdgeError as error:
            say(logging.WARNING, "events could not be posted", pool=pool.key, reason=str(error))


def described(step: Step) -> dict[str, str]:
    """A step in names alone: nothing of what a pod or a person wrote."""
    names = ("run_id", "capability", "operation_id", "reason")
    return {name: str(getattr(step, name)) for name in names if getattr(step, name, "")}


def ready(status: PoolStatus) -> str:
    found = next((condition for condition in status.conditions if condition.type == "Ready"), None)
    return f"{found.status}/{found.reason}" if found else "none"
