"""The ledger of what a running control plane or cluster has made, written before it is made, and its clearing.

A run may be killed at any point. Whoever comes next reads the ledger, ends what it names, and removes it; nothing that
no ledger names is touched. Mounts and pod namespaces live in a node's private mount namespace and end with its
processes; routes end with the link that they use.
"""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

from tests.cluster import processes
from tests.cluster.cache import cache_root, locked
from tests.cluster.processes import Process

MARK = "KVGATE_TEST_STATE"
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Kind(StrEnum):
    PROCESS = "process"
    NAMESPACE = "namespace"
    LINK = "link"
    CGROUP = "cgroup"
    DIRECTORY = "directory"


@dataclass(frozen=True)
class Entry:
    kind: Kind
    name: str
    start_ticks: int = 0


@dataclass(frozen=True)
class Owner:
    """Who answers for a state directory; a kept one (`up`) waits for `down` and has no living owner."""

    boot_id: str
    pid: int
    start_ticks: int
    kept: bool

    def answers(self) -> bool:
        if self.boot_id != this_boot():
            return False
        return self.kept or Process(self.pid, self.start_ticks).runs()


class Ledger:
    def __init__(self, state: Path) -> None:
        self.state = state
        self.mark = {MARK: str(state)}

    @classmethod
    def open(cls, state: Path) -> "Ledger":
        """Take an empty state directory of our own, readable by nobody else."""
        with locked(states() / ".lock"):
            state.mkdir(parents=True, mode=0o700)
            ledger = cls(state)
            ledger.own(kept=False)
        return ledger

    def own(self, *, kept: bool) -> None:
        me = processes.this_process()
        unfinished = self.state / ".owner.unfinished"
        unfinished.write_text(json.dumps(asdict(Owner(this_boot(), me.pid, me.start_ticks, kept))))
        unfinished.replace(self.state / "owner.json")

    def note(self, kind: Kind, name: str, start_ticks: int = 0) -> None:
        with (self.state / "ledger.jsonl").open("a") as lines:
            lines.write(json.dumps(asdict(Entry(kind, name, start_ticks))) + "\n")

    def start(self, name: str, *argv: str | Path) -> Process:
        """Start a program that logs to `name`.log here, and note it."""
        process = processes.start(argv, self.state / f"{name}.log", self.mark)
        self.note(Kind.PROCESS, str(process.pid), process.start_ticks)
        return process

    def owner(self) -> Owner | None:
        try:
            return Owner(**json.loads((self.state / "owner.json").read_text()))
        except (OSError, ValueError, TypeError):
            return None

    def entries(self) -> list[Entry]:
        try:
            lines = (self.state / "ledger.jsonl").read_text().splitlines()
        except OSError:
            return []
        return list(_readable(lines))


def this_boot() -> str:
    return BOOT_ID.read_text().strip()


def states() -> Path:
    return cache_root() / "run"


def answered(state: Path) -> bool:
    """Whether somebody still answers for this state directory: a living process, or a person who asked to keep it."""
    owner = Ledger(state).owner()
    return owner is not None and owner.answers()


def clear_abandoned() -> list[Path]:
    """Clear every state directory whose owner has died; returns those that were cleared."""
    with locked(states() / ".lock"):
        abandoned = [path for path in states().iterdir() if path.is_dir() and not answered(path)]
        for state in abandoned:
            clear(state)
    return abandoned


def clear(state: Path) -> None:
    """End and remove everything that the ledger in `state` names, then the directory. Safe to run again."""
    ledger = Ledger(state)
    owner, entries = ledger.owner(), ledger.entries()
    if owner is not None and owner.boot_id == this_boot():
        processes.kill(_processes(entries))
    processes.kill(processes.marked(MARK, str(state)))
    _remove_network(entries)
    for entry in reversed(entries):
        if entry.kind is Kind.CGROUP:
            _remove_cgroup(Path(entry.name))
        if entry.kind is Kind.DIRECTORY and Path(entry.name).is_dir() and not any(Path(entry.name).iterdir()):
            Path(entry.name).rmdir()
    _unmount_below(state)
    shutil.rmtree(state)


def _readable(lines: list[str]) -> Iterator[Entry]:
    for line in lines:
        try:
            raw = json.loads(line)
        except ValueError:
            continue  # the run was killed while it wrote this line, before it made the thing
        yield Entry(Kind(raw["kind"]), raw["name"], raw["start_ticks"])


def _processes(entries: list[Entry]) -> list[Process]:
    return [Process(int(e.name), e.start_ticks) for e in reversed(entries) if e.kind is Kind.PROCESS]


def _remove_network(entries: list[Entry]) -> None:
    for entry in entries:
        if entry.kind is Kind.LINK and Path("/sys/class/net", entry.name).exists():
            subprocess.run(["ip", "link", "delete", entry.name], check=True)
    for entry in entries:
        if entry.kind is Kind.NAMESPACE and Path("/run/netns", entry.name).exists():
            subprocess.run(["ip", "netns", "delete", entry.name], check=True)


def _remove_cgroup(root: Path) -> None:
    """Remove a cgroup and those below it; the kernel frees one only a moment after its last process ended."""
    deadline = time.monotonic() + 10
    while root.exists():
        for directory, _, _ in os.walk(root, topdown=False):
            _try_rmdir(Path(directory))
        if time.monotonic() > deadline:
            raise TimeoutError(f"{root} still holds processes 10 s after all of ours were ended")
        time.sleep(0.02)


def _try_rmdir(directory: Path) -> None:
    try:
        directory.rmdir()
    except OSError:
        return


def _unmount_below(state: Path) -> None:
    targets = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    for target in reversed(targets):
        if Path(target).is_relative_to(state):
            subprocess.run(["umount", "--lazy", target], check=True)
