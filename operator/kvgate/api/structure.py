"""The checks that a schema itself asks for, in the API server's words: types, bounds, sets, required fields."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date

from kvgate.api.complaints import Complaint, child
from kvgate.api.schema import JSON

_TIME = re.compile(r"([0-9]{2}):([0-9]{2}):([0-9]{2})(\.[0-9]+)?(z|[+-][0-9]{2}:[0-9]{2})")


def misshapen(value: object, schema: JSON, path: str) -> Iterator[Complaint]:
    """Each way in which the value is not of the schema's shape; rules across fields are not looked at."""
    kind = schema["type"]
    if not _IS[kind](value):
        yield Complaint(path, f'must be of type {kind}: "{_type_name(value)}"')
        return
    if "enum" in schema and value not in schema["enum"]:
        allowed = ", ".join(json.dumps(choice) for choice in schema["enum"])
        yield Complaint(path, f"supported values: {allowed}")
    for message in _CHECKS[kind](value, schema):
        yield Complaint(path, message)
    yield from _inside(value, schema, path)


def _inside(value: object, schema: JSON, path: str) -> Iterator[Complaint]:
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from misshapen(item, schema["items"], f"{path}[{index}]")
    elif isinstance(value, Mapping):
        for name in schema.get("required", ()):
            if name not in value:
                yield Complaint(child(path, name), "Required value")
        for name, item in value.items():
            declared = schema.get("properties", {}).get(name, schema.get("additionalProperties"))
            if declared:
                yield from misshapen(item, declared, child(path, name))


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_IS: Mapping[str, Callable[[object], bool]] = {
    "object": lambda value: isinstance(value, Mapping),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "integer": _is_integer,
    "number": _is_number,
}


def _type_name(value: object) -> str:
    if value is None:
        return "null"
    return next(
        (kind for kind in ("boolean", "integer", "number", "string", "array", "object") if _IS[kind](value)), ""
    )


def _number(value: object, schema: JSON) -> Iterator[str]:
    assert isinstance(value, int | float)
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and (value <= low if schema.get("exclusiveMinimum") else value < low):
        yield f"should be greater than {'' if schema.get('exclusiveMinimum') else 'or equal to '}{low}"
    if high is not None and (value >= high if schema.get("exclusiveMaximum") else value > high):
        yield f"should be less than {'' if schema.get('exclusiveMaximum') else 'or equal to '}{high}"


def _string(value: object, schema: JSON) -> Iterator[str]:
    assert isinstance(value, str)
    if len(value) < schema.get("minLength", 0):
        yield f"should be at least {schema['minLength']} chars long"
    if len(value) > schema.get("maxLength", math.inf):
        yield f"Too long: may not be more than {schema['maxLength']} bytes; it has {len(value)} characters"
    elif "pattern" in schema and not re.search(re.sub(r"\$$", r"\\Z", schema["pattern"]), value):
        yield f"should match '{schema['pattern']}'"
    if schema.get("format") == "date-time" and not _is_date_time(value):
        yield "must be of type date-time, for example 2026-12-31T00:00:00Z"


def _is_date_time(text: str) -> bool:
    day, _, time = text.lower().partition("t")
    found = _TIME.fullmatch(time)
    return found is not None and found.group(1) <= "23" and max(found.group(2, 3)) <= "59" and _is_date(day)


def _is_date(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def _array(value: object, schema: JSON) -> Iterator[str]:
    assert isinstance(value, Sequence)
    yield from _count(len(value), schema.get("minItems", 0), schema.get("maxItems", math.inf))
    keys = schema.get("x-kubernetes-list-map-keys", ())
    seen = [json.dumps([item.get(key) for key in keys]) for item in value if keys and isinstance(item, Mapping)]
    if len(seen) > len(set(seen)):
        yield f"Duplicate value: two items with the same {', '.join(keys)}"


def _object(value: object, schema: JSON) -> Iterator[str]:
    assert isinstance(value, Mapping)
    yield from _count(len(value), schema.get("minProperties", 0), schema.get("maxProperties", math.inf))


def _count(count: int, least: int, most: float) -> Iterator[str]:
    if count < least:
        yield f"should have at least {least} items"
    if count > most:
        yield f"Too many: {count}: must have at most {most} items"


_CHECKS: Mapping[str, Callable[[object, JSON], Iterator[str]]] = {
    "object": _object,
    "array": _array,
    "string": _string,
    "boolean": lambda _value, _schema: iter(()),
    "integer": _number,
    "number": _number,
}
