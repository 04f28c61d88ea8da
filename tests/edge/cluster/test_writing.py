"""What is written to a real API server: a status on the version that was read, one patch, a recommendation, Events."""

from __future__ import annotations

import json

import pytest

from kvgate.api.status import BaselineEntry, Operation, PoolStatus
from kvgate.api.words import Capability
from kvgate.core.steps import Enable, Recommend, Revert
from kvgate.core.target import ToggleStep
from kvgate.dynamo.owners import read_owners
from kvgate.edge.cluster import writing
from kvgate.edge.cluster.client import TARGETS
from kvgate.edge.cluster.reading import FINALIZER
from kvgate.edge.errors import EdgeError, WriteConflictError
from tests.edge.cluster.yard import Yard, in_namespace, sample

pytestmark = pytest.mark.api

SPLIT_ENV, ROUTER_ENV = "DYN_VLLM_DISAGGREGATION_MODE", "DYN_ROUTER_MODE"
PREFILL, DECODE, FRONTEND = "PrefillWorker", "DecodeWorker", "Frontend"
SPLIT_ON = (ToggleStep(DECODE, SPLIT_ENV, "decode"), ToggleStep(PREFILL, SPLIT_ENV, "prefill"))
ROUTING_ON = (ToggleStep(FRONTEND, ROUTER_ENV, "kv"),)
SPLIT = Enable(Capability.DISAGGREGATION, SPLIT_ON, "op-1")
ROUTING = Enable(Capability.ROUTING, ROUTING_ON, "op-2")
MEASURING = PoolStatus(observed_generation=1, last_handled_measure_at="2026-01-01")


def entry(component: str, env: str, value: str, *, present: bool = True) -> BaselineEntry:
    return BaselineEntry(component=component, env=env, present=present, value=value)


def revert(capability: Capability, *entries: BaselineEntry) -> Revert:
    return Revert(capability, entries, "op-3", "TestsSaySo")


SPLIT_BACK = revert(Capability.DISAGGREGATION, entry(DECODE, SPLIT_ENV, "agg"), entry(PREFILL, SPLIT_ENV, "agg"))


def carry_out(yard: Yard, step: Enable | Revert | Recommend) -> None:
    pool, world = yard.observe()
    yard.ground.carry_out(pool, world, step)


def value(yard: Yard, component: str, env: str) -> str | None:
    """The value of the entry; None where there is no entry, "" where it has none."""
    found = yard.env(component, env)
    return None if found is None else str(found.get("value", ""))


def split(yard: Yard) -> tuple[str | None, str | None]:
    return value(yard, PREFILL, SPLIT_ENV), value(yard, DECODE, SPLIT_ENV)


def holders(yard: Yard, env: str) -> set[str]:
    """Who holds the values of the env variable."""
    found = yard.get("dgd", "qwen3")
    return {owner.manager for owner in read_owners(found["metadata"]) if owner.env == env}


def fields_of(yard: Yard, manager: str) -> str:
    found = yard.get("dgd", "qwen3")
    return str([held["fieldsV1"] for held in found["metadata"]["managedFields"] if held["manager"] == manager])


def manifest_by(yard: Yard, manager: str, *, without: str = "", force: bool = False) -> None:
    """The sample's manifest by server-side apply, as Flux applies it."""
    forced = ("--force-conflicts",) if force else ()
    document = yard.manifest(without=without)
    yard.kubectl("apply", "--server-side", f"--field-manager={manager}", *forced, "-f", "-", document=document)


def start_over(yard: Yard, *, without: str, client_side: bool = False) -> None:
    """The deployment made anew by a manifest that does not mention one env."""
    yard.kubectl("delete", "dgd.v1beta1.nvidia.com", "qwen3")
    if client_side:
        yard.kubectl("apply", "-f", "-", document=yard.manifest(without=without))
    else:
        manifest_by(yard, "team", without=without)


def take_over(yard: Yard) -> None:
    yard.kubectl("patch", "kvpool", "qwen3", "--type=merge", "-p", '{"spec":{"enforcement":{"onConflict":"TakeOver"}}}')


def writes_by_kvgate(yard: Yard, verb: str, resource: str) -> int:
    events = yard.access.audit_events()
    mine = (e for e in events if e.namespace == yard.namespace and e.user_agent == "kvgate")
    return sum(1 for e in mine if (e.verb, e.resource) == (verb, resource) and e.status_code < 300)


# --- status -------------------------------------------------------------------------------------------------------


def test_a_status_is_written_and_read_back(yard: Yard) -> None:
    pool, _ = yard.observe()
    yard.ground.write_status(pool, MEASURING)

    again, _ = yard.observe()
    assert again.status == MEASURING
    assert again.spec == pool.spec


@pytest.mark.parametrize("how", ["annotate", "status"])
def test_a_status_is_not_written_over_what_somebody_wrote_meanwhile(yard: Yard, how: str) -> None:
    pool, _ = yard.observe()
    if how == "annotate":
        yard.kubectl("annotate", "kvpool", "qwen3", "kvgate.dev/measure-requested-at=now")
    else:
        yard.ground.write_status(pool, PoolStatus(observed_generation=7))

    with pytest.raises(WriteConflictError):
        yard.ground.write_status(pool, MEASURING)
    assert yard.observe()[0].status.last_handled_measure_at == ""


def test_a_status_is_not_written_to_another_pool_of_the_same_name(yard: Yard) -> None:
    pool, _ = yard.observe()
    yard.kubectl("delete", "kvpool", "qwen3")
    yard.pool()

    with pytest.raises(WriteConflictError):
        yard.ground.write_status(pool, MEASURING)
    assert yard.observe()[0].status == PoolStatus()


# --- the patch ----------------------------------------------------------------------------------------------------


def test_both_workers_are_split_in_one_write_and_nothing_else_changes(yard: Yard) -> None:
    take_over(yard)
    before = yard.deployment()
    carry_out(yard, SPLIT)
    after = yard.deployment()

    assert split(yard) == ("prefill", "decode")
    assert after["metadata"]["generation"] == before["metadata"]["generation"] + 1
    for document in (before, after):
        for part in document["spec"]["components"]:
            main = part["podTemplate"]["spec"]["containers"][0]
            main["env"] = [held for held in main["env"] if held["name"] != SPLIT_ENV]
    assert after["spec"] == before["spec"]


def test_what_holds_already_is_not_written_again(yard: Yard) -> None:
    take_over(yard)
    carry_out(yard, SPLIT)
    version = yard.deployment()["metadata"]["resourceVersion"]
    carry_out(yard, SPLIT)

    assert yard.deployment()["metadata"]["resourceVersion"] == version
    assert writes_by_kvgate(yard, "patch", "dynamographdeployments") == 1


def test_a_revert_writes_what_stood_there_before(yard: Yard) -> None:
    take_over(yard)
    carry_out(yard, SPLIT)
    carry_out(yard, SPLIT_BACK)

    assert split(yard) == ("agg", "agg")
    generation = yard.deployment()["metadata"]["generation"]
    carry_out(yard, SPLIT_BACK)
    assert yard.deployment()["metadata"]["generation"] == generation


def test_a_deployment_that_changed_since_it_was_read_is_not_patched(yard: Yard) -> None:
    take_over(yard)
    pool, world = yard.observe()
    yard.kubectl("annotate", "dgd.v1beta1.nvidia.com", "qwen3", "team=changed")

    with pytest.raises(WriteConflictError):
        yard.ground.carry_out(pool, world, SPLIT)
    assert split(yard) == ("agg", "agg")


def test_a_deployment_that_was_deleted_since_it_was_read_is_not_made_anew(yard: Yard) -> None:
    pool, world = yard.observe()
    yard.kubectl("delete", "dgd.v1beta1.nvidia.com", "qwen3")

    with pytest.raises(WriteConflictError):
        yard.ground.carry_out(pool, world, SPLIT)
    assert yard.names("dgd") == []


def test_a_deployment_that_was_replaced_since_it_was_read_is_not_patched(yard: Yard) -> None:
    take_over(yard)
    pool, world = yard.observe()
    yard.kubectl("delete", "dgd.v1beta1.nvidia.com", "qwen3")
    yard.target()

    with pytest.raises(WriteConflictError):
        yard.ground.carry_out(pool, world, SPLIT)
    assert split(yard) == ("agg", "agg")


def test_a_component_that_is_not_there_is_never_added(yard: Yard) -> None:
    absent = Enable(Capability.DISAGGREGATION, (*SPLIT_ON, ToggleStep("Ghost", SPLIT_ENV, "decode")), "op-1")

    with pytest.raises(EdgeError, match=r"no component Ghost.*nothing was patched"):
        carry_out(yard, absent)
    assert split(yard) == ("agg", "agg")


def test_without_a_deployment_nothing_is_patched(yard: Yard) -> None:
    yard.kubectl("delete", "dgd.v1beta1.nvidia.com", "qwen3")

    with pytest.raises(EdgeError, match="is gone; nothing was patched"):
        carry_out(yard, SPLIT)


# --- how apply behaves, and what rests on it ----------------------------------------------------------------------


def test_an_entry_is_ours_alone_and_the_next_apply_of_the_manifest_leaves_it(yard: Yard) -> None:
    start_over(yard, without=ROUTER_ENV)
    carry_out(yard, ROUTING)
    assert holders(yard, ROUTER_ENV) == {"kvgate-routing"}
    assert "f:image" not in fields_of(yard, "kvgate-routing")

    document = yard.manifest(without=ROUTER_ENV)
    document["spec"]["components"][0]["podTemplate"]["spec"]["containers"][0]["image"] = "frontend:2"
    yard.kubectl("apply", "--server-side", "--field-manager=team", "-f", "-", document=document)
    assert value(yard, FRONTEND, ROUTER_ENV) == "kv"


def test_a_field_that_a_manifest_names_is_held_and_the_message_says_by_whom(yard: Yard) -> None:
    manifest_by(yard, "argocd", force=True)

    with pytest.raises(EdgeError, match=r"held by argocd.*drop that line.*TakeOver.*nothing was patched"):
        carry_out(yard, ROUTING)
    assert value(yard, FRONTEND, ROUTER_ENV) == "round-robin"


def test_a_field_that_a_manifest_names_is_taken_over_only_where_the_pool_says_so(yard: Yard) -> None:
    take_over(yard)
    carry_out(yard, ROUTING)

    assert value(yard, FRONTEND, ROUTER_ENV) == "kv"
    assert holders(yard, ROUTER_ENV) == {"kvgate-routing"}


def test_a_client_side_apply_of_a_manifest_that_never_mentions_our_entry_wipes_it(yard: Yard) -> None:
    start_over(yard, without=ROUTER_ENV, client_side=True)
    carry_out(yard, ROUTING)
    assert value(yard, FRONTEND, ROUTER_ENV) == "kv"

    document = yard.manifest(without=ROUTER_ENV)
    document["spec"]["components"][0]["podTemplate"]["spec"]["containers"][0]["image"] = "frontend:2"
    yard.kubectl("apply", "-f", "-", document=document)
    assert value(yard, FRONTEND, ROUTER_ENV) is None


def test_ours_is_no_kubectl_apply_which_would_remove_the_workers_of_a_client_side_manifest(yard: Yard) -> None:
    """What kubectl does with a file of one field is shown beside what our apply of the same field does."""
    start_over(yard, without=ROUTER_ENV, client_side=True)
    carry_out(yard, ROUTING)
    assert {part["name"] for part in yard.deployment()["spec"]["components"]} == {FRONTEND, DECODE, PREFILL}

    env = [{"name": ROUTER_ENV, "value": "kv"}]
    spec = {"containers": [{"name": "main", "env": env}]}
    one_field = {
        **{key: yard.manifest()[key] for key in ("apiVersion", "kind")},
        "metadata": {"name": "qwen3", "namespace": yard.namespace},
        "spec": {"components": [{"name": FRONTEND, "podTemplate": {"spec": spec}}]},
    }
    yard.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", document=one_field)
    assert {part["name"] for part in yard.deployment()["spec"]["components"]} == {FRONTEND}


def test_an_entry_that_was_absent_before_is_released_and_gone(yard: Yard) -> None:
    start_over(yard, without=ROUTER_ENV)
    carry_out(yard, ROUTING)
    carry_out(yard, revert(Capability.ROUTING, entry(FRONTEND, ROUTER_ENV, "", present=False)))

    assert value(yard, FRONTEND, ROUTER_ENV) is None
    assert holders(yard, ROUTER_ENV) == set()


@pytest.mark.parametrize("how", [("--server-side", "--field-manager=team"), ()], ids=["server-side", "client-side"])
def test_releasing_the_only_entry_leaves_no_empty_list_behind(yard: Yard, how: tuple[str, ...]) -> None:
    document = yard.manifest()
    for part in document["spec"]["components"]:
        part["podTemplate"]["spec"]["containers"][0].pop("env")
    yard.kubectl("delete", "dgd.v1beta1.nvidia.com", "qwen3")
    yard.kubectl("apply", *how, "-f", "-", document=document)
    before = yard.deployment()["spec"]
    carry_out(yard, SPLIT)
    absent = (entry(DECODE, SPLIT_ENV, "", present=False), entry(PREFILL, SPLIT_ENV, "", present=False))
    carry_out(yard, revert(Capability.DISAGGREGATION, *absent))

    assert yard.deployment()["spec"] == before


def test_a_released_entry_stays_where_somebody_else_owns_it_too(yard: Yard) -> None:
    start_over(yard, without=ROUTER_ENV)
    carry_out(yard, ROUTING)
    document = yard.manifest()
    router = document["spec"]["components"][0]["podTemplate"]["spec"]["containers"][0]["env"]
    next(held for held in router if held["name"] == ROUTER_ENV)["value"] = "kv"
    yard.kubectl("apply", "--server-side", "--field-manager=team", "-f", "-", document=document)

    carry_out(yard, revert(Capability.ROUTING, entry(FRONTEND, ROUTER_ENV, "", present=False)))
    assert value(yard, FRONTEND, ROUTER_ENV) == "kv"


def test_switching_one_capability_leaves_the_other_for_each_has_a_manager_of_its_own(yard: Yard) -> None:
    take_over(yard)
    carry_out(yard, SPLIT)
    carry_out(yard, ROUTING)
    assert split(yard) == ("prefill", "decode")
    assert value(yard, FRONTEND, ROUTER_ENV) == "kv"

    carry_out(yard, SPLIT_BACK)
    assert value(yard, FRONTEND, ROUTER_ENV) == "kv"


def test_one_manager_for_both_would_delete_what_its_next_apply_does_not_name(yard: Yard) -> None:
    """The trap that a manager per capability avoids."""
    start_over(yard, without=SPLIT_ENV)
    pool, _ = yard.observe()
    writing.patch(yard.client, pool, SPLIT)
    env = {"name": ROUTER_ENV, "value": "round-robin"}
    metadata = {"name": "qwen3", "namespace": yard.namespace}
    component = {"name": FRONTEND, "podTemplate": {"spec": {"containers": [{"name": "main", "env": [env]}]}}}
    body = {key: yard.manifest()[key] for key in ("apiVersion", "kind")} | {"metadata": metadata}
    yard.client.apply(
        TARGETS, yard.namespace, body | {"spec": {"components": [component]}}, "kvgate-split", force=False
    )

    assert split(yard) == (None, None)


def test_after_a_takeover_a_release_leaves_an_empty_value_and_our_revert_the_old_one(yard: Yard) -> None:
    take_over(yard)
    carry_out(yard, ROUTING)
    carry_out(yard, revert(Capability.ROUTING, entry(FRONTEND, ROUTER_ENV, "", present=False)))
    assert value(yard, FRONTEND, ROUTER_ENV) == ""

    carry_out(yard, ROUTING)
    carry_out(yard, revert(Capability.ROUTING, entry(FRONTEND, ROUTER_ENV, "round-robin")))
    assert value(yard, FRONTEND, ROUTER_ENV) == "round-robin"


def test_an_apply_without_a_uid_would_make_a_deployment_of_one_field(yard: Yard) -> None:
    """What the uid in every apply of ours prevents."""
    pool, _ = yard.observe()
    yard.kubectl("delete", "dgd.v1beta1.nvidia.com", "qwen3")
    component = {"name": FRONTEND, "podTemplate": {"spec": {"containers": [{"name": "main"}]}}}
    body = {key: yard.manifest()[key] for key in ("apiVersion", "kind")}
    metadata = {"name": "qwen3", "namespace": yard.namespace}
    upsert = body | {"metadata": metadata, "spec": {"components": [component]}}
    with pytest.raises(WriteConflictError):
        yard.client.apply(
            *(TARGETS, yard.namespace, upsert | {"metadata": metadata | {"uid": pool.uid}}, "kvgate-routing"),
            force=False,
        )
    assert yard.names("dgd") == []

    yard.client.apply(TARGETS, yard.namespace, upsert, "kvgate-routing", force=False)
    assert len(yard.deployment()["spec"]["components"]) == 1


# --- the recommendation -------------------------------------------------------------------------------------------


def test_a_recommendation_is_a_config_map_of_the_pool_and_the_deployment_stays(yard: Yard) -> None:
    carry_out(yard, Recommend(Capability.DISAGGREGATION, SPLIT_ON))

    found = yard.get("configmaps", "qwen3-recommendation")
    assert "kind: DynamoGraphDeployment" in found["data"]["disaggregation.yaml"]
    assert found["metadata"]["ownerReferences"][0]["uid"] == yard.observe()[0].uid
    assert split(yard) == ("agg", "agg")


def test_a_recommendation_that_did_not_change_is_not_written_again(yard: Yard) -> None:
    carry_out(yard, Recommend(Capability.DISAGGREGATION, SPLIT_ON))
    version = yard.get("configmaps", "qwen3-recommendation")["metadata"]["resourceVersion"]
    carry_out(yard, Recommend(Capability.DISAGGREGATION, SPLIT_ON))
    assert yard.get("configmaps", "qwen3-recommendation")["metadata"]["resourceVersion"] == version

    carry_out(yard, Recommend(Capability.ROUTING, ROUTING_ON))
    assert set(yard.get("configmaps", "qwen3-recommendation")["data"]) == {"disaggregation.yaml", "routing.yaml"}


def test_a_config_map_of_somebody_else_is_left_alone(yard: Yard) -> None:
    yard.kubectl("create", "configmap", "qwen3-recommendation", "--from-literal=mine=1")

    with pytest.raises(EdgeError, match="qwen3-recommendation is not owned by the pool and is left alone"):
        carry_out(yard, Recommend(Capability.DISAGGREGATION, SPLIT_ON))
    assert yard.get("configmaps", "qwen3-recommendation")["data"] == {"mine": "1"}


def test_a_refusal_is_remembered_until_the_same_write_goes_through(yard: Yard) -> None:
    yard.kubectl("create", "configmap", "qwen3-recommendation", "--from-literal=mine=1")
    assert yard.observe()[1].patch_problem == ""
    for _ in range(2):
        with pytest.raises(EdgeError):
            carry_out(yard, Recommend(Capability.DISAGGREGATION, SPLIT_ON))
    assert "is not owned by the pool and is left alone: rename or delete it" in yard.observe()[1].patch_problem

    yard.kubectl("delete", "configmap", "qwen3-recommendation")
    carry_out(yard, Recommend(Capability.DISAGGREGATION, SPLIT_ON))
    assert yard.observe()[1].patch_problem == ""


def test_a_refused_patch_is_told_of_its_own_operation_alone(yard: Yard) -> None:
    with pytest.raises(EdgeError, match="held by team"):
        carry_out(yard, SPLIT)
    assert yard.observe()[1].patch_problem == ""

    meant = Operation(id="op-1", capability=Capability.DISAGGREGATION, step="Enable", started_at=yard.clock())
    yard.ground.write_status(yard.observe()[0], MEASURING.model_copy(update={"operation": meant}))
    with pytest.raises(EdgeError, match="held by team"):
        carry_out(yard, SPLIT)
    assert "held by team: drop that line from their manifest" in yard.observe()[1].patch_problem


# --- events and finalizers ----------------------------------------------------------------------------------------


def test_events_are_told_about_the_pool(yard: Yard) -> None:
    pool, _ = yard.observe()
    yard.ground.tell(
        pool, [("Warning", "Drifted", "Drifted is True: " + "x" * 2000), ("Normal", "Ready", "all is well")]
    )

    told = [event for event in yard.get("events")["items"] if event["involvedObject"].get("uid") == pool.uid]
    assert sorted((event["type"], event["reason"]) for event in told) == [("Normal", "Ready"), ("Warning", "Drifted")]
    assert "all is well" in yard.kubectl("describe", "kvpool", "qwen3")


@pytest.mark.parametrize("name", [f"{'x' * 39}.{'y' * 213}", "z" * 253], ids=["with a dot", "without"])
def test_a_pool_with_the_longest_name_is_told_of_and_recommended_for_like_any(yard: Yard, name: str) -> None:
    document = in_namespace(sample("pool.yaml"), yard.namespace)
    document["metadata"]["name"] = name
    yard.kubectl("create", "-f", "-", document=document)
    pool, world = yard.ground.observe(f"{yard.namespace}/{name}")
    yard.ground.tell(pool, [("Normal", "Ready", "all is well")])
    yard.ground.carry_out(pool, world, Recommend(Capability.DISAGGREGATION, SPLIT_ON))

    assert pool.uid in [event["involvedObject"].get("uid") for event in yard.get("events")["items"]]
    owners = [held["metadata"].get("ownerReferences", [{}])[0].get("uid") for held in yard.get("configmaps")["items"]]
    assert pool.uid in owners


def test_our_finalizer_comes_and_goes_beside_others(yard: Yard) -> None:
    theirs = "team.example/x"
    yard.kubectl("patch", "kvpool", "qwen3", "--type=merge", "-p", json.dumps({"metadata": {"finalizers": [theirs]}}))
    writing.set_finalizer(yard.client, yard.observe()[0], held=True)
    held = yard.get("kvpool", "qwen3")["metadata"]
    assert held["finalizers"] == [theirs, FINALIZER]

    seen = yard.observe()[0]
    assert seen.finalizer is True
    writing.set_finalizer(yard.client, seen, held=True)
    assert yard.get("kvpool", "qwen3")["metadata"]["resourceVersion"] == held["resourceVersion"]
    yard.ground.write_status(seen, MEASURING)
    writing.set_finalizer(yard.client, seen, held=False)
    assert yard.get("kvpool", "qwen3")["metadata"]["finalizers"] == [theirs]
    assert yard.observe()[0].finalizer is False
    yard.kubectl("patch", "kvpool", "qwen3", "--type=merge", "-p", '{"metadata":{"finalizers":[]}}')


def test_the_finalizer_is_not_touched_where_the_spec_changed_since_it_was_read(yard: Yard) -> None:
    seen = yard.observe()[0]
    yard.kubectl("patch", "kvpool", "qwen3", "--type=merge", "-p", '{"spec":{"suspend":true}}')
    for held in (True, False):
        with pytest.raises(WriteConflictError):
            writing.set_finalizer(yard.client, seen, held=held)


def test_no_finalizer_is_set_on_another_pool_of_the_same_name_or_on_one_that_is_gone(yard: Yard) -> None:
    seen = yard.observe()[0]
    yard.kubectl("delete", "kvpool", "qwen3")
    writing.set_finalizer(yard.client, seen, held=False)
    with pytest.raises(EdgeError):
        writing.set_finalizer(yard.client, seen, held=True)
    yard.pool()
    with pytest.raises(WriteConflictError):
        writing.set_finalizer(yard.client, seen, held=True)
