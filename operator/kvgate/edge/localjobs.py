"""Walkers as local processes: what Jobs are in a cluster, one process per node is on this host."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from kvgate.edge.children import dying_with_us, end
from kvgate.edge.errors import MeasureError
from kvgate.edge.signals import orderly_end
from kvgate_probe.wire import Schedule, encode_schedule

Progress = Callable[[int, int], None]
"""Called with the tests that have ended and the tests that are planned."""

_LOOK_EVERY_SECONDS = 0.2


@dataclass(frozen=True)
class Host:
    """What plays a node: where its walker listens, and in which network namespace it runs (none: this host's own)."""

    node: str
    address: str
    port: int
    namespace: str = ""

    @property
    def entry(self) -> tuple[str, ...]:
        """What enters the node's network. `nsenter` and not `ip netns exec`, which would hide /sys."""
        return ("nsenter", f"--net=/run/netns/{self.namespace}") if self.namespace else ()


@dataclass
class _Walk:
    host: Host
    process: subprocess.Popen[bytes]
    log: Path
    errors: Path


@dataclass(frozen=True)
class Walked:
    """What the walkers printed, by node, and which of them did not end as they should."""

    logs: Mapping[str, str]
    problems: tuple[str, ...] = field(default=())


def run_walkers(
    schedule: Schedule, hosts: Sequence[Host], limit_seconds: float, progress: Progress = lambda done, planned: None
) -> Walked:
    """Walk the whole sweep. Walkers still at work after `limit_seconds` are ended, and named in `problems`.

    Raises MeasureError when a walker cannot be started. No process outlives the call, however it ends.
    """
    with tempfile.TemporaryDirectory(prefix="kvgate-") as folder:
        workplace = Path(folder)
        (workplace / "schedule.json").write_text(encode_schedule(schedule), encoding="utf-8")
        peers = {host.node: {"address": host.address, "port": host.port} for host in hosts}
        (workplace / "peers.json").write_text(json.dumps(peers), encoding="utf-8")
        with orderly_end(), _started(hosts, workplace) as walks:
            late = _waited(walks, schedule, limit_seconds, progress)
        return Walked({walk.host.node: _text(walk.log) for walk in walks}, _problems(walks, late, limit_seconds))


@contextmanager
def _started(hosts: Sequence[Host], workplace: Path) -> Iterator[list[_Walk]]:
    walks: list[_Walk] = []
    try:
        walks.extend(_start(host, workplace) for host in hosts)
        yield walks
    finally:
        end([walk.process for walk in walks])


def _file(walker: str) -> str:
    return walker.replace("/", "_")


def _start(host: Host, workplace: Path) -> _Walk:
    log, errors = workplace / f"{_file(host.node)}.log", workplace / f"{_file(host.node)}.err"
    files = ("--schedule", str(workplace / "schedule.json"), "--peers", str(workplace / "peers.json"))
    where = ("--node", host.node, "--bind", host.address, "--port", str(host.port))
    command = (*dying_with_us(), *host.entry, sys.executable, "-m", "kvgate_probe", "walk", *files, *where)
    try:
        with log.open("wb") as out, errors.open("wb") as err:
            process = subprocess.Popen(  # noqa: S603
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True
            )
    except OSError as error:
        raise MeasureError(f"the walker of {host.node} cannot be started ({error.strerror})") from error
    return _Walk(host, process, log, errors)


def _waited(walks: list[_Walk], schedule: Schedule, limit_seconds: float, progress: Progress) -> list[_Walk]:
    """The walks that had not ended in time."""
    ends, planned = time.monotonic() + limit_seconds, schedule.count
    while any(walk.process.poll() is None for walk in walks) and time.monotonic() < ends:
        progress(min(planned, sum(_lines(walk.log) for walk in walks) // 2), planned)
        time.sleep(_LOOK_EVERY_SECONDS)
    late = [walk for walk in walks if walk.process.poll() is None]
    if not late:
        progress(planned, planned)
    return late


def _lines(path: Path) -> int:
    return path.read_bytes().count(b"\n")


def _problems(walks: list[_Walk], late: list[_Walk], limit_seconds: float) -> tuple[str, ...]:
    slow = tuple(f"walker of {walk.host.node}: not done after {limit_seconds:.0f} s, ended" for walk in late)
    failed = tuple(
        f"walker of {walk.host.node}: exit code {walk.process.returncode}: {_last_line(walk.errors)}"
        for walk in walks
        if walk not in late and walk.process.returncode != 0
    )
    return (*slow, *failed)


def _last_line(path: Path) -> str:
    lines = _text(path).strip().splitlines()
    return lines[-1][:200] if lines else "it said nothing"


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")
