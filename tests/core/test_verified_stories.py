"""Whole stories of a switch on a running deployment: verified, or switched back by the link that failed."""

from __future__ import annotations

import pytest

from kvgate.api.status import PoolStatus, Verification
from kvgate.api.words import ConditionType
from kvgate.core.target import Switch
from tests.core.plays import Play, approved
from tests.core.worlds import SPLIT, actions, told

ENABLED, READY = ConditionType.DISAGGREGATION_ENABLED, ConditionType.READY
BACK = ConditionType.ROLLED_BACK


def memory(status: PoolStatus) -> Verification:
    return next(entry for entry in status.verifications if entry.capability is SPLIT)


def message(status: PoolStatus, kind: str) -> str:
    return next(held.message for held in status.conditions if held.type == kind)


@pytest.mark.parametrize("restarts", [False, True], ids=["kvgate stays", "kvgate restarts after every look"])
def test_a_healthy_split_is_measured_before_switched_on_and_verified_by_every_link(restarts: bool) -> None:
    play = approved()
    decision = play.turn()
    assert [type(step).__name__ for step in decision.steps] == ["Prepare"]
    assert told(decision.status, READY) == ("True", "HoldingForBaseline")
    decision = play.until(ENABLED, "Unknown", "AwaitingVerification")
    before = memory(decision.status).before
    assert [(entry.prompt_tokens, len(entry.agreed)) for entry in before] == [(3000, 20)]
    assert len(before[0].ttft_microseconds) >= 30
    assert told(decision.status, READY)[0] == "Unknown"

    play.restarts = restarts
    if restarts:
        play.results.clear()
        _forgetful(play)
        return
    decision = play.until(ENABLED, "True", "Verified")
    _whole(decision.status)


def _forgetful(play: Play) -> None:
    """Every second look finds nothing of what was asked before it; links that were passed stay passed."""
    for index in range(400):
        if index % 3 == 2:
            play.results.clear()
        play.restarts = False
        decision = play.turn()
        if told(decision.status, ENABLED) == ("True", "Verified"):
            _whole(decision.status)
            return
    raise AssertionError("never verified")


def _whole(status: PoolStatus) -> None:
    links = [entry.link for entry in memory(status).passed]
    assert links == [
        "GenerationObserved",
        "RolloutComplete",
        "ModelReady",
        "WorkerPaths",
        "Requests",
        "Answers",
        "TTFT",
    ]
    (calibration,) = memory(status).calibration
    assert calibration.observed_milliseconds == pytest.approx(1300, abs=5)
    assert calibration.observed_to_estimated == "0.85"
    assert told(status, READY) == ("True", "Enabled")
    assert actions(status) == ["Enabled"]


FAULTS = {
    "the operator never takes the change up": ({"unobserved": True}, "GenerationNotObserved", "GenerationObserved"),
    "a rollout that hangs": ({"hangs": True}, "RolloutNotComplete", "RolloutComplete"),
    "a rollout that fails": ({"fails": True}, "RolloutFailed", "RolloutComplete"),
    "a prefill that never gets ready": ({"never_ready": True}, "ModelNotReady", "ModelReady"),
    "workers that stay aggregated": ({"aggregated_still": True}, "WorkerTypesWrong", "ModelReady"),
    "frontends that cannot be reached": ({"unreachable": True}, "FrontendsNotObserved", "ModelReady"),
    "requests that are refused": ({"refuses": True}, "CanaryFailed", "Requests"),
    "prefill and decode by one worker": ({"local_prefill": True}, "NoRemotePrefill", "Requests"),
    "answers that do not say who served them": ({"silent_ids": True}, "RemotePrefillUnproven", "Requests"),
    "a decode worker that corrupts its answers": ({"corrupt": 22}, "AnswersDiffer", "Answers"),
    "a transfer beyond the budget": ({"added_seconds": 3.9}, "TTFTBudgetExceeded", "TTFT"),
}


@pytest.mark.parametrize(("faults", "reason", "link"), FAULTS.values(), ids=FAULTS)
def test_a_link_that_fails_or_is_late_switches_back_and_is_named(
    faults: dict[str, object], reason: str, link: str
) -> None:
    play = approved(**faults)
    play.until(ENABLED, "Unknown", "AwaitingVerification")
    play.seconds = 20.0
    decision = play.until(BACK, "True", "Disaggregation")
    assert not play.split
    assert actions(decision.status) == ["Reverted", "Enabled"]
    assert decision.status.history[0].reason == reason
    assert reason in message(decision.status, BACK)
    assert f"{link}: " in message(decision.status, BACK)
    assert told(decision.status, READY) == ("True", "RolledBack")
    assert not [held for held in play.decisions if len(held.patches) > 1]
    assert sum(len(held.patches) for held in play.decisions) == 2


def test_the_patch_back_is_written_in_the_turn_that_sees_the_failure_and_ready_says_progressing() -> None:
    play = approved(fails=True)
    play.until(ENABLED, "Unknown", "AwaitingVerification")
    decision = play.until(ENABLED, "False", "VerificationFailed")
    assert [type(step).__name__ for step in decision.steps] == ["Revert"]
    assert told(decision.status, READY) == ("Unknown", "Progressing")
    assert "RolloutComplete" in message(decision.status, ENABLED)


def test_a_failure_stays_one_though_the_deployment_recovers_before_it_is_patched_back() -> None:
    play = approved(fails=True)
    play.until(ENABLED, "Unknown", "AwaitingVerification")
    decision = play.until(ENABLED, "False", "VerificationFailed")
    assert memory(decision.status).failed is not None
    healed = Play(play.scene.switched(Switch.ON))
    decision = healed.turn()
    assert [type(step).__name__ for step in decision.steps] == ["Revert"]


def test_a_slow_transfer_within_the_budget_is_switched_back_above_twice_the_estimate() -> None:
    play = approved(added_seconds=4.0)
    play.scene = play.scene.asking(criteria__disaggregation__ttftBudget="60s").but(approvals=())
    play.turn()
    play.scene = play.scene.approved()
    decision = play.until(BACK, "True", "Disaggregation")
    assert decision.status.history[0].reason == "TTFTAboveEstimate"
    assert memory(decision.status).calibration[0].observed_to_estimated == "2.63"


def test_a_corruption_that_comes_later_is_found_by_the_watch_at_the_monitor_interval() -> None:
    play = approved()
    play.until(ENABLED, "True", "Verified")
    play.seconds = 16.0
    for _ in range(5):
        assert told(play.turn().status, ENABLED) == ("True", "Verified")
    assert play.asked[-3:] == ["Answers"] * 3
    play.faults = type(play.faults)(corrupt=21)
    decision = play.until(BACK, "True", "Disaggregation", most=10)
    assert decision.status.history[0].reason == "AnswersDiffer"


def test_a_verified_split_writes_nothing_more_and_looks_again_at_the_interval() -> None:
    play = approved()
    decision = play.until(ENABLED, "True", "Verified")
    play.seconds = 16.0
    again = play.turn()
    assert again.status == decision.status
    assert again.requeue_after_seconds == 15.0


def test_prompts_that_do_not_agree_with_themselves_hold_the_split_until_a_person_accepts_that() -> None:
    play = approved(unstable=True)
    for _ in range(6):
        decision = play.turn()
    assert told(decision.status, READY) == ("True", "HoldingForBaseline")
    assert "an approval that accepts AnswersInconclusive by name" in message(decision.status, READY)
    assert "0 at 3000 tokens" in message(decision.status, READY)
    play.scene = play.scene.approved(acceptInconclusive=["AnswersInconclusive"])
    decision = play.until(ENABLED, "True", "Verified")
    assert "Answers" in [entry.link for entry in memory(decision.status).passed]


def test_what_was_measured_before_counts_for_an_hour_and_for_its_plan_alone() -> None:
    play = approved()
    play.scene = play.scene.switched(Switch.OFF, conflict="argocd")
    play.turn()
    assert play.asked == [], "nothing is asked while another thing holds"


def test_a_split_that_was_rolled_back_is_measured_anew_before_it_is_opened_again() -> None:
    play = approved(fails=True)
    play.until(BACK, "True", "Disaggregation")
    play.faults = type(play.faults)()
    play.asked.clear()
    play.scene = play.scene.later(hours=2).measured(250e6)
    play.turn()
    play.scene = play.scene.approved()
    decision = play.until(ENABLED, "True", "Verified")
    assert play.asked.count("TTFT") == 2
    assert memory(decision.status).failed is None
    assert actions(decision.status) == ["Enabled", "Reverted", "Enabled"]
