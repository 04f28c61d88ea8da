"""Nodes that fail amid a sweep, two in different ways each time: it ends, both are named, and nothing of it stays."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import yaml

from kvgate.api.status import PoolStatus
from tests.cluster import mishaps
from tests.cluster.harness import ready_nodes
from tests.cluster.nodes import Node
from tests.cluster.waiting import eventually
from tests.e2e import documents
from tests.e2e.documents import NAMESPACE
from tests.e2e.running import Operator
from tests.e2e.stage import Scene, Stage, condition, running

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

TEST_SECONDS = 12
PORT = 5201
GARBAGE_SECONDS = 60.0


@pytest.fixture(scope="module")
def operator(stage: Stage, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    """One whose settings allow probes on the nodes' own network."""
    made = stage.operator(tmp_path_factory.mktemp("failures"))
    settings = yaml.safe_load(made.settings.read_text())
    settings["probe"]["allowHostNetwork"] = True
    made.settings.write_text(yaml.safe_dump(settings))
    with running(made):
        yield made


@pytest.fixture
def nodes(stage: Stage) -> Iterator[tuple[Node, Node, Node]]:
    """All three, whole again afterwards."""
    if stage.cluster is None:
        pytest.skip("the nodes of a cluster that is not the tests' own are not to be harmed")
    first, second, third = (stage.cluster.nodes[name] for name in ("n1", "n2", "n3"))
    yield first, second, third
    eventually(lambda: set(ready_nodes(stage.access)) >= {"n1", "n2", "n3"}, 90)


def gate(scene: Scene, timeout: str, **probe: object) -> None:
    """Paths from n1 to n2 and to n3, one after the other."""
    decode = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["n2", "n3"]}
    patience = {"interval": "24h", "jitter": "1m", "sweepTimeout": timeout}
    document = documents.pool(
        *(scene.name, scene.stage.nodes, "2s"), decodeNodes={"matchExpressions": [decode]}, schedule=patience
    )
    document["spec"]["fabric"]["probe"]["link"]["duration"] = f"{TEST_SECONDS}s"
    document["spec"]["fabric"]["probe"] |= probe
    scene.access.apply(document)


def at_work(scene: Scene, *names: str) -> None:
    """Until the walkers of these nodes run."""
    eventually(lambda: all(mishaps.processes_with("walk", "--node", name) for name in names), 60)
    time.sleep(2)


def says(*words: str) -> Callable[[PoolStatus], bool]:
    """An ended sweep of which the condition says all these."""

    def holds(status: PoolStatus) -> bool:
        said = condition(status, "FabricMeasured")
        return (
            status.fabric is not None and said.status.value == "False" and all(word in said.message for word in words)
        )

    return holds


def nothing_stays(scene: Scene) -> None:
    def gone() -> bool:
        pods = scene.access.get("pods", "-n", NAMESPACE, "-l", "app.kubernetes.io/managed-by=kvgate")["items"]
        return not pods and not mishaps.processes_with("walk", "--node")

    scene.access.kubectl("delete", "inferencepools.kvgate.dev", scene.name, "-n", NAMESPACE, check=True)
    eventually(gone, GARBAGE_SECONDS)
    assert not scene.jobs()


@contextmanager
def open_namespace(stage: Stage) -> Iterator[None]:
    """Pods on their nodes' own network are admitted."""
    label = ("label", "namespace", NAMESPACE, "--overwrite")
    stage.access.kubectl(*label, "pod-security.kubernetes.io/enforce=privileged", check=True)
    try:
        yield
    finally:
        stage.access.kubectl(*label, "pod-security.kubernetes.io/enforce=restricted", check=True)


def test_a_taken_port_and_a_reboot(scene: Scene, nodes: tuple[Node, Node, Node]) -> None:
    """On the nodes' own network; n3 comes back under its name while the sweep goes on."""
    first, second, third = nodes
    with open_namespace(scene.stage), mishaps.taken(second, PORT):
        gate(scene, "90s", hostNetwork=True)
        at_work(scene, "n1", "n3")
        mishaps.reboot(third, scene.access.directory)
        seen = scene.wait_for("the sweep's end", says("walker of n2: PortInUse", "node n3"), 120)
        told = condition(seen.status, "FabricMeasured").message
        assert f"PortInUse: port {PORT} of node n2 is taken by another program" in told
        assert "NodeRebooted: node n3 booted anew during the sweep" in told
        nothing_stays(scene)
        for node in (first, third):
            listing = ["ip", "netns", "exec", node.plug.namespace, "ss", "-Hltn", f"sport = :{PORT}"]
            assert subprocess.run(listing, capture_output=True, text=True, check=True).stdout == ""


def test_an_image_that_cannot_be_pulled_and_a_walker_without_memory(
    scene: Scene, nodes: tuple[Node, Node, Node]
) -> None:
    second = nodes[1]
    with mishaps.without_image(second):
        gate(scene, "40s")
        at_work(scene, "n1", "n3")
        (walker, *_) = mishaps.processes_with("walk", "--node", "n3")
        with mishaps.exhausted(walker):
            seen = scene.wait_for("the sweep's end", says("walker of n2: ", "walker of n3: "), 80)
        told = condition(seen.status, "FabricMeasured").message
        assert "ImagePull: node n2 cannot pull the probe's image" in told
        assert "walker of n3: OutOfMemory: the walker on node n3 was killed for want of memory: its limit is" in told
        nothing_stays(scene)


def test_a_drain_and_an_eviction(scene: Scene, nodes: tuple[Node, Node, Node]) -> None:
    third = nodes[2]
    gate(scene, "90s")
    at_work(scene, "n1", "n2", "n3")
    drain = ("drain", "n2", "--force", "--delete-emptydir-data", "--ignore-daemonsets", "--timeout=40s")
    with mishaps.short_of_memory(third):
        scene.access.kubectl(*drain, check=True, timeout_seconds=60)
        try:
            seen = scene.wait_for("the sweep's end", says("walker of n2: ", "walker of n3: "), 110)
        finally:
            scene.access.kubectl("uncordon", "n2", check=True)
    told = condition(seen.status, "FabricMeasured").message
    assert "walker of n2: NodeDraining: " in told
    assert "walker of n3: Evicted: the kubelet of node n3 evicted the probe's pod" in told
    nothing_stays(scene)


def test_a_kubelet_that_is_killed_and_stays_away(scene: Scene, nodes: tuple[Node, Node, Node]) -> None:
    """n2 is well beside it, and is measured."""
    gate(scene, "80s")
    at_work(scene, "n1", "n2", "n3")
    with mishaps.without_kubelet(nodes[2]):
        seen = scene.wait_for("the sweep's end", says("walker of n3: "), 110)
    told = condition(seen.status, "FabricMeasured").message
    assert "walker of n3: NodeNotReady: the kubelet of node n3 no longer reports" in told
    assert "walker of n2: " not in told
    nothing_stays(scene)
