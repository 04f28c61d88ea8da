"""Moments near the end of the calendar, and near now."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from kvgate.core.moments import lately, later

NOW = datetime(2026, 5, 4, 12, tzinfo=UTC)
SPAN = timedelta(seconds=20)


@pytest.mark.parametrize(
    ("moment", "told"),
    [
        pytest.param(NOW, True, id="now"),
        pytest.param(NOW - timedelta(seconds=19), True, id="just within the span"),
        pytest.param(NOW - SPAN, False, id="a whole span ago"),
        pytest.param(NOW + timedelta(microseconds=1), False, id="ahead, for the clock was set back"),
    ],
)
def test_what_was_lately(moment: datetime, told: bool) -> None:
    assert lately(moment, NOW, SPAN) is told


def test_nothing_is_later_than_the_calendar() -> None:
    assert later(NOW, SPAN) == NOW + SPAN
    assert later(NOW, timedelta.max) == datetime.max.replace(tzinfo=UTC)
