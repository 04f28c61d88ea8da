"""How fast is fast enough: five bands about what is required, or about the median where nothing is."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from enum import IntEnum

from kvgate.app.report.subject import PathFact, Reach, Subject
from kvgate.core import text

_ABOUT_REQUIRED = (0.5, 0.8, 1.0, 1.5)
_ABOUT_MEDIAN = (0.5, 0.8, 0.95, 1.05)
LETTERS = "EDCBA"


class Cell(IntEnum):
    """What a cell of the heat map shows: five bands from the worst, then what has no number."""

    E = 0
    D = 1
    C = 2
    B = 3
    A = 4
    UNREACHABLE = 5
    FAILED = 6
    SAME_NODE = 7
    UNMEASURED = 8


WORDS = {
    Cell.UNREACHABLE: "unreachable: the path carries nothing",
    Cell.FAILED: "failed: tested, and the test could not look",
    Cell.SAME_NODE: "the node itself: not measured between two pods there",
    Cell.UNMEASURED: "not measured",
}
MARKS = {
    Cell.E: "E", Cell.D: "D", Cell.C: "C", Cell.B: "B", Cell.A: "A",
    Cell.UNREACHABLE: "✕", Cell.FAILED: "!", Cell.SAME_NODE: "·", Cell.UNMEASURED: "–",
}  # fmt: skip
_WITHOUT_NUMBER = {
    Reach.UNREACHABLE: Cell.UNREACHABLE,
    Reach.FAILED: Cell.FAILED,
    Reach.SAME_NODE: Cell.SAME_NODE,
    Reach.UNMEASURED: Cell.UNMEASURED,
}


@dataclass(frozen=True)
class Scale:
    """The number that 100 % stands for, what it is, and where the bands end, all in bytes per second."""

    reference: float
    by: str
    shares: tuple[float, ...]

    def cell(self, fact: PathFact | None) -> Cell:
        if fact is None:
            return Cell.UNMEASURED
        if fact.bytes_per_second is None:
            return _WITHOUT_NUMBER.get(fact.reach, Cell.UNMEASURED)
        return Cell(bisect_right(self.shares, fact.bytes_per_second / self.reference))

    def words(self, cell: Cell) -> str:
        """`50% to 80% of minThroughput`."""
        if cell in WORDS:
            return WORDS[cell]
        low = self.shares[cell - 1] if cell > 0 else None
        high = self.shares[cell] if cell < len(self.shares) else None
        if low is None and high is not None:
            return f"below {text.percent(high)} of {self.by}"
        if high is None and low is not None:
            return f"{text.percent(low)} of {self.by} or more"
        return f"{text.percent(low or 0)} to {text.percent(high or 0)} of {self.by}"


def scale_of(subject: Subject) -> Scale:
    """About the highest throughput that is required; else about the median of the measured paths."""
    if subject.required:
        highest = max(subject.required, key=lambda line: line.bytes_per_second)
        return Scale(highest.bytes_per_second, highest.by, _ABOUT_REQUIRED)
    rated = subject.rated
    median = rated[(len(rated) - 1) // 2][0] if rated else 1.0
    return Scale(median, "the median", _ABOUT_MEDIAN)
