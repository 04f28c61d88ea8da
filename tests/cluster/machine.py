"""What of this machine a cluster could leave behind, read from the kernel and not from the harness's own ledger."""

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.processes import Process, start_ticks

OUTSIDE = (
    Path("/run/netns"),
    Path("/var/lib/cni"),
    Path("/run/containerd"),
    Path("/var/log/pods"),
    Path("/opt/containerd"),
)
PARAMETERS = (
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
)


@dataclass(frozen=True)
class Machine:
    namespaces: frozenset[str]
    mounts: frozenset[str]
    routes: frozenset[str]
    links: frozenset[str]
    cgroups: frozenset[str]
    directories: frozenset[str]
    parameters: Mapping[str, str]


def look() -> Machine:
    return Machine(
        namespaces=frozenset(path.name for path in _entries(Path("/run/netns"))),
        mounts=frozenset(line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()),
        routes=frozenset(json.dumps(route, sort_keys=True) for route in _ip("-4", "route", "show", "table", "all")),
        links=frozenset(path.name for path in _entries(Path("/sys/class/net"))),
        cgroups=frozenset(directory for directory, _, _ in os.walk("/sys/fs/cgroup")),
        directories=frozenset(
            str(path) for outside in OUTSIDE for path in (outside, *_entries(outside)) if path.exists()
        ),
        parameters={name: (Path("/proc/sys") / name).read_text().strip() for name in PARAMETERS},
    )


def added(before: Machine, after: Machine) -> dict[str, list[str]]:
    """What is there now and was not before, by kind; and kernel parameters that have another value."""
    kinds = ("namespaces", "mounts", "routes", "links", "cgroups", "directories")
    found = {kind: sorted(getattr(after, kind) - getattr(before, kind)) for kind in kinds}
    found["parameters"] = [name for name, value in after.parameters.items() if before.parameters[name] != value]
    return {kind: names for kind, names in found.items() if names}


def processes_in_other_namespaces() -> set[Process]:
    """Processes whose process namespace is not ours: those of nodes, and of containers inside them."""
    ours = Path("/proc/self/ns/pid").stat().st_ino
    found = set()
    for entry in _entries(Path("/proc")):
        if entry.name.isdigit() and _namespace(entry) not in {ours, None}:
            ticks = start_ticks(int(entry.name))
            found |= {Process(int(entry.name), ticks)} if ticks is not None else set()
    return found


def processes_that_name(text: str) -> list[str]:
    """Command lines that hold `text`, whoever runs them."""
    lines = [_command_line(entry) for entry in _entries(Path("/proc")) if entry.name.isdigit()]
    return [line for line in lines if text in line]


def _namespace(entry: Path) -> int | None:
    try:
        return (entry / "ns/pid").stat().st_ino
    except OSError:
        return None


def _command_line(entry: Path) -> str:
    try:
        return (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def _entries(directory: Path) -> list[Path]:
    return list(directory.iterdir()) if directory.is_dir() else []


def _ip(*args: str) -> list[dict[str, object]]:
    done = subprocess.run(["ip", "-j", *args], capture_output=True, text=True, check=True)
    found: list[dict[str, object]] = json.loads(done.stdout or "[]")
    return found
