"""Laws: reading, planning and patching answer for every document, and never by raising."""

from __future__ import annotations

from typing import cast

from hypothesis import given, settings
from hypothesis import strategies as st

from kvgate.api.words import Capability
from kvgate.dynamo.patch import ApplyProblem, apply_patch, apply_to_document, baseline, conflicts, holds, revert
from kvgate.dynamo.projection import projection_json, target_projection
from kvgate.dynamo.recommend import kustomize_patch
from kvgate.dynamo.shape import Target, read_target
from kvgate.dynamo.steps import NotToggleable
from kvgate.dynamo.toggle import enable, observed_state, plan_steps
from kvgate.dynamo.words import SwitchState
from tests.dynamo.support import Node, sample

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
WORDS = st.sampled_from(
    [
        "python3",
        "-m",
        "dynamo.vllm",
        "dynamo.frontend",
        "sh",
        "-c",
        "python3 -m dynamo.vllm",
        "--router-mode",
        "kv",
        "--disaggregation-mode",
        "--disaggregation-mode=prefill",
        "decode",
        "--kv-transfer-config",
        "{}",
        "$(X)",
        "--",
        "-",
        "main",
        "agg",
        "prefill",
        "DYN_ROUTER_MODE",
        "DYN_VLLM_DISAGGREGATION_MODE",
        "frontend",
        "worker",
        "a",
        "25%",
        "1",
    ]
)
KEYS = st.sampled_from(
    [
        "name",
        "type",
        "podTemplate",
        "spec",
        "containers",
        "env",
        "value",
        "valueFrom",
        "args",
        "command",
        "image",
        "resources",
        "limits",
        "replicas",
        "multinode",
        "scalingAdapter",
        "metadata",
        "annotations",
        "extraPodSpec",
        "mainContainer",
        "envs",
        "componentType",
        "managedFields",
        "status",
        "components",
        "services",
        "fieldsV1",
        "f:spec",
        "f:components",
        'k:{"name":"a"}',
    ]
)
LIKE_JSON = st.recursive(
    SCALARS | WORDS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS | st.text(max_size=4), inner, max_size=5),
    max_leaves=25,
)
CONTAINERS = st.lists(
    st.fixed_dictionaries(
        {"name": st.just("main")},
        optional={
            "command": st.lists(WORDS, max_size=4) | LIKE_JSON,
            "args": st.lists(WORDS, max_size=6) | LIKE_JSON,
            "env": st.lists(st.fixed_dictionaries({"name": WORDS}, optional={"value": WORDS | LIKE_JSON}), max_size=3)
            | LIKE_JSON,
            "image": WORDS | LIKE_JSON,
            "resources": LIKE_JSON,
        },
    )
    | LIKE_JSON,
    max_size=3,
)
COMPONENTS = st.lists(
    st.fixed_dictionaries(
        {"name": st.sampled_from(["a", "b", "prefill", "decode"])},
        optional={
            "type": WORDS,
            "replicas": LIKE_JSON,
            "podTemplate": st.fixed_dictionaries({"spec": st.fixed_dictionaries({"containers": CONTAINERS})})
            | LIKE_JSON,
        },
    ),
    max_size=4,
    unique_by=lambda held: cast("str", held["name"]),
)
DOCUMENTS = LIKE_JSON | st.fixed_dictionaries(
    {
        "apiVersion": st.sampled_from(["nvidia.com/v1beta1", "nvidia.com/v1alpha1", "v1"]),
        "kind": st.just("DynamoGraphDeployment"),
        "metadata": st.fixed_dictionaries(
            {"name": st.text(max_size=5)}, optional={"managedFields": LIKE_JSON, "annotations": LIKE_JSON}
        ),
        "spec": st.fixed_dictionaries(
            {}, optional={"components": COMPONENTS | LIKE_JSON, "services": LIKE_JSON, "env": LIKE_JSON}
        ),
    },
    optional={"status": LIKE_JSON},
)


SWITCHED = (Capability.ROUTING, Capability.DISAGGREGATION)
SPOILS = LIKE_JSON | st.sampled_from(
    [
        {"name": "DYN_ROUTER_MODE", "value": "kv"},
        {"name": "DYN_VLLM_DISAGGREGATION_MODE", "value": "pd"},
        {"name": "UCX_TLS", "value": "tcp"},
        {"name": "main"},
    ]
)


def answer(document: object) -> int:
    """Puts every question to a document, checks the laws of a switch, and counts the switches it found."""
    target = read_target(document)
    if not isinstance(target, Target):
        assert target.message
        assert target.remedy
        return 0
    projection_json(target_projection(target))
    for capability in Capability:
        observed_state(target, capability)
    return sum(switch(cast("Node", document), target, capability) for capability in SWITCHED)


def switch(document: Node, target: Target, capability: Capability) -> int:
    steps = plan_steps(target, capability)
    if isinstance(steps, NotToggleable):
        assert steps.message
        assert steps.remedy
        return 0
    change = enable(steps)
    conflicts(target, change)
    apply_patch(target, change)
    assert isinstance(kustomize_patch(document, change), str)
    result = apply_to_document(document, change)
    assert not isinstance(result, ApplyProblem)
    again = read_target(result)
    assert isinstance(again, Target)
    assert holds(again, change)
    assert observed_state(again, capability) is SwitchState.ON
    assert target_projection(again) == target_projection(target)
    back = apply_to_document(result, revert(capability, baseline(target, steps)))
    assert not isinstance(back, ApplyProblem)
    if steps.state is SwitchState.OFF:
        assert observed_state(cast("Target", read_target(back)), capability) is SwitchState.OFF
    return 1


def put(node: object, way: list[int], value: object) -> None:
    """Replaces one leaf or branch, found by following `way` modulo the size of each level."""
    while isinstance(node, dict | list) and node:
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        key = keys[way[0] % len(keys)]
        inner = node[key]
        if len(way) == 1 or not isinstance(inner, dict | list) or not inner:
            node[key] = value
            return
        node, way = inner, way[1:]


@settings(max_examples=100, deadline=None)
@given(DOCUMENTS)
def test_any_document_is_answered(document: object) -> None:
    answer(document)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.lists(st.integers(0, 40), min_size=1, max_size=9), SPOILS), max_size=3))
def test_the_sample_with_some_places_spoilt_is_answered(places: list[tuple[list[int], object]]) -> None:
    document = sample()
    for way, value in places:
        put(document, way, value)
    answer(document)


def test_the_laws_are_put_to_real_switches() -> None:
    assert answer(sample()) == len(SWITCHED)
