"""What a probe costs its node and its network: processors, memory and bytes for each tool, and the image to pull."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from benchmarks.tables import publish
from kvgate.api.words import Phase
from kvgate.core.evidence import Path as FabricPath
from kvgate.edge.lab import LabNode, lab
from kvgate.probe.plan import LinkTest, plan_paths
from kvgate_probe.nixl_tool import PYTHON
from kvgate_probe.wire import Result, Role, Schedule, Step, decode_line, encode_schedule
from tests.cluster.images import probe_layers

SECONDS = float(os.environ.get("KVGATE_BENCH_SECONDS", "10"))
GIGABITS = 1.0
PORT = 5201
MOST_IMAGE_MIB = 60.0
LOOK_SECONDS = 0.1
IDLE_SECONDS = 10.0
NIXL = shutil.which("nixl-python") or str(Path(sys.prefix) / "bin" / "nixl-python")
READ_PIECE = 32_768
STEPS = (
    ("iperf3, 4 streams", Step("iperf3", 4, SECONDS)),
    ("ucx_get, 32 KiB", Step("ucx_get", 1, SECONDS, READ_PIECE)),
    ("nixl, 32 KiB", Step("nixl", 1, SECONDS, READ_PIECE, "read")),
)


@dataclass
class Watched:
    """A walker and all that it starts: processor seconds used up to now, and the most memory held at a time."""

    process: subprocess.Popen[str]
    peak_bytes: int = 0
    used: dict[int, float] = field(default_factory=dict)
    stop: threading.Event = field(default_factory=threading.Event)

    def follow(self) -> None:
        while not self.stop.wait(LOOK_SECONDS):
            family = self._family()
            held = 0
            for pid in family:
                try:
                    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
                    pages = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8")
                except OSError:
                    continue
                held += next(int(line.split()[1]) * 1024 for line in pages.splitlines() if line.startswith("Pss:"))
                self.used[pid] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
            self.peak_bytes = max(self.peak_bytes, held)

    def _family(self) -> list[int]:
        found, waiting = list[int](), [self.process.pid]
        while waiting:
            pid = waiting.pop()
            found.append(pid)
            for task in Path(f"/proc/{pid}/task").glob("*/children"):
                try:
                    waiting += map(int, task.read_text(encoding="utf-8").split())
                except OSError:
                    continue
        return found

    @property
    def seconds(self) -> float:
        return sum(self.used.values())


def plan(step: Step | None) -> Schedule:
    """A link test of a second, for which a pair must meet, and the one that is looked at; None for nobody to meet."""
    test = LinkTest(1.0, 1, PORT)
    whole = plan_paths("run", "uid", [FabricPath("prefill", "decode")], test, Phase.ISOLATED).schedule
    if step is None or step.tool != "iperf3":
        return replace(whole, further=() if step is None else (step,))
    return replace(whole, streams=step.streams, duration_seconds=step.seconds)


@contextmanager
def walkers(nodes: Sequence[LabNode], schedule: Schedule, *, alone: bool = False) -> Iterator[list[Watched]]:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "schedule.json").write_text(encode_schedule(schedule), encoding="utf-8")
        known = {} if alone else {node.name: node.address for node in nodes}
        (place / "peers.json").write_text(json.dumps(known), encoding="utf-8")
        watched = [Watched(_walker(node, place)) for node in nodes[: 1 if alone else None]]
        threads = [threading.Thread(target=one.follow, daemon=True) for one in watched]
        for thread in threads:
            thread.start()
        try:
            yield watched
        finally:
            for one, thread in zip(watched, threads, strict=True):
                one.stop.set()
                thread.join()
                one.process.kill()
                one.process.wait()


def _walker(node: LabNode, place: Path) -> subprocess.Popen[str]:
    files = ("--schedule", str(place / "schedule.json"), "--peers", str(place / "peers.json"))
    inside = ("nsenter", f"--net=/run/netns/{node.namespace}", sys.executable, "-m", "kvgate_probe", "walk")
    command = (*inside, *files, "--node", node.name, "--bind", node.address)
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def tested(nodes: Sequence[LabNode], name: str, step: Step) -> list[tuple[str, ...]]:
    with walkers(nodes, plan(step)) as watched:
        results = [result for one in watched for result in _results(one) if result.tool == step.tool]
    last = {result.role: result for result in results if result.step == max(r.step for r in results)}
    if any(result.trouble for result in last.values()) or len(last) < 2:
        raise RuntimeError(f"{name}: {[(r.role, r.trouble, r.message) for r in results]}")
    rows: list[tuple[str, ...]] = []
    for one, role in zip(watched, (Role.SOURCE, Role.DESTINATION), strict=True):
        result = last[role]
        moved = (result.interface_bytes_after or 0) - (result.interface_bytes_before or 0)
        cores = result.load.cores
        rows.append(
            (
                f"{name}: {role.value}",
                f"{one.seconds:.1f} s",
                "—" if cores is None else f"{cores:.2f}",
                f"{one.peak_bytes / 2**20:.0f} MiB",
                f"{moved / 1e6:,.0f} MB",
            )
        )
    return rows


def _results(one: Watched) -> list[Result]:
    assert one.process.stdout is not None
    decoded = [decode_line(line) for line in one.process.stdout]
    return [result for result in decoded if isinstance(result, Result)]


def waiting(nodes: Sequence[LabNode]) -> tuple[str, ...]:
    with walkers(nodes, plan(None), alone=True) as (one,):
        time.sleep(IDLE_SECONDS)
    share = one.seconds / IDLE_SECONDS
    return (f"waiting for a partner, {IDLE_SECONDS:g} s", f"{one.seconds:.1f} s", f"{share:.2f}",
            f"{one.peak_bytes / 2**20:.0f} MiB", "0 MB")  # fmt: skip


def image_mib() -> float:
    """Of all layers, compressed as a registry keeps them."""
    return sum(len(gzip.compress(layer, 6, mtime=0)) for layer in probe_layers()) / 2**20


def main() -> bool:
    os.environ[PYTHON] = NIXL
    rows = []
    with lab(dict.fromkeys(("prefill", "decode"), round(GIGABITS * 1e9))) as nodes:
        rows.append(waiting(nodes))
        for name, step in STEPS:
            rows += tested(nodes, name, step)
    mebibytes = image_mib()
    publish(
        "probe-cost",
        "What a probe costs",
        f"One path of {GIGABITS:g} Gbit/s between two network namespaces, {SECONDS:g} s for each tool; the walker with "
        "all that it starts, from its start to its end: processor time, processors in use during the test as the "
        "walker tells (of the tool alone), the most memory at a time (shared pages counted by share), and what its "
        f"interface counted. The image of iperf3 and ucx, compressed: {mebibytes:.1f} MiB (limit "
        f"{MOST_IMAGE_MIB:.0f} MiB).",
        ("probe", "processor time", "processors during the test", "memory", "bytes"),
        rows,
    )
    return mebibytes <= MOST_IMAGE_MIB


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
