"""Arithmetic on moments that holds at the end of the calendar too."""

from __future__ import annotations

from datetime import datetime, timedelta


def later(moment: datetime, span: timedelta) -> datetime:
    """The moment after the span, or the last moment that can be written."""
    end = datetime.max.replace(tzinfo=moment.tzinfo)
    return end if end - moment < span else moment + span


def lately(moment: datetime, now: datetime, span: timedelta) -> bool:
    """Whether it was less than the span ago; what lies ahead was told by a clock that was set back since."""
    return timedelta(0) <= now - moment < span
