"""The three nodes, and the walker in their pods, as a namespace that enforces Pod Security `restricted` admits them."""

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kvgate_probe.wire import Pair, Role
from tests.cluster import mishaps
from tests.cluster.access import Access
from tests.cluster.harness import Cluster, ready_nodes
from tests.cluster.waiting import eventually
from tests.cluster.walker_jobs import (
    Walked,
    both_ways,
    finish,
    job,
    pod_addresses,
    pod_spec,
    start_walkers,
    tell_peers,
)

pytestmark = pytest.mark.cluster

SECONDS_ALLOWED = 30.0
PAYLOAD_SHARE = 1448 / 1514
"""Of a full Ethernet frame of 1514 bytes, which is what the shaper counts, TCP with timestamps carries 1448."""
TOLERANCE = 0.05
TEST_SECONDS = 3.0
LOOK_INSIDE = """\
import json, os, pathlib
def writable(directory):
    try:
        pathlib.Path(directory, "x").write_text("x")
    except OSError:
        return False
    return True
print(json.dumps({
    "uid": os.getuid(),
    "token": os.path.exists("/var/run/secrets") or os.path.exists("/run/secrets"),
    "api": [name for name in os.environ if name.startswith("KUBERNETES_") and "TOKEN" in name],
    "root_writable": writable("/"),
    "scratch_writable": writable("/tmp"),
    "scratch_in_memory": any(line.split()[1:3] == ["/tmp", "tmpfs"] for line in open("/proc/mounts")),
    "privileges": [line.split()[1] for line in open("/proc/self/status") if line.startswith("CapEff")],
    "seccomp": [line.split()[1] for line in open("/proc/self/status") if line.startswith("Seccomp:")],
}))
"""


@contextmanager
def reshaped(cluster: Cluster, node: str, rate: str, back_to: str) -> Iterator[None]:
    cluster.shape(node, rate)
    try:
        yield
    finally:
        cluster.shape(node, back_to)


def walk(cluster: Cluster, namespace: str, first: str, second: str) -> dict[str, Walked]:
    schedule = both_ways(f"run-{namespace}", first, second, TEST_SECONDS)
    start_walkers(cluster.access, namespace, schedule, (first, second))
    tell_peers(cluster.access, namespace)
    return dict(finish(cluster.access, namespace, (first, second), 60))


def received_megabits_per_second(walked: dict[str, Walked], pair: Pair) -> float:
    """What the destination's own iperf3 says it received, in 10^6 bit/s of TCP payload."""
    results = walked[pair.destination].results
    result = next(r for r in results if r.pair == pair and r.role is Role.DESTINATION)
    assert result.trouble is None, [(r.node, r.message) for w in walked.values() for r in w.results if r.pair == pair]
    return float(json.loads(result.document)["end"]["sum_received"]["bits_per_second"]) / 1e6


def clean_up(access: Access, namespace: str) -> None:
    access.kubectl("delete", "namespace", namespace, "--wait=false", check=True)


def test_three_nodes_are_ready_within_the_time_allowed(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print(f"\nthree nodes Ready after {cluster.seconds_until_ready:.1f} s", end=" ")
        for line in [f"{node.name}: {line}" for node in cluster.nodes.values() for line in node.restarts()]:
            print(f"\n{line}", end=" ")

    assert ready_nodes(cluster.access) == ["n1", "n2", "n3"]
    assert cluster.seconds_until_ready < SECONDS_ALLOWED


def test_a_kubelet_that_is_killed_is_started_again(cluster: Cluster) -> None:
    node = cluster.nodes["n3"]
    before, killed = node.restarts(), mishaps.kubelet_of(node)

    os.kill(killed, signal.SIGKILL)
    eventually(
        lambda: node.restarts() == [*before, f"kubelet ended with status 137 after start {len(before) + 1} of 5"]
    )
    mark = cluster.access.audit_mark()
    eventually(lambda: mishaps.has_reported(cluster.access, node.name, mark), 40)

    assert mishaps.kubelet_of(node) != killed
    assert "n3" in ready_nodes(cluster.access)
    assert node.process.runs()


def test_the_nodes_carry_the_labels_of_their_pools(cluster: Cluster) -> None:
    nodes = cluster.access.get("nodes")["items"]

    pools = {node["metadata"]["name"]: node["metadata"]["labels"]["pool"] for node in nodes}
    assert pools == {"n1": "prefill", "n2": "decode", "n3": "decode"}


@pytest.mark.parametrize(
    ("node", "megabits_per_second"),
    [pytest.param("n2", 1000, id="a link of 1000 Mbit/s"), pytest.param("n3", 200, id="a link of 200 Mbit/s")],
)
def test_walkers_in_two_pods_measure_the_payload_share_of_the_link_in_both_directions(
    cluster: Cluster, node: str, megabits_per_second: int, capsys: pytest.CaptureFixture[str]
) -> None:
    namespace = f"walk-{node}"
    walked = walk(cluster, namespace, "n1", node)
    clean_up(cluster.access, namespace)

    measured = [received_megabits_per_second(walked, pair) for pair in (Pair("n1", node), Pair(node, "n1"))]
    expected = megabits_per_second * PAYLOAD_SHARE
    with capsys.disabled():
        print(f"\nshaped to {megabits_per_second} Mbit/s, payload at most {expected:.1f}: {measured}", end=" ")
    assert measured == [pytest.approx(expected, rel=TOLERANCE)] * 2


def test_a_link_that_is_reshaped_at_run_time_is_measured_at_its_new_rate(cluster: Cluster) -> None:
    with reshaped(cluster, "n2", "400mbit", back_to="1000mbit"):
        walked = walk(cluster, "walk-reshaped", "n1", "n2")
    clean_up(cluster.access, "walk-reshaped")

    measured = received_megabits_per_second(walked, Pair("n1", "n2"))
    assert measured == pytest.approx(400 * PAYLOAD_SHARE, rel=TOLERANCE)


def test_the_summary_reaches_the_termination_message(cluster: Cluster) -> None:
    walked = walk(cluster, "walk-summary", "n2", "n3")
    clean_up(cluster.access, "walk-summary")

    summaries = {node: (w.summary.run_id, w.summary.measured, w.summary.troubled) for node, w in walked.items()}
    assert summaries == {"n2": ("run-walk-summary", 2, 0), "n3": ("run-walk-summary", 2, 0)}


def test_a_walker_runs_without_token_or_privilege_on_a_read_only_root(cluster: Cluster) -> None:
    access, namespace = cluster.access, "walk-inside"
    start_walkers(access, namespace, both_ways("run-inside", "n1", "n2", TEST_SECONDS), ("n1", "n2"))
    pod = access.get("pods", "-n", namespace)["items"][0]
    looked = access.kubectl(
        *("exec", pod["metadata"]["name"], "-n", namespace, "--", "python3", "-c", LOOK_INSIDE), check=True
    )
    clean_up(access, namespace)

    assert json.loads(looked.stdout) == {
        "uid": 65532,
        "token": False,
        "api": [],
        "root_writable": False,
        "scratch_writable": True,
        "scratch_in_memory": True,
        "privileges": ["0000000000000000"],
        "seccomp": ["2"],
    }
    volumes = {kind for volume in pod["spec"]["volumes"] for kind in volume if kind != "name"}
    assert volumes == {"configMap", "downwardAPI", "emptyDir"}


def test_the_same_namespace_refuses_a_pod_on_the_nodes_own_network(cluster: Cluster) -> None:
    access, namespace = cluster.access, "walk-refused"
    start_walkers(access, namespace, both_ways("run-refused", "n1", "n2", TEST_SECONDS), ())
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "host-network", "namespace": namespace},
        "spec": {**pod_spec("n1"), "hostNetwork": True},
    }
    refused = access.kubectl("create", "-f", "-", input=json.dumps(pod))
    clean_up(access, namespace)

    assert 'violates PodSecurity "restricted:latest": host namespaces (hostNetwork=true)' in refused.stderr


def test_pods_are_where_the_affinity_of_their_job_puts_them(cluster: Cluster) -> None:
    access, namespace = cluster.access, "walk-pinned"
    start_walkers(access, namespace, both_ways("run-pinned", "n2", "n3", TEST_SECONDS), ("n2", "n3"))
    found = pod_addresses(access, namespace)
    clean_up(access, namespace)

    assert set(found) == {"n2", "n3"}
    assert "nodeName" not in job(namespace, "n2")["spec"]["template"]["spec"]
