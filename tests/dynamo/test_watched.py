"""Which pods are looked at for KV events: who must publish, at which port they are asked, and what they say first."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from kvgate.core.events_seen import Advert, Declares, Routes
from kvgate.dynamo.metadata import read_metadata
from kvgate.dynamo.pods import pods_of
from kvgate.dynamo.shape import Target
from kvgate.dynamo.watched import Watched, advert_of, watched
from tests.dynamo.support import TRANSFER, beta, component, main, target_of
from tests.dynamo.workers import metadata_document, pod_document

REAL = Path(__file__).parents[1] / "data" / "dynamo-worker-metadata.yaml"
ON = '{"enable_kv_cache_events":true,"endpoint":"tcp://*:20080"}'


def vllm(name: str, role: str) -> dict[str, object]:
    args = ["--kv-events-config", ON, "--kv-transfer-config", TRANSFER]
    env = [{"name": "DYN_VLLM_DISAGGREGATION_MODE", "value": role}]
    return component(name, "worker", main(command=["python3", "-m", "dynamo.vllm"], args=args, env=env))


def deployment(decode: str = "agg", prefill: str = "agg") -> Target:
    frontend = component("Frontend", "frontend", main(env=[{"name": "DYN_ROUTER_MODE", "value": "kv"}]))
    document = beta(frontend, vllm("VllmDecodeWorker", decode), vllm("VllmPrefillWorker", prefill))
    return target_of(document)


def looked_at(target: Target, *pods: dict[str, Any], told: tuple[dict[str, Any], ...] = ()) -> Watched:
    metadata = [read_metadata(document) for document in told]
    return watched(target, pods_of("qwen3", pods, target, metadata), pods, metadata)


def pod(name: str, part: str = "VllmDecodeWorker", **fields: Any) -> dict[str, Any]:
    return pod_document(name, component=part, **fields)


@pytest.mark.parametrize(
    ("decode", "prefill", "serves_as", "must"),
    [
        pytest.param("agg", "agg", "", {"d": True, "p": True}, id="aggregated: both"),
        pytest.param("decode", "prefill", "", {"d": False, "p": True}, id="split: prefill alone"),
        pytest.param("decode", "prefill", "aggregated", {"d": True, "p": True}, id="a spec that is ahead of its pods"),
        pytest.param("agg", "agg", "decode", {"d": False, "p": True}, id="a pod that still decodes"),
    ],
)
def test_who_must_publish(decode: str, prefill: str, serves_as: str, must: dict[str, bool]) -> None:
    told = (metadata_document("d", worker_type=serves_as),) if serves_as else ()
    found = looked_at(deployment(decode, prefill), pod("d"), pod("p", "VllmPrefillWorker"), told=told)
    assert {one.worker.pod: one.worker.must_publish for one in found.workers} == must


def test_frontends_workers_and_how_they_route() -> None:
    found = looked_at(deployment(), pod("fe", "Frontend", kind="frontend"), pod("d"))
    assert found.routes is Routes.KV
    assert [(one.frontend.pod, one.address, one.port) for one in found.frontends] == [("fe", "10.88.2.2", 8000)]
    assert [(one.worker.pod, one.port, one.worker.declared.says) for one in found.workers] == [("d", 9090, Declares.ON)]


def test_a_named_port_of_the_main_container_counts() -> None:
    document = pod("d")
    sidecar = {"name": "proxy", "ports": [{"name": "system", "containerPort": 1}]}
    own = {"name": "main", "ports": [{"name": "http", "containerPort": 2}, {"name": "system", "containerPort": 9191}]}
    document["spec"]["containers"] = [sidecar, own]
    assert [one.port for one in looked_at(deployment(), document).workers] == [9191]


def test_another_process_in_the_same_pod_is_told_apart() -> None:
    """What was counted in the container before it began anew tells nothing of it."""
    first, again = pod("d"), pod("d")
    sidecar = {"name": "proxy", "restartCount": 7}
    first["status"]["containerStatuses"] = [sidecar, {"name": "main", "restartCount": 0}]
    again["status"]["containerStatuses"] = [sidecar, {"name": "main", "restartCount": 1}]
    (before,), (after,) = (looked_at(deployment(), document).workers for document in (first, again))
    assert (before.worker.restarts, after.worker.restarts) == (0, 1)
    assert before.uid != after.uid


@pytest.mark.parametrize("port", ["no", 0, 70000, None, [1]])
def test_a_port_that_is_none_is_the_default(port: object) -> None:
    document = pod("d")
    document["spec"]["containers"] = [{"name": "main", "ports": [{"name": "system", "containerPort": port}]}]
    assert [one.port for one in looked_at(deployment(), document).workers] == [9090]


def test_pods_that_leave_or_ended_or_belong_to_another_are_not_looked_at() -> None:
    leaving = pod("gone", deletionTimestamp="2026-11-30T08:00:00Z")
    ended, other = pod("ended", phase="Failed"), pod("other", deployment="qwen3-staging")
    assert looked_at(deployment(), leaving, ended, other).workers == ()


def test_what_a_real_worker_says_of_itself() -> None:
    told = read_metadata(yaml.safe_load(REAL.read_text("utf-8")))
    assert advert_of(told) == Advert(True, True, ("tcp://10.88.2.2:44533",), 16)


@pytest.mark.parametrize(
    ("card", "advert"),
    [
        pytest.param({"runtime_config": {"kv_event_publishing_enabled": False}}, Advert(False, None, (), 16), id="off"),
        pytest.param({"runtime_config": {}}, Advert(None, None, (), 16), id="not said, as older releases"),
        pytest.param({"runtime_config": "x"}, Advert(None, None, (), 16), id="another shape"),
        pytest.param({}, Advert(True, None, (), 16), id="on, in a release that announces no sources"),
    ],
)
def test_what_a_card_says(card: dict[str, Any], advert: Advert) -> None:
    assert advert_of(read_metadata(metadata_document("d", **card))) == advert


def test_a_worker_that_announces_channels_and_no_source_of_events() -> None:
    document = yaml.safe_load(REAL.read_text("utf-8"))
    document["spec"]["data"]["event_sources"] = {}
    assert advert_of(read_metadata(document)).has_source is False


def test_metadata_of_an_earlier_pod_of_that_name_counts_for_nothing() -> None:
    found = looked_at(deployment(), pod("d"), told=(metadata_document("d", uid="uid-before"),))
    assert [one.advert for one in found.workers] == [None]


def test_a_component_that_the_spec_does_not_have() -> None:
    found = looked_at(deployment(), pod("x", "Gone"))
    assert [(one.worker.pod, one.worker.declared.says) for one in found.workers] == [("x", Declares.UNKNOWN)]
