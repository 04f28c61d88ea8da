"""A directory of manifests made of the samples, and a measurer that plays a sweep, for the tests of this folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from kvgate.api.status import CapabilityStatus, PoolStatus
from kvgate.api.words import Memory, Phase
from kvgate.app.cli import main
from kvgate.app.ring import Turn, settle
from kvgate.core.evidence import Evidence, Failure, FailureKind, Layer, Sample
from kvgate.core.evidence import Path as FabricPath
from kvgate.core.steps import Measure
from kvgate.core.world import Pool
from kvgate.edge.directory import Directory
from kvgate.edge.objects import Objects

SLOW, FAST = 119.6e6, 297.3e6
"""Payload in bytes per second that a 1 Gbit/s and a 2.5 Gbit/s link were seen to carry."""
KEY = "serving/qwen3"
FILES = ("config.yaml", "deployment.yaml", "pool.yaml")
_DROP = object()


def sample(name: str) -> str:
    return (resources.files("kvgate.app") / "samples" / name).read_text(encoding="utf-8")


@dataclass
class Clock:
    """Time that passes when a test says so; it starts at the real time, for files have real times."""

    ahead: timedelta = timedelta(0)

    def __call__(self) -> datetime:
        return datetime.now(UTC) + self.ahead

    def wait(self, **span: float) -> None:
        self.ahead += timedelta(**span)


@dataclass
class Sweeps:
    """Plays what `LocalSweep` gives for links that all carry one rate; None plays a path that answers nothing."""

    bytes_per_second: float | None
    clock: Clock = field(default_factory=Clock)
    run_of_samples: str = ""
    count: int = 0

    def __call__(self, pool: Pool, objects: Objects, step: Measure) -> Evidence:
        self.count += 1
        ended = self.clock().replace(microsecond=0)
        used = {name for path in step.paths for name in (path.source, path.destination)}
        return Evidence(
            run_id=step.run_id,
            pool_uid=pool.uid,
            planned=step.paths,
            samples=tuple(self._sample(step.run_id, path, ended) for path in step.paths),
            measured_at=ended,
            nodes=tuple(node.identity for node in objects.nodes if node.identity.name in used),
        )

    def _sample(self, run: str, path: FabricPath, ended: datetime) -> Sample:
        return link_sample(self.run_of_samples or run, path, ended, self.bytes_per_second)


def link_sample(run: str, path: FabricPath, ended: datetime, bytes_per_second: float | None, **more: Any) -> Sample:
    return Sample(
        run_id=run,
        path=path,
        layer=Layer.LINK,
        tool="iperf3",
        operation="tcp-stream",
        memory=Memory.HOST,
        transport="tcp",
        phase=Phase.ISOLATED,
        streams=4,
        measured_at=ended,
        bytes_per_second=bytes_per_second,
        failure=None if bytes_per_second else Failure(FailureKind.PARTNER_LOST, "it said nothing"),
        **more,
    )


def node(name: str, role: str, **annotations: str) -> dict[str, Any]:
    labels = {"link": "qwen3", "pool": role}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels, "annotations": annotations},
    }


def lay_out(folder: Path, *nodes: Mapping[str, Any]) -> Path:
    """The sample pool, its deployment, the model's config, and two nodes that nothing plays unless given."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in FILES:
        (folder / name).write_text(sample(name), encoding="utf-8")
    written = list(nodes) or [node("prefill-1", "prefill"), node("decode-1", "decode")]
    (folder / "nodes.yaml").write_text(yaml.safe_dump_all(written, sort_keys=False), encoding="utf-8")
    return folder


def edit(path: Path, fields: Mapping[str, Any]) -> None:
    """Sets fields of a file's one document by dotted place; a value of DROP removes one. Comments are lost."""
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    for place, value in fields.items():
        *steps, last = place.split("|")
        here = document
        for step in steps:
            here = here[int(step)] if isinstance(here, list) else here.setdefault(step, {})
        if value is _DROP:
            del here[last]
        else:
            here[int(last) if isinstance(here, list) else last] = value
    path.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")


DROP = _DROP


@dataclass
class Yard:
    """A directory with its measurer, and what can be done with both."""

    folder: Path
    sweeps: Sweeps

    def settle(self) -> tuple[tuple[Turn, ...], Directory]:
        ground = Directory(self.folder, self.sweeps)
        with ground.locked():
            return settle(ground, KEY, self.sweeps.clock), ground

    def status(self) -> PoolStatus:
        """As the last turn left it."""
        return self.settle()[0][-1].decision.status

    def split(self) -> CapabilityStatus:
        return self.status().capabilities[0]

    def deployment(self) -> str:
        return (self.folder / "deployment.yaml").read_text(encoding="utf-8")

    def approve(self, **spec: Any) -> None:
        """Writes the approval of the plan that the status proposes; `spec` replaces fields."""
        turns, _ = self.settle()
        last = turns[-1]
        given = {
            "poolRef": {"name": last.pool.name, "uid": last.pool.uid},
            "capability": "Disaggregation",
            "planHash": last.decision.status.capabilities[0].plan_hash,
            "approver": "someone@example.com",
            "acceptInconclusive": ["ReducedCapacity"],
            "expiresAt": f"{self.sweeps.clock() + timedelta(days=1):%Y-%m-%dT%H:%M:%SZ}",
        } | spec
        document = {
            "apiVersion": "kvgate.dev/v1alpha1",
            "kind": "GateApproval",
            "metadata": {"name": "split", "namespace": "serving", "creationTimestamp": self.sweeps.clock().isoformat()},
            "spec": given,
        }
        (self.folder / "approval.yaml").write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")

    def ask_to_measure(self, when: str) -> None:
        edit(self.folder / "pool.yaml", {"metadata|annotations": {"kvgate.dev/measure-requested-at": when}})


def yard(folder: Path, bytes_per_second: float | None) -> Yard:
    return Yard(lay_out(folder), Sweeps(bytes_per_second))


def opened(folder: Path) -> Yard:
    """A pool on a fast path, approved, whose deployment was patched."""
    made = yard(folder, FAST)
    made.approve()
    assert made.split().enabled
    return made


def condition(status: PoolStatus, name: str) -> tuple[str, str]:
    """Its status and reason; ("", "") where it is absent."""
    return next(((c.status.value, c.reason) for c in status.conditions if c.type == name), ("", ""))


def times(folder: Path) -> dict[Path, tuple[int, int]]:
    """When each file was last written, and which inode it is: a file replaced by its equal shows."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != "lock"]
    return {path: (path.stat().st_mtime_ns, path.stat().st_ino) for path in files}


def kvgate(*arguments: str | Path) -> int:
    """The command in this process: its exit code."""
    return main([str(argument) for argument in arguments])
