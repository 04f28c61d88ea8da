"""Tolerant reading of a JSON-like document: what is absent or of another shape reads as nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

Document = Mapping[str, object]

_NOTHING: Document = {}
_SHOWN = 64
_MAX_JSON_CHARACTERS = 65536
_UNPRINTABLE = re.compile(r"[^A-Za-z0-9._/:@+=\[\]-]")


def mapping(value: object) -> Document:
    return value if isinstance(value, Mapping) else _NOTHING


def sequence(value: object) -> Sequence[object]:
    return value if isinstance(value, list | tuple) else ()


def mappings(value: object) -> tuple[Document, ...]:
    return tuple(item for item in sequence(value) if isinstance(item, Mapping))


def at(value: object, *keys: str) -> object:
    for key in keys:
        value = mapping(value).get(key)
    return value


def text(value: object) -> str:
    return value if isinstance(value, str) else ""


def scalar(value: object) -> str:
    """The value as Kubernetes would read it from YAML: 1 and "1" are the same quantity."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, str | int | float) else ""


def whole(value: object) -> int | None:
    """A non-negative whole number of at most nine digits, or None."""
    written = scalar(value).strip()
    return int(written) if re.fullmatch(r"[0-9]{1,9}", written) else None


def pairs(value: object) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((key, scalar(held)) for key, held in mapping(value).items() if isinstance(key, str)))


def parsed_json(written: str) -> Document | None:
    """The JSON object that a flag carries, or None when it is none."""
    if len(written) > _MAX_JSON_CHARACTERS:
        return None
    try:
        value = json.loads(written)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, Mapping) else None


def shown(value: str) -> str:
    """A foreign name made safe for a message: plain characters, at most 64."""
    plain = _UNPRINTABLE.sub("?", value)
    return plain if len(plain) <= _SHOWN else plain[:_SHOWN] + "…"
