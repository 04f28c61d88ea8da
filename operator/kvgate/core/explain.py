"""What a verdict rests on, for people: every finding and every path. Nothing here decides anything."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from kvgate.api.words import Capability
from kvgate.core.evidence import FailureKind, Path
from kvgate.core.findings import Finding
from kvgate.core.judging import Case
from kvgate.core.latency import Latency, latency_of
from kvgate.core.verdicts import gated, judge
from kvgate.core.world import Pool, World

NOT_TOLD = Latency()


@dataclass(frozen=True)
class PathLine:
    """One path in use: bytes per second per layer, or why there is no number."""

    path: Path
    link: float | None
    endpoint: float | None
    failure: FailureKind | None
    message: str
    notes: tuple[str, ...]
    latency: Latency = NOT_TOLD


@dataclass(frozen=True)
class Explanation:
    """The findings of each gated capability, and the paths in use."""

    findings: tuple[tuple[Capability, Finding], ...]
    paths: tuple[PathLine, ...]


def explain(pool: Pool, world: World, now: datetime) -> Explanation:
    case = Case(pool, world, world.evidence[0] if world.evidence else None, now)
    findings = tuple((c, finding) for c in gated(case) for finding in judge(case, c).findings)
    return Explanation(findings, tuple(_lines(case)))


def _lines(case: Case) -> list[PathLine]:
    samples = case.standing.evidence.samples if case.standing else ()
    failed = {sample.path: sample.failure for sample in samples if sample.failure is not None}
    notes: dict[Path, dict[str, None]] = {}
    for sample in samples:
        notes.setdefault(sample.path, {}).update(dict.fromkeys(sample.notes))
    lines = []
    for rates in case.fabric.paths:
        failure = failed.get(rates.path) if rates.bytes_per_second is None else None
        kind, message = (failure.kind, failure.message) if failure else (None, "")
        said = tuple(notes.get(rates.path, ()))
        line = PathLine(rates.path, rates.link, rates.endpoint, kind, message, said, latency_of(rates.samples))
        lines.append(line)
    return lines
