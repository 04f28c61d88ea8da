"""KV events get lost while users send requests, through a real API server: every frontend goes back to round-robin.

A worker crashes and its pod starts it again, changed. By the operator's own times: from the status in which the loss
holds, the deployment is to be switched back within monitor.interval + 5 s, and on the running frontends after that.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from kvgate.api.status import PoolStatus
from kvgate.api.words import ConditionType
from tests.cluster.access import Access
from tests.core.ab.trials import experiment
from tests.core.worlds import ROUTING, condition, told
from tests.dynamo_real.switching_gate import ROUTER_ENV, Gate, gated, outages, stopped
from tests.dynamo_stage.load import SteadyLoad
from tests.dynamo_stage.specs import Worker
from tests.dynamo_stage.stage import Stage
from tests.dynamo_stage.standin.local import LocalPod

pytestmark = [pytest.mark.api, pytest.mark.dynamo, pytest.mark.timeout(400)]

EVENTS = ConditionType.KV_EVENTS_HEALTHY
FRONTENDS, REQUESTS_PER_SECOND = 2, 8
INTERVAL = timedelta(seconds=10)
LIMIT = INTERVAL + timedelta(seconds=5)
STAMPED = timedelta(seconds=1)
"""Times in a status are whole seconds."""


@pytest.fixture
def gate(control_plane: Access, stage: Stage, tmp_path: Path) -> Iterator[Gate]:
    with gated(control_plane, stage, tmp_path, replicas=(FRONTENDS, 1, 1)) as made:
        yield made


def silent(worker: Worker) -> Worker:
    """It announces a source of KV events, as before, and never publishes one."""
    return replace(worker, silent=True, zmq_events=False)


def speechless(worker: Worker) -> Worker:
    """Its card says that it publishes no KV events."""
    return replace(worker, prefix_caching=False)


def crash(gate: Gate, change: Callable[[Worker], Worker]) -> LocalPod:
    """The only worker of its component is killed, and comes back in the same pod with this change."""
    gate.shaped(change)
    pod = next(one for one in gate.runtime.pods_of(gate.name) if not one.batch.component.frontend)
    assert pod.running is not None
    before = pod.restarts
    os.kill(pod.running.process.pid, signal.SIGKILL)
    gate.stage.until(lambda: pod.restarts > before and pod.available, "the worker to be back")
    return pod


def healthy(status: PoolStatus) -> bool:
    return told(status, EVENTS)[0] == "True"


def router_modes(gate: Gate) -> list[str]:
    """Of the frontend pods that run and serve."""
    fronts = [pod for pod in gate.runtime.pods_of(gate.name) if pod.batch.component.frontend]
    return [pod.batch.component.environment[ROUTER_ENV] for pod in fronts if pod.available]


@pytest.mark.parametrize(
    ("change", "reasons"),
    [
        pytest.param(
            silent, {"KVEventsSilent"}, id="it announces a source and is silent, though the other worker flows"
        ),
        pytest.param(
            speechless,
            {"KVEventsDisabled", "KVEventSourceMismatch"},
            id="its card says that it publishes none, or the routers' gauge does, whichever is read first",
        ),
    ],
)
def test_a_worker_comes_back_without_events(change: Callable[[Worker], Worker], reasons: set[str], gate: Gate) -> None:
    gate.asked(criteria={"routing": {}}, monitor__interval=f"{INTERVAL.seconds}s")
    with SteadyLoad(gate.door, REQUESTS_PER_SECOND) as load:
        gate.compared(experiment())
        gate.until_on(ROUTING)
        gate.until(healthy, "events that flow")
        assert set(router_modes(gate)) == {"kv"}
        load.phase = "events lost"
        pod = crash(gate, change)
        lost = gate.until(lambda status: told(status, EVENTS)[0] == "False", "the loss to be found")
        found = condition(lost, EVENTS)
        assert found.reason in reasons
        assert pod.name in found.message
        status = gate.until_off(ROUTING)
        gate.stage.until(lambda: router_modes(gate) == ["round-robin"] * FRONTENDS, "round-robin at every frontend")
        load.wait_for(8)
    reverted, enabled = status.history
    assert (enabled.action, enabled.reason) == ("Enabled", "CriteriaMet")
    assert (reverted.action, reverted.reason in reasons) == ("Reverted", True), reverted
    assert timedelta() <= reverted.time - found.last_transition_time <= LIMIT + STAMPED
    assert outages(load) == [], load.told()
    assert len(load.raced()) <= 1, load.told()
    assert len(stopped(load)) <= 2 * FRONTENDS, load.told()
