"""What goes wrong at the doors, each in one line that says what, where and who must act."""

from __future__ import annotations

import math
from collections.abc import Mapping


class EdgeError(Exception):
    """The outside could not be read or written; the message is one line for a person. The next try is wanted within
    `within_seconds`."""

    within_seconds: float = math.inf


class MeasureError(EdgeError):
    """A sweep could not be run from here."""


class PoolGoneError(EdgeError):
    """There is no such pool any more."""


class StatusUnreadableError(EdgeError):
    """A pool's status holds what no status can hold; `body` is the pool as it is kept."""

    def __init__(self, message: str, body: Mapping[str, object]) -> None:
        super().__init__(message)
        self.body = body


class WriteConflictError(EdgeError):
    """Somebody wrote the object since it was read: look again. No fault of anybody's."""
