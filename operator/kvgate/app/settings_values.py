"""The values that operator settings are made of, each with its bounds; a complaint never repeats the value."""

from __future__ import annotations

import re
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, ClassVar, TypeVar
from urllib.parse import urlsplit

from pydantic import Field

from kvgate.api.quantities import Duration, Quantity
from kvgate.edge.promql import read_matchers

SHORTEST_INTERVAL, LONGEST_INTERVAL = Duration("1m"), Duration("720h")
T = TypeVar("T")
_NAME = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"


class LogLevel(StrEnum):
    DEBUG = "Debug"
    INFO = "Info"
    WARNING = "Warning"
    ERROR = "Error"


class ProbeCapability(StrEnum):
    """The Linux capabilities that a measurement can have use for; no other is ever given."""

    IPC_LOCK = "IPC_LOCK"
    NET_RAW = "NET_RAW"
    SYS_RESOURCE = "SYS_RESOURCE"


class ByteSize(Quantity):
    """A number of bytes with its unit: 500GB, 2TiB."""

    __slots__ = ()
    UNITS: ClassVar[dict[str, int]] = {
        **{f"{prefix}B": 10 ** (3 * power) for power, prefix in enumerate("MGTP", 2)},
        **{f"{prefix}iB": 2 ** (10 * power) for power, prefix in enumerate("MGTP", 2)},
    }
    PATTERN = r"[0-9]{1,9}(\.[0-9]{1,9})?[MGTP]i?B"
    COMPLAINT = "must be a number above zero with its unit, one of MB, GB, TB, PB, MiB, GiB, TiB, PiB: for example 2TB"

    @property
    def bytes(self) -> int:
        unit = self.lstrip("0123456789.")
        return int(Decimal(self.removesuffix(unit)) * self.UNITS[unit])


def url(text: str) -> str:
    """The address without a trailing slash. What is wrong is said without the address: it may hold a secret."""
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise ValueError("must be an http or https URL with a host and a port from 0 to 65535") from None
    if "@" in parts.netloc:
        raise ValueError("must hold no user or password; put a token into a file and name it in tls.bearerTokenFile")
    if not text.startswith(("http://", "https://")) or not host or not re.fullmatch(r"[!-~]+", text):
        raise ValueError("must be an http or https URL with a host, in ASCII and without spaces")
    if "?" in text or "#" in text:
        raise ValueError("must end with its path: no query and no fragment")
    return text.rstrip("/")


def matcher(text: str) -> str:
    read_matchers(text)
    return text


def interval(span: Duration) -> Duration:
    if not SHORTEST_INTERVAL.seconds <= span.seconds <= LONGEST_INTERVAL.seconds:
        raise ValueError(f"must be from {SHORTEST_INTERVAL} to {LONGEST_INTERVAL}")
    return span


def names(named: dict[str, T]) -> dict[str, T]:
    if any(not re.fullmatch(_NAME, name) for name in named):
        raise ValueError("a name must be of at most 63 lower case letters, digits and inner hyphens")
    return named


FilePath = Annotated[str, Field(min_length=2, max_length=512, pattern=r"^/[!-~]+$")]
Image = Annotated[str, Field(min_length=1, max_length=512, pattern=r"^[a-z0-9][a-zA-Z0-9._:/@-]*[a-zA-Z0-9]$")]
