"""The measured rise of the TTFT against the budget and the estimate."""

from __future__ import annotations

import pytest

from kvgate.core import exams
from kvgate.core.links import Look, Progress
from kvgate.core.serving import Pair
from kvgate.core.ttft_link import ttft_within_budget
from tests.core import views
from tests.core.views import reply

PAIRS: tuple[Pair, ...] = ((11, 21), (12, 22))
ESTIMATE_SECONDS = 1.524


def measured(rise: float, spread: float = 0.01, count: int = 36, budget: str = "2s", **fields: object) -> Look:
    """The first three of each pair are slow, as a cold one is; the others rose by `rise` seconds, give or take."""
    remembered = views.memory(**fields)
    seen = views.view(changes={"criteria.disaggregation.ttftBudget": budget}, remembered=remembered)
    replies = [
        reply(
            index,
            pair=PAIRS[index % 2],
            ttft_seconds=60.0 if index < 6 else 0.4 + rise + spread * ((index % 5) - 2),
        )
        for index in range(count)
    ]
    return ttft_within_budget(views.answered(seen, exams.after_ttft(seen.case, seen.memory), *replies))


RISES = {
    "well within the budget": ({"rise": 1.4}, Progress.PASSED, "TTFTWithinBudget"),
    "it fell": ({"rise": -0.3}, Progress.PASSED, "TTFTWithinBudget"),
    "beyond the budget": ({"rise": 2.5}, Progress.FAILED, "TTFTBudgetExceeded"),
    "on both sides of the budget": ({"rise": 2.0, "spread": 0.3}, Progress.INCONCLUSIVE, "TTFTInconclusive"),
    "within a wide budget but above twice the estimate": (
        {"rise": 3.2, "budget": "60s"},
        Progress.FAILED,
        "TTFTAboveEstimate",
    ),
    "not above twice the estimate": ({"rise": 2.9, "budget": "60s"}, Progress.PASSED, "TTFTWithinBudget"),
    "too few answers after the warm-up": ({"rise": 1.4, "count": 11}, Progress.INCONCLUSIVE, "TTFTInconclusive"),
    "nothing measured before": ({"rise": 1.4, "before": ()}, Progress.INCONCLUSIVE, "TTFTInconclusive"),
}


@pytest.mark.parametrize(("fields", "progress", "reason"), RISES.values(), ids=RISES)
def test_the_bounds_of_the_rise_decide(fields: dict[str, object], progress: Progress, reason: str) -> None:
    look = measured(**fields)  # type: ignore[arg-type]
    assert (look.progress, look.reason) == (progress, reason), look.message


def test_the_message_and_the_calibration_hold_the_numbers() -> None:
    look = measured(1.4)
    assert look.message == (
        "at 3000 tokens the median TTFT rose by 1400 ms (95% bounds 1390 and 1410 ms); "
        "criteria.disaggregation.ttftBudget is 2s"
    )
    (calibration,) = look.calibration
    assert (calibration.observed_milliseconds, calibration.low_milliseconds, calibration.high_milliseconds) == (
        1400,
        1390,
        1410,
    )
    assert calibration.estimated_milliseconds == 1524
    assert calibration.observed_to_estimated == "0.92"


def test_the_worst_prompt_size_decides() -> None:
    before = (*views.agreed(tokens=300), *views.agreed(tokens=3000))
    changes = {"workload.prompts": [{"tokens": 300}, {"tokens": 3000}]}
    seen = views.view(changes=changes, remembered=views.memory(before=before))
    replies = [
        reply(index, tokens=tokens, ttft_seconds=0.4 + (3.0 if tokens == 3000 else 0.1))
        for tokens in (300, 3000)
        for index in range(36)
    ]
    look = ttft_within_budget(views.answered(seen, exams.after_ttft(seen.case, seen.memory), *replies))
    assert (look.progress, "at 3000 tokens" in look.message) == (Progress.FAILED, True)
    assert [entry.prompt_tokens for entry in look.calibration] == [300, 3000]


def test_a_small_rise_is_not_held_against_a_tiny_estimate() -> None:
    seen = views.view(changes={"workload.prompts": [{"tokens": 1}], "workload.peakRequestsPerSecond": None},
                      remembered=views.memory(before=views.agreed(tokens=1)))  # fmt: skip
    exam = exams.after_ttft(seen.case, seen.memory)
    for rise, progress in ((0.019, Progress.PASSED), (0.05, Progress.FAILED)):
        replies = [reply(index, tokens=1, ttft_seconds=0.4 + rise) for index in range(36)]
        assert ttft_within_budget(views.answered(seen, exam, *replies)).progress is progress
