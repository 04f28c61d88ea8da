"""The operator as a pod from its own image: started, probed, told its settings and restarted by a real kubelet."""

from __future__ import annotations

import os
import secrets
import signal
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvgate.api.status import PoolStatus
from kvgate.app.operator.election import LEASE_SECONDS
from kvgate.app.operator.main import HEALTH_PORT
from tests.cluster.waiting import eventually
from tests.e2e.podded import Pod, PodOperator, podded, process_id
from tests.e2e.stage import SPLIT, Scene, Stage, condition, is_false, is_split, leave, ready, waits_for_approval

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

HUNG_SECONDS = 90.0
"""Three probes ten seconds apart, ten that a hung process does not use to end, and the start of the next."""
USER = 65532
LARGEST_BYTES = 200 * 2**20


@pytest.fixture(scope="module")
def operator_pod(
    stage: Stage, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PodOperator]:
    if stage.cluster is None:
        pytest.skip("the operator's image can be given to the nodes of the tests' own cluster alone")
    stage.cluster.load_image(request.getfixturevalue("operator_archive"))
    with podded(stage.access, tmp_path_factory.mktemp("overlay")) as made:
        yield made


@pytest.fixture
def scene(shaped: Stage, operator_pod: PodOperator) -> Iterator[Scene]:
    """It asks for no more of its operator than the last words."""
    made = Scene(shaped, operator_pod, f"pod-{secrets.token_hex(2)}")  # type: ignore[arg-type]
    made.deploy()
    yield made
    leave(shaped.access, made.name)
    shaped.check()


@pytest.fixture
def leader(operator_pod: PodOperator, stage: Stage) -> Pod:
    pod = operator_pod.leader()
    operator_pod.settle({"probe": {"image": stage.image}})
    return pod


def lacks_an_image(status: PoolStatus) -> bool:
    return "must set probe.image" in condition(status, "FabricMeasured").message


def resident_bytes(pid: int) -> int:
    lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(lines["VmRSS"].split()[0]) * 1024


def test_it_is_started_as_it_ships_and_takes_settings_while_it_runs(operator_pod: PodOperator, scene: Scene) -> None:
    scene.stage.shape("1000mbit")
    pod, before = operator_pod.leader(), scene.deployment()
    scene.gate("200ms")
    scene.wait_for("what the settings lack", lacks_an_image)
    operator_pod.settle({"probe": {"image": scene.stage.image}})
    seen = scene.wait_for("refused", is_false("DisaggregationAccepted"))

    assert condition(seen.status, "DisaggregationAccepted").reason == "TTFTBudgetExceeded"
    assert ready(seen.status) == ("True", "HoldingForCriteria")
    assert scene.deployment() == before
    assert operator_pod.ready() == pod


def test_it_runs_without_rights_on_its_node_and_stays_small(leader: Pod) -> None:
    del leader
    pid = process_id()
    root = next(line for line in Path(f"/proc/{pid}/mounts").read_text().splitlines() if line.split()[1] == "/")
    said = dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())

    assert set(said["Uid"].split() + said["Gid"].split()) == {str(USER)}
    assert said["CapEff"].strip("0") == ""
    assert "ro" in root.split()[3].split(",")
    assert resident_bytes(pid) < LARGEST_BYTES


def test_an_approved_plan_is_patched_by_the_pod(leader: Pod, operator_pod: PodOperator, scene: Scene) -> None:
    scene.stage.shape("2500mbit")
    mark = scene.stage.mark()
    scene.gate("2s")
    seen = scene.wait_for("a plan to approve", waits_for_approval)
    scene.approve(seen, "ReducedCapacity")
    scene.wait_for("split", is_split)

    assert (scene.modes(), scene.patches(mark), scene.jobs_made(mark)) == (SPLIT, 1, 2)
    assert operator_pod.ready() == leader


def test_when_its_pod_is_deleted_the_next_one_takes_over_at_once(
    leader: Pod, operator_pod: PodOperator, scene: Scene
) -> None:
    scene.stage.shape("2500mbit")
    mark, transitions = scene.stage.mark(), operator_pod.lease()["leaseTransitions"]
    scene.gate("2s")
    scene.wait_for("its Jobs", lambda status: status.sweep is not None)
    operator_pod.delete(leader)
    scene.wait_for("a verdict", waits_for_approval)

    assert operator_pod.leader().name != leader.name
    assert operator_pod.lease()["leaseTransitions"] == transitions + 1
    assert (scene.jobs_made(mark), scene.reports()) == (2, 1)


def test_one_that_hangs_is_restarted_and_waits_until_the_lease_of_the_hung_one_has_expired(
    leader: Pod, operator_pod: PodOperator
) -> None:
    with urllib.request.urlopen(f"http://{leader.address}:{HEALTH_PORT}/healthz", timeout=5) as answer:
        assert answer.status == 200
    before = operator_pod.lease()
    os.kill(process_id(), signal.SIGSTOP)
    eventually(lambda: operator_pod.lease()["holderIdentity"] != before["holderIdentity"], HUNG_SECONDS)
    restarted, after = operator_pod.leader(), operator_pod.lease()

    assert (restarted.name, restarted.restarts) == (leader.name, leader.restarts + 1)
    assert after["leaseTransitions"] == before["leaseTransitions"] + 1
    assert after["leaseDurationSeconds"] == LEASE_SECONDS
