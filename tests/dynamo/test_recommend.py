"""The kustomize patch that Recommend writes out makes the same change as the operator would."""

from __future__ import annotations

import copy
from typing import cast

import pytest
import yaml

from kvgate.api.words import Capability
from kvgate.dynamo.patch import ApplyProblem, apply_to_document
from kvgate.dynamo.recommend import kustomize_patch
from kvgate.dynamo.steps import Change, Step, Steps
from kvgate.dynamo.toggle import enable, plan_steps
from tests.dynamo.support import Node, beta, component, container, drop_env, main, sample, target_of


def json_patch(document: Node, operations: list[Node]) -> Node:
    """RFC 6902's test and add, the two operations that the patch uses."""
    result = copy.deepcopy(document)
    for operation in operations:
        *way, last = cast("str", operation["path"]).split("/")[1:]
        held: object = result
        for key in way:
            held = held[int(key)] if isinstance(held, list) else cast("Node", held)[key]
        if operation["op"] == "test":
            assert cast("Node", held)[last] == operation["value"]
        elif isinstance(held, list):
            assert last == "-"
            held.append(operation["value"])
        else:
            cast("Node", held)[last] = operation["value"]
    return result


def change_of(document: Node, capability: Capability) -> Change:
    steps = plan_steps(target_of(document), capability)
    assert isinstance(steps, Steps)
    return enable(steps)


def without(env: str) -> Node:
    document = sample()
    drop_env(document, "Frontend", env)
    return document


def bare() -> Node:
    document = sample()
    container(document, "Frontend").pop("env")
    return document


@pytest.mark.parametrize("capability", [Capability.ROUTING, Capability.DISAGGREGATION])
def test_the_patch_in_the_file_makes_the_operators_change(capability: Capability) -> None:
    check(sample(), capability)


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(without("DYN_ROUTER_MODE"), id="an entry that is not there yet"),
        pytest.param(bare(), id="no env at all"),
        pytest.param(
            beta(component("w"), component("f", "frontend", {"name": "proxy"}, main())), id="main behind a sidecar"
        ),
    ],
)
def test_routing_is_written_where_it_has_to_be_added(document: Node) -> None:
    check(document, Capability.ROUTING)


def check(document: Node, capability: Capability) -> None:
    change = change_of(document, capability)
    written = kustomize_patch(document, change)
    assert isinstance(written, str)
    (entry,) = yaml.safe_load(written)["patches"]
    assert entry["target"]["kind"] == "DynamoGraphDeployment"
    assert entry["target"]["name"] == cast("Node", document["metadata"])["name"]
    assert json_patch(document, yaml.safe_load(entry["patch"])) == apply_to_document(document, change)


@pytest.mark.parametrize("order", [(2, 1, 0), (0, 2, 1)], ids=["all reversed", "the two workers swapped"])
def test_the_patch_refuses_a_manifest_in_another_order(order: tuple[int, int, int]) -> None:
    written = kustomize_patch(sample(), change_of(sample(), Capability.DISAGGREGATION))
    assert isinstance(written, str)
    (entry,) = yaml.safe_load(written)["patches"]
    other = sample()
    spec = cast("dict[str, list[Node]]", other["spec"])
    spec["components"] = [spec["components"][place] for place in order]
    with pytest.raises(AssertionError):
        json_patch(other, yaml.safe_load(entry["patch"]))


def test_a_component_that_is_gone_is_an_error() -> None:
    change = Change(Capability.ROUTING, (Step("Gone", "DYN_ROUTER_MODE", "kv"),))
    assert isinstance(kustomize_patch(sample(), change), ApplyProblem)
