"""What the API server makes of a document before it judges it: unknown fields named and pruned, defaults filled in."""

from __future__ import annotations

import copy
import difflib
from collections.abc import Iterator, Mapping

from kvgate.api.complaints import Complaint, child
from kvgate.api.schema import JSON

_EXACT = 2**53  # beyond it, the API server takes no float for an integer
_OPAQUE = "x-kubernetes-preserve-unknown-fields"


def prepared(value: object, schema: JSON) -> object:
    """The value as stored: nulls and unknown fields dropped, defaults filled in, 4.0 read as 4 where integers go."""
    kind = schema.get("type")
    if kind == "object" and isinstance(value, Mapping):
        return _prepared_object(value, schema)
    if kind == "array" and isinstance(value, list | tuple):
        return [prepared(item, schema["items"]) for item in value]
    if kind == "integer" and isinstance(value, float) and value.is_integer() and abs(value) < _EXACT:
        return int(value)
    return value


def _prepared_object(value: Mapping[object, object], schema: JSON) -> dict[str, object]:
    if "additionalProperties" in schema:
        inner = schema["additionalProperties"]
        return {str(key): prepared(item, inner) for key, item in value.items() if item is not None}
    out: dict[str, object] = {}
    for name, declared in schema.get("properties", {}).items():
        given = value.get(name)
        if given is None and "default" in declared:
            given = copy.deepcopy(declared["default"])
        if given is not None:
            out[name] = prepared(given, declared)
    return out


def unknown_fields(value: object, schema: JSON, path: str, root: JSON) -> Iterator[Complaint]:
    """Each field that the schema does not declare, in the words of `kubectl --validate=strict`, with a hint."""
    if isinstance(value, list | tuple) and "items" in schema:
        for index, item in enumerate(value):
            yield from unknown_fields(item, schema["items"], f"{path}[{index}]", root)
    if not isinstance(value, Mapping) or schema.get(_OPAQUE) or schema["type"] != "object":
        return
    if "additionalProperties" in schema:
        for name, item in value.items():
            yield from unknown_fields(item, schema["additionalProperties"], child(path, name), root)
        return
    declared = schema.get("properties", {})
    for name, item in value.items():
        if name in declared:
            yield from unknown_fields(item, declared[name], child(path, name), root)
        else:
            where = child(path, name)
            yield Complaint(where, f'unknown field "{where}"{_hint(str(name), path, declared, root)}')


def _hint(name: str, path: str, siblings: JSON, root: JSON) -> str:
    near = _near(name[:80], siblings)
    if near:
        return f"; did you mean {child(path, near)}?"
    part = path.partition(".")[0]
    elsewhere = [found for found in _paths(root, "") if found.startswith(f"{part}.") and found.endswith(f".{name}")]
    return f"; did you mean {elsewhere[0]}?" if elsewhere else ""


def _near(name: str, siblings: JSON) -> str | None:
    by_lower = {known.lower(): known for known in siblings}
    found = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.75)
    return by_lower[found[0]] if found else None


def _paths(schema: JSON, path: str) -> Iterator[str]:
    for name, declared in schema.get("properties", {}).items():
        yield child(path, name)
        yield from _paths(declared, child(path, name))
