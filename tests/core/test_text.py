"""Numbers in messages carry a unit and stay short."""

from __future__ import annotations

import math
from datetime import datetime, timedelta, timezone

import pytest

from kvgate.core import text


@pytest.mark.parametrize(
    ("bytes_per_second", "written"),
    [
        pytest.param(0, "0 B/s (0 Mbit/s)", id="nothing"),
        pytest.param(999, "999 B/s (0 Mbit/s)", id="below a kilobyte"),
        pytest.param(119.25e6, "119.2 MB/s (954 Mbit/s)", id="a 1 Gbit/s link in megabytes and megabits"),
        pytest.param(125e6, "125.0 MB/s (1.00 Gbit/s)", id="from 1 Gbit/s on the wire's rate is in gigabits"),
        pytest.param(1.25e14, "125.0 TB/s (1000.00 Tbit/s)", id="terabytes, and terabits on the wire"),
        pytest.param(12.5e9, "12.5 GB/s (100.00 Gbit/s)", id="decimal gigabytes, never gibibytes"),
    ],
)
def test_a_rate_is_in_bytes_and_in_bits(bytes_per_second: float, written: str) -> None:
    assert text.rate(bytes_per_second) == written


@pytest.mark.parametrize(
    ("count", "written"),
    [
        pytest.param(368_836_608, "351.75 MiB", id="the golden transfer"),
        pytest.param(1023, "1023 B", id="below a kibibyte"),
        pytest.param(2**30, "1.00 GiB", id="one gibibyte"),
        pytest.param(3 * 2**50, "3.00 PiB", id="what a million long prompts take"),
    ],
)
def test_a_size_is_in_binary_units(count: float, written: str) -> None:
    assert text.size(count) == written


@pytest.mark.parametrize(
    ("seconds", "written"),
    [
        pytest.param(0.176, "176 ms", id="below a second in milliseconds"),
        pytest.param(3.382, "3.38 s", id="seconds with two digits"),
        pytest.param(120, "2 min", id="from two minutes in minutes"),
        pytest.param(7200, "2 h", id="from two hours in hours"),
        pytest.param(262_800, "73 h", id="three days, as an interval of 24h is written"),
        pytest.param(864_000, "10 days", id="from ten days in days"),
        pytest.param(63_072_000, "2 years", id="from two years in years"),
        pytest.param(1e20, "over a million years", id="longer than anybody waits"),
        pytest.param(math.inf, "an unbounded time", id="without end"),
    ],
)
def test_a_span_has_the_unit_that_fits(seconds: float, written: str) -> None:
    assert text.span(seconds) == written


def test_a_moment_is_in_utc_whatever_zone_it_came_in() -> None:
    berlin = timezone(timedelta(hours=1))
    assert text.moment(datetime(2026, 11, 30, 13, 5, 9, 999, tzinfo=berlin)) == "2026-11-30T12:05:09Z"


@pytest.mark.parametrize("written", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"])
def test_a_moment_that_utc_has_no_date_for_is_written_as_it_came(written: str) -> None:
    assert text.moment(datetime.fromisoformat(written)) == written


@pytest.mark.parametrize(
    ("fraction", "written"),
    [
        pytest.param(0.0, "0%", id="nothing"),
        pytest.param(0.0312, "3.1%", id="small shares keep a digit"),
        pytest.param(0.7, "70%", id="a round share"),
        pytest.param(0.07, "7%", id="a small round share"),
        pytest.param(0.704, "70.4%", id="a share just above a limit does not read as the limit"),
        pytest.param(1.5, "150%", id="more than full"),
        pytest.param(math.inf, "an unbounded share", id="without end"),
    ],
)
def test_a_share_is_a_percentage(fraction: float, written: str) -> None:
    assert text.percent(fraction) == written


@pytest.mark.parametrize(
    ("names", "written"),
    [
        pytest.param((), "", id="none"),
        pytest.param(("a", "b", "c"), "a, b, c", id="as many as fit"),
        pytest.param(("a", "b", "c", "d", "e"), "a, b, c and 2 more", id="the rest is counted"),
    ],
)
def test_a_list_names_a_few_and_counts_the_rest(names: tuple[str, ...], written: str) -> None:
    assert text.listed(names) == written


@pytest.mark.parametrize(("number", "said"), [(0, "0 paths"), (1, "1 path"), (2, "2 paths")])
def test_one_is_no_plural(number: int, said: str) -> None:
    assert text.counted(number, "path") == said
