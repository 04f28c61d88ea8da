"""BenchmarkReports: an A/B as immutable shards and an index, and back again, with every digest checked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from kvgate.api.benchmark import ArmResult, BenchmarkReportSpec, FamilyResult, FaultCount, WorkerCount
from kvgate.api.objects import BenchmarkReport
from kvgate.api.report import PoolRef, ShardRef
from kvgate.core.ab import summary
from kvgate.core.ab.evidence import BenchmarkEvidence
from kvgate.core.ab.experiment import Run
from kvgate.core.ab.gain import gain
from kvgate.core.ab.judgement import countable
from kvgate.core.digests import digest
from kvgate.probe import benchmark_rows as rows
from kvgate.probe.indexes import BadReport, Body, Reader, Rows, beyond_newest, check_moment, report_name
from kvgate.probe.shards import ENCODING

MOST_FAMILIES = 32
_RUNS_PER_SHARD = 16
_LEAST_PERCENT = -1e9


@dataclass(frozen=True)
class NamedBenchmark:
    """A report yet to be stored."""

    name: str
    spec: BenchmarkReportSpec


def to_benchmark_reports(evidence: BenchmarkEvidence, pool_name: str) -> tuple[NamedBenchmark, ...]:
    """Shards first, the index last: an index names only what was written before it."""
    pool = PoolRef(name=pool_name, uid=evidence.pool_uid)
    base, runs = report_name(pool_name, evidence.run_id), Rows("runs", _runs_out, _RUNS_PER_SHARD)
    shards = tuple(
        NamedBenchmark(f"{base}-{number}", _shard(evidence.run_id, pool, number, data))
        for number, data in enumerate(runs.packed(evidence.experiment.runs, rows.frame_out(evidence)))
    )
    refs = tuple(ShardRef(name=shard.name, sha256=shard.spec.sha256 or "") for shard in shards)
    return (*shards, NamedBenchmark(base, _index(evidence, pool, refs)))


def _runs_out(runs: Sequence[Run]) -> list[Body]:
    return [rows.run_out(run) for run in runs]


def _shard(run_id: str, pool: PoolRef, number: int, data: str) -> BenchmarkReportSpec:
    return BenchmarkReportSpec(
        run_id=run_id, pool_ref=pool, index=number, encoding=ENCODING, data=data, sha256=digest(data)
    )


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
        no_power=kept.no_power or None,
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
    """The A/B of every index of this pool, newest first, and what could not be read. Never raises."""
    specs = {report.metadata.name: report.spec for report in reports}
    return Reader("BenchmarkReport", "A/B", _read).all(specs, pool_uid)


def _read(name: str, index: BenchmarkReportSpec, measured_at: datetime, bodies: list[rows.Body]) -> BenchmarkEvidence:
    frame = bodies[0]
    check_moment(datetime.fromisoformat(rows.text(frame["measuredAt"])), measured_at)
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
    return beyond_newest(own, keep)
