"""Documents in YAML files: read within limits, and patched in place so that comments and order stay."""

from __future__ import annotations

import json
import os
import stat
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from yaml.nodes import Node

from kvgate.dynamo.document import shown
from kvgate.dynamo.patch import ApplyProblem, apply_to_document
from kvgate.dynamo.steps import Change, EnvRef, Step
from kvgate.dynamo.words import MAIN
from kvgate.edge.yamledit import EnvPlace, NotEditableError, carried_out, place_of, remove_entry, set_value
from kvgate.edge.yamlnodes import YamlRefusedError, compose, construct

MAX_FILE_BYTES = 2_000_000
_BOM = "\ufeff"
PARTIAL = ".kvgate"
"""Ends the name of a file that is being written, to take another's place."""
_SUFFIXES = (".yaml", ".yml")


class FileReason(StrEnum):
    UNREADABLE = "Unreadable"
    TOO_LARGE = "TooLarge"
    NOT_YAML = "NotYAML"
    NOT_A_MAPPING = "NotAMapping"
    DUPLICATE = "Duplicate"
    CHANGED = "Changed"
    NOT_PATCHABLE = "NotPatchable"
    UNWRITABLE = "Unwritable"


@dataclass(frozen=True)
class FileProblem:
    """One line for a person: the file, what is wrong with it, the limit where there is one, what to do."""

    path: Path
    reason: FileReason
    message: str


@dataclass(frozen=True)
class Document:
    """One document of a file; `index` counts all of its documents from 0, empty ones included."""

    path: Path
    index: int
    body: Mapping[str, object]

    @property
    def identity(self) -> tuple[str, str, str, str]:
        """Group, kind, namespace and name."""
        metadata = self.body.get("metadata")
        named = metadata if isinstance(metadata, Mapping) else {}
        group = str(self.body.get("apiVersion", "")).rpartition("/")[0]
        kind, namespace, name = self.body.get("kind", ""), named.get("namespace", ""), named.get("name", "")
        return group, str(kind), str(namespace), str(name)


@dataclass(frozen=True)
class Tree:
    documents: tuple[Document, ...]
    problems: tuple[FileProblem, ...]


@dataclass(frozen=True)
class Patched:
    """The document as it stands now; `written` is False where it already held every value."""

    document: Document
    written: bool


@dataclass(frozen=True)
class _File:
    path: Path
    bom: str
    text: str


def read_documents(path: Path) -> tuple[Document, ...] | FileProblem:
    """Every document of a file that is not empty. Errors: one problem, and then no document of it counts."""
    held = _read(path)
    return held if isinstance(held, FileProblem) else _documents(held)


def read_tree(directory: Path) -> Tree:
    """All YAML files right in a directory, by name; hidden ones are left alone, an object named twice is a problem."""
    documents: list[Document] = []
    problems: list[FileProblem] = []
    try:
        paths = sorted(path for path in directory.iterdir() if path.suffix in _SUFFIXES and path.name[0] != ".")
    except OSError as error:
        return Tree((), (_unreadable(directory, error),))
    for path in paths:
        found = read_documents(path)
        if isinstance(found, FileProblem):
            problems.append(found)
        else:
            documents.extend(found)
    return Tree(tuple(documents), (*problems, *_duplicates(documents)))


def patch_document(document: Document, change: Change) -> Patched | FileProblem:
    """Writes a change into the document's file: only values and entries of the named variables change.

    The file is replaced whole or not at all. Errors: the file changed since `document` was read, can't be
    edited in place (the re-read result would not be what a server-side apply gives), or can't be written.
    """
    held = _read(document.path)
    if isinstance(held, FileProblem):
        return held
    before = _documents(held)
    if isinstance(before, FileProblem):
        return before
    if document not in before:
        return _problem(document.path, FileReason.CHANGED, _why_not_found(document, before))
    wanted = apply_to_document(document.body, change)
    if isinstance(wanted, ApplyProblem):
        return _problem(document.path, FileReason.NOT_PATCHABLE, f"can't be patched: {wanted.message}")
    result = Document(document.path, document.index, wanted)
    if wanted == document.body:
        return Patched(result, written=False)
    after = tuple(result if held.index == document.index else held for held in before)
    return _write(held, _edited(held, document, change), after, result)


def _why_not_found(document: Document, before: tuple[Document, ...]) -> str:
    listed = any(held.index == document.index and str(held.body.get("kind", "")).endswith("List") for held in before)
    if listed:
        return "holds it as an item of a List, which can't be edited in place; give it a document of its own"
    return "has changed since it was read; run again"


def replace_file(path: Path, content: bytes) -> None:
    """Puts new content in a file's place, whole or not at all, with its mode and owner. Errors: OSError."""
    real = path.resolve()
    status = real.stat()
    handle, name = tempfile.mkstemp(prefix=f".{real.name}.", suffix=PARTIAL, dir=real.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            _keep_owner(file.fileno(), status)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(real)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    _sync_directory(real.parent)


def _read(path: Path) -> _File | FileProblem:
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            return _problem(path, FileReason.UNREADABLE, "is no regular file")
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        return _unreadable(path, error)
    if len(content) > MAX_FILE_BYTES:
        size = f"is larger than the limit of {MAX_FILE_BYTES:,} bytes ({max(status.st_size, len(content)):,})"
        return _problem(path, FileReason.TOO_LARGE, f"{size}; split it into several files")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        return _problem(path, FileReason.NOT_YAML, f"is no UTF-8 text (byte {error.start})")
    return _File(path, _BOM if text.startswith(_BOM) else "", text.removeprefix(_BOM))


def _documents(held: _File) -> tuple[Document, ...] | FileProblem:
    try:
        bodies = [(index, construct(root)) for index, root in enumerate(compose(held.text)) if root is not None]
    except YamlRefusedError as refusal:
        return _problem(held.path, FileReason.NOT_YAML, str(refusal))
    found: list[Document] = []
    for index, body in bodies:
        if not isinstance(body, dict):
            kind = "a list" if isinstance(body, list) else "a single value"
            what = f"document {index + 1} is {kind}, not an object with apiVersion and kind"
            return _problem(held.path, FileReason.NOT_A_MAPPING, what)
        found.append(Document(held.path, index, body))
    return tuple(found)


def _edited(held: _File, document: Document, change: Change) -> str | FileProblem:
    try:
        root = compose(held.text)[document.index]
        written = [set_value(_place(held, root, step), step.to) for step in change.writes]
        removed = [remove_entry(_place(held, root, ref)) for ref in change.releases]
    except (YamlRefusedError, NotEditableError) as refusal:
        return _problem(held.path, FileReason.NOT_PATCHABLE, str(refusal))
    return carried_out(held.text, [edit for edit in (*written, *removed) if edit is not None])


def _place(held: _File, root: Node | None, ref: Step | EnvRef) -> EnvPlace:
    return place_of(held.text, root, ref.component, MAIN, ref.env)


def _write(
    held: _File, text: str | FileProblem, wanted: tuple[Document, ...], result: Document
) -> Patched | FileProblem:
    if isinstance(text, FileProblem):
        return text
    again = _documents(_File(held.path, held.bom, text))
    if isinstance(again, FileProblem) or _canonical(again) != _canonical(wanted):
        how = "write the env of each component out, without anchors, aliases or merge keys"
        return _problem(held.path, FileReason.NOT_PATCHABLE, f"can't be edited in place; {how}")
    try:
        replace_file(held.path, (held.bom + text).encode())
    except OSError as error:
        why = error.strerror or "input/output error"
        what = f"can't be written in its directory ({why}); make both writable for this user"
        return _problem(held.path, FileReason.UNWRITABLE, what)
    return Patched(result, written=True)


def _canonical(documents: tuple[Document, ...]) -> str:
    return json.dumps([(held.index, held.body) for held in documents], sort_keys=True)


def _duplicates(documents: list[Document]) -> tuple[FileProblem, ...]:
    first: dict[tuple[str, str, str, str], Document] = {}
    problems: list[FileProblem] = []
    for document in documents:
        known = first.setdefault(document.identity, document)
        if known is not document:
            _, kind, _, name = document.identity
            where = f"document {document.index + 1} is {shown(kind)} {shown(name)} again, already in {known.path.name}"
            problems.append(_problem(document.path, FileReason.DUPLICATE, f"{where}; keep one"))
    return tuple(problems)


def _keep_owner(descriptor: int, status: os.stat_result) -> None:
    os.fchmod(descriptor, stat.S_IMODE(status.st_mode))
    if (status.st_uid, status.st_gid) != (os.geteuid(), os.getegid()) and os.geteuid() == 0:
        os.fchown(descriptor, status.st_uid, status.st_gid)


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _unreadable(path: Path, error: OSError) -> FileProblem:
    return _problem(path, FileReason.UNREADABLE, f"can't be read ({error.strerror or 'input/output error'})")


def _problem(path: Path, reason: FileReason, what: str) -> FileProblem:
    return FileProblem(path, reason, f"{path} {what}")
