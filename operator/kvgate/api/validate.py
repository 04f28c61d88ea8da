"""The API server's answer to one of our objects, without an API server: what `kvgate lint` says, and the door."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from pydantic import BaseModel, ValidationError

from kvgate.api.complaints import Complaint, place
from kvgate.api.crds import KINDS, Kind, root_schema
from kvgate.api.meta import Meta
from kvgate.api.prepare import prepared, unknown_fields
from kvgate.api.rules import broken_rules
from kvgate.api.schema import JSON, schema_of
from kvgate.api.structure import misshapen
from kvgate.api.wire import API_VERSION, GROUP

_ANNOTATION_BYTES = 256 * 1024
_BY_KIND = {kind.kind: kind for kind in KINDS}


def is_ours(document: object) -> bool:
    """Whether the document says that it is of our API group, in whatever version or kind."""
    return isinstance(document, Mapping) and str(document.get("apiVersion")).partition("/")[0] == GROUP


def validate(document: object, old: object = None) -> tuple[Complaint, ...]:
    """What `kubectl apply --validate=strict` would complain about; empty when it would be accepted.

    `old` is the object as stored, for rules about what must not change. Total over anything that JSON can say.
    """
    _, complaints = faults(document, old=old)
    return (*strangers(document), *complaints)


def strangers(document: object) -> tuple[Complaint, ...]:
    """Fields that no schema of ours knows: misspelt ones, mostly, which the API server would drop or refuse."""
    kind = _kind(document)
    if not isinstance(kind, Kind):
        return ()
    schema = _document_schema(kind)
    return tuple(unknown_fields(document, schema, "", schema))


def faults(document: object, wanted: str | None = None, old: object = None) -> tuple[object, tuple[Complaint, ...]]:
    """The document as it would be stored, and all that is wrong with it but unknown fields, which are dropped."""
    kind = _kind(document, wanted)
    if isinstance(kind, Complaint):
        return {}, (kind,)
    schema = _stored_schema(kind)
    stored = prepared(document, schema)
    shape = tuple(misshapen(stored, schema, ""))
    bad = {complaint.path for complaint in shape}
    broken = tuple(broken_rules(stored, schema, "", bad=bad, old=prepared(old, schema) if old else None))
    complaints = (*shape, *broken)
    return stored, complaints or (*_annotations(stored), *_unreadable(kind, stored))


def _kind(document: object, wanted: str | None = None) -> Kind | Complaint:
    if not isinstance(document, Mapping):
        found = "empty" if document is None else f"a {type(document).__name__}"
        return Complaint("", f"must be one object with apiVersion, kind, metadata and spec, but is {found}")
    if document.get("apiVersion") != API_VERSION:
        return Complaint("apiVersion", f"must be {API_VERSION}{_neighbour(document)}")
    kind = document.get("kind")
    if not isinstance(kind, str) or kind not in ((wanted,) if wanted else _BY_KIND):
        return Complaint("kind", f"must be {wanted or 'one of ' + ', '.join(_BY_KIND)}")
    return _BY_KIND[kind]


def _neighbour(document: Mapping[object, object]) -> str:
    foreign = str(document.get("apiVersion")).startswith("inference.networking")
    return "; the InferencePool of inference.networking.k8s.io is another kind" if foreign else ""


@cache
def _document_schema(kind: Kind) -> JSON:
    """As the API server knows the kind: it looks after metadata itself."""
    schema = root_schema(kind)
    metadata = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return schema | {"properties": schema["properties"] | {"metadata": metadata}}


@cache
def _stored_schema(kind: Kind) -> JSON:
    schema = root_schema(kind)
    return schema | {
        "required": ["metadata", *schema["required"]],
        "properties": schema["properties"] | {"metadata": schema_of(Meta)},
    }


def _annotations(stored: object) -> tuple[Complaint, ...]:
    if not isinstance(stored, Mapping):
        return ()
    annotations = stored["metadata"].get("annotations", {})
    size = sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items())
    if size <= _ANNOTATION_BYTES:
        return ()
    message = f"Too long: may not be more than {_ANNOTATION_BYTES} bytes; they have {size}"
    return (Complaint("metadata.annotations", message),)


def _unreadable(kind: Kind, stored: object) -> tuple[Complaint, ...]:
    """What the schema lets pass but the models do not: a time zone of 99 hours, for one."""
    if not isinstance(stored, Mapping):
        return ()
    models: dict[str, type[BaseModel]] = {"metadata": Meta, "spec": kind.spec}
    if kind.status:
        models["status"] = kind.status
    return tuple(found for part, model in models.items() for found in _unread(model, stored[part], part))


def _unread(model: type[BaseModel], value: object, part: str) -> tuple[Complaint, ...]:
    try:
        model.model_validate(value)
    except ValidationError as error:
        return tuple(Complaint(place(part, fault["loc"]), fault["msg"]) for fault in error.errors())
    return ()
