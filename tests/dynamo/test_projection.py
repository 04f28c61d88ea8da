"""What of a target an approval binds: its workload, and none of what kvgate or Dynamo's operator changes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import cast

import pytest

from kvgate.api.words import Capability
from kvgate.dynamo.patch import ApplyProblem, apply_to_document
from kvgate.dynamo.projection import projection_json, target_projection
from kvgate.dynamo.steps import Steps
from kvgate.dynamo.toggle import enable, plan_steps
from tests.dynamo.support import (
    VLLM,
    Node,
    alpha,
    beta,
    component,
    container,
    drop_env,
    main,
    part,
    sample,
    set_env,
    target_of,
    words,
)


def projected(document: object) -> str:
    return projection_json(target_projection(target_of(document)))


def both_applied(document: Node) -> Node:
    for capability in (Capability.ROUTING, Capability.DISAGGREGATION):
        steps = plan_steps(target_of(document), capability)
        assert isinstance(steps, Steps)
        result = apply_to_document(document, enable(steps))
        assert not isinstance(result, ApplyProblem)
        document = result
    return document


def test_our_own_patches_change_nothing() -> None:
    switched = both_applied(sample())
    assert switched != sample()
    assert projected(switched) == projected(sample())


def touch(document: Node) -> None:
    document["metadata"] = {"name": "qwen3", "generation": 9, "annotations": {"nvidia.com/current-worker-hash-v2": "x"}}
    document["status"] = {"state": "successful"}


@pytest.mark.parametrize(
    "edit",
    [
        pytest.param(lambda d: part(d, "DecodeWorker").update(replicas=9), id="replicas"),
        pytest.param(touch, id="generation, annotations and status"),
        pytest.param(lambda d: drop_env(d, "Frontend", "DYN_ROUTER_MODE"), id="a gated entry that is gone, not blank"),
        pytest.param(
            lambda d: container(d, "DecodeWorker").update(resources={"limits": {"nvidia.com/gpu": 1}}), id="1 for '1'"
        ),
        pytest.param(
            lambda d: cast("list[Node]", cast("Node", d["spec"])["components"]).reverse(), id="the components' order"
        ),
    ],
)
def test_what_an_approval_does_not_bind(edit: Callable[[Node], object]) -> None:
    document = sample()
    edit(document)
    assert projected(document) == projected(sample())


@pytest.mark.parametrize(
    "edit",
    [
        pytest.param(lambda d: container(d, "DecodeWorker").update(image="vllm-runtime:1.6.2"), id="an image"),
        pytest.param(lambda d: words(d, "DecodeWorker").append("--enforce-eager"), id="an argument"),
        pytest.param(
            lambda d: container(d, "DecodeWorker").update(command=["python3.12", "-m", "dynamo.vllm"]), id="a command"
        ),
        pytest.param(lambda d: set_env(d, "DecodeWorker", "UCX_TLS", "tcp"), id="another variable"),
        pytest.param(
            lambda d: set_env(d, "DecodeWorker", "T", None, valueFrom={"secretKeyRef": {"name": "s", "key": "k"}}),
            id="a variable from a secret",
        ),
        pytest.param(
            lambda d: cast("Node", d["spec"]).update(env=[{"name": "UCX_TLS", "value": "rc"}]), id="the graph's env"
        ),
        pytest.param(
            lambda d: container(d, "DecodeWorker").update(resources={"limits": {"nvidia.com/gpu": "2"}}), id="resources"
        ),
    ],
)
def test_what_an_approval_binds(edit: Callable[[Node], object]) -> None:
    document = sample()
    edit(document)
    assert projected(document) != projected(sample())


def test_a_conversion_between_the_versions_is_no_change() -> None:
    before = alpha(
        {
            "f": {
                "envs": [],
                "extraPodSpec": {"mainContainer": {"image": "i", "env": [{"name": "A", "value": "1"}]}},
                "resources": {"limits": {"gpu": "1", "custom": {"rdma/ib": "2"}}},
            }
        }
    )
    after = alpha(
        {
            "f": {
                "envs": [{"name": "A", "value": "1"}],
                "extraPodSpec": {"mainContainer": {"name": "", "image": "i", "resources": {}}},
                "resources": {"limits": {"gpu": "1", "custom": {"rdma/ib": "2"}}},
            }
        }
    )
    limits = {"nvidia.com/gpu": "1", "rdma/ib": "2"}
    stored = main(image="i", env=[{"name": "A", "value": "1"}], resources={"limits": limits}, command=[])
    assert projected(before) == projected(after) == projected(beta(component("f", "worker", stored)))


def test_the_canonical_text_is_sorted_json_of_the_named_fields() -> None:
    (held,) = json.loads(projected(beta(component("w", "worker", main(command=VLLM)))))
    assert list(held) == ["args", "command", "component", "env", "image", "resources"]
    assert held["command"] == VLLM
