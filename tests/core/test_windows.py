"""Change windows in their own time zone, at their boundaries, and over the days when clocks change."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from kvgate.api.pool import ChangeWindow
from kvgate.core.windows import WindowError, next_closing, next_opening, window_open


def window(schedule: str = "0 2 * * 6", duration: str = "4h", time_zone: str = "UTC") -> ChangeWindow:
    return ChangeWindow.model_validate({"schedule": schedule, "duration": duration, "timeZone": time_zone})


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


SATURDAY = window()
BERLIN = window(time_zone="Europe/Berlin")


@pytest.mark.parametrize(
    ("one", "now", "is_open"),
    [
        pytest.param(SATURDAY, "2026-11-28T01:59:59", False, id="a second before it opens"),
        pytest.param(SATURDAY, "2026-11-28T01:59:59.999999", False, id="a microsecond before it opens"),
        pytest.param(SATURDAY, "2026-11-28T02:00:00", True, id="at the instant it opens"),
        pytest.param(SATURDAY, "2026-11-28T02:00:00.500000", True, id="half a second in"),
        pytest.param(SATURDAY, "2026-11-28T05:59:59.999999", True, id="a microsecond before it closes"),
        pytest.param(SATURDAY, "2026-11-28T06:00:00", False, id="at the instant it closes"),
        pytest.param(SATURDAY, "2026-11-27T03:00:00", False, id="the same hour on Friday"),
        pytest.param(BERLIN, "2026-11-28T00:59:59", False, id="in winter Berlin's 02:00 is 01:00 UTC: not yet"),
        pytest.param(BERLIN, "2026-11-28T01:00:00", True, id="in winter Berlin's 02:00 is 01:00 UTC"),
        pytest.param(BERLIN, "2026-07-04T00:00:00", True, id="in summer Berlin's 02:00 is 00:00 UTC"),
        pytest.param(BERLIN, "2026-07-04T04:00:00", False, id="in summer it closes at 04:00 UTC"),
        pytest.param(window("0 23 * * 5", "4h"), "2026-11-28T02:30:00", True, id="a window over midnight"),
        pytest.param(window("0 0 * * 6", "48h"), "2026-11-29T23:59:59", True, id="a window of two days"),
        pytest.param(
            window("0 * * * *", "90m"), "2026-11-28T12:45:00", True, id="windows that overlap are always open"
        ),
        pytest.param(window("*/15 * * * *", "5m"), "2026-11-28T12:20:00", False, id="between two short windows"),
    ],
)
def test_a_window_is_open(one: ChangeWindow, now: str, is_open: bool) -> None:
    assert window_open((one,), at(now)) is is_open


NIGHT = window("30 0 * * *", "4h", "Europe/Berlin")
GAP = window("30 2 * * *", "1h", "Europe/Berlin")


@pytest.mark.parametrize(
    ("one", "now", "is_open"),
    [
        pytest.param(
            NIGHT, "2026-03-29T03:29:59", True, id="clocks go forward: 4 h are still 4 h, 00:30 to 05:30 there"
        ),
        pytest.param(NIGHT, "2026-03-29T03:30:00", False, id="clocks go forward: closed after 4 h"),
        pytest.param(NIGHT, "2026-10-25T02:29:59", True, id="clocks go back: 4 h are still 4 h, 00:30 to 03:30 there"),
        pytest.param(NIGHT, "2026-10-25T02:30:00", False, id="clocks go back: closed after 4 h"),
        pytest.param(GAP, "2026-03-29T01:00:00", True, id="02:30 does not exist that day: it opens when the gap ends"),
        pytest.param(GAP, "2026-10-25T00:30:00", True, id="02:30 comes twice that day: it opens the first time"),
        pytest.param(GAP, "2026-10-25T01:45:00", False, id="02:30 comes twice that day: not the second time"),
    ],
)
def test_a_window_lasts_as_long_as_it_says_when_clocks_change(one: ChangeWindow, now: str, is_open: bool) -> None:
    assert window_open((one,), at(now)) is is_open


def test_the_callers_own_time_zone_changes_nothing() -> None:
    tokyo = timezone(timedelta(hours=9))
    assert window_open((SATURDAY,), at("2026-11-28T02:00:00").astimezone(tokyo))
    assert not window_open((SATURDAY,), at("2026-11-28T06:00:00").astimezone(tokyo))


def test_without_windows_it_is_always_open_and_none_opens_next() -> None:
    now = at("2026-11-28T12:00:00")
    assert window_open((), now)
    assert next_opening((), now) is None


def test_one_open_window_of_many_is_enough() -> None:
    assert window_open((window("0 2 * * 1"), SATURDAY), at("2026-11-28T03:00:00"))


@pytest.mark.parametrize(
    ("windows", "now", "opens"),
    [
        pytest.param((SATURDAY,), "2026-11-28T01:59:59", "2026-11-28T02:00:00", id="in a second"),
        pytest.param((SATURDAY,), "2026-11-28T02:00:00", "2026-12-05T02:00:00", id="when it just opened, the next one"),
        pytest.param((BERLIN,), "2026-11-27T12:00:00", "2026-11-28T01:00:00", id="in the window's own time zone"),
        pytest.param(
            (SATURDAY, window("0 9 * * 1")), "2026-11-29T12:00:00", "2026-11-30T09:00:00", id="the first of two"
        ),
    ],
)
def test_when_the_next_window_opens(windows: tuple[ChangeWindow, ...], now: str, opens: str) -> None:
    assert next_opening(windows, at(now)) == at(opens)


@pytest.mark.parametrize(
    ("windows", "now", "closes"),
    [
        pytest.param((), "2026-11-28T02:00:00", None, id="there is none"),
        pytest.param((SATURDAY,), "2026-11-28T01:59:59", None, id="it is not open yet"),
        pytest.param((SATURDAY,), "2026-11-28T02:00:00", "2026-11-28T06:00:00", id="when it just opened"),
        pytest.param((SATURDAY,), "2026-11-28T06:00:00", None, id="it just closed"),
        pytest.param((SATURDAY, BERLIN), "2026-11-28T03:00:00", "2026-11-28T05:00:00", id="the first of two"),
    ],
)
def test_when_the_first_open_window_closes(windows: tuple[ChangeWindow, ...], now: str, closes: str | None) -> None:
    assert next_closing(windows, at(now)) == (at(closes) if closes else None)


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param(window("61 2 * * *"), id="minute 61"),
        pytest.param(window("a b c d e"), id="words that are no numbers"),
        pytest.param(window("0 0 31 2 *"), id="the 31st of February"),
        pytest.param(window("0-0/0 2 * * *"), id="a step of zero"),
        pytest.param(window(time_zone="Mars/Olympus"), id="a time zone that does not exist"),
        pytest.param(window(time_zone="Europe"), id="a folder of time zones"),
    ],
)
def test_a_window_that_says_no_time_is_an_error_that_shows_how_to_write_one(broken: ChangeWindow) -> None:
    for look in (window_open, next_opening, next_closing):
        with pytest.raises(WindowError, match=r"changeWindows.*0 2 \* \* 6.*Europe/Berlin"):
            look((broken,), at("2026-11-28T03:00:00"))
