"""The KV-event probe as its Job: real mock workers under load, one whose engine is not heard, one out of reach."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit

import pytest

from kvgate.api.status import PoolStatus
from kvgate.core.events_seen import Hears
from tests.cluster.access import Access
from tests.cluster.images import PROBE_REFERENCE
from tests.cluster.waiting import eventually
from tests.dynamo_stage.load import SteadyLoad
from tests.dynamo_stage.standin.mapping import EVENTS_PORT
from tests.e2e.dynamo_side import SPACE, UP_SECONDS, Side, mute, nothing_left, of_runs, routing_pool, sides, told_when
from tests.e2e.running import Operator
from tests.e2e.stage import Stage, condition

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]
DOUBT_SECONDS, LISTEN_SECONDS = 150.0, 120.0
"""Workers are judged once they were ready for a minute; those that publish nothing are listened to for another."""


@pytest.fixture
def side(shaped: Stage) -> Iterator[Side]:
    """Four aggregated workers, three of them of one component: what its publishers count, the others must too."""
    with sides(shaped, "") as (made,):
        made.apply(replicas=(1, 3, 1))
        eventually(made.serves, UP_SECONDS)
        eventually(lambda: len(made.event_addresses()) == 4, UP_SECONDS)
        yield made


def lives(side: Side) -> Mapping[str, tuple[str, int]]:
    """Each pod's identity and how often it was started anew, by its name."""
    return {str(pod["metadata"]["name"]): (str(pod["metadata"]["uid"]), _restarts(pod)) for pod in side.pods()}


def _restarts(pod: dict[str, dict[str, list[dict[str, int]]]]) -> int:
    return sum(one["restartCount"] for one in pod["status"]["containerStatuses"])


def log_of(access: Access, job: str) -> list[str]:
    """All that the Job's pod says until it ends."""
    argv = ("logs", "--follow", f"job/{job}", "-n", SPACE)
    return access.kubectl(*argv, check=True, timeout_seconds=LISTEN_SECONDS).stdout.splitlines()


def states(lines: list[str]) -> dict[str, str]:
    told = (json.loads(line) for line in lines if line.startswith("{"))
    return {line["worker"]: line["state"] for line in told}


def heard(status: PoolStatus) -> str:
    return status.routing.events.probe if status.routing is not None and status.routing.events is not None else ""


def test_it_tells_a_worker_that_publishes_from_a_silent_one_and_one_out_of_reach(
    side: Side, shaped: Stage, operator: Operator
) -> None:
    access, addresses = side.access, side.event_addresses()
    silent, unreachable, *healthy = sorted(addresses, key=lambda pod: ("prefill" not in pod, pod))
    mute(silent, EVENTS_PORT)
    mute(unreachable, urlsplit(addresses[unreachable]).port or 0)
    before, generation = lives(side), side.document()["metadata"]["generation"]
    with SteadyLoad(side.frontend(), 4) as load:
        load.wait_for(8, UP_SECONDS)
        access.apply(routing_pool(side, {}, monitor={"interval": "5s"}))
        told_when(shaped, operator, side, "a probe", lambda one: one.events_probe is not None, DOUBT_SECONDS)
        eventually(lambda: [pod["status"]["phase"] for pod in of_runs(access, "pods")] == ["Running"], 60)
        [job] = of_runs(access, "jobs")
        [container] = job["spec"]["template"]["spec"]["containers"]
        assert container["image"] == PROBE_REFERENCE
        lines = log_of(access, job["metadata"]["name"])
        status = told_when(shaped, operator, side, "what it heard", lambda one: bool(heard(one)), 60)
    assert states(lines) == {
        silent: Hears.NOTHING,
        unreachable: Hears.NOT_REACHABLE,
        **dict.fromkeys(healthy, Hears.FLOWS),
    }
    assert heard(status) == "NotReachable 1, PublishesNothing 1, Flows 2"
    said = condition(status, "KVEventsHealthy")
    assert (said.reason, silent in said.message, unreachable in said.message) == ("KVEventsSilent", True, False)

    assert load.failed() == [], load.told()
    assert (lives(side), side.document()["metadata"]["generation"]) == (before, generation)
    eventually(lambda: nothing_left(access), 60)
    shaped.check()
