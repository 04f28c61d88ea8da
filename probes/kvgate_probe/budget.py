"""What a walker may still send in its sweep, and how long its next test may be for that to be kept."""

from __future__ import annotations

import math
from dataclasses import dataclass

MARGIN = 1.1
"""A test is expected to send at most so many times what the fastest one so far would have in the same time."""
SHORTEST_SECONDS = 1.0
"""iperf3 takes whole seconds, and less is no measurement."""
SETTING = "probe.maxBytesPerSweep"


@dataclass(frozen=True)
class Allowance:
    """How long a test may be, and what it may send at most; None where nothing limits it."""

    seconds: float
    most_bytes: int | None = None


class Budget:
    """One sender's share of a sweep's bytes, and its tests that have yet to end. Payload is counted, at the sender."""

    def __init__(self, share_bytes: int | None, tests: int) -> None:
        self._share = share_bytes
        self._tests = tests
        self._sent = 0
        self._fastest: float | None = None

    @property
    def left_bytes(self) -> int | None:
        return None if self._share is None else max(0, self._share - self._sent)

    def allowance(self, planned_seconds: float, line_rate: float | None) -> Allowance:
        """What the next test may take: the planned time, or the whole seconds that fit where fewer do.

        What is left is meant for all tests that have yet to end; where it is not even a second for each, the first
        ones get theirs. `line_rate` (bytes per second) stands for the fastest test before there is any; where even
        that is not known, or lets not a second fit, the first test is a short one.
        """
        left = self.left_bytes
        if left is None:
            return Allowance(planned_seconds)
        pace = self._fastest * MARGIN if self._fastest else line_rate
        fits = math.floor(left / max(1, self._tests) / pace) if pace else 0
        return Allowance(min(planned_seconds, max(SHORTEST_SECONDS, fits)), left)

    def spent(self) -> str:
        """Why the next test cannot be run at all; empty where it can."""
        left = self.left_bytes
        needed = math.ceil(self._fastest * MARGIN * SHORTEST_SECONDS) if self._fastest else 1
        if left is None or left >= needed:
            return ""
        told = f"{self._sent} of the {self._share} bytes of this sender are sent"
        return f"{told} and a second may take {needed}: {SETTING} is spent"

    def charge(self, sent_bytes: int, seconds: float) -> None:
        """A test has sent so many bytes in so many seconds; 0 where the time is not known."""
        self._sent += sent_bytes
        if sent_bytes and seconds > 0:
            self._fastest = max(self._fastest or 0.0, sent_bytes / seconds)

    def ended(self) -> None:
        """One of the sender's tests has ended, however."""
        self._tests -= 1
