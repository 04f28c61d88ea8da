"""What both kinds of report are: an index that names immutable shards, newest first, and what newer ones supersede."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar

from kvgate.api.benchmark import BenchmarkReportSpec
from kvgate.api.objects import BenchmarkReport, FabricReport
from kvgate.api.report import ReportSpec
from kvgate.core.ab.evidence import BenchmarkEvidence
from kvgate.core.evidence import Evidence
from kvgate.probe.shards import SHARD_CHARACTERS, SpoiltError, packed, unpacked

Body = dict[str, Any]
Row = TypeVar("Row")
Report = TypeVar("Report", bound=FabricReport | BenchmarkReport)
Spec = TypeVar("Spec", ReportSpec, BenchmarkReportSpec)
Read = TypeVar("Read", Evidence, BenchmarkEvidence)
_SAME_MOMENT = timedelta(seconds=1)
_STEM = 220
"""Of a pool's name, in those of its reports: they end in the run and a shard's number, and hold 253 characters."""


def report_name(pool: str, run_id: str) -> str:
    """The name of a run's index; its shards' begin with it. The run's ID alone tells two pools' reports apart."""
    return f"{pool[:_STEM].rstrip('-.')}-{run_id}"


@dataclass(frozen=True)
class BadReport:
    """Evidence that cannot be read, and why."""

    report: str
    message: str
    measured_at: datetime | None = None


@dataclass(frozen=True)
class Rows(Generic[Row]):
    """How rows are written into shards: under which key, how those of a shard, and how many are tried together."""

    key: str
    out: Callable[[Sequence[Row]], object]
    per_shard: int

    def packed(self, rows: Sequence[Row], frame: Body) -> Iterator[str]:
        """The text of each shard; the frame stands in the first. Raises ValueError for a single row, or a frame, that
        is larger than SHARD_CHARACTERS: nothing that a pool may ask for makes one."""
        for start in range(0, max(1, len(rows)), self.per_shard):
            yield from self._fitting(rows[start : start + self.per_shard], frame if start == 0 else {})

    def _fitting(self, rows: Sequence[Row], frame: Body) -> tuple[str, ...]:
        data = packed(frame | {self.key: self.out(rows)})
        if len(data) <= SHARD_CHARACTERS:
            return (data,)
        if len(rows) + bool(frame) < 2:
            raise ValueError(f"one of the {self.key} is larger than a shard")
        half = len(rows) // 2
        return (*self._fitting(rows[:half], frame), *self._fitting(rows[half:], {}))


@dataclass(frozen=True)
class Reader(Generic[Spec, Read]):
    """How one kind of report is read: what messages call it and what it holds, and who reads its shards' bodies."""

    noun: str
    holds: str
    read: Callable[[str, Spec, datetime, list[Body]], Read]

    def all(self, specs: Mapping[str, Spec], pool_uid: str) -> tuple[tuple[Read, ...], tuple[BadReport, ...]]:
        """What every index of this pool holds, newest first, and what could not be read. Never raises.

        Shards that no index names are ignored; a missing, altered or foreign shard spoils its whole index.
        """
        indexes = [(name, spec) for name, spec in specs.items() if spec.shards and spec.pool_ref.uid == pool_uid]
        good, bad = list[Read](), list[BadReport]()
        for name, index in indexes:
            found = self._one(name, index, specs)
            if isinstance(found, BadReport):
                bad.append(found)
            else:
                good.append(found)
        return tuple(sorted(good, key=lambda e: (e.measured_at, e.run_id), reverse=True)), tuple(bad)

    def _one(self, name: str, index: Spec, specs: Mapping[str, Spec]) -> Read | BadReport:
        where = f"{self.noun} {name}"
        if index.measured_at is None:
            return BadReport(name, f"{where}: the index has no measuredAt")
        try:
            return self.read(name, index, index.measured_at, [unpacked(ref, index, specs) for ref in index.shards])
        except SpoiltError as error:
            return BadReport(name, f"{where}: {error}", index.measured_at)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            what = f"{where}: its data is no {self.holds} ({type(error).__name__})"
            return BadReport(name, what, index.measured_at)


def check_moment(told: datetime, measured_at: datetime) -> None:
    """Raises SpoiltError where the index has another `measuredAt` than its shards."""
    if abs(told - measured_at) >= _SAME_MOMENT:
        raise SpoiltError("its measuredAt was altered: it is not the one in its shards")


def beyond_newest(own: Sequence[Report], keep: int) -> tuple[Report, ...]:
    """Indexes beyond the newest `keep`, index first, and shards that no kept index names."""
    ended = [(r.spec.measured_at, r.spec.run_id, r) for r in own if r.spec.shards and r.spec.measured_at]
    indexes = [entry[2] for entry in sorted(ended, key=lambda entry: entry[:2], reverse=True)]
    named = {shard.name for index in indexes[:keep] for shard in index.spec.shards}
    loose = [r for r in own if not r.spec.shards and r.metadata.name not in named]
    return (*indexes[keep:], *loose)
