"""Files and directories of manifests, as documents with the time at which their file was written."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from kvgate.edge.errors import EdgeError
from kvgate.edge.jsonfiles import read_json
from kvgate.edge.objects import Objects, Problem, Source, sorted_by_kind
from kvgate.edge.yamlfiles import Document, FileProblem, read_documents, read_tree


@dataclass(frozen=True)
class Read:
    """What could be read, and what could not."""

    sources: tuple[Source, ...]
    problems: tuple[Problem, ...]


def read_sources(files: Iterable[Path]) -> Read:
    """Every document of these files, each file once."""
    sources: list[Source] = []
    problems: list[Problem] = []
    for path in dict.fromkeys(files):
        found = read_documents(path)
        if isinstance(found, FileProblem):
            problems.append(_problem(found))
        else:
            sources += [_source(document) for document in found]
    return Read(tuple(sources), tuple(problems))


def read_saved(files: Iterable[Path]) -> Read:
    """As `read_sources`; and a file that holds JSON, as `kubectl get -o json` prints it, may be as large as the
    evidence of a million paths."""
    sources: list[Source] = []
    problems: list[Problem] = []
    for path in dict.fromkeys(files):
        found = read_json(path)
        if isinstance(found, FileProblem):
            problems.append(_problem(found))
        elif found is not None:
            sources.append(_source(found))
        else:
            read = read_sources((path,))
            sources += read.sources
            problems += read.problems
    return Read(tuple(sources), tuple(problems))


def read_directory(folder: Path) -> Read:
    """Every document of the YAML files right in a directory."""
    tree = read_tree(folder)
    return Read(tuple(_source(document) for document in tree.documents), tuple(_problem(p) for p in tree.problems))


def objects_of(read: Read) -> Objects:
    """The objects of what was read. Raises EdgeError with the first thing that cannot be used, and how many more."""
    objects = sorted_by_kind(read.sources)
    problems = (*read.problems, *objects.problems)
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise EdgeError(f"{problems[0]}{more}")
    return objects


def _source(document: Document) -> Source:
    written = document.path.stat().st_mtime
    return Source(document.path, document.index, document.body, datetime.fromtimestamp(written, UTC))


def _problem(found: FileProblem) -> Problem:
    return Problem(str(found.path), found.message.removeprefix(f"{found.path} "))
