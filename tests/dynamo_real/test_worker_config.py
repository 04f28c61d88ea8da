"""The KV bytes that a real worker's own card and config give, fetched from it as kvgate does."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from kvgate.api.pool import KVCache
from kvgate.core.kvsource import ConfigTexts, kv_size
from kvgate.core.workers import PodRole, WorkerPod
from kvgate.core.world import KVKnown
from kvgate.dynamo.metadata import WorkerMetadata, read_metadata
from kvgate.dynamo.published import Published, Unpublished, published
from kvgate.edge.worker_config import NoConfig, WorkerConfig, WorkerConfigs
from tests.dynamo_stage.specs import Worker
from tests.dynamo_stage.stage import Stage

pytestmark = pytest.mark.dynamo
PODS = tuple(WorkerPod(name, f"uid-{name}", "w", PodRole.WORKER, "n1", "127.0.0.1", ready=True) for name in ("a", "b"))


def metadata(stage: Stage) -> tuple[WorkerMetadata, ...]:
    """What the running workers publish, each as the object of one pod. Under Kubernetes' discovery a worker writes the
    same entries into its DynamoWorkerMetadata; here they lie in files."""
    folder = stage.ledger.state / "discovery" / "v1" / "mdc"
    entries = [json.loads(path.read_text("utf-8")) for path in sorted(folder.iterdir())]
    return tuple(_told(pod, entry) for pod, entry in zip(PODS, entries, strict=False))


def _told(pod: WorkerPod, entry: object) -> WorkerMetadata:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod.pod, "uid": pod.uid, "controller": True}
    spec = {"data": {"model_cards": {"card": entry}}}
    return read_metadata({"metadata": {"name": pod.pod, "ownerReferences": [owner]}, "spec": spec})


def test_a_real_worker_gives_its_kv_bytes_and_one_that_has_ended_is_told(stage: Stage) -> None:
    stage.worker("w1", Worker(block_size_tokens=32))
    told = published(metadata(stage), PODS)
    assert isinstance(told, Published)

    found = WorkerConfigs()(told)
    assert isinstance(found, WorkerConfig)
    size = kv_size(KVCache(), ConfigTexts(found.text, source="worker pod a", block_tokens=told.block_tokens))
    assert isinstance(size, KVKnown)
    assert (size.bytes_per_token, size.block_tokens) == (114_688, 32)

    elsewhere = replace(told, offers=tuple(replace(offer, address="127.0.0.2") for offer in told.offers))
    refused = WorkerConfigs()(elsewhere)
    assert isinstance(refused, NoConfig)
    assert "another host" in refused.message

    stage.kill("w1")
    gone = WorkerConfigs()(told)
    assert isinstance(gone, NoConfig)
    assert "no connection to the pod" in gone.message


def test_real_workers_that_differ_in_their_block_size_are_both_named(stage: Stage) -> None:
    stage.workers(w1=Worker(block_size_tokens=16), w2=Worker(block_size_tokens=32))
    told = published(metadata(stage), PODS)
    assert isinstance(told, Unpublished)
    assert "worker pod a has " in told.message
    assert "worker pod b has " in told.message
