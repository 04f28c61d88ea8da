"""Change windows: whether one is open, and when the next opens."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from kvgate.api.pool import ChangeWindow
from kvgate.core.moments import later


class WindowError(ValueError):
    """A change window that says no time."""


def window_open(windows: Sequence[ChangeWindow], now: datetime) -> bool:
    """True without windows, or inside one. Raises WindowError for a schedule or time zone that cannot be read."""
    return not windows or any(_inside(window, now) for window in windows)


def _inside(window: ChangeWindow, now: datetime) -> bool:
    closes = _closes(window, now)
    return closes is not None and now < closes


def _closes(window: ChangeWindow, now: datetime) -> datetime | None:
    """When the window closes that opened last, or when it closed."""
    last = _fire(window, now, reverse=True)
    return None if last is None else later(last.astimezone(UTC), window.duration.delta)


def next_closing(windows: Sequence[ChangeWindow], now: datetime) -> datetime | None:
    """When the first of the windows that are open now closes; None when none is open."""
    closings = (_closes(window, now) for window in windows)
    return min((moment for moment in closings if moment is not None and now < moment), default=None)


def next_opening(windows: Sequence[ChangeWindow], now: datetime) -> datetime | None:
    """When the next window opens, in its own time zone; None when none ever does."""
    return min((start for w in windows if (start := _fire(w, now, reverse=False)) is not None), default=None)


def _fire(window: ChangeWindow, now: datetime, *, reverse: bool) -> datetime | None:
    try:
        from_when = now.replace(microsecond=0) + timedelta(seconds=1) if reverse else now
        local = from_when.astimezone(ZoneInfo(window.time_zone))
        return next(CronSim(window.schedule, local, reverse=reverse), None)
    except (CronSimError, ValueError, KeyError, OSError) as error:
        raise WindowError(
            f"changeWindows: schedule or timeZone cannot be read ({type(error).__name__}); "
            "write five cron fields and an IANA time zone, for example '0 2 * * 6' in Europe/Berlin"
        ) from error
