"""One life of a pool before a doubtful API server: measured, approved, switched on, deleted and switched back."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kvgate.app.ring import Turn, turn
from kvgate.edge.cluster.ground import ClusterGround
from kvgate.edge.cluster.sweeps import ProbePolicy
from kvgate.edge.connection import credentials
from kvgate.edge.errors import EdgeError, PoolGoneError
from tests.cluster.access import write_kubeconfig
from tests.edge.cluster.yard import IMAGE, Dying, KubeletLogs, Yard
from tests.faults.doubtful import Doubts
from tests.faults.played import REST_SECONDS, Played
from tests.invariants import broken

AGENT = "kvgate/faults"
LONGEST_SECONDS = 90.0
"""For each of the two halves of a life."""


class Mortal(KubeletLogs):
    """kvgate's client, whose process ends where the plan says so."""

    def __init__(self, address: str, yard: Yard, plan: Doubts) -> None:
        kubeconfig = yard.access.directory / f"{yard.namespace}.kubeconfig"
        write_kubeconfig(kubeconfig, address, yard.access.authority, yard.access.token)
        super().__init__(credentials(str(kubeconfig)))
        self._api.user_agent = AGENT
        self.prints, self.plan = yard.client.prints, plan

    def _ask(self, method: str, path: str, what: str, **rest: Any) -> str:
        try:
            return super()._ask(method, path, what, **rest)
        finally:
            if self.plan.dead:
                self.plan.dead = False
                raise Dying


@dataclass(kw_only=True)
class Life(Played):
    """What happened to one pool. `hands` is what else happens after a turn, by its number."""

    address: str
    hands: Callable[[int], None] = lambda _: None
    turns: int = 0
    gone: bool = False
    ground: ClusterGround = field(init=False)

    def __post_init__(self) -> None:
        self.born()

    def born(self) -> None:
        """A process that remembers nothing."""
        client = Mortal(self.address, self.yard, self.plan)
        policy = ProbePolicy(IMAGE)
        self.ground = ClusterGround(client, lambda: policy, self.yard.clock, namespaces=[self.yard.namespace])

    def turn(self) -> Turn | None:
        """One turn of whichever process lives now; None where it failed as it may."""
        self.turns += 1
        self.hands(self.turns)
        try:
            taken = turn(self.ground, self.yard.key, self.yard.clock)
        except Dying:
            self.deaths += 1
            self.born()
        except PoolGoneError:
            self.gone = True
        except EdgeError:
            time.sleep(REST_SECONDS)
        else:
            self._told(taken)
            return taken
        return None

    def _told(self, taken: Turn) -> None:
        before, self.status = self.status, taken.decision.status
        now = self.yard.clock()
        self.faults += broken(self.status, taken.pool.generation, now, before)

    def until(self, holds: Callable[[Turn | None], bool]) -> None:
        deadline = time.monotonic() + LONGEST_SECONDS
        while not holds(self.turn()):
            assert not self.gone, self.story()
            assert time.monotonic() < deadline, self.story()
            self.attend()

    def story(self) -> str:
        return f"{self.turns} turns; {super().story()}"
