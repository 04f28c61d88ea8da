"""The stand-in for Dynamo's operator against a real API server: the rules of its webhook, adapters, what it writes."""

from __future__ import annotations

import copy
import secrets
from collections.abc import Callable, Iterator, Mapping

import pytest
import yaml

from tests.cluster.access import Access
from tests.cluster.waiting import eventually
from tests.dynamo_stage.standin.adapters import Adapters
from tests.dynamo_stage.standin.batches import Batch, BatchKey
from tests.dynamo_stage.standin.controller import StandIn
from tests.dynamo_stage.standin.graph import CURRENT_HASH, Document, Graph, read_graph
from tests.dynamo_stage.standin.installing import install, uninstall_rules
from tests.dynamo_stage.standin.rollout import Counts
from tests.dynamo_stage.standin.samples import deployment, set_modes
from tests.dynamo_stage.standin.sources import ApiSource

pytestmark = pytest.mark.api
DGD = "dynamographdeployments.v1beta1.nvidia.com"
ADAPTER = "dynamographdeploymentscalingadapters.v1beta1.nvidia.com"


@pytest.fixture(scope="module")
def operator(control_plane: Access) -> Iterator[Access]:
    """The server as Dynamo's operator sees it."""
    yield install(control_plane)
    uninstall_rules(control_plane)


@pytest.fixture
def name(control_plane: Access, operator: Access) -> Iterator[str]:
    made = f"qwen-{secrets.token_hex(2)}"
    document = deployment(made)
    document["spec"]["components"][2]["scalingAdapter"] = {}
    control_plane.apply(document)
    yield made
    control_plane.kubectl("delete", DGD, made, check=True)


def replace(access: Access, name: str, change: Callable[[Document], object]) -> str:
    """What the server says against the changed deployment; empty where it takes it."""
    document = access.get(DGD, name)
    change(document["spec"])
    return access.kubectl("replace", "-f", "-", input=yaml.safe_dump(document)).stderr


def add(spec: Document) -> None:
    spec["components"].append({**copy.deepcopy(spec["components"][2]), "name": "Another"})


def scale(number: int, replicas: int) -> Callable[[Document], None]:
    return lambda spec: spec["components"][number].update(replicas=replicas)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        pytest.param(add, "components added: [Another]", id="a component more (fact 0.3)"),
        pytest.param(
            lambda spec: spec["components"].pop(1), "components removed: [PrefillWorker]", id="one less (fact 0.3)"
        ),
        pytest.param(
            lambda spec: spec.update(backendFramework="sglang"), "spec.backendFramework: Forbidden", id="the framework"
        ),
        pytest.param(
            lambda spec: spec["components"][1].update(multinode={"nodeCount": 2}),
            "between single-node and multi-node",
            id="several nodes",
        ),
        pytest.param(
            scale(2, 3),
            "replicas of DecodeWorker cannot be modified directly when scaling adapter is enabled",
            id="replicas that an adapter owns (fact 8)",
        ),
    ],
)
def test_the_server_refuses(change: Callable[[Document], object], says: str, control_plane: Access, name: str) -> None:
    assert says in replace(control_plane, name, change)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda spec: set_modes(spec, "prefill", "decode"), id="both modes"),
        pytest.param(scale(1, 3), id="replicas without an adapter"),
        pytest.param(lambda spec: spec["components"][2].update(type="worker"), id="a type (fact 0.3)"),
    ],
)
def test_the_server_takes(change: Callable[[Document], object], control_plane: Access, name: str) -> None:
    assert replace(control_plane, name, change) == ""


@pytest.mark.parametrize("account", ["planner-serviceaccount", "default"])
def test_the_planner_alone_may_write_what_an_adapter_owns(account: str, control_plane: Access, name: str) -> None:
    user = f"--as=system:serviceaccount:default:{account}"
    patch = '[{"op":"replace","path":"/spec/components/2/replicas","value":2}]'
    grants = ("create", "clusterrolebinding", f"{account}-{name}", "--clusterrole=cluster-admin")
    control_plane.kubectl(*grants, f"--serviceaccount=default:{account}", check=True)
    done = control_plane.kubectl("patch", DGD, name, "--type=json", "-p", patch, user)
    assert (done.returncode == 0) is (account == "planner-serviceaccount"), done.stderr


class Obedient:
    """A runtime whose pods are available as soon as they are asked for."""

    def __init__(self) -> None:
        self.asked: dict[tuple[tuple[str, str], BatchKey], int] = {}

    def observe(self, graph: Graph) -> Mapping[BatchKey, Counts]:
        mine = {batch: number for (key, batch), number in self.asked.items() if key == graph.key and number}
        return {batch: Counts(number, number, number) for batch, number in mine.items()}

    def ask(self, batch: Batch, replicas: int) -> None:
        self.asked[batch.graph.key, batch.key] = replicas

    def shrink(self, graph: Graph, key: BatchKey, replicas: int) -> None:
        self.asked[graph.key, key] = replicas

    def forget(self, key: tuple[str, str]) -> None:
        self.asked = {one: number for one, number in self.asked.items() if one[0] != key}


@pytest.fixture
def rolled(operator: Access, name: str) -> Iterator[Obedient]:
    runtime = Obedient()
    api = operator.api_client()
    with StandIn(ApiSource(api, "default"), runtime, Adapters(api)):
        eventually(lambda: is_ready(operator.get(DGD, name)), 30)
        yield runtime


def is_ready(document: Document) -> bool:
    status = document.get("status", {})
    current = status.get("observedGeneration") == document["metadata"]["generation"]
    return bool(current) and bool(status["conditions"][0]["status"] == "True")


def test_the_real_schema_takes_its_status_and_a_full_update_leaves_the_hash(
    rolled: Obedient, operator: Access, control_plane: Access, name: str
) -> None:
    before = operator.get(DGD, name, "--show-managed-fields")
    assert before["metadata"]["annotations"][CURRENT_HASH] == read_graph(before).worker_hash
    writers = {(entry["manager"], entry["operation"]) for entry in before["metadata"]["managedFields"]}
    assert ("manager", "Update") in writers
    assert replace(control_plane, name, lambda spec: set_modes(spec, "prefill", "decode")) == ""
    eventually(lambda: phase(operator, name) == "Completed" and is_ready(operator.get(DGD, name)), 30)
    after = operator.get(DGD, name)
    assert after["metadata"]["annotations"][CURRENT_HASH] == read_graph(after).worker_hash
    assert before["metadata"]["annotations"][CURRENT_HASH] != read_graph(after).worker_hash


def phase(access: Access, name: str) -> str:
    return str(access.get(DGD, name).get("status", {}).get("rollingUpdate", {}).get("phase", ""))


def test_an_adapter_scales_its_component(rolled: Obedient, operator: Access, control_plane: Access, name: str) -> None:
    control_plane.kubectl("scale", ADAPTER, f"{name}-decodeworker", "--replicas=3", check=True)
    eventually(lambda: operator.get(DGD, name)["spec"]["components"][2]["replicas"] == 3, 30)
    eventually(lambda: is_ready(operator.get(DGD, name)), 30)
    assert operator.get(DGD, name)["status"]["components"]["DecodeWorker"]["readyReplicas"] == 3
