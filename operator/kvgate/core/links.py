"""The words of the chain after a patch: its links, what a look at one gives, and what a look may use."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from kvgate.api.status import Calibration, Verification
from kvgate.core.judging import Case
from kvgate.core.serving import Exam, ExamResult, ServingSeen


class Link(StrEnum):
    """In this order, each is looked at once the one before it was passed."""

    GENERATION = "GenerationObserved"
    ROLLOUT = "RolloutComplete"
    READINESS = "ModelReady"
    PATHS = "WorkerPaths"
    REQUESTS = "Requests"
    ANSWERS = "Answers"
    TTFT = "TTFT"


SPANS = {
    Link.GENERATION: timedelta(minutes=10),
    Link.ROLLOUT: timedelta(minutes=30),
    Link.READINESS: timedelta(minutes=5),
    Link.PATHS: timedelta(minutes=30),
    Link.REQUESTS: timedelta(minutes=5),
    Link.ANSWERS: timedelta(minutes=35),
    Link.TTFT: timedelta(minutes=35),
}
"""How long each link may take after the one before it. A look that is not passed by then counts as failed."""


class Progress(StrEnum):
    """Where a link stands: `Waiting` is not there yet, `Unseen` could not be looked at, `Inconclusive` cannot say."""

    PASSED = "Passed"
    WAITING = "Waiting"
    UNSEEN = "Unseen"
    INCONCLUSIVE = "Inconclusive"
    FAILED = "Failed"


@dataclass(frozen=True)
class Look:
    """What one look at one link gave. `exam` is what should be asked next, `calibration` what was learned, `sweep` why
    it needs another sweep."""

    progress: Progress
    reason: str
    message: str
    exam: Exam | None = None
    calibration: tuple[Calibration, ...] = ()
    sweep: str = ""


@dataclass(frozen=True)
class View:
    """All that a link may look at."""

    case: Case
    memory: Verification
    serving: ServingSeen

    def result(self, exam: Exam) -> ExamResult | None:
        return self.serving.results.get(exam.id)
