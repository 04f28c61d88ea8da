"""What is measured before the split is opened: when, how much of it counts, and for how long."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from kvgate.api.status import PoolStatus, Verification
from kvgate.core import exams
from kvgate.core.preparing import Preparation, prepare
from kvgate.core.serving import ExamResult, Reply
from kvgate.core.target import Switch
from kvgate.core.workers import PodRole
from tests.core import cases, plays
from tests.core.plays import Play
from tests.core.views import NOW, agreed, reply
from tests.core.worlds import ROUTING, SPLIT, Scene

HASH = f"v1:sha256:{'a' * 64}"
PREPARED = Verification(capability=SPLIT, plan_hash=HASH, before_at=NOW, before=agreed())


def scene(remembered: Verification | None = None, later: timedelta = timedelta(), **changes: object) -> Scene:
    status = PoolStatus(verifications=(remembered,) if remembered else ())
    plain = Scene(status=status, serving=Play(Scene()).serving(), workers=plays.pods(), now=NOW + later)
    return plain.but(**changes)


def prepared(seen: Scene, accepted: frozenset[str] = frozenset(), digest: str = HASH) -> Preparation:
    found = prepare(seen.case, SPLIT, digest, accepted)
    assert found is not None
    return found


NOT_NEEDED: dict[str, dict[str, object]] = {
    "there are no pods to look at": {"serving": None},
    "no frontend pod serves anybody": {"workers": cases.pods(PodRole.PREFILL, "p1")},
    "the last frontend is leaving": {"workers": cases.pods(PodRole.FRONTEND, "f1", leaving=True)},
    "the mode never patches": {"spec": cases.spec({"mode": "Recommend"})},
}


@pytest.mark.parametrize("changes", NOT_NEEDED.values(), ids=NOT_NEEDED)
def test_nothing_is_measured_where_nobody_could_be_asked_or_nothing_is_switched(changes: dict[str, object]) -> None:
    assert prepare(scene(**changes).case, SPLIT, HASH, frozenset()) is None  # type: ignore[arg-type]


def test_routing_is_compared_with_nothing() -> None:
    assert prepare(scene().case, ROUTING, HASH, frozenset()) is None


STANDS: dict[str, tuple[timedelta, str, bool]] = {
    "just now": (timedelta(), HASH, True),
    "less than an hour ago": (timedelta(minutes=59, seconds=59), HASH, True),
    "an hour ago": (timedelta(hours=1), HASH, False),
    "for another plan": (timedelta(), f"v1:sha256:{'b' * 64}", False),
}


@pytest.mark.parametrize(("age", "digest", "ready"), STANDS.values(), ids=STANDS)
def test_a_measurement_counts_for_an_hour_and_for_its_plan(age: timedelta, digest: str, ready: bool) -> None:
    found = prepared(scene(PREPARED, age), digest=digest)
    assert found.ready is ready
    assert (found.exam is None) is ready
    assert found.memory == PREPARED


def test_a_measurement_from_before_the_last_enabling_does_not_count() -> None:
    on = PREPARED.model_copy(update={"started_at": NOW})
    assert not prepared(scene(on)).ready


def times(count: int = 42) -> tuple[Reply, ...]:
    return tuple(reply(index, pair=(index % 4, index % 4)) for index in range(count))


def answers(stable: int = 20, rounds: int = 3) -> tuple[Reply, ...]:
    """Of twenty prompts the first `stable` gave one answer in each round."""
    return tuple(
        reply(seed, round=number, answer=f"digest-{seed}" if seed < stable else f"{seed}-{number}")
        for number in range(rounds)
        for seed in range(20)
    )


def after(timed: tuple[Reply, ...], answered: tuple[Reply, ...], **changes: object) -> Scene:
    seen = scene(**changes)  # type: ignore[arg-type]
    exam, other = exams.before_ttft(seen.case, SPLIT, HASH), exams.before_answers(seen.case, SPLIT, HASH)
    results = {exam.id: ExamResult(exam.id, NOW, timed), other.id: ExamResult(other.id, NOW, answered)}
    serving = seen.serving
    assert serving is not None
    return seen.but(serving=replace(serving, results=results))


def test_times_first_then_answers_then_it_is_ready() -> None:
    first = prepared(scene())
    assert first.exam is not None
    assert (first.exam.kind, first.exam.decodes, first.exam.prefills) == ("TTFT", 4, 0)
    found = prepared(after(times(), answers()))
    assert (found.ready, found.exam) == (True, None)
    (before,) = found.memory.before
    assert (len(before.ttft_microseconds), len(before.agreed)) == (42 - 3 * 4, 20)
    assert before.agreed[3].digest == "digest-3"
    assert (found.memory.plan_hash, found.memory.before_at) == (HASH, NOW)


POOR = {
    "nine prompts agree with themselves": (times(), answers(9), "AnswersInconclusive", "9 at 3000 tokens"),
    "each was asked twice only": (times(), answers(rounds=2), "AnswersInconclusive", "0 at 3000 tokens"),
    "too few times after the warm-up": (times(17), answers(), "TTFTInconclusive", "5 times at 3000 tokens"),
}


@pytest.mark.parametrize(("timed", "answered", "reason", "word"), POOR.values(), ids=POOR)
def test_a_poor_baseline_holds_until_a_person_accepts_it_by_name(
    timed: tuple[Reply, ...], answered: tuple[Reply, ...], reason: str, word: str
) -> None:
    found = prepared(after(timed, answered))
    assert (found.ready, found.exam) == (False, None)
    assert word in found.message
    assert f"accepts {reason} by name" in found.message
    assert prepared(after(timed, answered), frozenset({reason})).ready
    again = prepared(after(timed, answered, later=timedelta(minutes=10)))
    assert again.exam is not None, "asked again after ten minutes"


def test_ten_agreed_prompts_are_enough() -> None:
    assert prepared(after(times(), answers(10))).ready


def test_requests_that_fail_hold_and_are_told() -> None:
    failed = (*times(), *(reply(99, failure="HTTP503") for _ in range(3)))
    found = prepared(after(failed, answers()))
    assert not found.ready
    assert found.message == (
        "times before the switch are not measured yet: 3 of 45 canary requests failed: 3 × HTTP503"
    )


def test_answers_that_arrived_over_an_hour_ago_do_not_count() -> None:
    found = prepared(after(times(), answers(), later=timedelta(hours=1)))
    assert not found.ready
    assert found.exam is not None


def test_a_deployment_that_is_on_is_no_baseline() -> None:
    play = Play(Scene().switched(Switch.ON))
    assert play.turn().steps == ()
