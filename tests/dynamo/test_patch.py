"""One capability's change: what is applied, what was there before, and how it is taken back."""

from __future__ import annotations

from typing import cast

import pytest

from kvgate.api.status import BaselineEntry
from kvgate.api.words import Capability
from kvgate.dynamo.patch import (
    ApplyProblem,
    ApplyReason,
    apply_patch,
    apply_to_document,
    baseline,
    conflicts,
    field_manager,
    holds,
    revert,
)
from kvgate.dynamo.steps import Change, EnvRef, Step, Steps
from kvgate.dynamo.toggle import enable, plan_steps
from kvgate.dynamo.words import SwitchState
from tests.dynamo.support import (
    Node,
    alpha,
    beta,
    clone,
    component,
    container,
    drop_env,
    main,
    part,
    sample,
    set_env,
    target_of,
)

ROUTING, SPLIT = Capability.ROUTING, Capability.DISAGGREGATION
ROUTER_ENV, SPLIT_ENV = "DYN_ROUTER_MODE", "DYN_VLLM_DISAGGREGATION_MODE"
BOTH = [ROUTING, SPLIT]


def steps_of(document: object, capability: Capability) -> Steps:
    steps = plan_steps(target_of(document), capability)
    assert isinstance(steps, Steps), steps
    return steps


def applied(document: Node, change: Change) -> Node:
    result = apply_to_document(document, change)
    assert not isinstance(result, ApplyProblem), result
    return result


def live() -> Node:
    document = sample()
    cast("Node", document["metadata"]).update(uid="u-1", resourceVersion="42")
    return document


def test_the_apply_carries_identity_and_the_named_entries_alone() -> None:
    document = live()
    change = enable(steps_of(document, SPLIT))

    def entry(name: str, role: str) -> Node:
        env = [{"name": SPLIT_ENV, "value": role}]
        return {"name": name, "podTemplate": {"spec": {"containers": [{"name": "main", "env": env}]}}}

    assert apply_patch(target_of(document), change) == {
        "apiVersion": "nvidia.com/v1beta1",
        "kind": "DynamoGraphDeployment",
        "metadata": {"name": "qwen3", "namespace": "serving", "uid": "u-1", "resourceVersion": "42"},
        "spec": {"components": [entry("DecodeWorker", "decode"), entry("PrefillWorker", "prefill")]},
    }


@pytest.mark.parametrize(
    "names", [["Frontend", "PrefillWorker", "DecodeWorker"], ["DecodeWorker", "PrefillWorker", "Frontend"]]
)
def test_the_apply_names_components_in_the_order_of_the_deployment(names: list[str]) -> None:
    """The API server takes the order of a list from who applied last."""
    document = live()
    spec = cast("Node", document["spec"])
    held = {cast("str", one["name"]): one for one in cast("list[Node]", spec["components"])}
    spec["components"] = [held[name] for name in names]
    patch = apply_patch(target_of(document), enable(steps_of(document, SPLIT)))
    written = cast("list[Node]", cast("Node", patch["spec"])["components"])
    assert [one["name"] for one in written] == [name for name in names if name != "Frontend"]


def test_each_capability_has_a_field_manager_of_its_own() -> None:
    assert [field_manager(capability) for capability in Capability] == ["kvgate-routing", "kvgate-split", ""]


@pytest.mark.parametrize("capability", BOTH)
def test_a_change_touches_the_named_entries_and_nothing_else(capability: Capability) -> None:
    document = live()
    before = clone(document)
    annotations = cast("Node", cast("Node", document["metadata"])["annotations"])
    annotations["nvidia.com/current-worker-hash-v2"] = "abc"
    before = clone(document)
    change = enable(steps_of(document, capability))
    result = applied(document, change)
    assert document == before
    for step in change.writes:
        set_env(before, step.component, step.env, step.to)
    order = [held["name"] for held in cast("list[Node]", container(before, "Frontend")["env"])]
    assert [held["name"] for held in cast("list[Node]", container(result, "Frontend")["env"])] == order
    assert result == before
    assert holds(target_of(result), change)
    assert not holds(target_of(document), change)


@pytest.mark.parametrize("capability", BOTH)
def test_a_second_apply_changes_nothing(capability: Capability) -> None:
    change = enable(steps_of(sample(), capability))
    once = applied(sample(), change)
    assert applied(once, change) == once


@pytest.mark.parametrize("capability", BOTH)
@pytest.mark.parametrize("present", [True, False], ids=["an entry that was there", "an entry that was absent"])
def test_a_revert_restores_what_was_there(capability: Capability, present: bool) -> None:
    document = sample()
    if not present:
        for name in ("Frontend", "DecodeWorker", "PrefillWorker"):
            drop_env(document, name, ROUTER_ENV)
            drop_env(document, name, SPLIT_ENV)
            if not container(document, name)["env"]:
                container(document, name).pop("env")
    steps = steps_of(document, capability)
    kept = baseline(target_of(document), steps)
    assert [entry.present for entry in kept] == [present] * len(steps.on)
    switched = applied(document, enable(steps))
    assert steps_of(switched, capability).state is SwitchState.ON
    back = revert(capability, kept)
    assert bool(back.releases) is not present
    assert applied(switched, back) == document


def test_a_revert_writes_an_odd_mode_back_as_it_was() -> None:
    document = sample()
    set_env(document, "Frontend", ROUTER_ENV, "least-loaded")
    kept = baseline(target_of(document), steps_of(document, ROUTING))
    assert revert(ROUTING, kept).writes == (Step("Frontend", ROUTER_ENV, "least-loaded"),)


def test_the_baseline_of_an_adopted_capability_is_the_off_value() -> None:
    document = applied(sample(), enable(steps_of(sample(), SPLIT)))
    kept = baseline(target_of(document), steps_of(document, SPLIT), adopted=True)
    assert [(entry.present, entry.value) for entry in kept] == [(True, "agg"), (True, "agg")]


def test_a_baseline_never_restores_the_value_that_is_switched_on() -> None:
    document = sample()
    set_env(document, "DecodeWorker", SPLIT_ENV, "decode")
    kept = baseline(target_of(document), steps_of(document, SPLIT))
    assert [entry.value for entry in kept] == ["agg", "agg"]


def test_a_released_entry_is_left_out_of_the_apply() -> None:
    back = revert(ROUTING, [BaselineEntry(component="Frontend", env=ROUTER_ENV, present=False)])
    assert back.releases == (EnvRef("Frontend", ROUTER_ENV),)
    assert apply_patch(target_of(live()), back)["spec"] == {"components": []}


def managed(manager: str, fields: Node) -> Node:
    return {"manager": manager, "operation": "Apply", "apiVersion": "nvidia.com/v1beta1", "fieldsV1": fields}


def env_fields(component_name: str, env: str, *held: str) -> Node:
    entry: Node = {f"f:{name}": {} for name in held}
    envs: Node = {".": {}, f'k:{{"name":"{env}"}}': {".": {}, **entry}}
    containers: Node = {'k:{"name":"main"}': {"f:env": envs}}
    pod_template: Node = {"f:spec": {"f:containers": containers}}
    return {"f:spec": {"f:components": {f'k:{{"name":"{component_name}"}}': {"f:podTemplate": pod_template}}}}


@pytest.mark.parametrize(
    ("entry", "owner"),
    [
        pytest.param(
            managed("argocd-controller", env_fields("Frontend", ROUTER_ENV, "name", "value")),
            "argocd-controller",
            id="held",
        ),
        pytest.param(
            managed("kubectl-client-side-apply", env_fields("Frontend", ROUTER_ENV, "name")),
            "",
            id="only the name is held",
        ),
        pytest.param(
            managed("helm", env_fields("Frontend", "HF_HOME", "name", "value")), "", id="another entry is held"
        ),
        pytest.param(
            managed("helm", env_fields("Other", ROUTER_ENV, "name", "value")), "", id="another component's is"
        ),
        pytest.param(
            managed("kvgate-routing", env_fields("Frontend", ROUTER_ENV, "name", "value")), "", id="it is ours"
        ),
        pytest.param(
            {
                "manager": "flux",
                "apiVersion": "nvidia.com/v1alpha1",
                "fieldsV1": {"f:spec": {"f:services": {"f:Frontend": {"f:envs": {}}}}},
            },
            "flux",
            id="held as a whole v1alpha1 list",
        ),
        pytest.param(
            {"manager": "x", "fieldsV1": {"f:spec": {"f:components": {"k:broken": {}, "f:x": 1}}}}, "", id="unreadable"
        ),
    ],
)
def test_whose_manifest_names_the_field(entry: Node, owner: str) -> None:
    document = sample()
    cast("Node", document["metadata"])["managedFields"] = [entry]
    target = target_of(document)
    steps = steps_of(document, ROUTING)
    assert [kept.owner for kept in baseline(target, steps)] == [owner]
    assert [conflict.owner.manager for conflict in conflicts(target, enable(steps))] == ([owner] if owner else [])


def test_a_manager_that_holds_our_value_is_no_conflict() -> None:
    document = applied(sample(), enable(steps_of(sample(), ROUTING)))
    held = managed("argocd-controller", env_fields("Frontend", ROUTER_ENV, "name", "value"))
    cast("Node", document["metadata"])["managedFields"] = [held]
    assert conflicts(target_of(document), enable(steps_of(document, ROUTING))) == ()


CHANGE = Change(ROUTING, (Step("Frontend", ROUTER_ENV, "kv"),))


def test_an_env_list_is_made_where_there_is_none() -> None:
    document = beta(component("Frontend", "frontend", main()))
    assert container(applied(document, CHANGE), "Frontend")["env"] == [{"name": ROUTER_ENV, "value": "kv"}]


def test_only_main_is_written_whatever_stands_before_it() -> None:
    document = beta(component("Frontend", "frontend", {"name": "proxy"}, main()))
    result = applied(document, CHANGE)
    spec = cast("dict[str, dict[str, list[Node]]]", part(result, "Frontend")["podTemplate"])
    assert [list(held) for held in spec["spec"]["containers"]] == [["name"], ["name", "image", "env"]]


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        pytest.param(beta(component("Other")), ApplyReason.COMPONENT_MISSING, id="a component that is gone"),
        pytest.param(
            beta(component("Frontend", "frontend", {"name": "web"})),
            ApplyReason.CONTAINER_MISSING,
            id="no container main",
        ),
        pytest.param(alpha({"Frontend": {}}), ApplyReason.NOT_THE_TARGET, id="another version"),
        pytest.param({"kind": "Pod"}, ApplyReason.NOT_THE_TARGET, id="another kind"),
        pytest.param(
            beta(component("Frontend", "frontend", main(env={"a": "b"}))),
            ApplyReason.ENTRY_NOT_PLAIN,
            id="an env that is no list",
        ),
        pytest.param(
            beta(component("Frontend", "frontend", main(env=[{"name": ROUTER_ENV, "valueFrom": {}}]))),
            ApplyReason.ENTRY_NOT_PLAIN,
            id="a value from elsewhere",
        ),
        pytest.param(
            beta(component("Frontend", "frontend", main(env=[{"name": ROUTER_ENV}, {"name": ROUTER_ENV}]))),
            ApplyReason.ENTRY_NOT_PLAIN,
            id="the entry twice",
        ),
    ],
)
def test_what_cannot_be_merged_is_an_error_and_nothing_is_added(document: Node, reason: ApplyReason) -> None:
    before = clone(document)
    problem = apply_to_document(document, CHANGE)
    assert isinstance(problem, ApplyProblem)
    assert problem.reason is reason
    assert problem.message
    assert document == before


def test_a_half_possible_change_writes_nothing() -> None:
    change = Change(SPLIT, (Step("DecodeWorker", SPLIT_ENV, "decode"), Step("Gone", SPLIT_ENV, "prefill")))
    document = sample()
    assert isinstance(apply_to_document(document, change), ApplyProblem)
    assert document == sample()


def test_a_target_without_uid_sends_none() -> None:
    assert "uid" not in cast("Node", apply_patch(target_of(sample()), CHANGE)["metadata"])
