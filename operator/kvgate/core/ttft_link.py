"""The last link of the split: the time to first token after the switch against the one before it and the budget."""

from __future__ import annotations

from kvgate.api.status import Calibration
from kvgate.core import exams, text
from kvgate.core.canary_links import TOLERATED_FAILURES, asked, asked_again
from kvgate.core.judging import Case
from kvgate.core.links import Look, Progress, View
from kvgate.core.medians import Interval, median_rise
from kvgate.core.serving import ExamResult
from kvgate.core.split_criteria import added_ttft

ESTIMATES_TOLERATED = 2.0
LEAST_NOTICED_SECONDS = 0.02
"""A rise below this is the further hop itself, and no word about the transfer that was estimated."""
_BUDGET = "criteria.disaggregation.ttftBudget is"


def ttft_within_budget(view: View) -> Look:
    """The worst prompt size decides: a lower bound above the budget or above twice the estimate fails, and all upper
    bounds within the budget pass."""
    if not any(before.ttft_microseconds for before in view.memory.before):
        what = "nothing was measured before the switch, so the rise of the TTFT is not known; a person must say"
        return Look(Progress.INCONCLUSIVE, "TTFTInconclusive", what)
    exam = exams.after_ttft(view.case, view.memory)
    result = asked(view, exam, TOLERATED_FAILURES)
    if isinstance(result, Look):
        return result
    looks = [_size(view, result, tokens) for tokens in exams.sizes(view.case)]
    order = (Progress.FAILED, Progress.INCONCLUSIVE, Progress.PASSED)
    worst = min(looks, key=lambda look: order.index(look.progress))
    calibration = tuple(entry for look in looks for entry in look.calibration)
    again = asked_again(view, exam) if worst.progress is Progress.INCONCLUSIVE else None
    return Look(worst.progress, worst.reason, worst.message, again, calibration)


def _size(view: View, result: ExamResult, tokens: int) -> Look:
    before = exams.before_of(view.memory, tokens)
    old = before.ttft_microseconds if before else ()
    new = exams.settled_ttft((result,), tokens)
    rise = median_rise([us / 1e6 for us in old], [us / 1e6 for us in new])
    if rise is None:
        what = f"at {tokens} tokens {len(old)} times before and {len(new)} after the switch are too few to compare"
        return Look(Progress.INCONCLUSIVE, "TTFTInconclusive", what)
    estimate = _estimate(view.case, tokens)
    look = _judged(view.case, tokens, rise, estimate)
    return Look(look.progress, look.reason, look.message, calibration=(_calibration(tokens, rise, estimate),))


def _estimate(case: Case, tokens: int) -> float | None:
    return added_ttft(case, tokens, case.load.wait_seconds if case.load else 0.0) if case.transfer else None


def _judged(case: Case, tokens: int, rise: Interval, estimate: float | None) -> Look:
    budget = case.criteria.ttft_budget
    what = f"at {tokens} tokens the median TTFT rose by {_told(rise)}"
    if rise.low > budget.seconds:
        return Look(Progress.FAILED, "TTFTBudgetExceeded", f"{what}; {_BUDGET} {budget}")
    most = ESTIMATES_TOLERATED * estimate if estimate is not None else None
    if most is not None and rise.low > max(most, LEAST_NOTICED_SECONDS):
        told = f"the estimate was {text.span(most / ESTIMATES_TOLERATED)}, and twice that is the limit"
        return Look(Progress.FAILED, "TTFTAboveEstimate", f"{what}; {told}: the network team must look")
    if rise.high <= budget.seconds:
        return Look(Progress.PASSED, "TTFTWithinBudget", f"{what}; {_BUDGET} {budget}")
    return Look(Progress.INCONCLUSIVE, "TTFTInconclusive", f"{what}, which lies on both sides of {_BUDGET} {budget}")


def _told(rise: Interval) -> str:
    value, low, high = (f"{seconds * 1000:.0f}" for seconds in (rise.value, rise.low, rise.high))
    return f"{value} ms (95% bounds {low} and {high} ms)"


def _calibration(tokens: int, rise: Interval, estimate: float | None) -> Calibration:
    return Calibration(
        prompt_tokens=tokens,
        estimated_milliseconds=None if estimate is None else _milliseconds(estimate),
        observed_milliseconds=_milliseconds(rise.value),
        low_milliseconds=_milliseconds(rise.low),
        high_milliseconds=_milliseconds(rise.high),
        observed_to_estimated=f"{rise.value / estimate:.2f}" if estimate else "",
    )


def _milliseconds(seconds: float) -> int:
    return min(round(min(seconds, 1e9) * 1000), 10**12)
