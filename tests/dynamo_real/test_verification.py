"""The chain after a patch against real frontends: splits healthy and faulty, and routers switched or not."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvgate.api.status import Verification
from kvgate.api.words import ConditionType
from kvgate.core.links import Progress
from tests.core import worlds
from tests.core.worlds import ROUTING, SPLIT, told
from tests.dynamo_real.switching_rig import BYTES_PER_SECOND, TOKENS, Rig, lies, timed, truth
from tests.dynamo_stage.specs import Frontend, Role, RouterMode, Worker
from tests.dynamo_stage.stage import Stage

pytestmark = [pytest.mark.dynamo, pytest.mark.timeout(400)]

ENABLED, BACK, READY = ConditionType.DISAGGREGATION_ENABLED, ConditionType.ROLLED_BACK, ConditionType.READY
BYTES = TOKENS * 114_688


def memory(rig: Rig) -> Verification:
    return next(entry for entry in rig.scene.status.verifications if entry.capability is SPLIT)


def test_a_healthy_split_is_verified_and_its_rise_of_the_ttft_is_the_estimated_one(
    stage: Stage, tmp_path: Path
) -> None:
    good = truth(tmp_path)
    split = {
        "p1": timed(Role.PREFILL, good), "p2": timed(Role.PREFILL, good),
        "d1": timed(Role.DECODE, good), "d2": timed(Role.DECODE, good),
    }  # fmt: skip
    rig = Rig(stage, tmp_path, split)
    rig.open()
    decision = rig.until_told(ENABLED, "True", "Verified")
    assert told(decision.status, READY) == ("True", "Enabled")
    assert [entry.link for entry in memory(rig).passed][-3:] == ["Requests", "Answers", "TTFT"]
    (calibration,) = memory(rig).calibration
    transfer = 1000 * BYTES / BYTES_PER_SECOND
    assert calibration.observed_milliseconds == pytest.approx(transfer, rel=0.35)
    assert calibration.low_milliseconds > 0
    for _ in range(4):
        assert told(rig.turn().status, ENABLED) == ("True", "Verified")
    answered = worlds.condition(rig.scene.status, ENABLED)
    assert "WorkerPaths" in answered.message


def test_a_decode_worker_that_corrupts_its_answers_is_found_and_the_split_goes_back(
    stage: Stage, tmp_path: Path
) -> None:
    good = truth(tmp_path)
    split = {
        "p1": timed(Role.PREFILL, good),
        "d1": timed(Role.DECODE, good),
        "d2": timed(Role.DECODE, lies(tmp_path)),
    }
    _goes_back(Rig(stage, tmp_path, split), "AnswersDiffer", "Answers")


def test_a_prefill_that_never_gets_ready_is_an_outage_and_the_split_goes_back(stage: Stage, tmp_path: Path) -> None:
    """The stage's operator stops the old generation all the same, as pods that are Ready let it."""
    split = {"d1": timed(Role.DECODE, truth(tmp_path))}
    rig = Rig(stage, tmp_path, split)
    _goes_back(rig, "ModelNotReady", "ModelReady")
    assert "monitor.modelNotReadyFor is 5s" in worlds.condition(rig.scene.status, BACK).message


def test_a_transfer_three_times_slower_than_the_estimate_goes_back_though_the_budget_bears_it(
    stage: Stage, tmp_path: Path
) -> None:
    good = truth(tmp_path)
    slow = timed(Role.PREFILL, good, BYTES_PER_SECOND / 3)
    rig = Rig(stage, tmp_path, {"p1": slow, "d1": timed(Role.DECODE, good)})
    _goes_back(rig, "TTFTAboveEstimate", "TTFT")
    (calibration,) = memory(rig).calibration
    assert 2.0 < float(calibration.observed_to_estimated) < 4.0


def _goes_back(rig: Rig, reason: str, link: str) -> None:
    rig.open()
    decision = rig.until_told(BACK, "True", "Disaggregation")
    assert not rig.is_split
    assert worlds.actions(decision.status) == ["Reverted", "Enabled"]
    failed = memory(rig).failed
    assert failed is not None
    assert (decision.status.history[0].reason, failed.reason, failed.link) == (reason, reason, link)
    assert f"{link}: " in worlds.condition(decision.status, BACK).message
    assert told(decision.status, READY) == ("True", "RolledBack")
    front = rig.fronts[0]
    rig.stage.until(lambda: front.door.chat("hello").good, "the aggregated workers to serve again", front)


@pytest.mark.parametrize(
    ("modes", "progress", "word"),
    [
        ((RouterMode.KV, RouterMode.KV), Progress.PASSED, "Requests"),
        ((RouterMode.KV, RouterMode.ROUND_ROBIN), Progress.WAITING, "no KV router chose the worker behind frontend f2"),
    ],
    ids=["both frontends route by KV cache", "one frontend still goes round-robin"],
)
def test_routing_is_verified_at_every_frontend_replica(
    modes: tuple[str, str], progress: Progress, word: str, stage: Stage, tmp_path: Path
) -> None:
    rig = Rig(stage, tmp_path, {})
    stage.workers(a1=Worker(), a2=Worker())
    rig.fronts = [stage.frontend(name, Frontend(mode)) for name, mode in zip(("f1", "f2"), modes, strict=True)]
    for front in rig.fronts:
        stage.until_ready(front)
    found = rig.verified(
        ROUTING, lambda chain: chain.exam is None and chain.state is progress and word in chain.message
    )
    assert found.state is progress
