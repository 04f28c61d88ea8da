"""The operator's real shell as a process of its own, over a ground that plays one pool's day: it is opened as it is
measured, approved and switched on; what is asked of it, it does at once. Lease, watches and requests are real."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from kvgate.api.status import PoolStatus
from kvgate.app.operator import main as shell
from kvgate.app.operator.calls import Calls
from kvgate.app.operator.main import OperatorOptions, run_operator
from kvgate.app.operator.meters import Meters
from kvgate.core.steps import Enable, Step
from kvgate.core.target import Switch
from kvgate.core.world import Pool, World
from kvgate.edge.cluster.client import POOLS, Client
from kvgate.edge.cluster.refusals import NotFound
from kvgate.edge.connection import credentials
from kvgate.edge.errors import PoolGoneError
from tests.core.event_looks import seen
from tests.core.worlds import FAST, NOW, ROUTING, Scene, proposed

BEGAN = time.monotonic()


def now() -> datetime:
    """The scene's day, at the pace of the clock: its evidence is fresh whenever this runs."""
    return NOW + timedelta(minutes=1, seconds=time.monotonic() - BEGAN)


def begin() -> Scene:
    return proposed(Scene().gating(ROUTING, Switch.OFF).measured(FAST)).approved()


@dataclass
class StagedGround:
    """It plays what the cluster's ground documents, for whichever pool the watches tell of and the server still has."""

    client: Client
    scenes: dict[str, Scene] = field(default_factory=dict)

    def observe(self, key: str) -> tuple[Pool, World]:
        namespace, _, name = key.partition("/")
        try:
            self.client.get(POOLS, namespace, name)
        except NotFound as error:
            raise PoolGoneError(f"InferencePool {key} is gone") from error
        scene = self.scenes.setdefault(key, begin())
        events = seen()
        return replace(scene.pool, namespace=namespace, name=name), replace(scene.world, events=events)

    def write_status(self, pool: Pool, status: PoolStatus) -> None:
        self.scenes[pool.key] = self.scenes[pool.key].but(status=status)

    def carry_out(self, pool: Pool, world: World, step: Step) -> None:
        if isinstance(step, Enable):
            self.scenes[pool.key] = self.scenes[pool.key].switched(Switch.ON, step.capability)

    def tell(self, pool: Pool, events: Sequence[tuple[str, str, str]]) -> None:
        """Nobody reads them here."""

    def written(self, key: str) -> str:
        """The pool's status is kept here alone."""
        del key
        return ""


def run(kubeconfig: str, namespace: str, port: str) -> int:
    shell._now = now
    meters = Meters(now)
    calls = Calls(time.monotonic, meters.called)
    client = Client(credentials(kubeconfig), observer=calls.begun)
    options = OperatorOptions((namespace,), None, kubeconfig, namespace, int(port))
    ground: Callable[..., StagedGround] = lambda *_: StagedGround(client)  # noqa: E731
    return run_operator(options, client, ground, meters, calls)


if __name__ == "__main__":
    sys.exit(run(*sys.argv[1:]))
