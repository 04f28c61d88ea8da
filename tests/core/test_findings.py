"""Findings fold worst-of, and nothing looked at is never Pass."""

from __future__ import annotations

import itertools

import pytest

from kvgate.api.words import Outcome
from kvgate.core.findings import Finding, Verdict, worst

WORST_FIRST = (Outcome.FAIL, Outcome.ERROR, Outcome.UNKNOWN, Outcome.INCONCLUSIVE, Outcome.PASS)


def finding(outcome: Outcome, reason: str = "Because") -> Finding:
    return Finding("criterion", outcome, reason, "as it was seen")


@pytest.mark.parametrize(
    ("worse", "better"),
    list(itertools.combinations(WORST_FIRST, 2)),
    ids=lambda outcome: f"{outcome}",
)
def test_the_worse_outcome_wins_in_either_order(worse: Outcome, better: Outcome) -> None:
    assert worst((worse, better)) is worse
    assert worst((better, worse)) is worse


def test_every_outcome_has_a_place_in_the_order() -> None:
    assert set(WORST_FIRST) == set(Outcome)


def test_all_passing_is_pass() -> None:
    assert worst([Outcome.PASS] * 3) is Outcome.PASS


def test_nothing_looked_at_is_unknown() -> None:
    assert worst(()) is Outcome.UNKNOWN


def test_a_verdict_without_findings_is_unknown_and_not_settled() -> None:
    empty = Verdict(())
    assert (empty.outcome, empty.decisive.reason, empty.settled) == (Outcome.UNKNOWN, "NothingJudged", False)


@pytest.mark.parametrize(
    ("outcomes", "settled"),
    [
        pytest.param([Outcome.PASS], True, id="a pass is settled"),
        pytest.param([Outcome.PASS, Outcome.INCONCLUSIVE], True, id="an inconclusive look is settled"),
        pytest.param([Outcome.PASS, Outcome.UNKNOWN], False, id="what is unknown is not settled"),
        pytest.param([Outcome.PASS, Outcome.ERROR], False, id="an error is not settled"),
        pytest.param([Outcome.PASS, Outcome.FAIL], False, id="a fail is not settled"),
    ],
)
def test_only_pass_and_inconclusive_make_a_plan(outcomes: list[Outcome], settled: bool) -> None:
    assert Verdict(tuple(finding(outcome) for outcome in outcomes)).settled is settled


def test_the_decisive_finding_is_the_first_of_the_worst() -> None:
    verdict = Verdict(
        (
            finding(Outcome.PASS, "Fine"),
            finding(Outcome.UNKNOWN, "FirstUnknown"),
            finding(Outcome.INCONCLUSIVE, "Unclear"),
            finding(Outcome.UNKNOWN, "SecondUnknown"),
        )
    )
    assert verdict.decisive.reason == "FirstUnknown"


def test_only_inconclusive_reasons_are_offered_to_an_approver() -> None:
    verdict = Verdict(tuple(finding(outcome, f"Seen{outcome}") for outcome in Outcome))
    assert verdict.inconclusive_reasons == {"SeenInconclusive"}
