"""Quantities as users write them: strings that always carry their unit, and the only place that converts them."""

from __future__ import annotations

import re
from datetime import timedelta
from decimal import Decimal
from typing import Any, ClassVar, Self

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema

from kvgate.api.wire import Cel, with_rules

_NUMBER = r"[0-9]{1,12}(\.[0-9]{1,12})?"
_SPAN = r"[0-9]{1,7}(\.[0-9]{1,9})?(ms|s|m|h)"
_LONGEST = 40


class Quantity(str):
    """A string that matches `PATTERN`; anything else is refused with `COMPLAINT`, by the API server and here."""

    __slots__ = ()
    PATTERN: ClassVar[str]
    COMPLAINT: ClassVar[str]
    ABOVE_ZERO: ClassVar[bool] = True

    @classmethod
    def parse(cls, text: str) -> Self:
        """The quantity that `text` spells. Raises ValueError with the complaint that the API server would give."""
        zero = cls.ABOVE_ZERO and not re.search("[1-9]", text)
        if len(text) > _LONGEST or zero or not re.fullmatch(cls.PATTERN, text):
            raise ValueError(cls.COMPLAINT)
        return cls(text)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: type[Any], handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(cls.parse, core_schema.str_schema())

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        above_zero = " && self.matches('[1-9]')" if cls.ABOVE_ZERO else ""
        rule = Cel(f"self.matches(r'^{cls.PATTERN}$'){above_zero}", cls.COMPLAINT)
        return with_rules({"type": "string", "maxLength": _LONGEST}, rule)


class Throughput(Quantity):
    """A rate with its unit: 10GB/s, 1.5GiB/s, 25Gbit/s, 400MB/s."""

    __slots__ = ()
    UNITS: ClassVar[dict[str, Decimal]] = {
        "GB/s": Decimal(10**9),
        "GiB/s": Decimal(2**30),
        "Gbit/s": Decimal(10**9) / 8,
        "MB/s": Decimal(10**6),
        "MiB/s": Decimal(2**20),
        "Mbit/s": Decimal(10**6) / 8,
    }
    PATTERN = _NUMBER + r"(GB/s|GiB/s|Gbit/s|MB/s|MiB/s|Mbit/s)"
    COMPLAINT = (
        "must be a positive number with its unit, one of GB/s, GiB/s, Gbit/s, MB/s, MiB/s, Mbit/s: for example 10GB/s"
    )

    @property
    def bytes_per_second(self) -> float:
        unit = self.lstrip("0123456789.")
        return float(Decimal(self.removesuffix(unit)) * self.UNITS[unit])


class Percentage(Quantity):
    """A share from 0% to 100%."""

    __slots__ = ()
    ABOVE_ZERO = False
    PATTERN = r"(100(\.0+)?|[0-9]{1,2}(\.[0-9]+)?)%"
    COMPLAINT = "must be a percentage from 0% to 100%, with the sign: for example 70%"

    @property
    def fraction(self) -> float:
        return float(Decimal(self.removesuffix("%")) / 100)


class Duration(Quantity):
    """A span of time as Go writes it: 200ms, 90s, 1h30m."""

    __slots__ = ()
    ABOVE_ZERO = False
    PATTERN = rf"({_SPAN})+"
    COMPLAINT = "must be a duration with units ms, s, m or h: for example 200ms or 1h30m"
    UNITS: ClassVar[dict[str, Decimal]] = {
        "ms": Decimal("0.001"),
        "s": Decimal(1),
        "m": Decimal(60),
        "h": Decimal(3600),
    }

    @property
    def seconds(self) -> float:
        parts = re.findall(r"([0-9.]+)(ms|s|m|h)", self)
        return float(sum(Decimal(number) * self.UNITS[unit] for number, unit in parts))

    @property
    def delta(self) -> timedelta:
        return timedelta(seconds=self.seconds)


class PositiveDuration(Duration):
    """A duration above zero."""

    __slots__ = ()
    ABOVE_ZERO = True
    COMPLAINT = "must be a duration above zero with units ms, s, m or h: for example 200ms or 1h30m"


class PositiveDecimal(Quantity):
    """A decimal number above zero, written as a string so that no client rounds it."""

    __slots__ = ()
    PATTERN = _NUMBER
    COMPLAINT = 'must be a decimal number above zero in quotes: for example "4" or "0.2"'

    @property
    def number(self) -> float:
        return float(Decimal(self))


class Derating(PositiveDecimal):
    """A factor above zero and at most one."""

    __slots__ = ()
    PATTERN = r"(0?\.[0-9]*[1-9][0-9]*|1(\.0+)?)"
    COMPLAINT = 'must be a decimal number above 0 and at most 1 in quotes: for example "0.8"'


class Skew(PositiveDecimal):
    """A factor of at least one."""

    __slots__ = ()
    PATTERN = r"[0-9]*[1-9][0-9]*(\.[0-9]+)?"
    COMPLAINT = 'must be a decimal number of at least 1 in quotes: for example "1.25"'
