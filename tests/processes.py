"""What runs in a process group, read without `ps`, which a small Debian lacks."""

from __future__ import annotations

import subprocess
from pathlib import Path


def commands_in_group(group: int) -> list[str]:
    """The names of the group's live processes; zombies do not count."""
    stats = list(Path("/proc").glob("[0-9]*/stat"))
    return _from_proc(stats, group) if stats else _from_ps(group)


def _from_proc(stats: list[Path], group: int) -> list[str]:
    found = []
    for stat in stats:
        try:
            name, _, rest = stat.read_text().partition("(")[2].rpartition(")")
        except (FileNotFoundError, ProcessLookupError):
            continue
        state, _, pgrp = rest.split()[:3]
        if int(pgrp) == group and state != "Z":
            found.append(name)
    return found


def _from_ps(group: int) -> list[str]:
    lines = subprocess.run(["ps", "-Ao", "pgid=,stat=,comm="], capture_output=True, text=True, check=True).stdout
    rows = [line.split(None, 2) for line in lines.splitlines()]
    return [Path(name).name for pgid, state, name in rows if int(pgid) == group and not state.startswith("Z")]
