"""Findings: what one look at one criterion gave, and how findings fold into a verdict."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from kvgate.api.words import Outcome

_WORSE = {outcome: rank for rank, outcome in enumerate(Outcome)}


def worst(outcomes: Iterable[Outcome]) -> Outcome:
    """The worst of the outcomes; nothing looked at is Unknown, never Pass."""
    return max(outcomes, key=_WORSE.__getitem__, default=Outcome.UNKNOWN)


class Concern(StrEnum):
    """What a finding is about: decides which condition tells it."""

    TARGET = "target"
    FABRIC = "fabric"
    MODEL = "model"
    LOAD = "load"
    EVENTS = "events"
    BENCHMARK = "benchmark"
    STORAGE = "storage"
    METRICS = "metrics"


@dataclass(frozen=True)
class Finding:
    """The result of one criterion. The message holds the number, the limit, the unit, and who must act."""

    criterion: str
    outcome: Outcome
    reason: str
    message: str
    concern: Concern = Concern.FABRIC

    @property
    def settled(self) -> bool:
        """Whether the look itself succeeded and did not fail the criterion."""
        return self.outcome in {Outcome.PASS, Outcome.INCONCLUSIVE}


@dataclass(frozen=True)
class Verdict:
    """The findings of one capability, in the order of its table."""

    findings: tuple[Finding, ...]

    @property
    def outcome(self) -> Outcome:
        return worst(finding.outcome for finding in self.findings)

    @property
    def decisive(self) -> Finding:
        """The first finding with the worst outcome: what a person should read first."""
        return next((f for f in self.findings if f.outcome is self.outcome), NOTHING_JUDGED)

    @property
    def settled(self) -> bool:
        return bool(self.findings) and all(finding.settled for finding in self.findings)

    @property
    def inconclusive_reasons(self) -> frozenset[str]:
        return frozenset(f.reason for f in self.findings if f.outcome is Outcome.INCONCLUSIVE)


NOTHING_JUDGED = Finding("criteria", Outcome.UNKNOWN, "NothingJudged", "no criterion was judged")
