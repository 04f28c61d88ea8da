"""`kvgate lint`: what the API server would say to these files, line by line."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from kvgate.api.validate import is_ours, validate
from kvgate.edge.files import read_sources
from kvgate.edge.objects import Source, opened


@dataclass(frozen=True)
class Linted:
    """Everything that was found, one line each."""

    lines: tuple[str, ...]


def lint_files(files: Iterable[Path]) -> Linted:
    """The complaints about our kinds in these files; documents of other groups are passed over."""
    read = read_sources(files)
    items = [item for source in read.sources for item in opened(source)]
    complaints = [line for item in items for line in _lines(item)]
    return Linted((*(str(problem) for problem in read.problems), *complaints))


def _lines(source: Source) -> list[str]:
    return [f"{source.where}: {complaint}" for complaint in validate(source.body)] if is_ours(source.body) else []
