"""A change of a v1alpha1 deployment: a JSON patch that tests what was read and touches the named entries alone."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import cast

import pytest

from kvgate.api.status import BaselineEntry
from kvgate.api.words import Capability
from kvgate.dynamo.alpha import json_patch, list_operations
from kvgate.dynamo.patch import ApplyProblem, ApplyReason, baseline, holds, revert
from kvgate.dynamo.steps import Change, EnvRef, Step, Steps
from kvgate.dynamo.toggle import enable, plan_steps
from kvgate.dynamo.words import SwitchState
from tests.dynamo.alphas import as_alpha
from tests.dynamo.support import Node, alpha, drop_env, sample, target_of

ROUTING, SPLIT = Capability.ROUTING, Capability.DISAGGREGATION
ROUTER, MODE = "DYN_ROUTER_MODE", "DYN_VLLM_DISAGGREGATION_MODE"
BOTH = [ROUTING, SPLIT]
CHANGE = Change(ROUTING, (Step("Frontend", ROUTER, "kv"),))
ENTRY: Node = {"name": ROUTER, "value": "round-robin"}
OTHER: Node = {"name": "HF_HOME", "value": "/models"}


def patched(document: Node, operations: Sequence[Node]) -> Node:
    """RFC 6902's test, add, replace and remove on mappings; a test that fails, or a path that is gone, is an error."""
    result = copy.deepcopy(document)
    for operation in operations:
        *way, last = [key.replace("~1", "/").replace("~0", "~") for key in str(operation["path"]).split("/")[1:]]
        held = result
        for key in way:
            held = cast("Node", held[key])
        if operation["op"] == "test":
            assert held[last] == operation["value"], operation
        elif operation["op"] == "remove":
            del held[last]
        else:
            assert operation["op"] == "add" or last in held
            held[last] = operation["value"]
    return result


def live(document: Node | None = None) -> Node:
    found = document or as_alpha(sample())
    cast("Node", found["metadata"]).update(uid="u-1", resourceVersion="42", namespace="serving")
    return found


def steps_of(document: Node, capability: Capability) -> Steps:
    steps = plan_steps(target_of(document), capability)
    assert isinstance(steps, Steps), steps
    return steps


def operations(document: Node, change: Change) -> tuple[Node, ...]:
    found = json_patch(document, change)
    assert not isinstance(found, ApplyProblem), found
    return found


def frontend(**service: object) -> Node:
    return live(alpha({"Frontend": {"componentType": "frontend", **service}}))


@pytest.mark.parametrize("capability", BOTH)
def test_what_an_api_server_holds_as_v1alpha1_is_switched_and_switched_back(capability: Capability) -> None:
    document = live()
    steps = steps_of(document, capability)
    assert steps.state is SwitchState.OFF
    change = enable(steps)
    kept = baseline(target_of(document), steps)
    on = patched(document, operations(document, change))
    assert holds(target_of(on), change)
    assert steps_of(on, capability).state is SwitchState.ON
    assert patched(on, operations(on, revert(capability, kept))) == document


@pytest.mark.parametrize("capability", BOTH)
def test_an_absent_entry_is_gone_again_and_an_empty_list_with_it(capability: Capability) -> None:
    document = sample()
    for name in ("Frontend", "DecodeWorker", "PrefillWorker"):
        drop_env(document, name, ROUTER)
        drop_env(document, name, MODE)
    document = live(as_alpha(document))
    steps = steps_of(document, capability)
    kept = baseline(target_of(document), steps)
    on = patched(document, operations(document, enable(steps)))
    assert steps_of(on, capability).state is SwitchState.ON
    assert patched(on, operations(on, revert(capability, kept))) == document


def test_first_the_object_and_each_list_are_tested_as_they_were_read() -> None:
    found = operations(frontend(envs=[OTHER, ENTRY]), CHANGE)
    assert [(one["op"], one["path"]) for one in found] == [
        ("test", "/metadata/uid"),
        ("test", "/metadata/resourceVersion"),
        ("test", "/spec/services/Frontend/envs"),
        ("replace", "/spec/services/Frontend/envs"),
    ]
    assert [one["value"] for one in found] == ["u-1", "42", [OTHER, ENTRY], [OTHER, ENTRY | {"value": "kv"}]]


def test_a_list_that_changed_since_fails_the_test() -> None:
    document = frontend(envs=[OTHER, ENTRY])
    found = operations(document, CHANGE)
    cast("dict[str, dict[str, Node]]", document["spec"])["services"]["Frontend"]["envs"] = [ENTRY]
    with pytest.raises(AssertionError):
        patched(document, found)


PLACES: dict[str, tuple[Node, str]] = {
    "the service's list": ({"envs": [ENTRY]}, "/spec/services/Frontend/envs"),
    "a service without a list": ({"replicas": 1}, "/spec/services/Frontend/envs"),
    "the container's own list, where the entry stands in it and so hides the service's": (
        {"envs": [ENTRY], "extraPodSpec": {"mainContainer": {"env": [ENTRY]}}},
        "/spec/services/Frontend/extraPodSpec/mainContainer/env",
    ),
    "the service's list, where the container's holds others": (
        {"extraPodSpec": {"mainContainer": {"env": [OTHER]}}},
        "/spec/services/Frontend/envs",
    ),
}


@pytest.mark.parametrize(("service", "path"), PLACES.values(), ids=PLACES)
def test_the_entry_is_written_to(service: Node, path: str) -> None:
    document = frontend(**service)
    found = operations(document, CHANGE)
    assert found[-1]["path"] == path
    assert holds(target_of(patched(document, found)), CHANGE)


def test_the_path_of_a_strange_name_is_escaped() -> None:
    document = live(alpha({"a/b~c": {"componentType": "frontend"}}))
    change = Change(ROUTING, (Step("a/b~c", ROUTER, "kv"),))
    assert operations(document, change)[-1]["path"] == "/spec/services/a~1b~0c/envs"
    assert holds(target_of(patched(document, operations(document, change))), change)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(Change(ROUTING, (Step("Frontend", ROUTER, "round-robin"),)), id="the value that stands there"),
        pytest.param(Change(ROUTING, (), (EnvRef("Frontend", "DYN_OTHER"),)), id="a release of what is not there"),
    ],
)
def test_nothing_is_sent_where_nothing_changes(change: Change) -> None:
    assert operations(frontend(envs=[ENTRY]), change) == ()


PROBLEMS = {
    "a service that is gone": (frontend(), Step("Ghost", ROUTER, "kv"), ApplyReason.COMPONENT_MISSING),
    "another version": (sample(), Step("Frontend", ROUTER, "kv"), ApplyReason.NOT_THE_TARGET),
    "a list that is none": (frontend(envs={"a": "b"}), CHANGE.writes[0], ApplyReason.ENTRY_NOT_PLAIN),
    "a value from elsewhere": (
        frontend(envs=[{"name": ROUTER, "valueFrom": {}}]),
        CHANGE.writes[0],
        ApplyReason.ENTRY_NOT_PLAIN,
    ),
    "the entry twice": (frontend(envs=[ENTRY, ENTRY]), CHANGE.writes[0], ApplyReason.ENTRY_NOT_PLAIN),
}


@pytest.mark.parametrize(("document", "step", "reason"), PROBLEMS.values(), ids=PROBLEMS)
def test_refused_is(document: Node, step: Step, reason: ApplyReason) -> None:
    found = list_operations(document, Change(ROUTING, (step,)))
    assert isinstance(found, ApplyProblem)
    assert found.reason is reason


def test_a_revert_by_a_baseline_writes_its_value() -> None:
    entry = BaselineEntry(component="Frontend", env=ROUTER, present=True, value="least-loaded")
    document = frontend(envs=[OTHER, {"name": ROUTER, "value": "kv"}])
    after = patched(document, operations(document, revert(ROUTING, [entry])))
    component = target_of(after).component("Frontend")
    assert component is not None
    assert component.effective(ROUTER).value == "least-loaded"  # type: ignore[union-attr]
