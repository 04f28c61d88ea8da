"""Deployments for tests: two vLLM workers whose role is in the environment, so that one patch can switch both."""

from __future__ import annotations

from typing import Any

from tests.dynamo_stage import model
from tests.dynamo_stage.standin.graph import GROUP, VERSION, Document
from tests.dynamo_stage.standin.mapping import MODE

EVENTS = '{"publisher":"zmq","topic":"kv-events","endpoint":"tcp://*:20080","enable_kv_cache_events":true}'
TRANSFER = '{"kv_connector":"NixlConnector","kv_role":"kv_both"}'
IMAGE = "local.test/vllm-runtime:1.6.1"
WORKER_ARGUMENTS = ("--model", model.NAME, "--kv-transfer-config", TRANSFER, "--kv-events-config", EVENTS)


def deployment(
    name: str,
    *,
    namespace: str = "default",
    router_mode: str = "round-robin",
    modes: tuple[str, str] = ("agg", "agg"),
    replicas: tuple[int, int, int] = (1, 1, 1),
    migration_limit: int = 3,
    worker_arguments: tuple[str, ...] = WORKER_ARGUMENTS,
) -> Document:
    """Components Frontend, PrefillWorker, DecodeWorker; `modes` and the last two of `replicas` are the workers'."""
    frontend = _container(("-m", "dynamo.frontend", "--migration-limit", str(migration_limit)))
    frontend["env"] = [{"name": "DYN_ROUTER_MODE", "value": router_mode}]
    components = [_component("Frontend", "frontend", replicas[0], frontend)]
    for number, (worker, kind) in enumerate((("PrefillWorker", "prefill"), ("DecodeWorker", "decode"))):
        container = _container(("-m", "dynamo.vllm", *worker_arguments))
        container["env"] = [{"name": MODE, "value": modes[number]}]
        components.append(_component(worker, kind, replicas[number + 1], container))
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "DynamoGraphDeployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"backendFramework": "vllm", "components": components},
    }


def set_env(spec: Document, component: str, name: str, value: str) -> None:
    """Change one variable of a component's container, as a patch does."""
    entry = next(one for one in spec["components"] if one["name"] == component)
    environment = entry["podTemplate"]["spec"]["containers"][0]["env"]
    environment[:] = [*(one for one in environment if one["name"] != name), {"name": name, "value": value}]


def set_modes(spec: Document, prefill: str, decode: str) -> None:
    set_env(spec, "PrefillWorker", MODE, prefill)
    set_env(spec, "DecodeWorker", MODE, decode)


def set_router(spec: Document, mode: str) -> None:
    set_env(spec, "Frontend", "DYN_ROUTER_MODE", mode)


def _component(name: str, kind: str, replicas: int, container: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "type": kind, "replicas": replicas, "podTemplate": {"spec": {"containers": [container]}}}


def _container(words: tuple[str, ...]) -> dict[str, Any]:
    return {"name": "main", "image": IMAGE, "command": ["python3"], "args": list(words)}
