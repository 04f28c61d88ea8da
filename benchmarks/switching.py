"""The ground of the benchmarks of switches: a real API server, real frontends and mock workers, and kvgate's own ring,
which turns when its last decision said, as the operator's does."""

from __future__ import annotations

import secrets
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from kvgate.app.ring import Turn
from tests.cluster import leftovers
from tests.cluster.controlplane import LOOPBACK, start_control_plane
from tests.cluster.leftovers import Ledger, states
from tests.core.ab.trials import experiment
from tests.core.worlds import ROUTING
from tests.dynamo_real.switching_gate import Gate, gated
from tests.dynamo_stage.stage import open_stage

REQUESTS_PER_SECOND = 8
WON = experiment()
PATIENCE_SECONDS = 120.0


@contextmanager
def gate(frontends: int) -> Iterator[Gate]:
    """Two aggregated workers behind so many frontends, and no pool yet."""
    leftovers.clear_abandoned()
    ledger = Ledger.open(states() / f"b{secrets.token_hex(3)}")
    with tempfile.TemporaryDirectory() as folder, open_stage(Path(folder) / "logs") as stage:
        try:
            access = start_control_plane(ledger, LOOPBACK)
            with gated(access, stage, Path(folder), replicas=(frontends, 1, 1)) as made:
                yield made
        finally:
            leftovers.clear(ledger.state)


def turns_until(made: Gate, holds: Callable[[Turn], bool], what: str) -> Turn:
    """Turns as the operator takes them; a turn that met a conflict is taken again after a second."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        taken = made.turn()
        if taken is not None and holds(taken):
            return taken
        if time.monotonic() > deadline:
            said = taken.decision.status.conditions if taken else ()
            lines = [f"{held.type} {held.status} {held.reason}: {held.message}" for held in said]
            raise TimeoutError("\n".join((f"waited {PATIENCE_SECONDS:.0f} s for {what}", *lines)))
        time.sleep(taken.decision.requeue_after_seconds if taken else 1.0)


def routed(made: Gate) -> None:
    """KV routing is on, by a won A/B, and verified."""
    made.compared(WON)
    made.until_on(ROUTING)
