"""Nodes that fail amid a sweep, each in a way of its own: it ends, all of them are named, and nothing of it stays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest
import yaml

from kvgate.api.status import PoolStatus
from tests.cluster import mishaps
from tests.cluster.harness import Cluster
from tests.cluster.waiting import eventually
from tests.e2e import documents
from tests.e2e.documents import NAMESPACE
from tests.e2e.running import Operator
from tests.e2e.stage import POOL, Scene, Stage, condition, running

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]

TEST_SECONDS = 60
"""Longer than any mishap takes to come: none of these tests is to end by itself."""
PORT = 5201
START_SECONDS, GARBAGE_SECONDS, WHOLE_SECONDS = 90.0, 90.0, 120.0
NO_LOG = "node n1: the API server does not get the walker's log from the kubelet"
NODES = ("n1", "n2", "n3")


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
def fragile(stage: Stage) -> Iterator[Cluster]:
    """A cluster whose nodes may be harmed: all of them are whole before and afterwards."""
    if stage.cluster is None:
        pytest.skip("the nodes of a cluster that is not the tests' own are not to be harmed")
    eventually(lambda: all(mishaps.is_whole(stage.access, name) for name in NODES), WHOLE_SECONDS)
    yield stage.cluster
    eventually(lambda: all(mishaps.is_whole(stage.access, name) for name in NODES), WHOLE_SECONDS)


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


def walkers(node: str) -> list[int]:
    return mishaps.processes_with("walk", "--node", node)


def at_work(cluster: Cluster, *names: str) -> None:
    """Until the walkers of these nodes run, and n1 sends."""
    eventually(lambda: all(walkers(name) for name in names), START_SECONDS)
    first = cluster.nodes["n1"]
    eventually(lambda: mishaps.on(first, mishaps.processes_with("iperf3", "-c")), START_SECONDS)


def says(words: str) -> Callable[[PoolStatus], bool]:
    """The sweep goes on, and the condition says this."""

    def holds(status: PoolStatus) -> bool:
        said = condition(status, "FabricMeasured")
        return said.reason == "SweepTroubled" and words in said.message

    return holds


def ended(*words: str) -> Callable[[PoolStatus], bool]:
    """The sweep is over, and the condition says all these."""

    def holds(status: PoolStatus) -> bool:
        said = condition(status, "FabricMeasured")
        over = status.sweep is None and said.status.value == "False"
        return over and all(word in said.message for word in words)

    return holds


def nothing_stays(scene: Scene) -> None:
    def gone() -> bool:
        pods = scene.access.get("pods", "-n", NAMESPACE, "-l", "app.kubernetes.io/managed-by=kvgate")["items"]
        return not pods and not mishaps.processes_with("walk", "--node") and not scene.jobs()

    scene.access.kubectl("delete", POOL, scene.name, "-n", NAMESPACE, check=True)
    eventually(gone, GARBAGE_SECONDS)


@contextmanager
def open_namespace(stage: Stage) -> Iterator[None]:
    """Pods on their nodes' own network are admitted."""
    label = ("label", "namespace", NAMESPACE, "--overwrite")
    stage.access.kubectl(*label, "pod-security.kubernetes.io/enforce=privileged", check=True)
    try:
        yield
    finally:
        stage.access.kubectl(*label, "pod-security.kubernetes.io/enforce=restricted", check=True)


@contextmanager
def drained(stage: Stage, node: str) -> Iterator[None]:
    """By the API of evictions, as its administrator does."""
    drain = ("drain", node, "--force", "--delete-emptydir-data", "--ignore-daemonsets", "--timeout=60s")
    stage.access.kubectl(*drain, check=True, timeout_seconds=70)
    try:
        yield
    finally:
        stage.access.kubectl("uncordon", node, check=True)


def test_no_memory_no_image_and_no_kubelet(scene: Scene, fragile: Cluster) -> None:
    """n1's walker is killed for want of memory, n2 has no image, and n3's kubelet is killed and stays away."""
    _, second, third = (fragile.nodes[name] for name in NODES)
    with mishaps.without_image(second):
        gate(scene, "90s")
        scene.wait_for("the image's trouble", says("ImagePull: node n2 cannot pull the probe's image"), START_SECONDS)
        eventually(lambda: walkers("n1") and walkers("n3"), START_SECONDS)
        with mishaps.without_kubelet(scene.access, third):
            mishaps.exhaust(min(walkers("n1")))
            seen = scene.wait_for("the sweep's end", ended("walker of n3: NodeNotReady"), 150)
        nothing_stays(scene)
    told = condition(seen.status, "FabricMeasured").message
    assert "walker of n1: OutOfMemory: the walker on node n1 was killed for want of memory: its limit is" in told
    assert "walker of n2: " in told
    assert "walker of n3: NodeNotReady: the kubelet of node n3 no longer reports" in told


def test_a_taken_port_and_a_reboot(scene: Scene, fragile: Cluster) -> None:
    """On the nodes' own network; n3 comes back under its name while the sweep goes on."""
    with open_namespace(scene.stage), mishaps.taken(fragile.nodes["n2"], PORT):
        gate(scene, "120s", hostNetwork=True)
        at_work(fragile, "n1", "n3")
        mishaps.reboot(fragile, "n3")
        seen = scene.wait_for("the sweep's end", ended("walker of n2: PortInUse", "node n3"), 180)
        nothing_stays(scene)
    told = condition(seen.status, "FabricMeasured").message
    assert f"PortInUse: port {PORT} of node n2 is taken by another program" in told
    assert "NodeRebooted: node n3 booted anew during the sweep" in told
    assert [line for node in fragile.nodes.values() for line in mishaps.listeners(node)] == []


def test_a_drain_an_eviction_and_a_log_that_cannot_be_had(scene: Scene, fragile: Cluster) -> None:
    """n2 is drained, n3 evicts; n1's kubelet gives no log until that is told."""
    with ExitStack() as firewall:
        firewall.enter_context(mishaps.unheard_kubelet(fragile.nodes["n1"]))
        gate(scene, "150s")
        at_work(fragile, "n1", "n2", "n3")
        with mishaps.short_of_memory(scene.access, fragile.nodes["n3"]), drained(scene.stage, "n2"):
            scene.wait_for("the log's trouble", says(NO_LOG), 150)
            firewall.close()
            seen = scene.wait_for("the sweep's end", ended("walker of n2: ", "walker of n3: "), 150)
            nothing_stays(scene)
    told = condition(seen.status, "FabricMeasured").message
    assert "walker of n2: NodeDraining: " in told
    assert "walker of n3: Evicted: the kubelet of node n3 evicted the probe's pod" in told
    assert "log of n1" not in told
