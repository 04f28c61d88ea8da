"""What quantities are worth in bytes, seconds and shares."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvgate.api.quantities import (
    Derating,
    Duration,
    Percentage,
    PositiveDecimal,
    PositiveDuration,
    Quantity,
    Skew,
    Throughput,
)

KINDS = (Throughput, Percentage, Duration, PositiveDuration, PositiveDecimal, Derating, Skew)


@pytest.mark.parametrize(
    ("text", "bytes_per_second"),
    [
        ("10GB/s", 10e9),
        ("1.5GiB/s", 1.5 * 2**30),
        ("25Gbit/s", 3.125e9),
        ("400MB/s", 400e6),
        ("104MiB/s", 104 * 2**20),
        ("1Mbit/s", 125e3),
    ],
)
def test_a_throughput_in_bytes_per_second(text: str, bytes_per_second: float) -> None:
    assert Throughput.parse(text).bytes_per_second == bytes_per_second


@pytest.mark.parametrize(
    ("text", "seconds"), [("200ms", 0.2), ("90s", 90), ("1h30m", 5400), ("1.5h", 5400), ("0s", 0), ("1m1ms", 60.001)]
)
def test_a_duration_in_seconds(text: str, seconds: float) -> None:
    assert Duration.parse(text).seconds == seconds


@pytest.mark.parametrize(("text", "fraction"), [("0%", 0), ("33.3%", 0.333), ("70%", 0.7), ("100%", 1)])
def test_a_percentage_as_a_fraction(text: str, fraction: float) -> None:
    assert Percentage.parse(text).fraction == fraction


@pytest.mark.parametrize(("text", "number"), [("4", 4), ("0.2", 0.2)])
def test_a_decimal_as_a_number(text: str, number: float) -> None:
    assert PositiveDecimal.parse(text).number == number


@given(
    st.sampled_from(KINDS),
    st.text() | st.from_regex(r"[0-9]{0,9}(\.[0-9]{0,3})?(%|ms|s|h|GB/s|Mbit/s)?", fullmatch=True),
)
def test_any_text_is_a_quantity_or_is_refused_with_the_complaint(kind: type[Quantity], text: str) -> None:
    assert _said_of(kind, text) in {text, kind.COMPLAINT}


def _said_of(kind: type[Quantity], text: str) -> str:
    try:
        return kind.parse(text)
    except ValueError as refusal:
        return str(refusal)


def test_the_longest_duration_still_reaches_no_end_of_time() -> None:
    longest = Duration.parse("9999999h" * 5)
    assert (datetime(2026, 11, 30, tzinfo=UTC) + longest.delta).year < 9999
