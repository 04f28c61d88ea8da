"""What goes wrong at the doors, each in one line that says what, where and who must act."""

from __future__ import annotations

import math


class EdgeError(Exception):
    """The outside could not be read or written; the message is one line for a person. The next try is wanted within
    `within_seconds`."""

    within_seconds: float = math.inf


class MeasureError(EdgeError):
    """A sweep could not be run from here."""


class PoolGoneError(EdgeError):
    """There is no such pool any more."""


class WriteConflictError(EdgeError):
    """Somebody wrote the object since it was read: look again. No fault of anybody's."""
