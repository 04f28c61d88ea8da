"""Faults that come with a switch, through a real API server and under load: patched back, and the link is named.

No request is lost beyond those that the fault itself takes. Waiting for a late rollout, the operator's clock is moved.
Where a rollout hangs, the way back has the old hash again, and the worker that never left it serves meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta

import pytest

from kvgate.api.status import PoolStatus
from kvgate.api.words import Capability, ConditionType
from kvgate.core.links import SPANS, Link
from tests.core.ab.trials import experiment
from tests.core.worlds import ROUTING, SPLIT, condition, told
from tests.dynamo_real.switching_gate import ROUTER_ENV, Gate, memory
from tests.dynamo_real.switching_rig import BYTES_PER_SECOND
from tests.dynamo_stage.load import SteadyLoad
from tests.dynamo_stage.specs import Frontend, Role, Worker
from tests.dynamo_stage.standin.batches import Batch
from tests.dynamo_stage.standin.graph import read_graph

pytestmark = [pytest.mark.api, pytest.mark.dynamo, pytest.mark.timeout(400)]

BACK = ConditionType.ROLLED_BACK
LATE = SPANS[Link.GENERATION] + SPANS[Link.ROLLOUT] + timedelta(minutes=1)
NEVER_SECONDS = 3600.0
REQUESTS_PER_SECOND = 8
LONG_ENOUGH = 5 * REQUESTS_PER_SECOND


def never_ready(worker: Worker) -> Worker:
    return replace(worker, loading_seconds=NEVER_SECONDS) if worker.role is Role.PREFILL else worker


def slow(worker: Worker) -> Worker:
    third = replace(worker, kv_transfer_bytes_per_second=BYTES_PER_SECOND / 3)
    return third if worker.role is Role.PREFILL else worker


def crashing(batch: Batch, frontend: Frontend) -> Frontend:
    kv = batch.component.environment.get(ROUTER_ENV) == "kv"
    return replace(frontend, arguments=("--no-such-flag",)) if kv else frontend


@dataclass(frozen=True)
class Fault:
    """What goes wrong with the pods that a switch makes, how it is found, and whether it takes until it is late."""

    capability: Capability
    link: str
    reason: str
    worker: Callable[[Worker], Worker] = lambda worker: worker
    frontend: Callable[[Batch, Frontend], Frontend] = lambda _, frontend: frontend
    late: bool = False


FAULTS = {
    "a prefill that never gets ready, at which the rollout hangs": Fault(
        SPLIT, "RolloutComplete", "RolloutNotComplete", worker=never_ready, late=True
    ),
    "a transfer three times slower than the estimate": Fault(SPLIT, "TTFT", "TTFTAboveEstimate", worker=slow),
    "a frontend that crashes whenever it starts": Fault(
        ROUTING, "RolloutComplete", "RolloutNotComplete", frontend=crashing, late=True
    ),
}


def rolls(status: PoolStatus, capability: Capability) -> bool:
    """Patched, and the deployment's operator has taken it up."""
    found = [one for one in status.verifications if one.capability is capability]
    return any(link.link == Link.GENERATION for one in found for link in one.passed)


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_it_is_patched_back_names_the_link_and_users_see_nothing(fault: Fault, gate: Gate) -> None:
    block = {SPLIT: "disaggregation", ROUTING: "routing"}[fault.capability]
    gate.opened(criteria={block: {"ttftBudget": "2s"} if fault.capability is SPLIT else {}})
    before, generation = gate.modes(), read_graph(gate.deployment()).worker_hash
    gate.swept()
    gate.shaped(fault.worker)
    gate.runtime.frontend_shape = fault.frontend
    with SteadyLoad(gate.door, REQUESTS_PER_SECOND) as load:
        gate.approved() if fault.capability is SPLIT else gate.compared(experiment())
        if fault.late:
            gate.until(lambda seen: rolls(seen, fault.capability), "the rollout")
            load.wait_for(LONG_ENOUGH)
            gate.clock.ahead += LATE
        status = gate.until_off(fault.capability)
        load.wait_for(8)
    assert gate.modes() == before
    assert read_graph(gate.deployment()).worker_hash == generation
    failed = memory(status, fault.capability).failed
    assert failed is not None
    assert (status.history[0].reason, failed.link, failed.reason) == (fault.reason, fault.link, fault.reason)
    assert told(status, BACK) == ("True", fault.capability)
    assert f"{fault.link}: " in condition(status, BACK).message
    assert load.outages() == [], load.told()
    assert len(load.raced()) <= 2, load.told()
