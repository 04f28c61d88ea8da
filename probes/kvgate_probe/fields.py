"""Typed access to a JSON object that somebody else wrote: every wrong field is an error that names it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NoReturn


class WireError(ValueError):
    """A document that is not what the wire promises; the message never repeats its content."""


def _no_constant(_: str) -> NoReturn:
    raise WireError("NaN and Infinity are no numbers")


@dataclass(frozen=True)
class Fields:
    """Typed access to a JSON object's fields; every wrong one is a WireError that names the field."""

    what: str
    values: Mapping[str, object]

    @classmethod
    def of(cls, text: str, what: str) -> Fields:
        try:
            values = json.loads(text, parse_constant=_no_constant)
        except (ValueError, RecursionError):
            raise WireError(f"{what}: not JSON ({len(text)} characters)") from None
        if not isinstance(values, dict):
            raise WireError(f"{what}: must be a JSON object")
        return cls(what, values)

    def text(self, key: str) -> str:
        value = self.values.get(key)
        if not isinstance(value, str):
            raise WireError(f"{self.what}: {key} must be a string")
        return value

    def maybe_text(self, key: str) -> str | None:
        return None if self.values.get(key) is None else self.text(key)

    def name(self, key: str) -> str:
        value = self.text(key)
        if not 1 <= len(value) <= 255 or not value.isprintable():
            raise WireError(f"{self.what}: {key} must be 1 to 255 printable characters")
        return value

    def one_of(self, key: str, kinds: type[Enum]) -> str:
        value = self.text(key)
        if value not in {kind.value for kind in kinds}:
            raise WireError(f"{self.what}: {key} is none of the {len(kinds)} known words")
        return value

    def flag(self, key: str) -> bool:
        value = self.values.get(key)
        if not isinstance(value, bool):
            raise WireError(f"{self.what}: {key} must be true or false")
        return value

    def items(self, key: str) -> list[object]:
        value = self.values.get(key)
        if not isinstance(value, list):
            raise WireError(f"{self.what}: {key} must be a list")
        return value

    def number(self, key: str, *, above: float = -math.inf, most: float = math.inf) -> float:
        value = self._finite(key)
        if not above < value <= most:
            raise WireError(f"{self.what}: {key} must be more than {above:g} and at most {most:g}")
        return value

    def maybe_number(self, key: str, *, above: float) -> float | None:
        return None if self.values.get(key) is None else self.number(key, above=above)

    def whole(self, key: str, *, least: int = 0, most: int = 2**63) -> int:
        value = self.values.get(key)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise WireError(f"{self.what}: {key} must be a whole number from {least} to {most}")
        return value

    def maybe_whole(self, key: str, *, least: int = 0) -> int | None:
        return None if self.values.get(key) is None else self.whole(key, least=least)

    def count(self, key: str, *, most: int = 2**63) -> int:
        """A whole number from 0 that may be written with an exponent, as old tools do."""
        value = self._finite(key)
        if not 0 <= value <= most or not value.is_integer():
            raise WireError(f"{self.what}: {key} must be a whole number from 0 to {most}")
        return int(value)

    def within(self, key: str) -> Fields:
        return self._nested(f"{self.what}: {key}", self.values.get(key))

    def objects(self, key: str) -> tuple[Fields, ...]:
        return tuple(self._nested(f"{self.what}: {key}[{place}]", item) for place, item in enumerate(self.items(key)))

    @staticmethod
    def _nested(what: str, value: object) -> Fields:
        if not isinstance(value, dict):
            raise WireError(f"{what} must be an object")
        return Fields(what, value)

    def _finite(self, key: str) -> float:
        value = self.values.get(key)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise WireError(f"{self.what}: {key} must be a number")
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not math.isfinite(number):
            raise WireError(f"{self.what}: {key} must be a finite number")
        return number
