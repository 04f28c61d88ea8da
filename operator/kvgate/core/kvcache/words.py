"""The words of this room: JSON values, why the KV bytes of a model stay unknown, and what to do then."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

JSON: TypeAlias = "bool | int | float | str | Sequence[JSON] | Mapping[str, JSON] | None"

REMEDY = "supply spec.model.kvCache.bytesPerToken"

_PRINTABLE = re.compile(r"[A-Za-z0-9_.*+-]{1,64}")


class Reason(StrEnum):
    NOT_JSON = "NotJSON"
    TOO_LARGE = "TooLarge"
    NOT_AN_OBJECT = "NotAnObject"
    GGUF_ONLY = "GGUFOnly"
    NO_LANGUAGE_PART = "NoLanguagePart"
    UNKNOWN_MODEL_TYPE = "UnknownModelType"
    UNKNOWN_KEY = "UnknownKey"
    UNKNOWN_LAYER_KIND = "UnknownLayerKind"
    UNKNOWN_WINDOW_PATTERN = "UnknownWindowPattern"
    UNKNOWN_DTYPE = "UnknownDtype"
    MISSING = "MissingField"
    BAD_VALUE = "BadValue"
    CONTRADICTION = "Contradiction"
    NO_ATTENTION = "NoAttention"


@dataclass(frozen=True)
class KVBytesUnknown:
    """The KV bytes of this model cannot be derived; the pool's author must act as the message says."""

    reason: Reason
    message: str


class Refusal(Exception):  # noqa: N818 - carries an answer, never leaves this room
    """Stops a derivation; `kv_layout` turns it into a `KVBytesUnknown`."""

    def __init__(self, reason: Reason, what: str) -> None:
        super().__init__(what)
        self.reason = reason
        self.what = what

    @property
    def unknown(self) -> KVBytesUnknown:
        return KVBytesUnknown(self.reason, f"KV bytes per token unknown: {self.what}; {REMEDY}")


def shown(word: object) -> str:
    """A foreign word for a message: itself when it is short and plain, else only what it is."""
    if isinstance(word, bool | int):
        return str(word) if abs(word) < 10**15 else "a huge number"
    if isinstance(word, str):
        return f"'{word}'" if _PRINTABLE.fullmatch(word) else "a text that is not a plain word"
    if word is None:
        return "null"
    if isinstance(word, float):
        return "a fraction"
    return "an object" if isinstance(word, Mapping) else "a list"
