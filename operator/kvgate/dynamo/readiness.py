"""What a frontend says of a model's readiness: the JSON of `GET /v1/models/{model}/ready`, total over any content."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote

from kvgate.core.serving import NamespaceReadiness, Readiness
from kvgate.dynamo.document import Document, at, mapping, parsed_json, sequence, text, whole

ANSWERED = frozenset({200, 503})


def readiness_path(model: str) -> str:
    """Its slashes stand as they are: the frontend's route takes the rest of the path up to `/ready`."""
    return f"/v1/models/{quote(model)}/ready"


def read_readiness(status: int, body: str) -> Readiness | None:
    """None for what is no readiness: another status, or another document. 200 and 503 carry the same one."""
    document = parsed_json(body) if status in ANSWERED else None
    spaces = None if document is None else document.get("namespaces")
    if document is None or not isinstance(spaces, Mapping):
        return None
    read = tuple(_namespace(str(name), mapping(entry)) for name, entry in sorted(spaces.items(), key=_by_name))
    return Readiness(status == 200 and document.get("ready") is True, read)


def _by_name(entry: tuple[object, object]) -> str:
    return str(entry[0])


def _namespace(name: str, entry: Document) -> NamespaceReadiness:
    types = mapping(entry.get("worker_types"))
    workers = {str(kind): whole(at(detail, "workers")) or 0 for kind, detail in types.items()}
    present = {text(kind): 1 for kind in sequence(entry.get("present")) if text(kind)}
    missing = tuple(sorted(text(kind) for kind in sequence(entry.get("missing_worker_types")) if text(kind)))
    return NamespaceReadiness(name, entry.get("ready") is True, {**present, **workers}, missing)
