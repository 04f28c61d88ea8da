"""Small deployments for the tables of this folder."""

from __future__ import annotations

import copy
from functools import cache
from pathlib import Path
from typing import cast

import yaml

from kvgate.dynamo.shape import Target, read_target

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "tests" / "data" / "dynamo"
SAMPLE = ROOT / "manifests" / "samples" / "dgd-qwen3.yaml"

Node = dict[str, "object"]
TRANSFER = '{"kv_connector":"NixlConnector","kv_role":"kv_both"}'
VLLM = ["python3", "-m", "dynamo.vllm"]


@cache
def _parsed(path: Path) -> Node:
    return cast("Node", yaml.safe_load(path.read_text(encoding="utf-8")))


def load(path: Path) -> Node:
    """A copy for the test to spoil."""
    return copy.deepcopy(_parsed(path))


def sample() -> Node:
    return load(SAMPLE)


def target_of(document: object) -> Target:
    target = read_target(document)
    assert isinstance(target, Target), target
    return target


def main(**fields: object) -> Node:
    return {"name": "main", "image": "vllm-runtime:1.6.1", **fields}


def component(name: str, kind: str = "worker", *containers: Node, **fields: object) -> Node:
    spec: Node = {"containers": list(containers) or [main()]}
    return {"name": name, "type": kind, "podTemplate": {"spec": spec}, **fields}


def beta(*components: Node, **spec: object) -> Node:
    return {
        "apiVersion": "nvidia.com/v1beta1",
        "kind": "DynamoGraphDeployment",
        "metadata": {"name": "x", "namespace": "serving", "uid": "u-1", "resourceVersion": "7"},
        "spec": {"components": list(components), **spec},
    }


def alpha(services: Node) -> Node:
    return {
        "apiVersion": "nvidia.com/v1alpha1",
        "kind": "DynamoGraphDeployment",
        "metadata": {"name": "x"},
        "spec": {"services": services},
    }


def part(document: Node, name: str) -> Node:
    spec = cast("dict[str, list[Node]]", document["spec"])
    return next(held for held in spec["components"] if held["name"] == name)


def pod(document: Node, name: str) -> Node:
    return cast("Node", part(document, name)["podTemplate"])


def container(document: Node, name: str) -> Node:
    spec = cast("dict[str, list[Node]]", pod(document, name)["spec"])
    return next(held for held in spec["containers"] if held["name"] == "main")


def words(document: Node, name: str) -> list[object]:
    return cast("list[object]", container(document, name)["args"])


def set_env(document: Node, name: str, env: str, value: object, **more: object) -> None:
    held = cast("list[Node]", container(document, name).setdefault("env", []))
    entry: Node = {"name": env, **({} if value is None else {"value": value}), **more}
    kept = [old for old in held if old["name"] != env]
    container(document, name)["env"] = [*kept, entry]


def drop_env(document: Node, name: str, env: str) -> None:
    held = cast("list[Node]", container(document, name).get("env", []))
    container(document, name)["env"] = [old for old in held if old["name"] != env]


def clone(document: Node) -> Node:
    return copy.deepcopy(document)
