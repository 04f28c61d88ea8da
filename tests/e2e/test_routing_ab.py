"""A routing A/B beside live traffic: real frontends and mock workers as pods, and a Job that the operator makes.

The staging deployment's name is the beginning of the live one's, so that a prefix of namespaces would take in both.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from kvgate.api.status import PoolStatus
from kvgate.dynamo.metadata import read_metadata
from kvgate.probe.benchmark_job import KV_PORT, PLAN_KEY
from kvgate.probe.jobs import RUN
from kvgate_bench.wire import decode_plan
from tests.cluster.access import Access
from tests.cluster.waiting import eventually
from tests.dynamo_stage import model
from tests.dynamo_stage.client import UserDoor
from tests.dynamo_stage.image import put_on
from tests.dynamo_stage.load import SteadyLoad
from tests.dynamo_stage.metrics import Scrape
from tests.dynamo_stage.stage import HTTP_PORT
from tests.dynamo_stage.standin.controller import StandIn
from tests.dynamo_stage.standin.installing import install, uninstall_rules
from tests.dynamo_stage.standin.pods import PodRuntime
from tests.dynamo_stage.standin.samples import deployment
from tests.dynamo_stage.standin.sources import ApiSource
from tests.e2e import documents
from tests.e2e.documents import Document
from tests.e2e.running import Operator
from tests.e2e.stage import DGD, POOL, Stage, condition, shown_conditions

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]
SPACE = "routing"
"""A Kubernetes namespace of its own: the stand-in's pods do not meet Pod Security `restricted`, as the Job's do."""
NODES = {"Frontend": "n1", "PrefillWorker": "n1", "DecodeWorker": "n2"}
CACHE_BLOCKS = 1 << 17
UP_SECONDS, AB_SECONDS = 120.0, 200.0
BENCHMARK = {"blocks": 2, "requestsPerSecond": 40}
READ = "import sys, urllib.request as r; print(r.urlopen(sys.argv[1], timeout=5).read().decode())"
REPORTS = "benchmarkreports.kvgate.dev"


@dataclass(frozen=True)
class Side:
    """A deployment that runs, and what its workers publish."""

    access: Access
    runtime: PodRuntime
    name: str

    def apply(self) -> None:
        document = deployment(self.name, namespace=SPACE)
        for component in document["spec"]["components"]:
            node = {"kubernetes.io/hostname": NODES[component["name"]]}
            component["podTemplate"]["spec"]["nodeSelector"] = node
        self.access.apply(document)

    def serves(self) -> bool:
        status = self.access.get(DGD, self.name, "-n", SPACE).get("status", {})
        ready = [one for one in status.get("conditions", ()) if (one["type"], one["status"]) == ("Ready", "True")]
        return bool(ready) and self.runtime.door(self.name, SPACE).readiness().ready

    def frontend(self) -> UserDoor:
        """Its pod, by its own address: a pod that a loaded machine reports late as ready answers all the same."""
        label = f"nvidia.com/dynamo-graph-deployment-name={self.name},nvidia.com/dynamo-component-type=frontend"
        [pod] = self.access.get("pods", "-n", SPACE, "-l", label)["items"]
        return UserDoor(f"http://{pod['status']['podIP']}:{HTTP_PORT}")

    def workers(self) -> frozenset[str]:
        """Instance IDs, in decimal."""
        label = f"nvidia.com/dynamo-graph-deployment-name={self.name}"
        own = {pod["metadata"]["uid"] for pod in self.access.get("pods", "-n", SPACE, "-l", label)["items"]}
        told = (read_metadata(body) for body in self.access.get("dynamoworkermetadatas", "-n", SPACE)["items"])
        return frozenset(str(card.instance) for one in told if one.pod_uid in own for card in one.cards)


@dataclass(frozen=True)
class Both:
    """The live deployment, and the staging one on which its A/B runs."""

    live: Side
    staging: Side


@pytest.fixture
def both(shaped: Stage) -> Iterator[Both]:
    cluster = shaped.cluster
    assert cluster is not None
    put_on(cluster, "n1", "n2")
    dynamo = install(cluster.access)
    cluster.access.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}})
    roomy = PodRuntime(dynamo, shape=lambda _, worker: replace(worker, blocks=CACHE_BLOCKS))
    name = f"qwen-{secrets.token_hex(2)}"
    staging, live = (Side(cluster.access, roomy, each) for each in (name, f"{name}-large"))
    with StandIn(ApiSource(dynamo.api_client(), SPACE), roomy):
        for side in (staging, live):
            side.apply()
        eventually(lambda: staging.serves() and live.serves(), UP_SECONDS)
        yield Both(live, staging)
        for kind in (POOL, DGD):
            shaped.access.kubectl("delete", kind, "--all", "-n", SPACE, "--timeout=60s", check=True, timeout_seconds=70)
    shaped.access.kubectl("delete", "namespace", SPACE, "--timeout=60s", check=True, timeout_seconds=70)
    uninstall_rules(cluster.access)


def gate(both: Both) -> None:
    """A pool of the live deployment. Its fabric's nodes do not exist, so that no sweep is due beside the A/B."""
    document = documents.pool(both.live.name, ("n1", "n2"), "2s")
    nowhere = {"matchLabels": {"role": "nowhere"}}
    document["metadata"]["namespace"] = SPACE
    document["spec"] |= {"model": {"name": model.NAME}, "workload": {"prompts": [{"tokens": 320}]}}
    document["spec"]["fabric"] |= {"prefillNodes": nowhere, "decodeNodes": nowhere}
    asked = {"targetRef": {"name": both.staging.name}, **BENCHMARK}
    document["spec"]["criteria"] = {"routing": {"kvEvents": "Ignored", "benchmark": asked}}
    both.live.access.apply(document)


def of_the_job(access: Access, kind: str) -> list[Document]:
    found: list[Document] = access.get(kind, "-n", SPACE, "-l", RUN)["items"]
    return found


def page(access: Access, pod: Document) -> Scrape:
    """Of the KV shadow, which only its pod can read."""
    where = ("exec", "-n", SPACE, pod["metadata"]["name"], "-c", "shadow-kv", "--", "python3", "-c", READ)
    return Scrape(access.kubectl(*where, f"http://127.0.0.1:{KV_PORT}/metrics").stdout)


def registered(seen: Scrape) -> frozenset[str]:
    """Instance IDs of the workers that its router knows."""
    workers = seen.samples("dynamo_component_router_worker_registered")
    return frozenset(one.labels["router_worker_id"] for one in workers if one.value > 0)


def selectors_of(access: Access, pod: Document) -> list[str]:
    """Services and EndpointSlices that would send traffic to the pod."""
    labels, address = pod["metadata"]["labels"].items(), pod["status"]["podIP"]
    services = access.get("services", "-n", SPACE)["items"]
    slices = access.get("endpointslices", "-n", SPACE)["items"]
    assert services
    assert slices
    selecting = [one for one in services if (held := one["spec"].get("selector")) and held.items() <= labels]
    holding = [one for one in slices if any(address in end["addresses"] for end in one.get("endpoints") or ())]
    return [str(one["metadata"]["name"]) for one in (*selecting, *holding)]


def is_judged(status: PoolStatus) -> bool:
    return status.routing is not None and bool(status.routing.benchmark) and status.benchmark is None


def test_it_runs_beside_live_traffic_and_touches_none_of_it(both: Both, shaped: Stage, operator: Operator) -> None:
    access, staging, live = both.live.access, both.staging.workers(), both.live.workers()
    assert (len(staging), len(live), staging & live) == (2, 2, frozenset())
    generation = access.get(DGD, both.live.name, "-n", SPACE)["metadata"]["generation"]
    with SteadyLoad(both.live.frontend(), 2) as load:
        load.wait_for(4, UP_SECONDS)
        gate(both)
        eventually(lambda: [pod["status"]["phase"] for pod in of_the_job(access, "pods")] == ["Running"], 60)
        [pod], [settled] = of_the_job(access, "pods"), of_the_job(access, "configmaps")
        assert selectors_of(access, pod) == []
        eventually(lambda: registered(page(access, pod)), 60)
        seen = page(access, pod)
        assert registered(seen) == staging
        assert seen.total("dynamo_frontend_requests_started_total") == 0, "the load waits, and users are elsewhere"
        published = {one["metadata"]["name"] for one in access.get("dynamoworkermetadatas", "-n", SPACE)["items"]}
        assert pod["metadata"]["name"] not in published

        load.phase = "while it ran"
        status = judged(shaped, operator, both.live.name)
    assert load.failed() == [], load.told()
    assert {str(one.answer.decode_worker) for one in load.so_far()} == live

    plan = decode_plan(settled["data"][PLAN_KEY])
    assert model.word(plan.first_token)
    assert model.word(plan.last_token)
    assert status.routing is not None
    told = access.get(REPORTS, status.routing.benchmark, "-n", SPACE)["spec"]
    assert condition(status, "RoutingAccepted").reason not in {"BenchmarkNotRun", "BenchmarkUnreadable"}
    assert (told["runID"], told["ranOn"], told.get("aborted")) == (plan.run_id, both.staging.name, None)
    arms = {arm["arm"]: (arm["requests"], frozenset(one["worker"] for one in arm["workers"])) for arm in told["arms"]}
    assert arms == {"RoundRobin": (800, staging), "KV": (800, staging)}
    assert access.get(DGD, both.live.name, "-n", SPACE)["metadata"]["generation"] == generation
    eventually(lambda: not any(of_the_job(access, kind) for kind in ("jobs", "pods", "configmaps")), 60)
    shaped.check()


def judged(stage: Stage, operator: Operator, name: str) -> PoolStatus:
    """Once the A/B was collected and the verdict rests on it."""
    key = f"{SPACE}/{name}"
    found = stage.watch.wait_for(key, lambda one: one.current and is_judged(one.status), AB_SECONDS)
    latest = stage.watch.latest(key)
    assert found is not None, f"{shown_conditions(latest.status) if latest else key}\n{operator.last_words()}"
    return found.status
