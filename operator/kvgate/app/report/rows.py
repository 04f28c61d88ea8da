"""A report as JSON lines, for who wants all of it, and as CSV, one row per path, for a spreadsheet."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from datetime import datetime

from kvgate.app.report.subject import PathFact, Subject
from kvgate.core.evidence import Failure, Path, Sample

COLUMNS = (
    "namespace", "pool", "run", "from", "to", "reach", "bytesPerSecond", "linkBytesPerSecond", "endpointBytesPerSecond",
    "stratum", "measuredAt", "failure", "message",
)  # fmt: skip
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def json_lines(subjects: Iterable[Subject]) -> str:
    """Per pool a line of kind Evidence, one of kind Path per path, and one of kind Sample per test."""
    lines = (json.dumps(line, allow_nan=False) for subject in subjects for line in _lines(subject))
    return "".join(f"{line}\n" for line in lines)


def comma_separated(subjects: Iterable[Subject]) -> str:
    """RFC 4180 with a head; an apostrophe stands before what a spreadsheet would take for a formula."""
    out = io.StringIO(newline="")
    writer = csv.writer(out)
    writer.writerow(COLUMNS)
    for subject in subjects:
        for fact in subject.facts:
            row = _path(subject, fact)
            writer.writerow([_harmless(row[name]) for name in COLUMNS])
    return out.getvalue()


def _harmless(value: object) -> object:
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


def _lines(subject: Subject) -> Iterator[dict[str, object]]:
    evidence = subject.evidence
    yield {
        "kind": "Evidence",
        "namespace": subject.namespace,
        "pool": subject.name,
        "run": evidence.run_id,
        "report": evidence.report,
        "measuredAt": evidence.measured_at.isoformat(),
        "image": evidence.image,
        "tools": list(evidence.tools),
        "paths": len(subject.facts),
        "judgedPercentile": subject.percent,
        "judgedBytesPerSecond": subject.judged_bytes_per_second,
        "required": [{"by": line.by, "bytesPerSecond": line.bytes_per_second} for line in subject.required],
        "nodes": [_plain(node) for node in evidence.nodes],
        "notes": list(subject.notes),
    }
    for fact in subject.facts:
        yield {"kind": "Path"} | _path(subject, fact)
    for sample in evidence.samples:
        yield {"kind": "Sample", "namespace": subject.namespace, "pool": subject.name} | _sample(sample)


def _path(subject: Subject, fact: PathFact) -> dict[str, object]:
    measured_at = fact.measured_at.isoformat() if fact.measured_at else None
    values: Sequence[object] = (
        subject.namespace, subject.name, subject.evidence.run_id, fact.path.source, fact.path.destination,
        fact.reach.value, fact.bytes_per_second, fact.link, fact.endpoint, fact.stratum, measured_at, fact.failure,
        fact.message,
    )  # fmt: skip
    return dict(zip(COLUMNS, values, strict=True))


def _sample(sample: Sample) -> dict[str, object]:
    told = {_camel(entry.name): _plain(getattr(sample, entry.name)) for entry in fields(sample)}
    del told["path"]
    return {"run": told.pop("runId"), "from": sample.path.source, "to": sample.path.destination} | told


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Failure):
        return {"kind": value.kind.value, "message": value.message}
    if isinstance(value, tuple) and not isinstance(value, Path):
        return [_plain(one) for one in value]
    if hasattr(value, "__dataclass_fields__"):
        return {_camel(entry.name): _plain(getattr(value, entry.name)) for entry in fields(value)}  # type: ignore[arg-type]
    return value


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
