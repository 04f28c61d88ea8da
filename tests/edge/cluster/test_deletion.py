"""A pool is deleted on a real API server: what is switched back first, what goes with it, and what never hangs."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from kvgate.api.status import BaselineEntry, HistoryEntry, PoolStatus, TargetStatus
from kvgate.api.words import Capability
from kvgate.app.ring import turn
from kvgate.core.memory import Action
from kvgate.core.steps import Enable, Recommend
from kvgate.core.target import ToggleStep
from kvgate.edge.cluster import collecting
from kvgate.edge.cluster.ground import ClusterGround
from kvgate.edge.cluster.reading import FINALIZER
from kvgate.edge.cluster.sweeps import ProbePolicy
from kvgate.edge.errors import EdgeError, PoolGoneError, WriteConflictError
from tests.cluster.waiting import eventually
from tests.core import cases
from tests.core.worlds import condition
from tests.edge.cluster.yard import Dying, MortalClient, Yard, configuration, sample

pytestmark = pytest.mark.api

MODE = "DYN_VLLM_DISAGGREGATION_MODE"
PREFILL, DECODE = "PrefillWorker", "DecodeWorker"
ON = (ToggleStep(DECODE, MODE, "decode"), ToggleStep(PREFILL, MODE, "prefill"))
ABSENT = tuple(BaselineEntry(component=step.component, env=MODE, present=False) for step in ON)
REVERT = {"onDelete": {"disaggregation": "Revert"}}
GC_SECONDS = 60


def enabled(yard: Yard, *, measures: bool = False, **spec: object) -> None:
    """The split is on, and kvgate's memory says that it was kvgate who switched it on; without evidence, it stays."""
    yard.policy = yard.policy if measures else ProbePolicy()
    yard.pool(mode="Enforce", **{"rollback": REVERT, **spec})
    yard.kubectl("delete", "dgd.v1beta1.nvidia.com", "qwen3")
    yard.kubectl("apply", "--server-side", "--field-manager=team", "-f", "-", document=yard.manifest(without=MODE))
    pool, world = yard.observe()
    yard.ground.carry_out(pool, world, Enable(Capability.DISAGGREGATION, ON, "op-1"))
    at = datetime.now(UTC).replace(microsecond=0)
    entry = HistoryEntry(time=at, action=Action.ENABLED, capability=Capability.DISAGGREGATION, reason="CriteriaMet")
    target = TargetStatus(uid=yard.deployment()["metadata"]["uid"], baseline=ABSENT)
    yard.ground.write_status(pool, PoolStatus(target=target, history=(entry,)))
    a_turn(yard)


def a_turn(yard: Yard, ground: ClusterGround | None = None) -> PoolStatus:
    return turn(ground or yard.ground, yard.key, yard.clock).decision.status


def until_gone(yard: Yard, ground: ClusterGround | None = None, turns: int = 8) -> None:
    """As many turns as the operator's worker would give it."""
    for _ in range(turns):
        try:
            a_turn(yard, ground)
        except PoolGoneError:
            return
        except WriteConflictError:
            continue
    raise AssertionError(f"the pool is there after {turns} turns: {a_turn(yard).conditions}")


def delete(yard: Yard, *how: str) -> None:
    yard.kubectl("delete", "kvpool", "qwen3", "--wait=false", *how)


def finalizers(yard: Yard) -> list[str]:
    return list(yard.get("kvpool", "qwen3")["metadata"].get("finalizers", []))


def modes(yard: Yard) -> list[str | None]:
    found = [yard.env(component, MODE) for component in (PREFILL, DECODE)]
    return [None if entry is None else str(entry.get("value")) for entry in found]


def ready(status: PoolStatus) -> tuple[str, str]:
    said = condition(status, "Ready")  # type: ignore[arg-type]
    return said.reason, said.message


def test_a_pool_with_something_to_revert_is_held_switched_back_once_and_gone(yard: Yard) -> None:
    enabled(yard)
    assert finalizers(yard) == [FINALIZER]
    before = yard.deployment()["metadata"]["generation"]
    delete(yard)
    assert modes(yard) == ["prefill", "decode"]
    until_gone(yard)
    assert modes(yard) == [None, None]
    assert yard.deployment()["metadata"]["generation"] == before + 1


def test_with_leave_nothing_is_held_and_nothing_is_patched(yard: Yard) -> None:
    enabled(yard, rollback={"onDelete": {"disaggregation": "Leave"}})
    assert finalizers(yard) == []
    yard.kubectl("delete", "kvpool", "qwen3", "--timeout=10s")
    until_gone(yard)
    assert modes(yard) == ["prefill", "decode"]


@pytest.mark.parametrize("how", ["background", "foreground", "orphan"])
def test_however_it_is_deleted_what_it_switched_on_goes_back(yard: Yard, how: str) -> None:
    enabled(yard)
    delete(yard, f"--cascade={how}")
    eventually(lambda: _tried(yard), GC_SECONDS)
    assert modes(yard) == [None, None]


def _tried(yard: Yard) -> bool:
    try:
        a_turn(yard)
    except PoolGoneError:
        return True
    except WriteConflictError:
        pass
    return False


@pytest.mark.parametrize("lives", range(1, 6))
def test_killed_after_any_write_of_a_deletion_it_comes_to_the_same_end(yard: Yard, lives: int) -> None:
    """Its writes are: the operation, the patch, the record, the finalizer; with five lives it lives."""
    enabled(yard)
    before = yard.deployment()["metadata"]["generation"]
    delete(yard)
    mortal = ClusterGround(MortalClient(configuration(yard.access), lives), lambda: yard.policy, yard.clock)
    died = False
    try:
        until_gone(yard, mortal)
    except Dying:
        died = True
    assert died == (lives <= 4)
    until_gone(yard)
    assert modes(yard) == [None, None]
    assert yard.deployment()["metadata"]["generation"] == before + 1


def test_a_refused_revert_keeps_the_pool_and_says_by_whom_and_Leave_lets_it_go(yard: Yard) -> None:  # noqa: N802
    enabled(yard)
    document = yard.manifest(without=MODE)
    for part in document["spec"]["components"]:
        value = {PREFILL: "prefill", DECODE: "decode"}.get(part["name"])
        if value:
            part["podTemplate"]["spec"]["containers"][0]["env"].append({"name": MODE, "value": value})
    yard.kubectl("apply", "--server-side", "--field-manager=team", "-f", "-", document=document)
    pool, _ = yard.observe()
    status = pool.status
    assert status.target is not None
    held = tuple(entry.model_copy(update={"present": True, "value": "agg"}) for entry in ABSENT)
    target = status.target.model_copy(update={"baseline": held})
    yard.ground.write_status(pool, status.model_copy(update={"target": target}))
    delete(yard)
    with pytest.raises(EdgeError, match="held by team"):
        a_turn(yard)
    yard.ahead = timedelta(minutes=1)
    with pytest.raises(EdgeError, match="held by team"):
        a_turn(yard)
    reason, message = ready(yard.observe()[0].status)
    assert reason == "RollbackFailed"
    assert "held by team" in message
    assert "set spec.rollback.onDelete.disaggregation to Leave" in message
    assert finalizers(yard) == [FINALIZER]

    leave = {"spec": {"rollback": {"onDelete": {"disaggregation": "Leave"}}}}
    yard.kubectl("patch", "kvpool", "qwen3", "--type=merge", "-p", json.dumps(leave))
    until_gone(yard)
    assert modes(yard) == ["prefill", "decode"]


RELEASES = {
    "suspended": '{"spec":{"suspend":true}}',
    "in Observe": '{"spec":{"mode":"Observe"}}',
    "in Recommend": '{"spec":{"mode":"Recommend"}}',
}


@pytest.mark.parametrize("change", RELEASES.values(), ids=RELEASES)
def test_a_pool_that_must_not_patch_goes_and_its_deployment_stays(yard: Yard, change: str) -> None:
    enabled(yard)
    delete(yard)
    yard.kubectl("patch", "kvpool", "qwen3", "--type=merge", "-p", change)
    until_gone(yard)
    assert modes(yard) == ["prefill", "decode"]


def test_a_pool_whose_deployment_is_gone_goes(yard: Yard) -> None:
    enabled(yard)
    yard.kubectl("delete", "dgd.v1beta1.nvidia.com", "qwen3")
    delete(yard)
    until_gone(yard)


def test_a_pool_whose_deployment_was_replaced_goes_and_the_new_one_is_left_alone(yard: Yard) -> None:
    enabled(yard)
    yard.kubectl("delete", "dgd.v1beta1.nvidia.com", "qwen3")
    yard.target()
    before = yard.deployment()
    delete(yard)
    until_gone(yard)
    assert yard.deployment() == before


def test_a_namespace_with_an_enabled_pool_and_its_deployment_goes(yard: Yard) -> None:
    """The deployment has a finalizer, as its own operator gives it one, and stays until that operator lets it go."""
    enabled(yard)
    patch = ("patch", "dgd.v1beta1.nvidia.com", "qwen3", "--type=merge", "-p")
    yard.kubectl(*patch, '{"metadata":{"finalizers":["team.example/x"]}}')
    yard.access.kubectl("delete", "namespace", yard.namespace, "--wait=false", check=True)
    eventually(lambda: _tried(yard), GC_SECONDS)
    yard.kubectl(*patch, '{"metadata":{"finalizers":[]}}')
    eventually(lambda: yard.access.kubectl("get", "namespace", yard.namespace).returncode != 0, GC_SECONDS)


def test_a_pool_made_anew_at_once_under_the_same_name_has_nothing_of_the_old_one(yard: Yard) -> None:
    enabled(yard)
    old = yard.observe()[0].uid
    delete(yard)
    until_gone(yard)
    yard.pool(mode="Enforce", rollback=REVERT)
    a_turn(yard)
    pool, world = yard.observe()
    assert pool.uid != old
    assert (pool.finalizer, pool.status.history, pool.status.operation, world.evidence) == (False, (), None, ())


def test_a_pool_made_anew_takes_what_was_left_on_for_another_hands(yard: Yard) -> None:
    enabled(yard, rollback={"onDelete": {"disaggregation": "Leave"}})
    delete(yard)
    until_gone(yard)
    yard.pool(mode="Enforce", rollback=REVERT)
    assert ready(a_turn(yard))[0] == "EnabledOutsideGate"
    assert finalizers(yard) == []
    delete(yard)
    until_gone(yard)
    assert modes(yard) == ["prefill", "decode"]


# --- what goes with it --------------------------------------------------------------------------------------------


def deleted_amid_a_sweep(yard: Yard, *how: str, **spec: object) -> None:
    """A sweep runs, a recommendation and the evidence of an earlier sweep lie there, and the pool is deleted."""
    enabled(yard, measures=True, **spec)
    a_turn(yard)
    assert len(yard.names("jobs")) == len(yard.nodes)
    pool, world = yard.observe()
    yard.ground.carry_out(pool, world, Recommend(Capability.DISAGGREGATION, ON))
    collecting.store(yard.client, pool, cases.evidence(run_id="earlier", pool_uid=pool.uid))
    collecting.tidy(yard.client, pool, "earlier")
    assert len(yard.names("fabrep")) == 2
    delete(yard, *how)


def left(yard: Yard) -> list[str]:
    """What of the pool is still there and is not being deleted; pods wait for a kubelet that there is none of."""
    kinds = ("jobs", "pods", "configmaps", "fabrep")
    found = [(kind, item["metadata"]) for kind in kinds for item in yard.get(kind)["items"]]
    own = sample("config.yaml")["metadata"]["name"]
    others = {own, "kube-root-ca.crt"}
    return [f"{kind}/{m['name']}" for kind, m in found if m["name"] not in others and not m.get("deletionTimestamp")]


@pytest.mark.parametrize("how", ["background", "foreground"])
def test_a_pool_deleted_amid_a_sweep_takes_all_of_it_along(yard: Yard, how: str) -> None:
    deleted_amid_a_sweep(yard, f"--cascade={how}")
    eventually(lambda: _tried(yard), GC_SECONDS)
    eventually(lambda: not left(yard), GC_SECONDS)


def test_a_pool_deleted_amid_a_sweep_while_no_operator_runs_takes_all_of_it_along(yard: Yard) -> None:
    enabled(yard, measures=True, rollback={"onDelete": {"disaggregation": "Leave"}})
    a_turn(yard)
    assert len(yard.names("jobs")) == len(yard.nodes)
    yard.kubectl("delete", "kvpool", "qwen3", "--timeout=10s")
    eventually(lambda: not left(yard), GC_SECONDS)


def test_evidence_that_the_pool_keeps_outlives_it(yard: Yard) -> None:
    fabric = dict(yard.get("kvpool", "qwen3")["spec"]["fabric"]) | {"reports": {"retainOnDelete": True}}
    deleted_amid_a_sweep(yard, fabric=fabric)
    eventually(lambda: _tried(yard), GC_SECONDS)
    eventually(lambda: left(yard) == ["fabrep/qwen3-earlier", "fabrep/qwen3-earlier-0"], GC_SECONDS)


def test_evidence_follows_what_the_pool_says_of_it_at_the_end_of_the_next_sweep(yard: Yard) -> None:
    yard.policy = ProbePolicy()
    collecting.store(yard.client, yard.observe()[0], cases.evidence(run_id="earlier", pool_uid=yard.observe()[0].uid))
    for kept in (True, False):
        change = json.dumps({"spec": {"fabric": {"reports": {"retainOnDelete": kept}}}})
        yard.kubectl("patch", "kvpool", "qwen3", "--type=merge", "-p", change)
        collecting.tidy(yard.client, yard.observe()[0], "earlier")
        assert ("ownerReferences" in yard.get("fabrep", "qwen3-earlier")["metadata"]) == (not kept)
