"""The target's worker pods and what they publish, read from a real API server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client as kubernetes

from kvgate.core.workers import PodRole
from kvgate.core.world import KVKnown, KVUnknown
from tests.cluster.access import Access
from tests.cluster.waiting import eventually
from tests.dynamo.workers import CONFIG_CHECKSUM, metadata_document, pod_document
from tests.edge.cluster.yard import DYNAMO_CRD, Yard
from tests.edge.prometheus_double import Double, double, says

pytestmark = pytest.mark.api
WORKERS_CRD = DYNAMO_CRD.with_name("nvidia.com_dynamoworkermetadatas.yaml")
CONFIG = (Path(__file__).parents[2] / "data" / "dynamo-worker-config.json").read_bytes()
PATH = "/v1/metadata/dynamo/backend/generate/tiny/_base/config.json"
RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "runAsNonRoot": True,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}


@pytest.fixture
def workers_kind(kinds: Access) -> Iterator[None]:
    crd = yaml.safe_load(WORKERS_CRD.read_text(encoding="utf-8"))
    kinds.apply(crd)
    eventually(lambda: kinds.kubectl("get", "dwm", "-A").returncode == 0, 30)
    yield
    kinds.kubectl("delete", "crd", crd["metadata"]["name"])
    eventually(lambda: kinds.kubectl("get", "dwm", "-A").returncode != 0, 30)


def run_worker(yard: Yard, name: str, node: str, *, address: str = "127.0.0.1", **fields: Any) -> str:
    """A pod as Dynamo's operator makes it, bound to a node and with the status that a kubelet would write; its UID."""
    body = pod_document(name, namespace=yard.namespace, node=node, **fields)
    body["metadata"].pop("uid")
    status = body.pop("status") | {"podIP": address, "podIPs": [{"ip": address}]}
    body["spec"]["containers"][0]["securityContext"] = RESTRICTED
    yard.kubectl("create", "-f", "-", document=body)
    api = kubernetes.CoreV1Api(yard.access.api_client())
    made: Any = api.patch_namespaced_pod_status(name, yard.namespace, {"status": status})
    return str(made.metadata.uid)


def publish(yard: Yard, pod: str, uid: str, server: Double, **fields: Any) -> None:
    url = f"{server.url}{PATH}"
    document = metadata_document(pod, uid=uid, namespace=yard.namespace, **{"url": url, **fields})
    yard.kubectl("apply", "-f", "-", document=document)


def from_workers(yard: Yard) -> None:
    yard.pool(model={"name": "Qwen/Qwen3-0.6B"})


def test_a_cluster_that_does_not_know_workers_metadata_is_read_all_the_same(yard: Yard) -> None:
    assert yard.access.kubectl("get", "dwm", "-A").returncode != 0
    from_workers(yard)

    _, world = yard.observe()
    assert world.pods == ()
    assert isinstance(world.kv, KVUnknown)
    assert "no running worker's config.json was read; supply spec.model.kvCache.bytesPerToken" in world.kv.message


@pytest.mark.usefixtures("workers_kind")
def test_the_kv_bytes_come_from_a_worker_of_the_very_target_once(yard: Yard) -> None:
    from_workers(yard)
    with double(says(CONFIG)) as server, double(says(b"", 500)) as strange:
        publish(
            yard,
            "d-0",
            run_worker(yard, "d-0", yard.nodes[1], component="DecodeWorker"),
            server,
            block=32,
            worker_type="decode",
        )
        stranger = run_worker(yard, "other-0", yard.nodes[2], deployment="qwen3-8b", kind="decode")
        publish(yard, "other-0", stranger, strange, checksum="blake3:" + "f" * 64)
        _, first = yard.observe()
        _, again = yard.observe()

    assert isinstance(first.kv, KVKnown)
    assert (first.kv.source, first.kv.bytes_per_token, first.kv.block_tokens) == ("worker pod d-0", 114_688, 32)
    assert first.kv.digest
    assert again.kv == first.kv
    assert ([one.path for one in server.asked], strange.asked) == ([PATH], [])
    [pod] = first.pods
    assert (pod.pod, pod.node, pod.role, pod.ready) == ("d-0", yard.nodes[1], PodRole.DECODE, True)
    assert (pod.instance, pod.serves_as) == (17, "decode")


@pytest.mark.usefixtures("workers_kind")
@pytest.mark.parametrize(
    ("fields", "said"),
    [
        pytest.param({"checksum": "blake3:" + "0" * 64}, "do not match the checksum", id="serves another file"),
        pytest.param({"url": "http://169.254.169.254:80" + PATH}, "names another host", id="names another host"),
        pytest.param({"checksum": ""}, "no BLAKE3 checksum", id="names no checksum"),
    ],
)
def test_a_worker_is_named_that(yard: Yard, fields: dict[str, Any], said: str) -> None:
    from_workers(yard)
    with double(says(CONFIG)) as server:
        publish(yard, "d-0", run_worker(yard, "d-0", yard.nodes[1]), server, **fields)
        kv = yard.observe()[1].kv
    assert isinstance(kv, KVUnknown)
    assert "worker pod d-0" in kv.message
    assert said in kv.message


@pytest.mark.usefixtures("workers_kind")
def test_two_workers_that_serve_different_models_are_both_named(yard: Yard) -> None:
    from_workers(yard)
    with double(says(CONFIG)) as server:
        publish(yard, "d-0", run_worker(yard, "d-0", yard.nodes[1]), server)
        prefill = run_worker(yard, "p-0", yard.nodes[0], component="PrefillWorker")
        publish(yard, "p-0", prefill, server, checksum="blake3:" + "f" * 64, model="big")
        kv = yard.observe()[1].kv
    assert isinstance(kv, KVUnknown)
    assert "worker pod d-0 serves tiny" in kv.message
    assert "worker pod p-0 serves big" in kv.message
    assert server.asked == []


@pytest.mark.usefixtures("workers_kind")
def test_a_checksum_that_somebody_else_publishes_binds_nobody(yard: Yard) -> None:
    """An object of the right name that names an earlier pod is not the running pod's."""
    from_workers(yard)
    with double(says(CONFIG)) as server:
        run_worker(yard, "d-0", yard.nodes[1])
        publish(yard, "d-0", "6605356a-e077-497a-bd45-5f14af85487f", server, checksum=CONFIG_CHECKSUM)
        kv = yard.observe()[1].kv
    assert isinstance(kv, KVUnknown)
    assert server.asked == []
