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
from tests.cluster.cache import CannotRunError, cache_root, locked
from tests.cluster.processes import Process

MARK = "KVGATE_TEST_STATE"
UNFINISHED = ".owner.unfinished"
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Kind(StrEnum):
    PROCESS = "process"
    NAMESPACE = "namespace"
    LINK = "link"
    CGROUP = "cgroup"
    DIRECTORY = "directory"
    MOUNT = "mount"


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
        unfinished = self.state / UNFINISHED
        unfinished.write_text(json.dumps(asdict(Owner(this_boot(), me.pid, me.start_ticks, kept))))
        unfinished.replace(self.owner_file)

    def note(self, kind: Kind, name: str, start_ticks: int = 0) -> None:
        with (self.state / "ledger.jsonl").open("a") as lines:
            lines.write(json.dumps(asdict(Entry(kind, name, start_ticks))) + "\n")

    def directory(self, path: Path) -> None:
        """Make a directory outside the state directory, to be removed again if it is empty then."""
        if not path.exists():
            self.note(Kind.DIRECTORY, str(path))
            path.mkdir()

    def start(self, name: str, *argv: str | Path) -> Process:
        """Start a program that logs to `name`.log here, and note it."""
        process = processes.start(argv, self.state / f"{name}.log", self.mark)
        self.note(Kind.PROCESS, str(process.pid), process.start_ticks)
        return process

    @property
    def owner_file(self) -> Path:
        return self.state / "owner.json"

    def is_ours(self) -> bool:
        """Ours, or so new that its owner's name is not yet written."""
        return self.owner_file.exists() or {path.name for path in self.state.iterdir()} <= {UNFINISHED}

    def owner(self) -> Owner | None:
        try:
            return Owner(**json.loads(self.owner_file.read_text()))
        except (OSError, ValueError, TypeError):
            return None

    def entries(self) -> list[Entry]:
        try:
            lines = (self.state / "ledger.jsonl").read_text().splitlines()
        except OSError:
            return []
        return list(_readable(lines))


def still_whole(state: Path) -> bool:
    """Whether everything that was started there still runs."""
    ledger = Ledger(state)
    return all(process.runs() for process in _started(ledger, ledger.entries()))


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
    """End and remove everything that the ledger in `state` names, then the directory. Safe to run again.

    Raises CannotRunError, and touches nothing, where the directory is no state of ours.
    """
    ledger = Ledger(state)
    if not ledger.is_ours():
        raise CannotRunError(f"{state} holds files but no ledger of a cluster: left alone; name another directory")
    entries = ledger.entries()
    started = _started(ledger, entries)
    processes.kill(set(processes.marked(MARK, str(state))) - set(started))
    processes.kill(started)
    _remove_network(entries)
    for entry in reversed(entries):
        _remove_from_tree(entry.kind, Path(entry.name))
    _unmount_below(state)
    _remove_state(ledger)


def _readable(lines: list[str]) -> Iterator[Entry]:
    for line in lines:
        try:
            raw = json.loads(line)
        except ValueError:
            continue  # the run was killed while it wrote this line, before it made the thing
        yield Entry(Kind(raw["kind"]), raw["name"], raw["start_ticks"])


def _remove_state(ledger: Ledger) -> None:
    """The owner's name goes last, so that a clearing that is cut short can be taken up again."""
    for path in ledger.state.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path != ledger.owner_file:
            path.unlink()
    ledger.owner_file.unlink(missing_ok=True)
    ledger.state.rmdir()


def _started(ledger: Ledger, entries: list[Entry]) -> list[Process]:
    """What we started ourselves, as far as it was since this boot: an older pid may be anybody's by now."""
    owner = ledger.owner()
    if owner is None or owner.boot_id != this_boot():
        return []
    return [Process(int(e.name), e.start_ticks) for e in entries if e.kind is Kind.PROCESS]


def _remove_network(entries: list[Entry]) -> None:
    for entry in entries:
        if entry.kind is Kind.LINK and Path("/sys/class/net", entry.name).exists():
            subprocess.run(["ip", "link", "delete", entry.name], check=True)
    for entry in entries:
        if entry.kind is Kind.NAMESPACE and Path("/run/netns", entry.name).exists():
            subprocess.run(["ip", "netns", "delete", entry.name], check=True)


def _remove_from_tree(kind: Kind, path: Path) -> None:
    match kind:
        case Kind.CGROUP:
            _remove_cgroup(path)
        case Kind.MOUNT if is_mounted(path) and not any(path.iterdir()):
            subprocess.run(["umount", str(path)], check=True)
        case Kind.DIRECTORY if path.is_dir():
            _try_rmdir(path)
        case _:
            return


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


def is_mounted(path: Path) -> bool:
    return path in _mounted()


def _unmount_below(state: Path) -> None:
    for target in reversed(_mounted()):
        if target.is_relative_to(state):
            subprocess.run(["umount", "--lazy", str(target)], check=True)


def _mounted() -> list[Path]:
    return [Path(line.split()[1]) for line in Path("/proc/self/mounts").read_text().splitlines()]
