"""A routing A/B beside live traffic: real frontends and mock workers as pods, and a Job that the operator makes.

The staging deployment's name is the beginning of the live one's, so that a prefix of namespaces would take in both.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from kvgate.api.status import PoolStatus
from kvgate.api.words import ConditionStatus
from kvgate.probe.benchmark_job import KV_PORT, PLAN_KEY
from kvgate_bench.wire import decode_plan
from tests.cluster.access import Access
from tests.cluster.waiting import eventually
from tests.dynamo_stage import model
from tests.dynamo_stage.load import SteadyLoad
from tests.dynamo_stage.metrics import Scrape
from tests.dynamo_stage.specs import Worker
from tests.dynamo_stage.standin.batches import Batch
from tests.dynamo_stage.traces import reuse_trace, written
from tests.e2e.documents import Document
from tests.e2e.dynamo_side import (
    SPACE,
    UP_SECONDS,
    Side,
    is_on,
    nothing_left,
    of_runs,
    router_of,
    routing_pool,
    sides,
    told_when,
)
from tests.e2e.running import Operator
from tests.e2e.stage import AB_REPORT, Stage, condition

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(500)]
CACHE_BLOCKS = 1 << 17
SPEEDUP = 2.0
STICKY = {"DYN_ROUTER_PREFILL_LOAD_SCALE": "8"}
"""Long prompts, short answers: the router is told that a prompt costs more than the answer it waits behind."""
AB_SECONDS, SWITCH_SECONDS = 240.0, 120.0
BLOCKS = 4
BENCHMARK = {"blocks": BLOCKS, "requestsPerSecond": 30}
OFFERED, COUNTED = 250 * BLOCKS, 200 * BLOCKS
"""By each arm in all its runs; 800 at least are left without the first fifth of each."""
TRACE = {"name": "conversations", "key": "trace.jsonl"}
CONVERSATION, SHARED_BLOCKS = 14, 15
READ = "import sys, urllib.request as r; print(r.urlopen(sys.argv[1], timeout=5).read().decode())"
UNQUIET = frozenset({"BaselineUnhealthy", "TooNoisy", "GainUncertain"})
"""What a machine that is busy with other things makes of the A/B: no word on routing."""


@dataclass(frozen=True)
class Both:
    """The live deployment, and the staging one on which its A/B runs."""

    live: Side
    staging: Side


def roomy(_: Batch, worker: Worker) -> Worker:
    """Its engine is slow enough for a prompt to cost more than what this machine does beside it."""
    return replace(worker, blocks=CACHE_BLOCKS, speedup=SPEEDUP)


@pytest.fixture
def both(shaped: Stage) -> Iterator[Both]:
    with sides(shaped, "", "-large", shape=roomy) as (staging, live):
        staging.apply(replicas=(1, 2, 2), frontend=STICKY)
        live.apply(frontend=STICKY)
        eventually(lambda: staging.serves() and live.serves() and len(staging.workers()) == 4, UP_SECONDS)
        yield Both(live, staging)


def gate(both: Both) -> None:
    """A pool of the live deployment, which a trace of conversations decides."""
    data = {TRACE["key"]: written(reuse_trace(OFFERED, CONVERSATION, SHARED_BLOCKS))}
    metadata = {"name": TRACE["name"], "namespace": SPACE}
    asked = {"targetRef": {"name": both.staging.name}, "trace": {"configMapKeyRef": TRACE}, **BENCHMARK}
    both.live.access.apply(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data},
        routing_pool(
            both.live,
            {"kvEvents": "Ignored", "minTTFTImprovement": "5%", "benchmark": asked},
            enforcement={"onConflict": "TakeOver"},
        ),
    )


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
    assert (len(staging), len(live), staging & live) == (4, 2, frozenset())
    generation = both.live.document()["metadata"]["generation"]
    with SteadyLoad(both.live.frontend(), 2) as load:
        load.wait_for(4, UP_SECONDS)
        gate(both)
        eventually(lambda: [pod["status"]["phase"] for pod in of_runs(access, "pods")] == ["Running"], 60)
        [pod], [settled] = of_runs(access, "pods"), of_runs(access, "configmaps")
        assert selectors_of(access, pod) == []
        eventually(lambda: registered(page(access, pod)), 60)
        seen = page(access, pod)
        assert registered(seen) == staging
        assert seen.total("dynamo_frontend_requests_started_total") == 0, "the load waits, and users are elsewhere"
        published = {one["metadata"]["name"] for one in access.get("dynamoworkermetadatas", "-n", SPACE)["items"]}
        assert pod["metadata"]["name"] not in published

        load.phase = "while it ran"
        status = told_when(shaped, operator, both.live, "a verdict", is_judged, AB_SECONDS)
    assert load.failed() == [], load.told()
    assert {str(one.answer.decode_worker) for one in load.so_far()} == live

    plan = decode_plan(settled["data"][PLAN_KEY])
    assert model.word(plan.first_token)
    assert model.word(plan.last_token)
    assert status.routing is not None
    told = access.get(AB_REPORT, status.routing.benchmark, "-n", SPACE)["spec"]
    assert (told["runID"], told["ranOn"], told.get("aborted")) == (plan.run_id, both.staging.name, None)
    arms = {arm["arm"]: arm["requests"] for arm in told["arms"]}
    assert arms == dict.fromkeys(("RoundRobin", "KV"), COUNTED)
    assert {one["worker"] for arm in told["arms"] for one in arm["workers"]} == staging
    eventually(lambda: nothing_left(access), 60)

    verdict = condition(status, "RoutingAccepted")
    if verdict.status is ConditionStatus.TRUE:
        told_when(shaped, operator, both.live, "KV routing", is_on, SWITCH_SECONDS)
        assert router_of(both.live) == "kv"
    else:
        assert verdict.reason in UNQUIET, verdict.message
        assert both.live.document()["metadata"]["generation"] == generation
    shaped.check()
