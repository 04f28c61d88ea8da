"""A node that takes no probe: the pool says which one and who must act, and no sweep waits for it for ever."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import pytest
from kubernetes import client as kubernetes

from kvgate.api.status import PoolStatus
from tests.cluster.waiting import eventually
from tests.e2e.stage import Scene, Stage, condition, is_false, is_true

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

PATIENCE = {"interval": "24h", "jitter": "1m", "sweepTimeout": "15s"}
"""How long a sweep may wait for its walkers."""
END_SECONDS = 40.0
GHOST = "ghost"


@contextmanager
def cordoned(stage: Stage, node: str) -> Iterator[None]:
    stage.access.kubectl("cordon", node, check=True)
    try:
        yield
    finally:
        stage.access.kubectl("uncordon", node, check=True)


@contextmanager
def full(scene: Scene, node: str) -> Iterator[None]:
    """A pod of another team's that leaves a tenth of a CPU on the node."""
    allocatable = scene.access.get("node", node)["status"]["allocatable"]["cpu"]
    container = {
        "name": "greedy",
        "image": scene.stage.image,
        "command": ["python3", "-c", "import time; time.sleep(600)"],
        "resources": {"requests": {"cpu": f"{thousandths(allocatable) - 100}m"}},
    }
    spec = {
        "nodeSelector": {"kubernetes.io/hostname": node},
        "terminationGracePeriodSeconds": 0,
        "automountServiceAccountToken": False,
        "containers": [container],
    }
    metadata = {"name": "greedy", "namespace": "default"}
    scene.access.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    try:
        scene.access.kubectl("wait", "--for=condition=PodScheduled", "--timeout=20s", "pod/greedy", check=True)
        yield
    finally:
        scene.access.kubectl("delete", "pod", "greedy", "--wait=true", check=True)


def thousandths(cpus: str) -> int:
    """A Kubernetes quantity of CPUs, such as 2 or 1930m."""
    return int(cpus[:-1]) if cpus.endswith("m") else int(cpus) * 1000


@contextmanager
def ghost(stage: Stage) -> Iterator[None]:
    """Plays a machine that died a moment ago: its Node says that it is Ready, and no kubelet starts anything."""
    stage.access.apply(
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": GHOST, "labels": {"kubernetes.io/hostname": GHOST}}}
    )
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    ready = {"type": "Ready", "status": "True", "reason": "Test", "lastHeartbeatTime": now, "lastTransitionTime": now}
    room = {"cpu": "16", "memory": "64Gi", "pods": "110"}
    status = {"conditions": [ready], "capacity": room, "allocatable": room}
    kubernetes.CoreV1Api(stage.access.api_client()).patch_node_status(GHOST, {"status": status})
    stage.access.kubectl("taint", "node", GHOST, "node.kubernetes.io/not-ready-")
    try:
        yield
    finally:
        stage.access.kubectl("delete", "node", GHOST, "--ignore-not-found", check=True)


def troubled_by(node: str) -> Callable[[PoolStatus], bool]:
    def holds(status: PoolStatus) -> bool:
        said = condition(status, "FabricMeasured")
        return said.reason == "SweepTroubled" and f"node {node}: " in said.message

    return holds


def has_ended(status: PoolStatus) -> bool:
    return status.sweep is None and condition(status, "FabricMeasured").reason == "CoverageTooLow"


def test_a_cordoned_node_is_named_and_measured_once_it_is_back(scene: Scene) -> None:
    decode = scene.stage.nodes[1]
    with cordoned(scene.stage, decode):
        scene.gate("2s", schedule=PATIENCE)
        seen = scene.wait_for("not measured", is_false("FabricMeasured"))
        told = condition(seen.status, "FabricMeasured").message
        assert f"match only nodes that take no pods now: {decode}; uncordon them" in told
        assert not scene.jobs()
    scene.wait_for("measured", is_true("FabricMeasured"))


def test_a_node_that_has_no_room_for_the_probe_is_named_and_the_sweep_ends(scene: Scene) -> None:
    decode = scene.stage.nodes[1]
    with full(scene, decode):
        scene.gate("2s", schedule=PATIENCE)
        scene.wait_for("trouble", troubled_by(decode))
        seen = scene.wait_for("the sweep's end", has_ended, END_SECONDS)
        assert f"{scene.stage.nodes[0]}→{decode}" in condition(seen.status, "FabricMeasured").message
        eventually(lambda: not scene.jobs())
    scene.ask_to_measure("now")
    scene.wait_for("measured", is_true("FabricMeasured"))


def test_a_node_that_is_deleted_while_it_is_measured_is_named_and_the_sweep_ends(scene: Scene) -> None:
    with ghost(scene.stage):
        scene.gate("2s", schedule=PATIENCE, decodeNodes={"matchLabels": {"kubernetes.io/hostname": GHOST}})
        scene.wait_for("the Jobs", lambda status: status.sweep is not None and len(status.sweep.jobs) == 2)
        scene.access.kubectl("delete", "node", GHOST, check=True)
        seen = scene.wait_for("the sweep's end", lambda status: status.fabric is not None, END_SECONDS)
        assert seen.status.sweep is None
        told = condition(seen.status, "FabricMeasured")
        assert told.status.value == "False"
        assert f"walker of {GHOST}: NodeGone: node {GHOST} was deleted" in told.message
        eventually(lambda: not scene.jobs())
