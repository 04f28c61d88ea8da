"""`kvgate lint`: what the API server would say to these files, line by line."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from kvgate.api.crds import KINDS
from kvgate.api.validate import is_ours, validate
from kvgate.app.pipelines import Check, Level
from kvgate.dynamo.document import at, text
from kvgate.edge.files import read_sources
from kvgate.edge.objects import Problem, Source, opened
from kvgate.edge.yamlplaces import Named, Places

REFUSED, UNREADABLE, ACCEPTED = "Refused", "Unreadable", "Accepted"
_OUR_KINDS = tuple(kind.kind for kind in KINDS)


@dataclass(frozen=True)
class Linted:
    """Everything that was found, one line each, and as checks: one for each complaint, and for what has none."""

    lines: tuple[str, ...]
    checks: tuple[Check, ...]


def lint_files(files: Iterable[Path]) -> Linted:
    """The complaints about our kinds in these files; documents of other groups are passed over."""
    read = read_sources(files)
    ours = [item for source in read.sources for item in opened(source) if _is_meant_for_us(item)]
    complaints = [f"{item.where}: {complaint}" for item in ours for complaint in validate(item.body)]
    places = Places()
    checks = [check for item in ours for check in _checks(item, places)]
    return Linted(
        (*(str(problem) for problem in read.problems), *complaints), (*map(_unreadable, read.problems), *checks)
    )


def _is_meant_for_us(item: Source) -> bool:
    """Of our group, or of one of our kinds and of no group at all: its apiVersion was forgotten."""
    return is_ours(item.body) or ("apiVersion" not in item.body and item.body.get("kind") in _OUR_KINDS)


def _checks(item: Source, places: Places) -> list[Check]:
    """One per complaint, or one that passes."""
    named = Named(*(text(found) for found in (item.body.get("kind"), *_metadata(item))))
    subject = f"{named.kind} {'/'.join(filter(None, (named.namespace, named.name)))}".strip()

    def check(level: Level, rule: str, field: str, message: str) -> Check:
        line = places.line(item.path, named, field)
        return Check(subject, field or "document", level, rule, message, item.path.as_posix(), line)

    found = [check(Level.ERROR, REFUSED, complaint.path, str(complaint)) for complaint in validate(item.body)]
    return found or [check(Level.PASS, ACCEPTED, "", "")]


def _metadata(item: Source) -> tuple[object, object]:
    return at(item.body, "metadata", "name"), at(item.body, "metadata", "namespace")


def _unreadable(problem: Problem) -> Check:
    file = Path(problem.where.partition(", document ")[0]).as_posix()
    return Check(file, "file", Level.ERROR, UNREADABLE, problem.message, file, 1, broken=True)
