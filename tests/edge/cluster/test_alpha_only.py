"""A cluster whose Dynamo serves v1alpha1 alone: a real API server with that version of Dynamo's CRD and no other."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kvgate.api.words import Capability, ConditionType
from kvgate.core.steps import Enable
from kvgate.core.target import TargetView
from kvgate.edge.cluster.client import ALPHA_TARGETS, Client
from kvgate.edge.cluster.discovery import target_version
from kvgate.edge.errors import EdgeError, WriteConflictError
from tests.app.operator.test_shell import Bench
from tests.cluster.access import Access
from tests.cluster.waiting import eventually
from tests.core.worlds import ROUTING, SPLIT, condition
from tests.dynamo.alphas import as_alpha
from tests.edge.cluster.conftest import dynamo_crd, load_dynamo
from tests.edge.cluster.shift import DECODE, ENV, OFF, ON, PREFILL, Shift, at_work
from tests.edge.cluster.yard import Document, Yard, configuration, make_yard

pytestmark = pytest.mark.api

CRD = "dynamographdeployments.nvidia.com"
KIND = "dgd.v1alpha1.nvidia.com"


@pytest.fixture(scope="module")
def alpha_only(kinds: Access) -> Iterator[Access]:
    """Until the module ends; no deployment of another test is left by then."""
    whole = dynamo_crd()
    versions = [held for held in whole["spec"]["versions"] if held["name"] == "v1alpha1"]
    only = {**whole, "spec": {**whole["spec"], "versions": [{**held, "storage": True} for held in versions]}}
    _exchange(kinds, only, "v1alpha1")
    yield kinds
    _exchange(kinds, whole, "v1beta1")


def _exchange(access: Access, crd: Document, version: str) -> None:
    access.kubectl("delete", "crd", CRD, "--timeout=60s", check=True)
    load_dynamo(access, crd)
    eventually(lambda: _serves(access, version), 60)


def _serves(access: Access, version: str) -> bool:
    """kubectl remembers for hours which kinds a server has."""
    remembered = Path.home() / ".kube" / "cache" / "discovery" / access.server.rpartition("/")[2].replace(":", "_")
    shutil.rmtree(remembered, ignore_errors=True)
    return access.kubectl("get", f"dgd.{version}.nvidia.com", "-A").returncode == 0


@pytest.fixture
def yard(alpha_only: Access) -> Iterator[Yard]:
    made = make_yard(alpha_only, deployment=False)
    apply(made)
    yield made
    alpha_only.kubectl("delete", "namespace", made.namespace, "--wait=false")
    alpha_only.kubectl("delete", "node", *made.nodes, "--wait=false")


class AlphaShift(Shift):
    def values(self) -> dict[str, str | None]:
        held = {part: variables(self.yard, part) for part in ON[self.capability]}
        return {part: entries.get(ENV[self.capability]) for part, entries in held.items()}


def manifest(yard: Yard, *, without: str = "") -> Document:
    return as_alpha(yard.manifest(without=without))


def apply(yard: Yard, document: Document | None = None, manager: str = "team") -> None:
    forced = ("--server-side", "--force-conflicts", f"--field-manager={manager}")
    yard.kubectl("apply", *forced, "-f", "-", document=document or manifest(yard))


def deployment(yard: Yard) -> Document:
    return dict(yard.client.get(ALPHA_TARGETS, yard.namespace, "qwen3"))


def variables(yard: Yard, service: str) -> dict[str, str]:
    entries = deployment(yard)["spec"]["services"][service].get("envs", [])
    return {entry["name"]: entry.get("value", "") for entry in entries}


def at_work_here(yard: Yard, capability: Capability, **spec: object) -> AlphaShift:
    return AlphaShift(yard, capability, at_work(yard, capability, **spec).scene)


def test_that_version_is_the_one_to_watch(alpha_only: Access) -> None:
    assert target_version(Client(configuration(alpha_only))) == "v1alpha1"


def test_a_change_of_it_brings_its_pool_a_turn(yard: Yard, tmp_path: Path) -> None:
    bench = Bench(yard.access, yard.namespace, tmp_path)
    try:
        running = bench.leading(yard.namespace)
        eventually(lambda: running.looks(bench.key), 30)
        replicas = (json.dumps({"spec": {"services": {DECODE: {"replicas": count}}}}) for count in range(2, 30))
        patch = ("patch", KIND, "qwen3", "--type=merge", "-p")
        eventually(lambda: running.look_follows(lambda: yard.kubectl(*patch, next(replicas)), bench.key), 40)
    finally:
        for started in bench.started:
            started.process.kill()
            started.process.wait(10)


def test_it_is_read_as_v1alpha1_and_can_be_switched(yard: Yard) -> None:
    target = yard.observe()[1].target
    assert isinstance(target, TargetView)
    assert [target.toggles[capability].refusal for capability in (ROUTING, SPLIT)] == [None, None]


@pytest.mark.parametrize("capability", [ROUTING, SPLIT])
def test_it_is_switched_in_one_write_and_switched_back(yard: Yard, capability: Capability) -> None:
    before = deployment(yard)
    shift = at_work_here(yard, capability)
    shift.settle()
    assert shift.holds(ON)
    after = deployment(yard)
    assert after["metadata"]["generation"] == before["metadata"]["generation"] + 1
    assert after["apiVersion"] == "nvidia.com/v1alpha1"

    shift.scene = shift.scene.but(deleted=True)
    shift.settle()
    assert deployment(yard)["spec"] == before["spec"]
    assert shift.patches == 2


def test_what_was_absent_is_gone_again(yard: Yard) -> None:
    apply(yard, manifest(yard, without=ENV[SPLIT]))
    before = deployment(yard)["spec"]
    shift = at_work_here(yard, SPLIT)
    shift.settle()
    assert shift.holds(ON)
    shift.scene = shift.scene.but(deleted=True)
    shift.settle()
    assert deployment(yard)["spec"] == before


CHANGES = {
    "its variables changed": {"spec": {"services": {DECODE: {"envs": [{"name": "HF_HOME", "value": "/models"}]}}}},
    "anything changed": {"spec": {"services": {DECODE: {"replicas": 3}}}},
    "a service went": {"spec": {"services": {DECODE: None}}},
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_nothing_is_written_where_since_the_look(yard: Yard, change: Document) -> None:
    pool, world = yard.observe()
    spec = at_work_here(yard, SPLIT).scene.spec
    yard.kubectl("patch", KIND, "qwen3", "--type=merge", "-p", json.dumps(change))
    before = deployment(yard)
    assert isinstance(world.target, TargetView)
    step = Enable(SPLIT, world.target.toggles[SPLIT].steps, "op-1")
    with pytest.raises(WriteConflictError):
        yard.ground.carry_out(replace(pool, spec=spec), world, step)
    assert deployment(yard)["spec"] == before["spec"]


@pytest.mark.parametrize("again", [False, True], ids=["deleted", "made anew"])
def test_a_deployment_that_is_gone_or_another_one_is_not_written(yard: Yard, again: bool) -> None:
    pool, world = yard.observe()
    spec = at_work_here(yard, SPLIT).scene.spec
    yard.kubectl("delete", KIND, "qwen3")
    if again:
        apply(yard)
    assert isinstance(world.target, TargetView)
    step = Enable(SPLIT, world.target.toggles[SPLIT].steps, "op-1")
    with pytest.raises(EdgeError):
        yard.ground.carry_out(replace(pool, spec=spec), world, step)
    if again:
        assert AlphaShift(yard, SPLIT, at_work(yard, SPLIT).scene).holds(OFF)
    else:
        assert yard.client.list(ALPHA_TARGETS, yard.namespace) == ()


def test_a_list_that_another_manager_holds_is_told_and_not_forced(yard: Yard) -> None:
    """One field: whoever applied the list holds every variable in it."""
    shift = at_work_here(yard, SPLIT, enforcement__onConflict="Hold")
    decision = shift.settle()
    held = condition(decision.status, ConditionType.DISAGGREGATION_ENABLED)
    assert held.reason == "HeldByConflict"
    assert "team" in held.message

    pool, world = yard.observe()
    assert isinstance(world.target, TargetView)
    step = Enable(SPLIT, world.target.toggles[SPLIT].steps, "op-1")
    with pytest.raises(EdgeError, match=r"list of variables is held by team.*TakeOver; nothing was patched"):
        yard.ground.carry_out(replace(pool, spec=shift.scene.spec), world, step)
    assert shift.holds(OFF)


def test_who_takes_the_list_is_told_and_the_split_is_not_written_again(yard: Yard) -> None:
    shift = at_work_here(yard, SPLIT)
    shift.settle()
    document = manifest(yard, without=ENV[SPLIT])
    for service in (PREFILL, DECODE):
        document["spec"]["services"][service]["envs"] = [{"name": "HF_HOME", "value": "/models"}]
    apply(yard, document, "kustomize-controller")
    assert shift.values() == {PREFILL: None, DECODE: None}
    status, reason, message = shift.drifted()
    assert (status, reason) == ("True", "Removed")
    assert "kustomize-controller" in message
    shift.settle()
    assert shift.patches == 1


def test_a_recommendation_is_a_patch_of_that_version(yard: Yard) -> None:
    shift = at_work_here(yard, ROUTING, mode="Recommend")
    read, world = yard.observe()
    for step in shift.turn().steps:
        yard.ground.carry_out(replace(read, spec=shift.scene.spec), world, step)
    text = yard.get("configmaps", "qwen3-recommendation")["data"]["routing.yaml"]
    assert "version: v1alpha1" in text
    assert "/spec/services/Frontend/envs" in text
