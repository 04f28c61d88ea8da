"""A change of a v1alpha1 deployment as a JSON patch, which tests what was read: a list of variables is one field there.

Server-side apply would own that list whole and drop what others put into it.
"""

from __future__ import annotations

from collections.abc import Mapping

from kvgate.dynamo.document import Document, at, mapping, shown, text
from kvgate.dynamo.patch import ApplyProblem, ApplyReason
from kvgate.dynamo.steps import Change, EnvRef, Step
from kvgate.dynamo.words import KIND, V1ALPHA1

Operation = dict[str, object]
_OUTER, _INNER = ("envs",), ("extraPodSpec", "mainContainer", "env")
_Place = tuple[str, ...]


def json_patch(document: Document, change: Change) -> tuple[Operation, ...] | ApplyProblem:
    """The patch of the object as it was read, by uid and resourceVersion; empty where nothing is left to write."""
    lists = list_operations(document, change)
    if isinstance(lists, ApplyProblem) or not lists:
        return lists
    identity = [_test(f"/metadata/{key}", at(document, "metadata", key)) for key in ("uid", "resourceVersion")]
    return (*identity, *lists)


def list_operations(document: Document, change: Change) -> tuple[Operation, ...] | ApplyProblem:
    """What becomes of each list of variables, after a test that it is as it was read. No service is ever added."""
    if document.get("kind") != KIND or document.get("apiVersion") != V1ALPHA1:
        return ApplyProblem(ApplyReason.NOT_THE_TARGET, f"The document is no {V1ALPHA1} {KIND}")
    after: dict[_Place, list[object]] = {}
    refs: tuple[Step | EnvRef, ...] = (*change.writes, *change.releases)
    for ref in refs:
        place = _place(document, ref)
        if isinstance(place, ApplyProblem):
            return place
        entries = after.get(place, at(document, *place) or [])
        edited = _edited(entries, ref)
        if isinstance(edited, ApplyProblem):
            return edited
        after[place] = edited
    return tuple(one for place, entries in after.items() for one in _operations(document, place, entries))


def _place(document: Document, ref: Step | EnvRef) -> _Place | ApplyProblem:
    """Where the entry stands, or is to stand: the container's own list hides the service's."""
    service = at(document, "spec", "services", ref.component)
    if not isinstance(service, Mapping):
        message = f"There is no service {shown(ref.component)}; it is never added"
        return ApplyProblem(ApplyReason.COMPONENT_MISSING, message)
    inner = at(service, *_INNER)
    named = isinstance(inner, list) and any(text(mapping(entry).get("name")) == ref.env for entry in inner)
    return ("spec", "services", ref.component, *(_INNER if named else _OUTER))


def _edited(entries: object, ref: Step | EnvRef) -> list[object] | ApplyProblem:
    if not isinstance(entries, list):
        return _not_plain(ref, "its list of variables is none")
    found = [index for index, entry in enumerate(entries) if mapping(entry).get("name") == ref.env]
    if isinstance(ref, EnvRef):
        return [entry for index, entry in enumerate(entries) if index not in found]
    if not found:
        return [*entries, {"name": ref.env, "value": ref.to}]
    held = mapping(entries[found[0]])
    if len(found) > 1 or "valueFrom" in held:
        return _not_plain(ref, "it stands twice or takes its value from elsewhere")
    return [*entries[: found[0]], {**held, "value": ref.to}, *entries[found[0] + 1 :]]


def _operations(document: Document, place: _Place, after: list[object]) -> tuple[Operation, ...]:
    before, path = at(document, *place), "".join(f"/{_escaped(key)}" for key in place)
    if after == (before or []):
        return ()
    if before is None:
        return ({"op": "add", "path": path, "value": after},)
    change: Operation = {"op": "replace", "path": path, "value": after} if after else {"op": "remove", "path": path}
    return (_test(path, before), change)


def _test(path: str, value: object) -> Operation:
    return {"op": "test", "path": path, "value": value}


def _escaped(key: str) -> str:
    """RFC 6901."""
    return key.replace("~", "~0").replace("/", "~1")


def _not_plain(ref: Step | EnvRef, why: str) -> ApplyProblem:
    return ApplyProblem(ApplyReason.ENTRY_NOT_PLAIN, f"{ref.env} of {shown(ref.component)} can't be set: {why}")
