"""BenchmarkReports: an A/B as immutable shards and an index, and back again, with every digest checked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from kvgate.api.benchmark import ArmResult, BenchmarkReportSpec, FamilyResult, FaultCount, WorkerCount
from kvgate.api.objects import BenchmarkReport
from kvgate.api.report import PoolRef, ShardRef
from kvgate.core.ab import summary
from kvgate.core.ab.evidence import BenchmarkEvidence
from kvgate.core.ab.experiment import Run
from kvgate.core.ab.gain import gain
from kvgate.core.ab.judgement import countable
from kvgate.probe import benchmark_rows as rows
from kvgate.probe.reports import BadReport
from kvgate.probe.shards import ENCODING, SHARD_CHARACTERS, SpoiltError, digest, packed, unpacked

MOST_FAMILIES = 32
_RUNS_PER_SHARD = 16
_SAME_MOMENT = timedelta(seconds=1)
_LEAST_PERCENT = -1e9


@dataclass(frozen=True)
class NamedBenchmark:
    """A report yet to be stored."""

    name: str
    spec: BenchmarkReportSpec


def to_benchmark_reports(evidence: BenchmarkEvidence, pool_name: str) -> tuple[NamedBenchmark, ...]:
    """Shards first, the index last: an index names only what was written before it."""
    pool = PoolRef(name=pool_name, uid=evidence.pool_uid)
    base = f"{pool_name}-{evidence.run_id}"
    shards = tuple(
        NamedBenchmark(f"{base}-{number}", _shard(evidence.run_id, pool, number, data))
        for number, data in enumerate(_packed(evidence))
    )
    refs = tuple(ShardRef(name=shard.name, sha256=shard.spec.sha256 or "") for shard in shards)
    return (*shards, NamedBenchmark(base, _index(evidence, pool, refs)))


def _shard(run_id: str, pool: PoolRef, number: int, data: str) -> BenchmarkReportSpec:
    return BenchmarkReportSpec(
        run_id=run_id, pool_ref=pool, index=number, encoding=ENCODING, data=data, sha256=digest(data)
    )


def _packed(evidence: BenchmarkEvidence) -> Iterator[str]:
    runs = evidence.experiment.runs
    for start in range(0, max(1, len(runs)), _RUNS_PER_SHARD):
        frame = rows.frame_out(evidence) if start == 0 else {}
        yield from _fitting(runs[start : start + _RUNS_PER_SHARD], frame)


def _fitting(runs: Sequence[Run], frame: rows.Body) -> Sequence[str]:
    """One shard, or as many as it takes for each to keep to SHARD_CHARACTERS. Raises ValueError for a single run that
    is larger: nothing that a pool may ask for makes one."""
    data = packed(frame | {"runs": [rows.run_out(run) for run in runs]})
    if len(data) <= SHARD_CHARACTERS:
        return (data,)
    if len(runs) < 2:
        raise ValueError("a run of the A/B is larger than a shard")
    half = len(runs) // 2
    return (*_fitting(runs[:half], frame), *_fitting(runs[half:], {}))


def _index(evidence: BenchmarkEvidence, pool: PoolRef, shards: tuple[ShardRef, ...]) -> BenchmarkReportSpec:
    experiment, kept = evidence.experiment, evidence.provenance
    found = gain(experiment) if countable(experiment) else None
    live = kept.live_requests_per_second
    return BenchmarkReportSpec(
        run_id=evidence.run_id,
        pool_ref=pool,
        shards=shards,
        measured_at=evidence.measured_at,
        workload=experiment.workload.value,
        blocks=experiment.blocks,
        improvement_percent=None if found is None else f"{max(found.improvement * 100, _LEAST_PERCENT):.1f}",
        aborted=experiment.aborted or None,
        arms=tuple(_arm(entry, dict(kept.tokens_per_joule)) for entry in summary.arms(experiment)),
        families=tuple(_family(entry) for entry in summary.families(experiment, MOST_FAMILIES)),
        seed=kept.seed,
        ran_on=kept.ran_on or None,
        requests_per_second=_decimal(kept.requests_per_second),
        live_requests_per_second=None if live is None else _decimal(live),
        versions=tuple(version[:128] for version in kept.versions if version)[:16],
    )


def _arm(entry: summary.ArmSummary, tokens_per_joule: Mapping[str, float]) -> ArmResult:
    power = tokens_per_joule.get(entry.arm.value)
    return ArmResult(
        arm=entry.arm.value,
        requests=entry.requests,
        mean_milliseconds=_milliseconds(entry.mean_seconds),
        p50_milliseconds=_milliseconds(entry.p50_seconds),
        p90_milliseconds=_milliseconds(entry.p90_seconds),
        p99_milliseconds=_milliseconds(entry.p99_seconds),
        inter_token_milliseconds=None if entry.mean_gap_seconds is None else _decimal(entry.mean_gap_seconds * 1000),
        cached_token_ratio=_decimal(entry.cached_ratio),
        errors=tuple(FaultCount(fault=fault.value, requests=count) for fault, count in entry.faults),
        workers=tuple(WorkerCount(worker=name[:128], requests=count) for name, count in entry.workers[:256]),
        tokens_per_joule=None if power is None else _decimal(power),
    )


def _family(entry: summary.FamilySummary) -> FamilyResult:
    return FamilyResult(
        family=entry.family,
        requests=entry.requests,
        cached_token_ratio=_decimal(entry.cached_ratio),
        cached_token_ratio_round_robin=_decimal(entry.cached_ratio_round_robin),
    )


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)


def _decimal(value: float) -> str:
    return f"{value:.3f}"


def read_benchmarks(
    reports: Iterable[BenchmarkReport], pool_uid: str
) -> tuple[tuple[BenchmarkEvidence, ...], tuple[BadReport, ...]]:
    """The A/B of every index of this pool, newest first, and what could not be read. Never raises.

    Shards that no index names are ignored; a missing, altered or foreign shard spoils its whole index.
    """
    by_name = {report.metadata.name: report.spec for report in reports}
    indexes = [(name, spec) for name, spec in by_name.items() if spec.shards and spec.pool_ref.uid == pool_uid]
    read = [_evidence(name, spec, by_name) for name, spec in indexes]
    good = sorted(
        (e for e in read if isinstance(e, BenchmarkEvidence)), key=lambda e: (e.measured_at, e.run_id), reverse=True
    )
    return tuple(good), tuple(entry for entry in read if isinstance(entry, BadReport))


def _evidence(
    name: str, index: BenchmarkReportSpec, by_name: Mapping[str, BenchmarkReportSpec]
) -> BenchmarkEvidence | BadReport:
    if index.measured_at is None:
        return BadReport(name, f"BenchmarkReport {name}: the index has no measuredAt")
    try:
        return _read(name, index, index.measured_at, [unpacked(ref, index, by_name) for ref in index.shards])
    except SpoiltError as error:
        return BadReport(name, f"BenchmarkReport {name}: {error}", index.measured_at)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        what = f"BenchmarkReport {name}: its data is no A/B ({type(error).__name__})"
        return BadReport(name, what, index.measured_at)


def _read(name: str, index: BenchmarkReportSpec, measured_at: datetime, bodies: list[rows.Body]) -> BenchmarkEvidence:
    frame = bodies[0]
    if abs(datetime.fromisoformat(rows.text(frame["measuredAt"])) - measured_at) >= _SAME_MOMENT:
        raise SpoiltError("its measuredAt was altered: it is not the one in its shards")
    return BenchmarkEvidence(
        run_id=index.run_id,
        pool_uid=index.pool_ref.uid,
        measured_at=measured_at,
        subject=rows.subject_in(frame["subject"]),
        experiment=rows.experiment_in(frame, [run for body in bodies for run in body["runs"]]),
        provenance=rows.provenance_in(frame["provenance"]),
        report=name,
    )


def superseded_benchmarks(own: Sequence[BenchmarkReport], keep: int) -> tuple[BenchmarkReport, ...]:
    """A/Bs beyond the newest `keep`, index first, and shards that no kept index names."""
    ended = [(r.spec.measured_at, r.spec.run_id, r) for r in own if r.spec.shards and r.spec.measured_at]
    indexes = [r for *_, r in sorted(ended, key=lambda entry: entry[:2], reverse=True)]
    named = {shard.name for index in indexes[:keep] for shard in index.spec.shards}
    loose = (r for r in own if not r.spec.shards and r.metadata.name not in named)
    return (*indexes[keep:], *loose)
