"""Worker pods and what they publish, as documents: each says only what differs from a Ready decode worker of qwen3."""

from __future__ import annotations

from typing import Any

from kvgate.core.workers import PodRole, WorkerPod
from kvgate.dynamo.metadata import read_metadata

Document = dict[str, Any]
CONFIG_CHECKSUM = "blake3:81ac26e946c2da9a5bde35cde9c6bbc0c70ec1525a0be9b92c00b8c28d554190"
READY_AT = "2026-11-30T07:19:02Z"


def pod_document(
    name: str,
    *,
    deployment: str = "qwen3",
    component: str = "VllmDecodeWorker",
    kind: str = "worker",
    node: str = "n2",
    address: str = "10.88.2.2",
    ready: bool = True,
    phase: str = "Running",
    namespace: str = "serving",
    **metadata: object,
) -> Document:
    """A Pod with the labels that Dynamo's operator sets."""
    labels = {
        "nvidia.com/dynamo-graph-deployment-name": deployment,
        "nvidia.com/dynamo-component": component,
        "nvidia.com/dynamo-component-type": kind,
        "nvidia.com/dynamo-worker-hash": "5f2d",
    }
    condition = {"type": "Ready", "status": str(ready), "lastTransitionTime": READY_AT}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "uid": f"uid-{name}", "labels": labels, **metadata},
        "spec": {"nodeName": node, "containers": [{"name": "main", "image": "vllm:1"}]},
        "status": {"phase": phase, "podIP": address, "conditions": [condition]},
    }


def metadata_document(
    pod: str,
    *,
    uid: str = "",
    namespace: str = "serving",
    url: str = "http://10.88.2.2:9090/v1/metadata/dynamo/backend/generate/tiny/_base/config.json",
    checksum: str = CONFIG_CHECKSUM,
    block: int | None = 16,
    model: str = "tiny",
    worker_type: str = "aggregated",
    **card: object,
) -> Document:
    """A DynamoWorkerMetadata with one model card, as a worker of Dynamo 1.6.1 writes it."""
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": uid or f"uid-{pod}", "controller": True}
    content: Document = {
        "display_name": model,
        "worker_type": worker_type,
        "kv_cache_block_size": block,
        "model_info": {"hf_config_json": {"path": url, "checksum": checksum, "size": 444}},
        "runtime_config": {"kv_event_publishing_enabled": True},
        **card,
    }
    entry = {
        "type": "Model",
        "namespace": "serving-qwen3-5f2d",
        "component": "backend",
        "endpoint": "generate",
        "instance_id": 17,
        "card_json": content,
    }
    return {
        "apiVersion": "nvidia.com/v1alpha1",
        "kind": "DynamoWorkerMetadata",
        "metadata": {"name": pod, "namespace": namespace, "ownerReferences": [owner]},
        "spec": {"data": {"model_cards": {f"dynamo/backend/generate/{pod}": entry}}},
    }


def told(pod: str, **fields: Any) -> Any:
    return read_metadata(metadata_document(pod, **fields))


def worker(name: str, role: PodRole = PodRole.DECODE, **fields: Any) -> WorkerPod:
    """A Ready pod on a node."""
    plain: Document = {"component": role.value, "node": "n2", "address": "10.88.2.2", "ready": True}
    return WorkerPod(pod=name, uid=f"uid-{name}", role=role, **(plain | fields))
