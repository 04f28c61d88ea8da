"""Pods and what they publish as documents of a directory: they count as in a cluster, and `evaluate` asks nobody."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from kvgate.app.ring import settle
from kvgate.core.world import KVKnown, KVUnknown, World
from kvgate.edge.directory import Directory
from kvgate.edge.worker_config import WorkerConfigs
from tests.app.yard import DROP, FAST, KEY, Sweeps, edit, lay_out, node
from tests.dynamo.workers import metadata_document, pod_document
from tests.edge.prometheus_double import double, says

CONFIG = (Path(__file__).parents[1] / "data" / "dynamo-worker-config.json").read_bytes()
PATH = "/v1/metadata/dynamo/backend/generate/tiny/_base/config.json"


def directory(folder: Path, url: str, *more: dict[str, Any]) -> Path:
    """The sample without a source of KV bytes, on two decode nodes, with a decode pod that publishes."""
    lay_out(folder, node("prefill-1", "prefill"), node("decode-1", "decode"), node("decode-2", "decode"))
    edit(folder / "pool.yaml", {"spec|model|kvCache": DROP})
    pod = pod_document("d-0", component="DecodeWorker", node="decode-1", address="127.0.0.1")
    documents = [pod, metadata_document("d-0", url=url, block=32), *more]
    (folder / "workers.yaml").write_text(yaml.safe_dump_all(documents), encoding="utf-8")
    return folder


def seen(folder: Path, sweeps: Sweeps, configs: WorkerConfigs) -> World:
    ground = Directory(folder, sweeps, worker_config=configs)
    with ground.locked():
        return settle(ground, KEY, sweeps.clock)[-1].world


def test_the_kv_bytes_come_from_the_worker_that_the_directory_names_once(tmp_path: Path) -> None:
    configs = WorkerConfigs()
    with double(says(CONFIG)) as server:
        folder = directory(tmp_path, f"{server.url}{PATH}")
        world = seen(folder, Sweeps(FAST), configs)
        seen(folder, Sweeps(FAST), configs)
    assert isinstance(world.kv, KVKnown)
    assert (world.kv.source, world.kv.bytes_per_token, world.kv.block_tokens) == ("worker pod d-0", 114_688, 32)
    assert len(server.asked) == 1


def test_pods_of_the_directory_say_which_paths_are_used(tmp_path: Path) -> None:
    prefill = pod_document("p-0", component="PrefillWorker", node="prefill-1")
    with double(says(CONFIG)) as server:
        world = seen(directory(tmp_path, f"{server.url}{PATH}", prefill), Sweeps(FAST), WorkerConfigs())
    assert sorted((pod.pod, pod.node, pod.role.value) for pod in world.pods) == [
        ("d-0", "decode-1", "decode"),
        ("p-0", "prefill-1", "prefill"),
    ]


def test_where_nobody_may_be_asked_the_message_says_what_to_supply(tmp_path: Path) -> None:
    with double(says(CONFIG)) as server:
        ground = Directory(directory(tmp_path, f"{server.url}{PATH}"), Sweeps(FAST))
        with ground.locked():
            world = ground.observe(KEY)[1]
    assert isinstance(world.kv, KVUnknown)
    assert "supply spec.model.kvCache.bytesPerToken or configFrom" in world.kv.message
    assert server.asked == []


@pytest.mark.parametrize(
    "odd",
    [
        pytest.param({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}}, id="a pod of nothing"),
        pytest.param({"apiVersion": "v1", "kind": "Pod", "metadata": None, "status": []}, id="a pod of wrong shapes"),
        pytest.param(
            {"apiVersion": "nvidia.com/v1alpha1", "kind": "DynamoWorkerMetadata", "metadata": {"name": "x"}, "spec": 7},
            id="metadata of a wrong shape",
        ),
    ],
)
def test_an_odd_document_beside_them_hurts_nobody(odd: dict[str, Any], tmp_path: Path) -> None:
    with double(says(CONFIG)) as server:
        world = seen(directory(tmp_path, f"{server.url}{PATH}", odd), Sweeps(FAST), WorkerConfigs())
    assert isinstance(world.kv, KVKnown)
