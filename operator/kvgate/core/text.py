"""How numbers are written in messages: with their unit, and short enough to read at night."""

from __future__ import annotations

import math
from datetime import UTC, datetime

_DECIMAL = ((1e15, "PB"), (1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
_BINARY = ((2**50, "PiB"), (2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))


def rate(bytes_per_second: float) -> str:
    """`119.3 MB/s (954 Mbit/s)`."""
    bits = bytes_per_second * 8
    return f"{_scaled(bytes_per_second, _DECIMAL)}/s ({_wire(bits)})"


def _wire(bits: float) -> str:
    if bits >= 1e12:
        return f"{bits / 1e12:.2f} Tbit/s"
    return f"{bits / 1e9:.2f} Gbit/s" if bits >= 1e9 else f"{bits / 1e6:.0f} Mbit/s"


def size(count: float) -> str:
    """`351.75 MiB`."""
    return _scaled(count, _BINARY, digits=2)


def _scaled(value: float, units: tuple[tuple[float, str], ...], digits: int = 1) -> str:
    for factor, unit in units:
        if value >= factor:
            return f"{value / factor:.{digits}f} {unit}"
    return f"{value:.0f} B"


def span(seconds: float) -> str:
    """`176 ms`, `3.38 s`, `26 h`, `12 days`, `3 years`."""
    if math.isinf(seconds):
        return "an unbounded time"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 120:
        return f"{seconds:.2f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    if seconds < 864_000:
        return f"{seconds / 3600:.0f} h"
    days = seconds / 86_400
    return f"{days:.0f} days" if days < 730 else f"{days / 365:.0f} years" if days < 365e6 else "over a million years"


def brief(seconds: float) -> str:
    """As `span`, and `180 µs` of what is shorter than 10 ms."""
    return f"{seconds * 1e6:.0f} µs" if seconds < 0.01 else span(seconds)


def moment(when: datetime) -> str:
    """A time that stays the same text from turn to turn, unlike an age."""
    try:
        return f"{when.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
    except OverflowError:  # the first or last hours of the calendar, in a zone that lies beyond it
        return when.isoformat(timespec="seconds")


def percent(fraction: float) -> str:
    """`70%`, `70.4%`: a share above a limit never reads as the limit itself."""
    if math.isinf(fraction):
        return "an unbounded share"
    percents = fraction * 100
    whole = math.isclose(percents, round(percents), abs_tol=1e-9)
    return f"{percents:.0f}%" if whole else f"{percents:.1f}%"


def listed(names: tuple[str, ...], most: int = 3) -> str:
    """The first few, and how many more."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def counted(number: int, noun: str) -> str:
    """`1 path`, `2 paths`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
