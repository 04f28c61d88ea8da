"""The chain: its deadlines, its memory, what is on before kvgate, and who may be switched meanwhile."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise

import pytest

from kvgate.api.status import HistoryEntry, LinkFailed, PoolStatus, Verification
from kvgate.api.words import ConditionType
from kvgate.core.links import SPANS, Link, Progress
from kvgate.core.memory import Action, of_this_target
from kvgate.core.target import Switch
from kvgate.core.verification import CHAINS, Chain, resting, under_way, verify
from tests.core import cases, plays, views
from tests.core.plays import Faults, Play
from tests.core.views import NOW, passed
from tests.core.worlds import ROUTING, SPLIT, Scene, actions, opened, told

ALL = tuple(CHAINS[SPLIT])
SECOND = timedelta(seconds=1)
LATE: dict[Link, tuple[dict[str, object], str]] = {
    Link.GENERATION: ({"unobserved": True}, "GenerationNotObserved"),
    Link.ROLLOUT: ({"hangs": True}, "RolloutNotComplete"),
    Link.READINESS: ({"aggregated_still": True}, "WorkerTypesWrong"),
    Link.PATHS: ({}, "WorkersNotObserved"),
    Link.REQUESTS: ({}, "CanaryUnanswered"),
    Link.ANSWERS: ({}, "CanaryUnanswered"),
    Link.TTFT: ({}, "CanaryUnanswered"),
}


def chain(
    remembered: Verification | None = None,
    faults: Faults | None = None,
    later: timedelta = timedelta(),
    history: tuple[HistoryEntry, ...] = (),
    accepted: frozenset[str] = frozenset(),
    **changes: object,
) -> Chain | None:
    """One look at a split that has been on since NOW, by this memory of it; without pods at the nodes of the pool
    where `pods` is False."""
    serving = Play(Scene().switched(Switch.ON), faults or Faults()).serving()
    status = PoolStatus(verifications=(remembered or views.memory(),), history=history)
    scene = Scene(now=NOW + later, status=status, serving=serving).switched(Switch.ON)
    scene = scene.but(**{"workers": plays.pods(), **changes})
    return verify(scene.case, SPLIT, accepted)


def before(link: Link) -> Verification:
    """All links before this one were passed a minute after the start."""
    return views.memory(passed=passed(*ALL[: ALL.index(link)], at=timedelta(minutes=1)))


@pytest.mark.parametrize("link", LATE, ids=str)
def test_a_link_waits_until_its_deadline_and_fails_with_its_reason_then(link: Link) -> None:
    faults, reason = LATE[link]
    since = timedelta() if link is Link.GENERATION else timedelta(minutes=1)
    pods = {"workers": ()} if link is Link.PATHS else {}
    in_time = chain(before(link), Faults(**faults), since + SPANS[link] - SECOND, **pods)  # type: ignore[arg-type]
    late = chain(before(link), Faults(**faults), since + SPANS[link], **pods)  # type: ignore[arg-type]
    assert in_time is not None
    assert late is not None
    assert (in_time.state, in_time.failed) == (Progress.WAITING, None)
    assert f"it is switched back unless that is passed by {_moment(since + SPANS[link])}" in in_time.message
    assert late.failed is not None
    assert (late.state, late.failed.link, late.failed.reason) == (Progress.FAILED, link, reason)
    assert in_time.message.startswith(f"{link}: ")


def _moment(span: timedelta) -> str:
    return f"{NOW + span:%Y-%m-%dT%H:%M:%SZ}"


def test_the_first_look_begins_the_memory_and_keeps_what_was_measured_before() -> None:
    fresh = views.memory(started_at=None, failed=LinkFailed(link="TTFT", reason="TTFTBudgetExceeded", time=NOW))
    found = chain(fresh, Faults(unobserved=True), later=SECOND)
    assert found is not None
    assert found.memory.started_at == NOW + SECOND
    assert found.memory.before == fresh.before
    assert found.memory.failed is None


def test_a_link_that_was_passed_is_not_looked_at_again() -> None:
    found = chain(before(Link.REQUESTS), Faults(hangs=True))
    assert found is not None
    assert found.exam is not None, "the requests are asked, whatever the rollout says now"


def test_a_link_in_doubt_lends_its_time_to_the_next() -> None:
    """Answers were in doubt and not passed: TTFT may take the time of both."""
    doubtful = before(Link.ANSWERS).model_copy(update={"before": views.agreed(3)})
    both = SPANS[Link.ANSWERS] + SPANS[Link.TTFT] + timedelta(minutes=1)
    in_time, late = (chain(doubtful, later=span) for span in (both - SECOND, both))
    assert in_time is not None
    assert late is not None
    assert in_time.state is Progress.WAITING
    assert late.failed is not None
    assert late.failed.link == Link.TTFT


def test_a_failure_in_the_memory_stands_whatever_is_seen() -> None:
    failed = LinkFailed(link="Answers", reason="AnswersDiffer", message="18 of 20", time=NOW)
    found = chain(views.memory(failed=failed))
    assert found is not None
    assert (found.state, found.message) == (Progress.FAILED, "Answers: 18 of 20")


TAKEN_OVER = (HistoryEntry(time=NOW, action=Action.ADOPTED, capability=SPLIT, reason="AdoptedBySpec"),)


def test_what_was_on_before_kvgate_is_left_to_a_person_where_it_cannot_be_seen() -> None:
    late = chain(before(Link.READINESS), Faults(unreachable=True), timedelta(minutes=50), TAKEN_OVER)
    assert late is not None
    assert (late.state, late.failed) == (Progress.INCONCLUSIVE, None)
    assert late.message.startswith("FrontendsNotObserved: ModelReady: ")


def test_what_was_on_before_kvgate_goes_back_where_it_is_seen_to_be_bad() -> None:
    seen = views.memory(before=(), passed=passed("GenerationObserved", at=timedelta(minutes=-5)))
    found = chain(seen, Faults(fails=True), history=TAKEN_OVER)
    assert found is not None
    assert found.failed is not None


NOBODY_ACTS: dict[str, dict[str, object]] = {
    "there are no pods to look at": {"serving": None},
    "the mode never patches": {"spec": cases.spec({"mode": "Observe"})},
    "the pool is suspended": {"spec": cases.spec({"mode": "Enforce", "suspend": True})},
    "an older pool owns the target": {"claimed_by": "elder"},
    "the pool is being deleted": {"deleted": True},
}


@pytest.mark.parametrize("changes", NOBODY_ACTS.values(), ids=NOBODY_ACTS)
def test_nothing_is_looked_at_where_kvgate_would_not_act(changes: dict[str, object]) -> None:
    assert chain(**changes) is None  # type: ignore[arg-type]


def test_in_a_directory_it_stays_unknown_as_nobody_looks() -> None:
    scene = opened()
    decision = scene.later(days=30).measured(250e6).decide()
    assert told(decision.status, ConditionType.DISAGGREGATION_ENABLED) == ("Unknown", "AwaitingVerification")
    assert decision.patches == ()


def test_a_confirmed_failure_of_the_fabric_does_not_wait_for_the_chain() -> None:
    play = plays.approved(hangs=True)
    play.until(ConditionType.DISAGGREGATION_ENABLED, "Unknown", "AwaitingVerification")
    play.scene = play.scene.measured(60e6).later(minutes=1).measured(60e6)
    decision = play.until(ConditionType.ROLLED_BACK, "True", "Disaggregation", most=4)
    assert decision.status.history[0].reason == "TTFTBudgetExceeded"


def test_a_suspended_pool_keeps_its_memory_and_its_deadline() -> None:
    play = plays.approved(hangs=True)
    play.until(ConditionType.DISAGGREGATION_ENABLED, "Unknown", "AwaitingVerification")
    kept = play.decisions[-1].status.verifications
    play.scene = play.scene.asking(suspend=True)
    assert play.turn().status.verifications == kept
    play.scene = play.scene.asking(suspend=False).later(hours=1)
    play.until(ConditionType.ROLLED_BACK, "True", "Disaggregation", most=4)


def test_another_deployment_of_the_same_name_begins_anew() -> None:
    play = plays.approved()
    status = play.until(ConditionType.DISAGGREGATION_ENABLED, "True", "Verified").status
    assert status.verifications
    assert of_this_target(status, "another-uid").verifications == ()
    assert of_this_target(status, "target-uid") == status


def test_switched_off_by_another_hand_it_forgets_when_it_was_on() -> None:
    kept = resting(views.memory(passed=passed("GenerationObserved"), verified_at=NOW))
    assert kept == Verification(capability=SPLIT)
    failed = LinkFailed(link="TTFT", reason="TTFTBudgetExceeded", time=NOW)
    assert resting(views.memory(failed=failed)) == Verification(capability=SPLIT, failed=failed)
    prepared = views.memory(started_at=None)
    assert resting(prepared) == prepared


WAITING: dict[str, tuple[Verification, timedelta, bool]] = {
    "it is being verified": (views.memory(), timedelta(), True),
    "it is verified": (views.memory(verified_at=NOW), timedelta(), False),
    "it has failed": (
        views.memory(failed=LinkFailed(link="TTFT", reason="TTFTBudgetExceeded", time=NOW)),
        timedelta(),
        False,
    ),
    "it was only measured": (views.memory(started_at=None), timedelta(), False),
    "its verification never ends": (views.memory(), timedelta(hours=3), False),
}


@pytest.mark.parametrize(("remembered", "later", "waits"), WAITING.values(), ids=WAITING)
def test_one_capability_waits_for_the_verification_of_the_other(
    remembered: Verification, later: timedelta, waits: bool
) -> None:
    status = PoolStatus(verifications=(remembered,))
    scene = Scene(status=status, serving=Play(Scene()).serving(), now=NOW + later)
    assert under_way(scene.case, ROUTING) is waits
    assert not under_way(scene.case, SPLIT)
    assert not under_way(scene.but(serving=None).case, ROUTING)


def test_inconclusive_is_told_until_a_person_accepts_it_by_name() -> None:
    play = plays.approved(added_seconds=1.99)
    play.scene = play.scene.asking(criteria__disaggregation__ttftBudget="1990ms")
    play.turn()
    play.scene = play.scene.but(approvals=()).approved()
    decision = play.until(ConditionType.DISAGGREGATION_ENABLED, "Unknown", "VerificationInconclusive")
    assert told(decision.status, ConditionType.READY) == ("False", "VerificationInconclusive")
    assert actions(decision.status) == ["Enabled"]
    for _ in range(3):
        assert play.turn().patches == ()
    play.scene = play.scene.approved(acceptInconclusive=["TTFTInconclusive"])
    play.until(ConditionType.DISAGGREGATION_ENABLED, "True", "Verified", most=4)


def inconclusive(restarts: bool = False) -> Play:
    """A split whose TTFT lies on both sides of the budget, and nobody accepted that."""
    play = plays.approved(added_seconds=1.99, restarts=restarts)
    play.scene = play.scene.asking(criteria__disaggregation__ttftBudget="1990ms")
    play.turn()
    play.scene = play.scene.but(approvals=()).approved()
    if not restarts:
        play.until(ConditionType.DISAGGREGATION_ENABLED, "Unknown", "VerificationInconclusive")
    return play


def told_of_split(play: Play) -> tuple[str, str]:
    return told(play.decisions[-1].status, ConditionType.DISAGGREGATION_ENABLED)


def test_what_was_inconclusive_is_asked_again_ever_less_often() -> None:
    play, asked_at = inconclusive(), list[int]()
    began, play.seconds = play.scene.now, 60.0
    for _ in range(24 * 60):
        count = len(play.asked)
        assert play.turn().patches == ()
        minute = round((play.scene.now - began).total_seconds() / 60)
        asked_at += [minute] * (len(play.asked) - count)
    gaps = [later - earlier for earlier, later in pairwise(asked_at)]
    assert 10 <= asked_at[0] <= 12
    assert gaps == sorted(gaps)
    assert gaps[0] >= 10
    assert 360 <= gaps[-1] <= 362
    assert len(asked_at) < 10
    assert play.decisions[-1].requeue_after_seconds <= 60.0


def test_what_was_inconclusive_passes_once_the_prompts_that_are_put_again_say_so() -> None:
    play = inconclusive()
    play.faults, play.seconds = Faults(added_seconds=1.5), 60.0
    status = play.until(ConditionType.DISAGGREGATION_ENABLED, "True", "Verified", most=15).status
    (kept,) = status.verifications
    assert kept.inconclusive_since is None


def test_what_was_inconclusive_goes_back_once_it_is_seen_to_be_bad() -> None:
    play = inconclusive()
    play.faults, play.seconds = Faults(added_seconds=5.0), 60.0
    decision = play.until(ConditionType.ROLLED_BACK, "True", "Disaggregation", most=15)
    assert decision.status.history[0].reason == "TTFTBudgetExceeded"


@pytest.mark.parametrize(
    "away",
    [
        pytest.param({"refuses": True}, id="the prompts are refused"),
        pytest.param({}, id="kvgate began anew and has no answers yet"),
    ],
)
def test_what_was_inconclusive_is_not_late_when_it_is_asked_again(away: dict[str, object]) -> None:
    play = inconclusive()
    play.scene = play.scene.later(hours=5).measured(250e6)
    play.faults, play.restarts = Faults(added_seconds=1.99, **away), not away  # type: ignore[arg-type]
    play.results.clear()
    for _ in range(20):
        assert play.turn().patches == ()
        assert told_of_split(play) == ("Unknown", "VerificationInconclusive")


def test_a_look_that_changes_nothing_writes_nothing() -> None:
    play = plays.approved(hangs=True)
    play.until(ConditionType.DISAGGREGATION_ENABLED, "Unknown", "AwaitingVerification")
    play.turn()
    before_it = play.scene.status
    assert play.turn().status == before_it


def test_every_link_has_its_span_and_its_look() -> None:
    assert set(SPANS) == set(Link)
    assert list(CHAINS[SPLIT]) == list(Link)
    assert set(CHAINS[ROUTING]) < set(Link)
