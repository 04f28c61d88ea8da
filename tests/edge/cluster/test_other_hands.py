"""Another manager takes, wipes or rewrites what kvgate set, on a real API server with Dynamo's own CRD.

The deployment, its managed fields and every write are real. The pool's evidence is made up, so that kvgate wants the
capability on; its clock is the test's, so that an hour takes no hour.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from kvgate.api.words import Capability, ConditionType
from kvgate.core.steps import Enable
from kvgate.core.target import TargetView
from kvgate.edge.cluster.client import MERGE, TARGETS
from kvgate.edge.errors import WriteConflictError
from tests.core.worlds import ROUTING, SPLIT, condition, entry
from tests.edge.cluster import hands
from tests.edge.cluster.hands import ARGO_CLIENT_SIDE, ARGO_SERVER_SIDE, FLUX, KUBECTL
from tests.edge.cluster.shift import DECODE, ENV, FRONTEND, OFF, ON, PREFILL, Shift, at_work
from tests.edge.cluster.yard import Document, Yard, in_namespace, sample

pytestmark = pytest.mark.api

Act = Callable[[Yard, Document], None]


def started(yard: Yard, capability: Capability, make: Act, *, named: bool) -> tuple[Shift, Document]:
    """A deployment that this hand made, whose manifest names the gated field or not, and kvgate switched it on."""
    yard.kubectl("delete", "dgd.v1beta1.nvidia.com", "qwen3")
    document = yard.manifest(without="" if named else ENV[capability])
    make(yard, document)
    shift = at_work(yard, capability)
    shift.settle()
    assert shift.holds(ON)
    assert shift.patches == 1
    return shift, document


def with_image(document: Document, image: str) -> Document:
    """The next release of the manifest."""
    components = []
    for part in document["spec"]["components"]:
        (main,) = part["podTemplate"]["spec"]["containers"]
        spec = part["podTemplate"]["spec"] | {"containers": [main | {"image": image}]}
        components.append(part | {"podTemplate": part["podTemplate"] | {"spec": spec}})
    return document | {"spec": document["spec"] | {"components": components}}


def kubectl_apply(yard: Yard, document: Document) -> None:
    hands.client_side(yard, document)


def argo_by_default(yard: Yard, document: Document) -> None:
    hands.client_side(yard, document, ARGO_CLIENT_SIDE)


def argo_server_side(yard: Yard, document: Document) -> None:
    hands.server_side(yard, document, ARGO_SERVER_SIDE)


def flux(yard: Yard, document: Document) -> None:
    hands.server_side(yard, document, FLUX)


NEXT = "nvcr.io/nvidia/ai-dynamo/vllm-runtime:1.6.2"
TAKES = {
    "kubectl apply of a manifest without the line": (kubectl_apply, False, "Removed", KUBECTL, "apply --server-side"),
    "kubectl apply of a manifest with the line": (kubectl_apply, True, "Overwritten", KUBECTL, "drop the line"),
    "Argo CD's default, without the line": (
        argo_by_default,
        False,
        "Removed",
        ARGO_CLIENT_SIDE,
        "managedFieldsManagers [kvgate-routing, kvgate-split]",
    ),
    "Argo CD's default, with the line": (argo_by_default, True, "Overwritten", ARGO_CLIENT_SIDE, "drop the line"),
    "Argo CD server-side, with the line": (argo_server_side, True, "Overwritten", ARGO_SERVER_SIDE, "drop the line"),
    "Flux, with the line": (flux, True, "Overwritten", FLUX, "drop the line"),
}


@pytest.mark.parametrize(("act", "named", "reason", "manager", "remedy"), TAKES.values(), ids=TAKES)
def test_who_took_the_split_is_told_at_once_and_it_is_not_written_again(
    yard: Yard, act: Act, named: bool, reason: str, manager: str, remedy: str
) -> None:
    shift, document = started(yard, SPLIT, act, named=named)
    act(yard, with_image(document, NEXT))
    assert shift.holds(OFF) is named

    status, told, message = shift.drifted()
    assert (status, told) == ("True", reason)
    assert [word for word in (manager, remedy, f"{PREFILL}/{ENV[SPLIT]}") if word not in message] == []
    shift.settle()
    assert shift.patches == 1


@pytest.mark.parametrize(("act", "named", "reason", "manager", "remedy"), TAKES.values(), ids=TAKES)
def test_routing_is_written_again_once_before_it_is_drifted(
    yard: Yard, act: Act, named: bool, reason: str, manager: str, remedy: str
) -> None:
    shift, document = started(yard, ROUTING, act, named=named)
    annotated = document | {"metadata": document["metadata"] | {"annotations": {"team.example/sync": "1"}}}
    act(yard, annotated if named else with_image(document, NEXT))
    assert not shift.holds(ON)
    shift.settle()
    assert shift.holds(ON)
    assert shift.patches == 2

    act(yard, document | {"metadata": document["metadata"] | {"annotations": {"team.example/sync": "2"}}})
    shift.settle()
    status, told, message = shift.drifted()
    assert (status, told) == ("True", reason)
    assert [word for word in (manager, remedy, f"{FRONTEND}/{ENV[ROUTING]}") if word not in message] == []
    assert shift.patches == 2


@pytest.mark.parametrize("act", [argo_server_side, flux])
@pytest.mark.parametrize("capability", [ROUTING, SPLIT])
def test_a_server_side_apply_of_a_manifest_without_the_line_takes_nothing(
    yard: Yard, act: Act, capability: Capability
) -> None:
    shift, document = started(yard, capability, act, named=False)
    act(yard, with_image(document, NEXT))
    shift.settle()

    assert shift.holds(ON)
    assert shift.drifted()[:2] == ("False", "NoDrift")
    assert shift.patches == 1


def test_a_list_that_is_replaced_without_any_other_change_is_put_down_to_who_applies_it(yard: Yard) -> None:
    """Self-heal: the difference is our entry alone, so that its removal leaves no trace in the managed fields."""
    shift, document = started(yard, SPLIT, argo_by_default, named=False)
    body = {"spec": document["spec"]}
    path = TARGETS.path(yard.namespace, "qwen3")
    query = {"fieldManager": ARGO_CLIENT_SIDE}
    yard.client._ask("PATCH", path, "the list", body=body, query=query, content=MERGE)
    assert shift.values() == {PREFILL: None, DECODE: None}

    status, reason, message = shift.drifted()
    assert (status, reason) == ("True", "Removed")
    assert f"by all signs by {ARGO_CLIENT_SIDE}" in message


@pytest.mark.parametrize(("capability", "again"), [pytest.param(ROUTING, 1), pytest.param(SPLIT, 0)])
@pytest.mark.parametrize("act", [kubectl_apply, flux])
def test_an_hour_with_a_hand_that_applies_every_three_minutes(
    yard: Yard, act: Act, capability: Capability, again: int
) -> None:
    shift, document = started(yard, capability, act, named=True)
    for _ in range(20):
        act(yard, document)
        shift.settle(3)
        shift.scene = shift.scene.later(minutes=3)
    assert shift.patches == 1 + again
    assert shift.holds(OFF)
    assert shift.drifted()[:2] == ("True", "Overwritten")


def test_where_the_pool_says_hold_a_line_in_the_manifest_is_told_and_not_forced(yard: Yard) -> None:
    yard.kubectl("delete", "dgd.v1beta1.nvidia.com", "qwen3")
    kubectl_apply(yard, yard.manifest())
    shift = at_work(yard, SPLIT, enforcement__onConflict="Hold")
    decision = shift.settle()

    held = condition(decision.status, ConditionType.DISAGGREGATION_ENABLED)
    assert held.reason == "HeldByConflict"
    assert KUBECTL in held.message
    assert shift.patches == 0


def test_the_shipped_pair_of_samples_is_switched_under_a_plain_kubectl_apply(yard: Yard) -> None:
    yard.kubectl("delete", "dgd.v1beta1.nvidia.com", "qwen3")
    kubectl_apply(yard, in_namespace(sample("deployment.yaml"), yard.namespace))
    shift = at_work(yard, SPLIT, enforcement=sample("pool.yaml")["spec"]["enforcement"])
    shift.settle()
    assert shift.holds(ON)


# --- the baseline -------------------------------------------------------------------------------------------------


def test_the_baseline_in_the_status_is_what_stood_there_and_what_goes_back(yard: Yard) -> None:
    shift = at_work(yard, SPLIT)
    shift.settle()
    assert shift.scene.status.target is not None
    kept = shift.scene.status.target.baseline
    assert {(one.component, one.present, one.value, one.owner) for one in kept} == {
        (PREFILL, True, "agg", "team"),
        (DECODE, True, "agg", "team"),
    }
    shift.scene = shift.scene.but(deleted=True)
    shift.settle()
    assert shift.holds(OFF)


def test_an_absent_entry_is_released_and_gone_again(yard: Yard) -> None:
    shift, _ = started(yard, SPLIT, flux, named=False)
    shift.scene = shift.scene.but(deleted=True)
    shift.settle()
    assert shift.values() == {PREFILL: None, DECODE: None}
    assert shift.patches == 2


def test_what_was_adopted_goes_back_to_the_off_values(yard: Yard) -> None:
    document = yard.manifest(without=ENV[SPLIT])
    for part in document["spec"]["components"]:
        if part["name"] in ON[SPLIT]:
            main = part["podTemplate"]["spec"]["containers"][0]
            main["env"] = [*main["env"], {"name": ENV[SPLIT], "value": ON[SPLIT][part["name"]]}]
    yard.kubectl("delete", "dgd.v1beta1.nvidia.com", "qwen3")
    kubectl_apply(yard, document)
    shift = at_work(yard, SPLIT, enforcement__adopt=True)
    shift.settle()
    assert shift.patches == 0
    shift.scene = shift.scene.but(deleted=True)
    shift.settle()
    assert shift.holds(OFF)


# --- others who write beside us -----------------------------------------------------------------------------------


def test_replicas_that_a_planner_changes_meanwhile_are_neither_written_over_nor_lost(yard: Yard) -> None:
    shift = at_work(yard, SPLIT)
    read, world = yard.observe()
    assert isinstance(world.target, TargetView)
    hands.scale(yard, DECODE, 1, 3)
    step = Enable(SPLIT, world.target.toggles[SPLIT].steps, "op-1")
    with pytest.raises(WriteConflictError):
        yard.ground.carry_out(replace(read, spec=shift.scene.spec), world, step)
    assert shift.holds(OFF)

    shift.settle()
    assert shift.holds(ON)
    parts = yard.deployment()["spec"]["components"]
    assert {part["name"]: part["replicas"] for part in parts} == {FRONTEND: 1, DECODE: 3, PREFILL: 1}
    managed = yard.deployment()["metadata"]["managedFields"]
    (ours,) = [str(held["fieldsV1"]) for held in managed if held["manager"] == "kvgate-split"]
    assert "f:replicas" not in ours


def test_replicas_are_no_part_of_the_plan(yard: Yard) -> None:
    shift = at_work(yard, SPLIT, mode="Observe")
    before = entry(shift.turn().status, SPLIT).plan_hash
    hands.scale(yard, DECODE, 1, 5)
    assert entry(shift.turn().status, SPLIT).plan_hash == before != ""


def test_a_rule_about_replicas_never_meets_our_patch(yard: Yard) -> None:
    """Dynamo's webhook refuses replicas of a component with a scaling adapter from all but its own accounts."""
    document = yard.manifest()
    for part in document["spec"]["components"]:
        part["scalingAdapter"] = {}
    yard.kubectl("delete", "dgd.v1beta1.nvidia.com", "qwen3")
    kubectl_apply(yard, document)
    with hands.webhook_rules(yard):
        shift = at_work(yard, SPLIT)
        shift.settle()
        assert shift.holds(ON)
        shift.scene = shift.scene.but(deleted=True)
        shift.settle()
        assert shift.holds(OFF)


REWRITE_SECONDS, MOST_TRIES = 10.0, 20


def test_our_patch_lands_beside_a_controller_that_rewrites_the_whole_object(yard: Yard) -> None:
    shift = at_work(yard, SPLIT)
    with hands.rewriting(yard, every_seconds=1.0) as rewriter:
        tries, until = 0, time.monotonic() + REWRITE_SECONDS
        while not shift.holds(ON) and tries < MOST_TRIES:
            tries += 1
            shift.turn()
            time.sleep(0.1)
        landed = shift.holds(ON)
        while time.monotonic() < until:
            shift.turn()
            time.sleep(0.3)
    assert landed, f"{tries} tries, {shift.conflicts} of them met a newer version"
    assert shift.holds(ON), "a controller that reads anew writes back what we wrote"
    assert shift.patches == 1
    assert rewriter.written >= 5
    marks = yard.deployment()["metadata"]["annotations"]["team.example/rewrites"]
    assert marks == str(rewriter.written), "nothing of theirs is lost either"
