"""FabricReports: evidence as immutable shards and an index, and back again, with every digest checked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import datetime, timedelta
from typing import Any

from kvgate.api.objects import FabricReport
from kvgate.api.report import PoolRef, ReportSpec, ShardRef
from kvgate.api.words import Memory, Phase
from kvgate.core.digests import digest
from kvgate.core.evidence import Evidence, Failure, FailureKind, Layer, NodeIdentity, Path, Sample, Uplink
from kvgate.core.judging import CLOCK_TOLERANCE
from kvgate.probe.columns import column_out, paths_in, paths_out, rows_in
from kvgate.probe.indexes import BadReport, Body, Reader, Rows, beyond_newest, check_moment, report_name
from kvgate.probe.shards import ENCODING

FEWEST_KEPT = 2
"""A failed sweep is confirmed by the one before it, so two are always kept."""

MOST_KEPT = 100
"""What reports.keep may ask for, and also the most that sweeps of parts may need."""

_SAMPLES_PER_SHARD = 8_000
_PATHS_PER_SHARD = 100_000
_PATHS_IN_FRAME = 20_000
"""More planned paths than this fill shards of their own."""


@dataclass(frozen=True)
class NamedSpec:
    """A report yet to be stored."""

    name: str
    spec: ReportSpec


def to_reports(evidence: Evidence, pool_name: str) -> tuple[NamedSpec, ...]:
    """Shards first, the index last: an index names only what was written before it."""
    pool = PoolRef(name=pool_name, uid=evidence.pool_uid)
    base = report_name(pool_name, evidence.run_id)
    shards = tuple(
        NamedSpec(f"{base}-{number}", _shard(evidence, pool, number, data))
        for number, data in enumerate(_packed(evidence))
    )
    refs = tuple(ShardRef(name=shard.name, sha256=shard.spec.sha256 or "") for shard in shards)
    measured = {sample.path for sample in evidence.samples if sample.bytes_per_second is not None}
    index = ReportSpec(
        run_id=evidence.run_id,
        pool_ref=pool,
        shards=refs,
        measured_at=evidence.measured_at,
        paths=len(evidence.planned),
        in_use=evidence.in_use,
        measured=len(measured),
    )
    return (*shards, NamedSpec(base, index))


def _packed(evidence: Evidence) -> Iterator[str]:
    """The text of each shard: the frame and the samples, then planned paths that are too many for the frame."""
    many = len(evidence.planned) > _PATHS_IN_FRAME
    frame = _frame_out(evidence) | ({} if many else {"planned": paths_out(evidence.planned)})
    yield from Rows("samples", _samples_out, _SAMPLES_PER_SHARD).packed(evidence.samples, frame)
    if many:
        yield from Rows("planned", paths_out, _PATHS_PER_SHARD).packed(evidence.planned, {})


def _shard(evidence: Evidence, pool: PoolRef, number: int, data: str) -> ReportSpec:
    return ReportSpec(
        run_id=evidence.run_id, pool_ref=pool, index=number, encoding=ENCODING, data=data, sha256=digest(data)
    )


def _frame_out(evidence: Evidence) -> dict[str, Any]:
    return {
        "nodes": [asdict(node) for node in evidence.nodes],
        "uplinks": [asdict(uplink) for uplink in evidence.uplinks],
        "problems": list(evidence.problems),
        "measured_at": evidence.measured_at.isoformat(),
        "image": evidence.image,
        "tools": list(evidence.tools),
        "copied": list(evidence.copied),
    }


def _samples_out(samples: Sequence[Sample]) -> dict[str, Any]:
    if not samples:
        return paths_out(()) | {"columns": {}}
    columns = {name: column_out([_plain(getattr(s, name)) for s in samples]) for name in _COLUMNS}
    return paths_out([sample.path for sample in samples]) | {"columns": columns}


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return value.isoformat()
    return asdict(value) if isinstance(value, Failure) else value


def superseded(
    own: Sequence[FabricReport], keep: int, ttl: timedelta = timedelta(0), stored_at: datetime | None = None
) -> tuple[FabricReport, ...]:
    """Sweeps beyond the newest `keep`, or FEWEST_KEPT where that is more, and shards that no kept index names. An older
    one goes no sooner than its TTL is over while newer ones measured only a part of the paths.

    `stored_at` is when the sweep ended that was stored last: one that says it ended after it has a wrong date, by which
    it would stay the newest, and goes too.
    """
    wrong = tuple(report for report in own if stored_at is not None and _ended_after(report, stored_at))
    dated = [report for report in own if report not in wrong]
    kept = max(FEWEST_KEPT, keep, min(MOST_KEPT, _still_needed(dated, ttl)))
    return (*wrong, *beyond_newest(dated, kept))


def _ended_after(report: FabricReport, stored_at: datetime) -> bool:
    ended = report.spec.measured_at if report.spec.shards else None
    return ended is not None and ended - stored_at > CLOCK_TOLERANCE


def _still_needed(own: Sequence[FabricReport], ttl: timedelta) -> int:
    """How many of the newest sweeps it takes to have measured every path, as far as they are alive."""
    told = ((r.spec.measured_at, r.spec) for r in own if r.spec.shards and r.spec.measured_at)
    ended = sorted(told, key=lambda entry: (entry[0], entry[1].run_id), reverse=True)
    for count, (measured_at, spec) in enumerate(ended):
        if ended[0][0] - measured_at >= ttl:
            return count
        if spec.in_use is None or (spec.paths or 0) >= spec.in_use:
            return count + 1
    return len(ended)


def read_reports(reports: Iterable[FabricReport], pool_uid: str) -> tuple[tuple[Evidence, ...], tuple[BadReport, ...]]:
    """The evidence of every index of this pool, newest first, and what could not be read. Never raises."""
    specs = {report.metadata.name: report.spec for report in reports}
    return Reader("report", "evidence", _read).all(specs, pool_uid)


def _read(name: str, index: ReportSpec, measured_at: datetime, bodies: list[dict[str, Any]]) -> Evidence:
    frame = bodies[0]
    check_moment(_moment(frame["measured_at"]), measured_at)
    return Evidence(
        run_id=index.run_id,
        pool_uid=index.pool_ref.uid,
        planned=tuple(path for body in bodies for path in _planned_in(body)),
        samples=tuple(_sample_in(path, row) for body in bodies for path, row in _samples_in(body)),
        measured_at=measured_at,
        nodes=tuple(_node_in(node) for node in frame["nodes"]),
        uplinks=tuple(Uplink(**uplink) for uplink in frame["uplinks"]),
        report=name,
        problems=tuple(str(problem) for problem in frame["problems"]),
        image=_text(frame.get("image", "")),
        tools=tuple(_text(tool) for tool in frame.get("tools", ())),
        copied=tuple(_text(one) for one in frame.get("copied", ())),
        in_use=index.in_use,
    )


def _planned_in(body: Body) -> list[Path]:
    """As columns, or as the pairs of names that earlier versions wrote."""
    planned = body.get("planned", [])
    if isinstance(planned, dict):
        return paths_in(planned)
    return [Path(_text(source), _text(destination)) for source, destination in planned]


def _samples_in(body: Body) -> Iterator[tuple[Path, dict[str, Any]]]:
    """As columns, or as the rows that earlier versions wrote."""
    held = body.get("samples", [])
    if isinstance(held, dict):
        paths = paths_in(held)
        yield from zip(paths, rows_in(held["columns"], len(paths)), strict=True)
        return
    for row in held:
        yield Path(_text(row["path"]["source"]), _text(row["path"]["destination"])), row


def _node_in(row: dict[str, Any]) -> NodeIdentity:
    _number(row.get("mtu"))
    _text(row.get("image", ""))
    labels = tuple((_text(key), _text(value)) for key, value in row.get("labels", ()))
    return NodeIdentity(**row | {"labels": labels})


_COLUMNS = tuple(entry.name for entry in fields(Sample) if entry.name != "path")
_TEXTS = ("run_id", "tool", "operation", "transport", "interface")
_NUMBERS = (
    "streams", "bytes_moved", "seconds", "retransmits", "host_cpu_percent", "remote_cpu_percent", "interface_bytes",
    "serving_bytes_per_second",
)  # fmt: skip


_LATER_NUMBERS = (
    "bytes_sent", "slot", "line_rate_bytes_per_second", "mtu", "segment_bytes", "ip_version", "round_trip_seconds",
    "set_up_seconds", "loaded_round_trip_seconds", "paced_bytes_per_second", "piece_bytes",
)  # fmt: skip
_LATER_TEXTS = ("congestion", "starved", "tool_version")
"""What reports of earlier versions lack."""


def _sample_in(path: Path, row: dict[str, Any]) -> Sample:
    for name in _TEXTS:
        _text(row[name])
    for name in _NUMBERS:
        _number(row[name])
    for name in _LATER_NUMBERS:
        _number(row.get(name))
    for name in _LATER_TEXTS:
        _text(row.get(name, ""))
    failure = row["failure"]
    return Sample(
        **row
        | {
            "path": path,
            "layer": Layer(row["layer"]),
            "memory": Memory(row["memory"]),
            "phase": Phase(row["phase"]),
            "measured_at": _moment(row["measured_at"]),
            "failure": None if failure is None else Failure(FailureKind(failure["kind"]), _text(failure["message"])),
            "notes": tuple(_text(note) for note in row["notes"]),
            "lanes": tuple(_text(lane) for lane in row.get("lanes", ())),
            "sums_equal": _flag(row.get("sums_equal")),
            "bytes_per_second": _rate(row["bytes_per_second"]),
        }
    )


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("text")
    return value


def _flag(value: object) -> bool | None:
    if value is None or isinstance(value, bool):
        return value
    raise TypeError("flag")


def _number(value: object) -> None:
    """A finite number that is not negative, or none."""
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
        raise ValueError("number")


def _moment(value: object) -> datetime:
    moment = datetime.fromisoformat(_text(value))
    if moment.tzinfo is None:
        raise ValueError("zone")
    return moment


def _rate(value: object) -> float | None:
    """A rate must be a finite number above zero; NaN in a report is no evidence."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e15:
        raise ValueError("rate")
    return float(value)
