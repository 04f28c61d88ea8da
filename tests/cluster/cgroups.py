"""A control group for each node's pods, under the hierarchies that this kernel mounts.

Version 1 has one hierarchy per controller, at times beside an idle version 2, and is what this was run on. Version 2
alone, one hierarchy for all, follows the kernel's documentation and has not been run: no machine had it.
"""

from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from tests.cluster.cache import CannotRunError
from tests.cluster.leftovers import Kind, Ledger

ROOT = Path("/sys/fs/cgroup")
NEEDED_IN_V2 = ("cpu", "cpuset", "memory", "pids")
INHERITED_BY_HAND = ("cpuset.cpus", "cpuset.mems")


class Version(IntEnum):
    V1 = 1
    V2 = 2


@dataclass(frozen=True)
class Hierarchies:
    version: Version
    mounts: tuple[Path, ...]


def find_hierarchies(mounts: str | None = None) -> Hierarchies:
    """Read from a mount table, this process's own unless given; raises CannotRunError where there is none to use."""
    text = Path("/proc/self/mounts").read_text() if mounts is None else mounts
    fields = [line.split() for line in text.splitlines()]
    ours = [(kind, Path(place)) for _, place, kind, *_ in fields if Path(place).is_relative_to(ROOT)]
    if any(kind == "cgroup" for kind, _ in ours):
        return Hierarchies(Version.V1, tuple(place for kind, place in ours if kind in {"cgroup", "cgroup2"}))
    if ("cgroup2", ROOT) in ours:
        return Hierarchies(Version.V2, (ROOT,))
    raise CannotRunError(f"nothing is mounted on {ROOT}: a kubelet needs control groups, so run this outside a sandbox")


def make_cgroup(ledger: Ledger, hierarchies: Hierarchies, name: str) -> None:
    """Make `name` at the top of every hierarchy, with what a kubelet needs to make its own below it."""
    if hierarchies.version is Version.V2:
        _delegate(hierarchies.mounts[0])
    for mount in hierarchies.mounts:
        group = mount / name
        ledger.note(Kind.CGROUP, str(group))
        group.mkdir()
        if hierarchies.version is Version.V1:
            _inherit(mount, group)


def _inherit(parent: Path, group: Path) -> None:
    for name in INHERITED_BY_HAND:
        if (group / name).exists():
            (group / name).write_text((parent / name).read_text())


def _delegate(root: Path) -> None:
    lacking = set(NEEDED_IN_V2) - set((root / "cgroup.subtree_control").read_text().split())
    if not lacking:
        return
    try:
        (root / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in sorted(lacking)))
    except OSError as error:
        raise CannotRunError(
            f"control groups version 2: {root} does not hand on {', '.join(sorted(lacking))} ({error.strerror}); in a "
            "container, move its processes into a child group first"
        ) from error
