"""KV events of the target's pods, which a real API server tells of and which are asked over real HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client as kubernetes

from kvgate.api.words import Outcome
from kvgate.core.events import judge_events
from kvgate.core.events_seen import EventsSeen, FrontendSeen, WorkerSeen
from tests.cluster.access import Access
from tests.cluster.waiting import eventually
from tests.dynamo.workers import metadata_document, pod_document
from tests.edge.cluster.test_reading_workers import RESTRICTED, WORKERS_CRD
from tests.edge.cluster.yard import Yard
from tests.edge.prometheus_double import Double, double, says

pytestmark = pytest.mark.api
SCRAPES = Path(__file__).parents[2] / "data" / "metrics"
FRONTEND = (SCRAPES / "agg-kv-events-on-frontend.txt").read_bytes()
DEAF = (SCRAPES / "agg-kv-worker-events-off-frontend.txt").read_bytes()
WORKER = (SCRAPES / "agg-kv-zmq-relay-w1.txt").read_bytes()


@pytest.fixture
def workers_kind(kinds: Access) -> Iterator[None]:
    crd = yaml.safe_load(WORKERS_CRD.read_text(encoding="utf-8"))
    kinds.apply(crd)
    eventually(lambda: kinds.kubectl("get", "dwm", "-A").returncode == 0, 30)
    yield
    kinds.kubectl("delete", "crd", crd["metadata"]["name"])
    eventually(lambda: kinds.kubectl("get", "dwm", "-A").returncode != 0, 30)


def run(yard: Yard, name: str, component: str, port_name: str, server: Double) -> str:
    """A pod at loopback, whose named port is that of the server which stands for its process; its UID."""
    body = pod_document(name, namespace=yard.namespace, node=yard.nodes[0], component=component, kind="")
    body["metadata"].pop("uid")
    status = body.pop("status") | {"podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}]}
    port = {"name": port_name, "containerPort": int(server.url.rpartition(":")[2])}
    body["spec"]["containers"][0] |= {"securityContext": RESTRICTED, "ports": [port]}
    yard.kubectl("create", "-f", "-", document=body)
    api = kubernetes.CoreV1Api(yard.access.api_client())
    made: Any = api.patch_namespaced_pod_status(name, yard.namespace, {"status": status})
    return str(made.metadata.uid)


def gating(yard: Yard, **routing: Any) -> None:
    yard.pool(criteria={"routing": routing}, monitor={"interval": "1s"})
    yard.target()


def looked(yard: Yard, times: int) -> EventsSeen:
    """After so many looks at each pod."""

    held: list[EventsSeen] = []

    def enough() -> bool:
        events = yard.observe()[1].events
        held[:] = [events] if events else []
        pods: tuple[WorkerSeen | FrontendSeen, ...] = (*events.workers, *events.frontends) if events else ()
        return bool(pods) and all(len(pod.looks) >= times for pod in pods)

    eventually(enough, 30)
    return held[0]


@pytest.mark.usefixtures("workers_kind")
def test_every_pod_of_the_target_is_looked_at_by_itself(yard: Yard) -> None:
    """Two frontends, one of which is deaf: it is named, and no Service stands between."""
    gating(yard)
    with double(says(FRONTEND)) as good, double(says(DEAF)) as deaf, double(says(WORKER)) as worker:
        run(yard, "fe-0", "Frontend", "http", good)
        run(yard, "fe-1", "Frontend", "http", deaf)
        uid = run(yard, "d-0", "DecodeWorker", "system", worker)
        yard.kubectl("apply", "-f", "-", document=metadata_document("d-0", uid=uid, namespace=yard.namespace))
        events = looked(yard, 2)
    assert [one.pod for one in events.frontends] == ["fe-0", "fe-1"]
    assert [(one.pod, one.component, one.must_publish) for one in events.workers] == [("d-0", "DecodeWorker", True)]
    advert = events.workers[0].last.advert if events.workers[0].last else None
    assert advert is not None
    assert advert.publishing is True
    counted = {one.pod: one.last.counts.stored for one in events.frontends if one.last and one.last.counts}
    assert counted == {"fe-0": 14, "fe-1": 0}
    assert {asked.path for server in (good, deaf, worker) for asked in server.asked} == {"/metrics"}
    finding = judge_events(events).finding
    assert (finding.outcome, finding.reason) == (Outcome.FAIL, "KVEventSourceMismatch"), finding.message
    assert "the router of fe-1" in finding.message


def test_a_pool_that_ignores_events_asks_no_pod(yard: Yard) -> None:
    gating(yard, kvEvents="Ignored")
    with double(says(FRONTEND)) as server:
        run(yard, "fe-0", "Frontend", "http", server)
        for _ in range(3):
            assert yard.observe()[1].events is None
    assert [asked for asked in server.asked if asked.path == "/metrics"] == []
