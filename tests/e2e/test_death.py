"""The operator killed after each of its writes comes to the same end, and does nothing twice."""

from __future__ import annotations

import secrets
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from kvgate.api.status import PoolStatus
from tests.e2e.documents import NAMESPACE
from tests.e2e.mortal import WRITES
from tests.e2e.running import LEASE
from tests.e2e.stage import (
    APPROVAL,
    AS_BEFORE,
    SPLIT,
    Scene,
    Stage,
    condition,
    is_split,
    is_true,
    leave,
    ready,
    waits_for_approval,
)
from tests.e2e.watching import Seen

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

MORTAL = (sys.executable, "-m", "tests.e2e.mortal")
WRITES_OF_A_LIFE = 3
"""With first lives of one, two and three writes, each kind of write is some life's last. With fewer it would never get
on: evidence that is half written is deleted, and both halves are written again."""
MOST_DEATHS = 30
LIFE_SECONDS = 40.0


@pytest.fixture(params=range(1, WRITES_OF_A_LIFE + 1), ids="the first after {} writes".format)
def mortal(shaped: Stage, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Mortal]:
    """A scene whose operator was not started, and will die again and again."""
    shaped.shape("2500mbit")
    operator = shaped.operator(tmp_path, command=MORTAL)
    scene = Scene(shaped, operator, f"mortal-{secrets.token_hex(2)}")
    scene.deploy()
    yield Mortal(scene, request.param)
    if operator.process is not None:
        operator.kill()
    forget_lease(shaped)
    leave(shaped.access, scene.name)
    assert not operator.faults(), "\n".join(operator.faults())
    shaped.check()


def forget_lease(stage: Stage) -> None:
    """So that the next operator need not wait until the Lease of one that was killed expires."""
    name, namespace = LEASE
    stage.access.kubectl("delete", "lease", name, "-n", namespace, "--ignore-not-found", check=True)


@dataclass
class Mortal:
    """An operator whose first process dies after `first` writes, and each later one after WRITES_OF_A_LIFE."""

    scene: Scene
    first: int
    deaths: int = 0

    def live_until(self, what: str, holds: Callable[[PoolStatus], bool]) -> Seen:
        """Start it each time that it dies, until one has nothing left to write."""
        writes = self.first
        for _ in range(MOST_DEATHS):
            if not self._dies(writes, holds):
                self.scene.operator.kill()
                return self.scene.wait_for(what, holds)
            self.deaths, writes = self.deaths + 1, WRITES_OF_A_LIFE
        raise AssertionError(f"{what}: not after {MOST_DEATHS} deaths\n{self.scene.operator.last_words()}")

    def _dies(self, writes: int, holds: Callable[[PoolStatus], bool]) -> bool:
        """One life. False once it has had turns, writes nothing more, and what it was to bring about holds."""
        stage, operator = self.scene.stage, self.scene.operator
        forget_lease(stage)
        mark, deadline = stage.mark(), time.monotonic() + LIFE_SECONDS
        operator.environment = {WRITES: str(writes)}
        operator.start(wait=False)
        while time.monotonic() < deadline:
            if operator.has_died():
                return True
            if self._is_done(holds) and stage.turns_since(mark) and stage.is_idle():
                return operator.has_died()
            time.sleep(0.1)
        raise AssertionError(f"neither dead nor done after {LIFE_SECONDS:.0f} s\n{operator.last_words()}")

    def _is_done(self, holds: Callable[[PoolStatus], bool]) -> bool:
        seen = self.scene.stage.watch.latest(self.scene.key)
        return seen is not None and seen.current and holds(seen.status)


def test_killed_after_any_write_it_comes_to_the_same_end_and_does_nothing_twice(mortal: Mortal) -> None:
    scene, mark = mortal.scene, mortal.scene.stage.mark()
    scene.gate("2s", rollback={"onApprovalLost": "Revert"})
    seen = mortal.live_until("a plan to approve", waits_for_approval)
    assert condition(seen.status, "Approved").reason == "ApprovalMissing"
    assert (scene.jobs_made(mark), scene.jobs(), scene.reports()) == (2, [], 1)

    scene.approve(seen, "ReducedCapacity")
    seen = mortal.live_until("split", is_split)
    assert ready(seen.status) == ("Unknown", "Progressing")
    assert (scene.modes(), scene.patches(mark)) == (SPLIT, 1)

    scene.access.kubectl("delete", APPROVAL, "--all", "-n", NAMESPACE, check=True)
    seen = mortal.live_until("rolled back", is_true("RolledBack"))
    assert [entry.action for entry in seen.status.history] == ["Reverted", "Enabled"]
    assert (scene.modes(), scene.patches(mark), scene.jobs_made(mark)) == (AS_BEFORE, 2, 2)
    assert mortal.deaths >= 4
