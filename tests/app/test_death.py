"""kvgate killed between any two steps of a turn: the next run comes to the same end, by one patch, of whole files."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import pytest
import yaml

from kvgate.app.ring import settle
from kvgate.core.evidence import Evidence
from kvgate.core.steps import Measure
from kvgate.core.world import Pool
from kvgate.edge.directory import Directory
from kvgate.edge.objects import Objects
from tests.app.yard import FAST, KEY, Yard, opened, sample, yard


@dataclass
class Fuse:
    """Counts what is done to the outside, and kills this process before the chosen one of them."""

    left: int

    def burn(self) -> None:
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


@dataclass
class Mortal:
    """A measurer that may die before it starts and after it ended."""

    made: Yard
    fuse: Fuse

    def __call__(self, pool: Pool, objects: Objects, step: Measure) -> Evidence:
        self.fuse.burn()
        evidence = self.made.sweeps(pool, objects, step)
        self.fuse.burn()
        return evidence


def _lit(fuse: Fuse, method: Callable[..., Any]) -> Callable[..., Any]:
    def around(*arguments: Any, **named: Any) -> Any:
        fuse.burn()
        return method(*arguments, **named)

    return around


def _die_at(made: Yard, count: int) -> int:
    """Settles in a child that dies at the count-th write, replacement or sweep. Returns the child's wait status."""
    child = os.fork()
    if not child:
        _child(made, Fuse(count))
    return os.waitpid(child, 0)[1]


def _child(made: Yard, fuse: Fuse) -> NoReturn:
    try:
        for name in ("replace", "write_text", "unlink"):
            setattr(Path, name, _lit(fuse, getattr(Path, name)))
        ground = Directory(made.folder, Mortal(made, fuse))
        with ground.locked():
            settle(ground, KEY, made.sweeps.clock)
    finally:
        os._exit(0)


def _first_sweep(folder: Path) -> Yard:
    return yard(folder, FAST)


def _enabling(folder: Path) -> Yard:
    made = yard(folder, FAST)
    made.approve()
    (folder / "approval.yaml").rename(folder / "approval.kept")
    made.settle()
    (folder / "approval.kept").rename(folder / "approval.yaml")
    return made


def _measuring_again(folder: Path) -> Yard:
    made = opened(folder)
    made.sweeps.clock.wait(minutes=1)
    made.ask_to_measure("again")
    return made


def _reverting(folder: Path) -> Yard:
    made = opened(folder)
    made.sweeps.bytes_per_second = 12e6
    made.sweeps.clock.wait(minutes=1)
    made.ask_to_measure("again")
    return made


def _outcome(made: Yard) -> object:
    """Where things stand in the end, without times and what hangs on them."""
    status = made.status()
    shown = [(c.type, c.status.value, c.reason) for c in status.conditions]
    history = [(entry.action, entry.reason) for entry in status.history]
    split = status.capabilities[0]
    standing = (split.outcome, split.enabled, split.epoch, split.approval.state, split.plan_hash, split.held_by)
    assert not [path for path in made.folder.rglob("*") if path.is_file() and path.suffix not in {".yaml", ""}]
    sweeps = [path for path in (made.folder / ".kvgate" / "reports").iterdir() if not path.stem.endswith("-0")]
    memory = (status.last_handled_measure_at, status.operation, min(2, len(sweeps)))
    return made.deployment(), shown, history, standing, memory


def _whole(folder: Path) -> None:
    for path in folder.rglob("*.yaml"):
        assert all(isinstance(part, dict) for part in yaml.load_all(path.read_text(), yaml.CSafeLoader)), path


@pytest.mark.parametrize("before", [_first_sweep, _enabling, _measuring_again, _reverting])
def test_killed_anywhere_it_comes_to_the_same_end(tmp_path: Path, before: Callable[[Path], Yard]) -> None:
    start = before(tmp_path / "start")
    undisturbed = Yard(shutil.copytree(start.folder, tmp_path / "undisturbed"), start.sweeps)
    wanted, deaths = _outcome(undisturbed), 0
    for count in range(1, 200):
        folder = shutil.copytree(start.folder, tmp_path / f"death-{count}")
        made = Yard(folder, start.sweeps)
        ended = _die_at(made, count)
        _whole(folder)
        assert made.deployment() in {start.deployment(), undisturbed.deployment()}
        patched = (folder / "deployment.yaml").stat().st_ino
        done = made.deployment() == undisturbed.deployment()
        assert _outcome(made) == wanted, f"death at {count}"
        assert not done or (folder / "deployment.yaml").stat().st_ino == patched, "patched a second time"
        shutil.rmtree(folder)
        if not os.WIFSIGNALED(ended):
            break
        deaths += 1
    assert deaths >= 4
    assert os.WEXITSTATUS(ended) == 0


def test_the_start_of_each_case_is_what_it_says(tmp_path: Path) -> None:
    assert _enabling(tmp_path / "enabling").deployment() == sample("deployment.yaml")
    assert _reverting(tmp_path / "reverting").deployment() != sample("deployment.yaml")
