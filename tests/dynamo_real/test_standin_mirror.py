"""Local pods in a real API server: a deployment there is rolled by the stand-in, and its pods and cards can be read."""

from __future__ import annotations

import os
import secrets
import signal
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from kvgate.core.workers import PodRole
from kvgate.dynamo.metadata import WorkerMetadata, read_metadata
from kvgate.dynamo.pods import pods_of
from tests.cluster.access import Access
from tests.dynamo_stage.load import SteadyLoad
from tests.dynamo_stage.stage import Stage
from tests.dynamo_stage.standin.batches import Batch
from tests.dynamo_stage.standin.controller import StandIn
from tests.dynamo_stage.standin.installing import install, uninstall_rules
from tests.dynamo_stage.standin.local import LocalRuntime
from tests.dynamo_stage.standin.mirror import ApiMirror
from tests.dynamo_stage.standin.samples import deployment, set_modes
from tests.dynamo_stage.standin.sources import ApiSource

pytestmark = [pytest.mark.api, pytest.mark.dynamo]
DGD = "dynamographdeployments.v1beta1.nvidia.com"
NODES = {"Frontend": "s1", "PrefillWorker": "s1", "DecodeWorker": "s2"}


@dataclass(frozen=True)
class Served:
    access: Access
    runtime: LocalRuntime
    name: str

    def ready(self) -> bool:
        document = self.access.get(DGD, self.name)
        status = document.get("status", {})
        current = status.get("observedGeneration") == document["metadata"]["generation"]
        return bool(current) and bool(status["conditions"][0]["status"] == "True")

    def metadata(self) -> list[WorkerMetadata]:
        return [read_metadata(one) for one in self.access.get("dynamoworkermetadatas")["items"]]

    def workers(self) -> list[tuple[PodRole, bool, str, bool]]:
        """(role, ready, node, whether its card was read) of each worker pod as the operator sees it."""
        pods = self.access.get("pods")["items"]
        seen = pods_of(self.name, pods, None, self.metadata())
        kinds = (PodRole.PREFILL, PodRole.DECODE)
        return [(one.role, one.ready, one.node, one.instance is not None) for one in seen if one.role in kinds]

    def serving_as(self) -> set[str]:
        pods = self.access.get("pods")["items"]
        return {one.serves_as for one in pods_of(self.name, pods, None, self.metadata()) if one.instance is not None}


@pytest.fixture
def served(control_plane: Access, stage: Stage) -> Iterator[Served]:
    operator, name = install(control_plane), f"qwen-{secrets.token_hex(2)}"
    for node in set(NODES.values()):
        control_plane.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}})

    def node_of(batch: Batch) -> str:
        return NODES[batch.component.name]

    api = operator.api_client()
    with ApiMirror(api, stage.discovery, node_of) as mirror:
        runtime = LocalRuntime(stage, mirror=mirror)
        control_plane.apply(deployment(name))
        with StandIn(ApiSource(api, "default"), runtime):
            made = Served(control_plane, runtime, name)
            stage.until(made.ready, "the deployment to be Ready")
            stage.until(lambda: runtime.door(name).readiness().ready, "the model to be ready")
            yield made
            control_plane.kubectl("delete", DGD, name, check=True)
    for node in set(NODES.values()):
        control_plane.kubectl("delete", "node", node, check=True)
    uninstall_rules(control_plane)


def test_pods_and_what_they_publish_can_be_read_and_follow_a_switch(served: Served, stage: Stage) -> None:
    whole = [(PodRole.DECODE, True, "s2", True), (PodRole.PREFILL, True, "s1", True)]
    stage.until(lambda: sorted(served.workers()) == whole, "both workers to be seen")
    assert served.serving_as() == {"aggregated"}
    addresses = {address for one in served.metadata() for address in one.kv_event_addresses}
    assert len(addresses) == 2
    with SteadyLoad(served.runtime.door(served.name), 8) as load:
        document = served.access.get(DGD, served.name)
        set_modes(document["spec"], "prefill", "decode")
        served.access.apply({key: document[key] for key in ("apiVersion", "kind", "spec")} | named(served.name))
        stage.until(lambda: served.serving_as() == {"prefill", "decode"}, "the split to be published")
        stage.until(served.ready, "the deployment to be Ready")
        load.wait_for(8)
        stage.until(lambda: sorted(served.workers()) == whole, "the old pods to be gone")
    assert load.outages() == [], load.told()
    assert len(load.raced()) <= 1, load.told()
    assert load.so_far()[-1].answer.split


def test_a_worker_that_began_anew_in_its_pod_publishes_what_it_is_now_alone(served: Served, stage: Stage) -> None:
    stage.until(lambda: len(served.metadata()) == 2, "both workers to publish")
    pod = next(one for one in served.runtime.pods_of(served.name) if not one.batch.component.frontend)
    assert pod.running is not None

    def instances() -> set[int | None]:
        return {card.instance for told in served.metadata() if told.pod == pod.name for card in told.cards}

    before = instances()
    os.kill(pod.running.process.pid, signal.SIGKILL)
    stage.until(lambda: len(instances()) == 1 and instances().isdisjoint(before), "its new card alone")


def named(name: str) -> dict[str, object]:
    return {"metadata": {"name": name, "namespace": "default"}}
