"""A pool is deleted while no operator runs, or one that dies: the deletion waits, loses nothing, and ends."""

from __future__ import annotations

import secrets
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.waiting import eventually
from tests.e2e.mortal import WRITES
from tests.e2e.running import KVGATE
from tests.e2e.stage import AS_BEFORE, SPLIT, Scene, Stage, leave
from tests.e2e.test_death import forget_lease
from tests.e2e.test_deletion import GARBAGE_SECONDS, GONE_SECONDS, delete, enable, is_gone, remains, uid_of

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

MORTAL = (sys.executable, "-m", "tests.e2e.mortal")
MOST_DEATHS = 10
LIFE_SECONDS = 40.0
QUIET_SECONDS = 3.0


@pytest.fixture
def lone(stage: Stage, tmp_path: Path) -> Iterator[Scene]:
    """A scene whose split is on, by an operator that was killed right after."""
    operator = stage.operator(tmp_path)
    scene = Scene(stage, operator, f"lone-{secrets.token_hex(2)}")
    scene.deploy()
    forget_lease(stage)
    operator.start()
    enable(scene, "Revert")
    operator.kill()
    yield scene
    if operator.process is not None:
        operator.kill()
    forget_lease(stage)
    leave(stage.access, scene.name)
    assert not operator.faults(), "\n".join(operator.faults())
    stage.check()


def test_without_an_operator_a_deletion_waits_and_ends_when_one_is_back(lone: Scene) -> None:
    uid, mark = uid_of(lone), lone.stage.mark()
    delete(lone, "--wait=false")
    time.sleep(QUIET_SECONDS)
    assert not is_gone(lone)
    assert lone.modes() == SPLIT

    forget_lease(lone.stage)
    lone.operator.start()
    eventually(lambda: is_gone(lone), GONE_SECONDS)
    assert lone.modes() == AS_BEFORE
    if lone.stage.cluster is not None:
        assert lone.patches(mark) == 1
    eventually(lambda: not remains(lone, uid), GARBAGE_SECONDS)


@pytest.mark.parametrize("writes", [1, 2])
def test_killed_after_any_write_while_the_deletion_waits_it_reverts_once(lone: Scene, writes: int) -> None:
    """Its writes are: the operation, the patch, the record, the finalizer."""
    mark = lone.stage.mark()
    delete(lone, "--wait=false")
    lone.operator.command, lone.operator.environment = MORTAL, {WRITES: str(writes)}
    deaths = 0
    while not is_gone(lone):
        assert deaths < MOST_DEATHS, lone.operator.last_words()
        forget_lease(lone.stage)
        lone.operator.start(wait=False)
        eventually(lambda: lone.operator.has_died() or is_gone(lone), LIFE_SECONDS)
        lone.operator.kill()
        deaths += 1
    lone.operator.command = KVGATE
    assert deaths >= 4 // writes
    assert lone.modes() == AS_BEFORE
    if lone.stage.cluster is not None:
        assert lone.patches(mark) == 1
