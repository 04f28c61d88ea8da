"""A pool and its world, read from a real API server."""

from __future__ import annotations

import pytest

from kvgate.api.selectors import LabelSelector
from kvgate.core.target import TargetProblem, TargetView
from kvgate.core.world import KVKnown, KVUnknown
from kvgate.edge.cluster.client import POOLS, Document, Query, Resource
from kvgate.edge.cluster.reading import read_all
from kvgate.edge.cluster.refusals import refusal
from kvgate.edge.cluster.sweeps import ProbePolicy
from kvgate.edge.errors import EdgeError, PoolGoneError
from tests.cluster.access import Access
from tests.edge.cluster.yard import KubeletLogs, Yard, configuration, in_namespace, sample, set_ready

pytestmark = pytest.mark.api


def test_a_pool_is_read_with_its_target_its_nodes_and_its_models_config(yard: Yard) -> None:
    pool, world = yard.observe()

    assert pool.key == yard.key
    assert isinstance(world.target, TargetView)
    assert isinstance(world.kv, KVKnown)
    assert world.kv.bytes_per_token == 114_688
    first, *others = yard.nodes
    assert (world.nodes.prefill, world.nodes.decode) == ((first,), tuple(others))
    identity = world.nodes.identities[0]
    assert (identity.boot_id, identity.kernel) == (f"boot-{first}", "6.1.0")
    assert identity.uid
    assert (world.claimed_by, world.sweep, world.sweep_problem) == ("", None, "")


def test_a_pool_that_is_gone(yard: Yard) -> None:
    yard.kubectl("delete", "kvpool", "qwen3")

    with pytest.raises(PoolGoneError):
        yard.observe()


def test_a_target_that_is_not_there(yard: Yard) -> None:
    yard.kubectl("delete", "dgd.v1beta1.nvidia.com", "qwen3")

    target = yard.observe()[1].target
    assert isinstance(target, TargetProblem)
    assert target.reason == "TargetNotFound"


def test_a_config_map_that_is_missing_and_one_that_changed(yard: Yard) -> None:
    yard.kubectl("delete", "configmap", "qwen3-config")
    missing = yard.observe()[1].kv
    assert isinstance(missing, KVUnknown)
    assert "qwen3-config" in missing.message

    changed = in_namespace(sample("config.yaml"), yard.namespace)
    changed["data"]["config.json"] = changed["data"]["config.json"].replace(
        '"num_hidden_layers": 28', '"num_hidden_layers": 14'
    )
    yard.access.apply(changed)
    halved = yard.observe()[1].kv
    assert isinstance(halved, KVKnown)
    assert halved.bytes_per_token == 57_344


def test_of_two_pools_with_one_target_the_older_one_claims_it(yard: Yard) -> None:
    second = in_namespace(sample("pool.yaml"), yard.namespace)
    second["metadata"]["name"] = "latecomer"
    second["metadata"]["annotations"] = {"a": "b"}
    yard.kubectl("wait", "--for=create", "kvpool/qwen3", "--timeout=5s")
    first_made = yard.get("kvpool", "qwen3")["metadata"]["creationTimestamp"]
    while True:
        yard.kubectl("apply", "-f", "-", document=second)
        if yard.get("kvpool", "latecomer")["metadata"]["creationTimestamp"] > first_made:
            break
        yard.kubectl("delete", "kvpool", "latecomer")

    assert yard.observe()[1].claimed_by == ""
    assert yard.ground.observe(f"{yard.namespace}/latecomer")[1].claimed_by == "qwen3"


class Listing(KubeletLogs):
    """Notes how many pools each list brought. `selects` says whether the server knows how to select them by target:
    one of Kubernetes 1.30 plays that it does not, and answers 400."""

    def __init__(self, access: Access, *, selects: bool) -> None:
        super().__init__(configuration(access))
        self.selects = selects
        self.brought: list[int] = []

    def list(self, resource: Resource, namespace: str = "", query: Query | None = None) -> tuple[Document, ...]:
        if resource is POOLS and query and not self.selects:
            raise refusal(400, "", "InferencePool list")
        found = super().list(resource, namespace, query)
        self.brought += [len(found)] if resource is POOLS else []
        return found


@pytest.mark.parametrize(
    ("selects", "brought"),
    [
        pytest.param(True, 2, id="asked for by their target"),
        pytest.param(False, 4, id="sought among all where the server cannot select them"),
    ],
)
def test_of_a_namespaces_pools_those_of_the_same_target_are(yard: Yard, selects: bool, brought: int) -> None:
    for name, target in (("latecomer", "qwen3"), ("other", "llama"), ("another", "gemma")):
        one = in_namespace(sample("pool.yaml"), yard.namespace)
        one["metadata"]["name"], one["spec"]["targetRef"]["name"] = name, target
        yard.kubectl("apply", "-f", "-", document=one)
    client = Listing(yard.access, selects=selects)

    pool = read_all(client, yard.namespace, "qwen3", None)
    assert sorted(found.metadata.name for found in pool.objects.pools) == ["latecomer", "qwen3"]
    assert client.brought == [brought]


@pytest.mark.parametrize("how", ["cordoned", "not ready", "deleted"])
def test_a_node_is_not_used_that_is(yard: Yard, how: str) -> None:
    _, lost, kept = yard.nodes
    if how == "cordoned":
        yard.access.kubectl("cordon", lost, check=True)
    elif how == "not ready":
        set_ready(yard.access, lost, "Unknown")
    else:
        yard.access.kubectl("delete", "node", lost, check=True)

    assert yard.observe()[1].nodes.decode == (kept,)


def test_nodes_that_take_no_pods_are_named_when_a_side_has_no_others(yard: Yard) -> None:
    for node in yard.nodes[1:]:
        yard.access.kubectl("cordon", node, check=True)

    named = ", ".join(sorted(yard.nodes[1:]))
    told = yard.observe()[1].nodes.problem
    assert told.startswith(f"fabric.decodeNodes match only nodes that take no pods now: {named}; uncordon them")


def test_the_operators_settings_narrow_the_nodes_of_a_pool(yard: Yard) -> None:
    first, second, _ = yard.nodes
    for node in (first, second):
        yard.access.kubectl("label", "node", node, "measured=allowed", check=True)
    yard.policy = ProbePolicy("image:1", LabelSelector(match_labels={"measured": "allowed"}))

    nodes = yard.observe()[1].nodes
    assert (nodes.prefill, nodes.decode) == ((first,), (second,))


def test_a_pool_cannot_be_measured_without_an_image_or_on_a_network_that_is_not_allowed(yard: Yard) -> None:
    yard.policy = ProbePolicy()
    assert "probe.image" in yard.observe()[1].sweep_problem

    yard.policy = ProbePolicy("image:1")
    yard.kubectl(
        *("patch", "kvpool", "qwen3", "--type=merge", "-p", '{"spec":{"fabric":{"probe":{"hostNetwork":true}}}}')
    )
    assert "probe.allowHostNetwork" in yard.observe()[1].sweep_problem


@pytest.mark.parametrize(
    "time",
    [
        pytest.param("0000-01-01T00:00:00Z", id="in the year 0"),
        pytest.param("2026-01-01T00:00:00+99:00", id="with an offset of days"),
    ],
)
def test_a_time_that_kvgate_could_not_read_is_not_admitted_into_the_status(yard: Yard, time: str) -> None:
    """By its format alone the API server takes it for a time."""
    body = yard.get("kvpool", "qwen3") | {"status": {"lastSweepAt": time}}
    with pytest.raises(EdgeError, match="lastSweepAt"):
        yard.client.replace(POOLS, yard.namespace, body, "status")
    body["status"] = {"lastSweepAt": "2026-01-01T00:00:00.123456789+14:00"}
    yard.client.replace(POOLS, yard.namespace, body, "status")
    assert yard.observe()[0].status.last_sweep_at is not None
