"""The whole switch in a real API server, under load: measured before, patched, verified, or patched back.

Dynamo's operator is played by the stand-in, its pods are real local processes; kvgate's ring, its reading of pods and
cards, its patch and its canaries are the product's own.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvgate.api.words import ConditionType
from tests.core.worlds import actions, condition, told
from tests.dynamo_real.switching_gate import Gate, memory
from tests.dynamo_real.switching_rig import lies
from tests.dynamo_stage.load import SteadyLoad
from tests.dynamo_stage.specs import Role

pytestmark = [pytest.mark.api, pytest.mark.dynamo, pytest.mark.timeout(500)]
ENABLED, BACK, READY = ConditionType.DISAGGREGATION_ENABLED, ConditionType.ROLLED_BACK, ConditionType.READY


def opened(gate: Gate) -> None:
    gate.opened()
    gate.swept()
    gate.approved()


def test_a_healthy_split_is_measured_patched_and_verified_without_an_outage(gate: Gate) -> None:
    opened(gate)
    with SteadyLoad(gate.door, 4) as load:
        status = gate.until(lambda seen: told(seen, ENABLED)[0] == "True", "a verified split")
    assert told(status, READY) == ("True", "Enabled")
    assert gate.modes() == {"Frontend": "round-robin", "PrefillWorker": "prefill", "DecodeWorker": "decode"}
    assert [entry.link for entry in memory(status).passed][-4:] == ["WorkerPaths", "Requests", "Answers", "TTFT"]
    assert memory(status).calibration[0].observed_to_estimated
    assert load.outages() == [], load.told()
    assert len(load.raced()) <= 1, load.told()


def test_a_decode_worker_that_corrupts_is_patched_back_without_an_outage(gate: Gate) -> None:
    opened(gate)
    pool, _ = gate.look()
    wrong = lies(gate.folder, pool.uid)
    gate.shaped(lambda worker: replace(worker, replay=wrong) if worker.role is Role.DECODE else worker)
    with SteadyLoad(gate.door, 4) as load:
        status = gate.until(lambda seen: told(seen, BACK)[0] == "True", "a rollback")
        gate.until_rolled_out()
    assert actions(status) == ["Reverted", "Enabled"]
    assert status.history[0].reason == "AnswersDiffer"
    assert "Answers: " in condition(status, BACK).message
    assert gate.modes() == {"Frontend": "round-robin", "PrefillWorker": "agg", "DecodeWorker": "agg"}
    assert load.outages() == [], load.told()
    assert len(load.raced()) <= 2, load.told()
