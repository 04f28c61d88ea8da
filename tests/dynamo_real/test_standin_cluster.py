"""A deployment as real pods on real nodes: discovery by Kubernetes, cards as objects, and a switch under load."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from kvgate.core.workers import PodRole, WorkerPod
from kvgate.dynamo.metadata import read_metadata
from kvgate.dynamo.pods import pods_of
from tests.cluster.access import Access
from tests.cluster.harness import Cluster
from tests.cluster.waiting import eventually
from tests.dynamo_stage.client import Door, UserDoor
from tests.dynamo_stage.image import put_on
from tests.dynamo_stage.load import SteadyLoad
from tests.dynamo_stage.stage import HTTP_PORT, SYSTEM_PORT
from tests.dynamo_stage.standin.controller import StandIn
from tests.dynamo_stage.standin.graph import Document
from tests.dynamo_stage.standin.installing import install, uninstall_rules
from tests.dynamo_stage.standin.pods import PodRuntime
from tests.dynamo_stage.standin.samples import deployment, set_modes
from tests.dynamo_stage.standin.sources import ApiSource

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]
DGD = "dynamographdeployments.v1beta1.nvidia.com"
NODES = {"Frontend": "n1", "PrefillWorker": "n1", "DecodeWorker": "n2"}
UP_SECONDS = 120.0


@dataclass(frozen=True)
class Served:
    access: Access
    runtime: PodRuntime
    name: str

    @property
    def door(self) -> UserDoor:
        return self.runtime.door(self.name)

    def status(self) -> Document:
        found: Document = self.access.get(DGD, self.name).get("status", {})
        return found

    def ready(self) -> bool:
        document = self.access.get(DGD, self.name)
        status = document.get("status", {})
        current = status.get("observedGeneration") == document["metadata"]["generation"]
        return bool(current) and bool(status["conditions"][0]["status"] == "True")

    def pods(self) -> tuple[WorkerPod, ...]:
        metadata = [read_metadata(one) for one in self.access.get("dynamoworkermetadatas")["items"]]
        return pods_of(self.name, self.access.get("pods")["items"], None, metadata)

    def serving_as(self) -> dict[PodRole, str]:
        return {one.role: one.serves_as for one in self.pods() if one.instance is not None and not one.leaving}


@pytest.fixture(scope="module")
def operator(cluster: Cluster) -> Iterator[Access]:
    put_on(cluster, "n1", "n2")
    yield install(cluster.access)
    uninstall_rules(cluster.access)


@pytest.fixture
def served(cluster: Cluster, operator: Access) -> Iterator[Served]:
    name = f"qwen-{secrets.token_hex(2)}"
    document = deployment(name)
    for component in document["spec"]["components"]:
        node = {"kubernetes.io/hostname": NODES[component["name"]]}
        component["podTemplate"]["spec"]["nodeSelector"] = node
    cluster.access.apply(document)
    made = Served(cluster.access, PodRuntime(operator), name)
    with StandIn(ApiSource(operator.api_client(), "default"), made.runtime):
        eventually(made.ready, UP_SECONDS)
        eventually(lambda: made.door.readiness().ready, UP_SECONDS)
        yield made
    cluster.access.kubectl("delete", DGD, name, check=True)
    eventually(lambda: not made.pods(), UP_SECONDS)


def test_pods_find_each_other_and_follow_a_switch_under_load(served: Served) -> None:
    assert {(one.role, one.node) for one in served.pods()} == {
        (PodRole.FRONTEND, "n1"),
        (PodRole.PREFILL, "n1"),
        (PodRole.DECODE, "n2"),
    }
    assert served.serving_as() == {PodRole.PREFILL: "aggregated", PodRole.DECODE: "aggregated"}
    for pod in served.pods():
        port = HTTP_PORT if pod.role is PodRole.FRONTEND else SYSTEM_PORT
        assert Door(f"http://{pod.address}:{port}").scrape().names()
    before = {one.generation for one in served.pods() if one.role is not PodRole.FRONTEND}
    with SteadyLoad(served.door, 4) as load:
        load.wait_for(4, UP_SECONDS)
        document = served.access.get(DGD, served.name)
        set_modes(document["spec"], "prefill", "decode")
        metadata = {"name": served.name, "namespace": "default"}
        served.access.apply({**{key: document[key] for key in ("apiVersion", "kind", "spec")}, "metadata": metadata})
        split = {PodRole.PREFILL: "prefill", PodRole.DECODE: "decode"}
        eventually(lambda: served.serving_as() == split and served.ready(), UP_SECONDS)
        load.phase = "split"
        load.wait_for(8, UP_SECONDS)
    assert load.outages() == [], load.told()
    assert len(load.raced()) <= 1, load.told()
    assert {one.answer.split for one in load.so_far() if one.phase == "split"} == {True}
    after = {one.generation for one in served.pods() if one.role is not PodRole.FRONTEND}
    assert len(before) == len(after) == 1
    assert before != after
    assert served.status()["rollingUpdate"]["phase"] == "Completed"
