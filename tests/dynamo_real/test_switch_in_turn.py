"""Both capabilities switched on and off in turn, through a real API server, while users send requests: what one does
leaves the other as it is, and nobody sees an outage.

Eight requests a second through the live frontend. Dynamo itself may lose one in each change of a generation, and one
in a frontend that stops.
"""

from __future__ import annotations

import pytest

from kvgate.core.ab.experiment import Arm
from tests.core.ab.trials import experiment, run
from tests.core.worlds import ROUTING, SPLIT
from tests.dynamo_real.switching_gate import Gate, outages, stopped
from tests.dynamo_stage.load import SteadyLoad

pytestmark = [pytest.mark.api, pytest.mark.dynamo, pytest.mark.timeout(400)]

REQUESTS_PER_SECOND = 8
SWITCHES, FRONTEND_ROLLS = 4, 2
BOTH = {"routing": {}, "disaggregation": {"ttftBudget": "2s"}}
WON = experiment()
LOST = experiment(runs=tuple(run(block, arm, 2.0 if arm is Arm.KV else 1.0) for block in range(8) for arm in Arm))
WHOLE, SPLIT_UP = ("agg", "agg"), ("prefill", "decode")


def held(gate: Gate) -> tuple[str, tuple[str, str]]:
    found = gate.modes()
    return found["Frontend"], (found["PrefillWorker"], found["DecodeWorker"])


def test_routing_then_the_split_and_off_again_in_the_same_order(gate: Gate) -> None:
    gate.opened(criteria=BOTH, rollback__onApprovalLost="Revert")
    gate.swept()
    with SteadyLoad(gate.door, REQUESTS_PER_SECOND) as load:
        gate.compared(WON)
        gate.until_on(ROUTING)
        assert held(gate) == ("kv", WHOLE)
        load.phase = "split on"
        gate.approved()
        gate.until_on(SPLIT)
        assert held(gate) == ("kv", SPLIT_UP), "the A/B of the aggregated workers says nothing bad of the split ones"
        load.phase = "kv off"
        gate.compared(LOST)
        status = gate.until_off(ROUTING)
        assert held(gate) == ("round-robin", SPLIT_UP)
        load.phase = "split off"
        gate.withdrawn()
        status = gate.until_off(SPLIT)
        assert held(gate) == ("round-robin", WHOLE)
        load.wait_for(8)
    told = [(one.capability, one.action, one.reason) for one in reversed(status.history)]
    assert told == [
        (ROUTING, "Enabled", "CriteriaMet"),
        (SPLIT, "Enabled", "CriteriaMet"),
        (ROUTING, "Reverted", "GainTooSmall"),
        (SPLIT, "Reverted", "ApprovalMissing"),
    ]
    assert status.target is not None
    assert status.target.baseline == ()
    assert outages(load) == [], load.told()
    assert len(load.raced()) <= SWITCHES, load.told()
    assert len(stopped(load)) <= FRONTEND_ROLLS, load.told()


def test_the_split_then_routing_and_both_off_with_the_pool(gate: Gate) -> None:
    off = {"routing": "Revert", "disaggregation": "Revert"}
    gate.opened(criteria=BOTH, rollback__onDelete=off)
    gate.swept()
    with SteadyLoad(gate.door, REQUESTS_PER_SECOND) as load:
        gate.approved()
        gate.until_on(SPLIT)
        assert held(gate) == ("round-robin", SPLIT_UP)
        load.phase = "kv on"
        gate.compared(WON)
        gate.until_on(ROUTING)
        assert held(gate) == ("kv", SPLIT_UP)
        load.phase = "both off"
        gate.until_gone()
        assert held(gate) == ("round-robin", WHOLE)
        load.wait_for(8)
    assert outages(load) == [], load.told()
    assert len(load.raced()) <= SWITCHES, load.told()
    assert len(stopped(load)) <= FRONTEND_ROLLS, load.told()
