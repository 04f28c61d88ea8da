"""The decision table as `decide` plays it: what is done, permitted and held in each state of a pool."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from kvgate.api.pool import STORAGE_ATTESTATIONS
from kvgate.api.words import ApprovalState, ConditionType, Outcome
from kvgate.core.decide import decide
from kvgate.core.target import Switch, TargetProblem
from kvgate.core.world import KVUnknown
from tests.core import cases
from tests.core.worlds import (
    FAST,
    NOW,
    ROUTING,
    SLOW,
    SPLIT,
    STORAGE,
    Scene,
    actions,
    approval,
    closed,
    entry,
    kinds,
    opened,
    proposed,
    refused,
    sweep,
    told,
)

Change = Callable[[Scene], Scene]
CLOSED_WINDOW = [{"schedule": "0 2 * * 6", "duration": "4h"}]  # a Saturday night; NOW is a Monday noon
OPEN_WINDOW = [{"schedule": "0 11 * * 1", "duration": "4h"}]
GONE = TargetProblem("TargetNotFound", "there is no DynamoGraphDeployment qwen3; create it")


def confirmed(scene: Scene) -> Scene:
    return scene.measured(SLOW).later(minutes=1).measured(SLOW)


OFF_ROWS: dict[str, tuple[Change, list[str], str]] = {
    "Pass and a valid approval enables": (lambda s: s.approved(), ["Enable"], ""),
    "Pass and no approval holds": (lambda s: s, [], "Approval"),
    "Pass and none needed enables": (
        lambda s: s.asking(criteria__disaggregation__approval="NotRequired"),
        ["Enable"],
        "",
    ),
    "an expired approval does not enable": (
        lambda s: s.approved(expiresAt=NOW + timedelta(minutes=1)).later(hours=1),
        [],
        "Approval",
    ),
    "an approval for more than 90 days does not enable": (
        lambda s: s.approved(expiresAt=s.now + timedelta(days=91)),
        [],
        "Approval",
    ),
    "an approval of another plan does not enable": (
        lambda s: s.approved(planHash="v1:sha256:" + "0" * 64),
        [],
        "Approval",
    ),
    "an approval for another pool's uid does not enable": (
        lambda s: s.approved(poolRef={"name": "qwen3", "uid": "another"}),
        [],
        "Approval",
    ),
    "an approval of another capability does not enable": (
        lambda s: s.approved(capability="KVStorage"),
        [],
        "Approval",
    ),
    "Fail holds": (lambda s: s.approved().measured(SLOW), [], "Criteria"),
    "a sweep without numbers holds": (lambda s: s.approved().measured(None), [], "Criteria"),
    "no evidence holds, and measures": (lambda s: s.approved().but(evidence=()), ["Measure"], "Criteria"),
    "expired evidence holds, and measures": (lambda s: s.approved().later(days=3), ["Measure"], "Criteria"),
    "evidence of another pool holds, and measures": (
        lambda s: s.approved().measured(FAST, pool_uid="another"),
        ["Measure"],
        "Criteria",
    ),
    "an unknown KV size holds": (
        lambda s: s.approved().but(kv=KVUnknown("KVBytesUnknown", "supply bytesPerToken")),
        [],
        "Criteria",
    ),
    "outside the window holds": (lambda s: s.asking(changeWindows=CLOSED_WINDOW).after().approved(), [], "Window"),
    "inside the window enables": (lambda s: s.asking(changeWindows=OPEN_WINDOW).after().approved(), ["Enable"], ""),
    "a window that cannot be read holds": (
        lambda s: s.asking(changeWindows=[{"schedule": "61 2 * * 6", "duration": "4h"}]).approved(),
        [],
        "Target",
    ),
    "another manager's field holds": (lambda s: s.approved().switched(Switch.OFF, conflict="argocd"), [], "Conflict"),
    "another manager's field is taken over where the spec says so": (
        lambda s: s.asking(enforcement__onConflict="TakeOver").approved().switched(Switch.OFF, conflict="argocd"),
        ["Enable"],
        "",
    ),
    "half on, and not by us, holds": (lambda s: s.approved().switched(Switch.MIXED), [], "Target"),
    "a target that refuses holds": (
        lambda s: s.approved().but(toggles={SPLIT: refused(SPLIT, Switch.OFF)}),
        [],
        "Target",
    ),
    "no target holds": (lambda s: s.approved().but(target=GONE), [], "Target"),
    "an older pool's target holds": (lambda s: s.approved().but(claimed_by="elder"), [], "Target"),
    "a pool that is being deleted holds": (lambda s: s.approved().but(deleted=True), [], "Deleted"),
    "Observe holds": (lambda s: s.asking(mode="Observe").approved(), [], "Mode"),
    "Recommend writes the patch out": (lambda s: s.asking(mode="Recommend").approved(), ["Recommend"], "Mode"),
    "suspended holds": (lambda s: s.asking(suspend=True).approved(), [], "Suspended"),
}


@pytest.mark.parametrize(("change", "steps", "held"), OFF_ROWS.values(), ids=OFF_ROWS)
def test_off(change: Change, steps: list[str], held: str) -> None:
    decision = change(proposed()).decide()
    assert kinds(decision) == steps
    assert entry(decision.status).held_by == held
    assert not entry(decision.status).enabled


ON_ROWS: dict[str, tuple[Change, list[str], str]] = {
    "Pass and a valid approval stays": (lambda s: s, [], ""),
    "a first Fail sweeps again and stays": (lambda s: s.measured(SLOW), ["Measure"], ""),
    "a confirmed Fail reverts": (confirmed, ["Revert"], ""),
    "a confirmed Fail reverts outside the window": (
        lambda s: confirmed(s.asking(changeWindows=CLOSED_WINDOW)),
        ["Revert"],
        "",
    ),
    "a Fail that the second sweep clears stays": (lambda s: s.measured(SLOW).later(minutes=1).measured(FAST), [], ""),
    "a Fail after a Pass is a first Fail": (
        lambda s: s.measured(SLOW).later(minutes=1).measured(FAST).later(minutes=1).measured(SLOW),
        ["Measure"],
        "",
    ),
    "another pool's Fail does not confirm": (
        lambda s: s.measured(SLOW, pool_uid="another").later(minutes=1).measured(SLOW),
        ["Measure"],
        "",
    ),
    "one sweep read twice does not confirm itself": (
        lambda s: s.but(evidence=(sweep(SLOW, "same", s.now), sweep(SLOW, "same", s.now))),
        ["Measure"],
        "",
    ),
    "an expired Fail does not confirm": (
        lambda s: s.but(evidence=(sweep(SLOW, "old", s.now - timedelta(days=4)),)).measured(SLOW),
        ["Measure"],
        "",
    ),
    "evidence of another pool stays by onEvidenceLost Hold": (
        lambda s: s.measured(SLOW, pool_uid="another"),
        ["Measure"],
        "Evidence",
    ),
    "expired evidence stays by onEvidenceLost Hold": (lambda s: s.later(days=3), ["Measure"], "Evidence"),
    "expired evidence reverts by onEvidenceLost Revert": (
        lambda s: s.asking(rollback__onEvidenceLost="Revert").later(days=3),
        ["Revert"],
        "Evidence",
    ),
    "an unreadable KV size stays by Hold": (
        lambda s: s.but(kv=KVUnknown("KVBytesUnknown", "supply bytesPerToken")),
        [],
        "Evidence",
    ),
    "an unreadable KV size reverts by Revert": (
        lambda s: s.asking(rollback__onEvidenceLost="Revert").but(kv=KVUnknown("KVBytesUnknown", "supply")),
        ["Revert"],
        "Evidence",
    ),
    "an approval that expired keeps it on": (lambda s: s.later(days=31).measured(FAST), [], ""),
    "a deleted approval stays by onApprovalLost Hold": (lambda s: s.but(approvals=()), [], "Approval"),
    "a deleted approval reverts by onApprovalLost Revert": (
        lambda s: s.asking(rollback__onApprovalLost="Revert").but(approvals=()),
        ["Revert"],
        "Approval",
    ),
    "a changed plan stays by onApprovalLost Hold": (
        lambda s: s.switched(Switch.ON, projection='{"image":"vllm:2"}'),
        [],
        "Approval",
    ),
    "a changed plan reverts by onApprovalLost Revert": (
        lambda s: s.asking(rollback__onApprovalLost="Revert").switched(Switch.ON, projection='{"image":"vllm:2"}'),
        ["Revert"],
        "Approval",
    ),
    "no target: nothing can be written": (lambda s: confirmed(s).but(target=GONE), [], "Target"),
    "Observe stays, even on a confirmed Fail": (lambda s: confirmed(s.asking(mode="Observe")), [], "Mode"),
    "Recommend stays, even on a confirmed Fail": (lambda s: confirmed(s.asking(mode="Recommend")), [], "Mode"),
    "suspended stays, even on a confirmed Fail": (lambda s: confirmed(s.asking(suspend=True)), [], "Suspended"),
    "a deleted pool leaves the split": (lambda s: s.but(deleted=True), [], "Deleted"),
    "a deleted pool reverts the split where it says so": (
        lambda s: s.asking(rollback__onDelete__disaggregation="Revert").but(deleted=True),
        ["Revert"],
        "Deleted",
    ),
}


@pytest.mark.parametrize(("change", "steps", "held"), ON_ROWS.values(), ids=ON_ROWS)
def test_on_and_ours(change: Change, steps: list[str], held: str) -> None:
    decision = change(opened()).decide()
    assert kinds(decision) == steps
    if held != "Target":
        assert entry(decision.status).held_by == held
    assert entry(decision.status).enabled


def foreign() -> Scene:
    """Switched on before anybody approved it."""
    return Scene().switched(Switch.ON).after()


FOREIGN_ROWS: dict[str, Change] = {
    "Pass": lambda s: s,
    "Pass and approved": lambda s: s.approved(),
    "a confirmed Fail": confirmed,
    "everything reverts": lambda s: confirmed(
        s.asking(rollback__onEvidenceLost="Revert", rollback__onApprovalLost="Revert")
    ),
    "expired evidence": lambda s: s.asking(rollback__onEvidenceLost="Revert").later(days=3),
}


@pytest.mark.parametrize("change", FOREIGN_ROWS.values(), ids=FOREIGN_ROWS)
def test_on_and_not_ours_is_never_patched(change: Change) -> None:
    decision = change(foreign()).decide()
    assert decision.patches == ()
    assert entry(decision.status).held_by == "OutsideGate"
    assert told(decision.status, ConditionType.READY) == ("False", "EnabledOutsideGate")


def test_adoption_takes_over_and_the_way_back_is_the_off_value() -> None:
    adopting = foreign().asking(enforcement__adopt=True)
    decision = adopting.decide()
    assert decision.patches == ()
    assert actions(decision.status) == ["Adopted"]
    taken = adopting.after()
    assert taken.status.target is not None
    assert [held.value for held in taken.status.target.baseline] == ["agg", "agg"]
    assert kinds(confirmed(taken).decide()) == ["Revert"]
    assert actions(taken.after().status) == ["Adopted"], "once"


def test_switched_on_by_hand_while_permitted_counts_as_ours() -> None:
    permitted = Scene().asking(criteria__disaggregation__approval="NotRequired", changeWindows=OPEN_WINDOW)
    held = permitted.switched(Switch.OFF, conflict="argocd").after()
    assert held.status.permitted == (SPLIT,)
    by_hand = held.switched(Switch.ON).after()
    assert actions(by_hand.status) == ["Adopted"]
    assert kinds(confirmed(by_hand).decide()) == ["Revert"]


def test_without_a_criteria_block_nothing_is_gated() -> None:
    scene = Scene(spec=cases.spec({"mode": "Enforce", "criteria": {}})).switched(Switch.ON)
    decision = scene.decide()
    assert decision.steps == ()
    assert decision.status.capabilities == ()
    assert told(decision.status, ConditionType.DISAGGREGATION_ENABLED) == ("Unknown", "NotGated")
    assert told(decision.status, ConditionType.READY) == ("True", "Observing")


PERMITTED: dict[str, tuple[Change, bool]] = {
    "Pass and valid": (lambda s: s.approved(), True),
    "Pass and missing": (lambda s: s, False),
    "Fail and valid": (lambda s: s.approved().measured(SLOW), False),
    "window closed": (lambda s: s.asking(changeWindows=CLOSED_WINDOW).after().approved(), False),
    "window closed and another's field": (
        lambda s: s.asking(changeWindows=CLOSED_WINDOW).after().approved().switched(Switch.OFF, conflict="argocd"),
        False,
    ),
    "suspended": (lambda s: s.asking(suspend=True).approved(), False),
    "claimed by an older pool": (lambda s: s.approved().but(claimed_by="elder"), False),
    "no target": (lambda s: s.approved().but(target=GONE), False),
    "being deleted": (lambda s: s.approved().but(deleted=True), False),
}


@pytest.mark.parametrize(("change", "expected"), PERMITTED.values(), ids=PERMITTED)
def test_permitted_is_criteria_approval_and_window(change: Change, expected: bool) -> None:
    assert (SPLIT in change(proposed()).decide().status.permitted) is expected


def drifting(scene: Scene | None = None) -> Scene:
    """Another hand switched off what we had switched on, and that is recorded."""
    return (scene or opened()).later(hours=3).switched(Switch.OFF).after()


def test_the_split_drifts_at_once() -> None:
    overwritten = opened().later(hours=3).switched(Switch.OFF)
    decision = overwritten.decide()
    assert decision.steps == ()
    assert actions(decision.status) == ["Drifted", "Enabled"]
    assert told(decision.status, ConditionType.DRIFTED) == ("True", "Overwritten")
    assert told(decision.status, ConditionType.STALLED) == ("True", "Drifted")
    assert decision.status.permitted == ()


def test_a_drift_is_held_and_recorded_once() -> None:
    for scene in (drifting(), drifting().after(), drifting().later(hours=20).measured(FAST)):
        decision = scene.decide()
        assert decision.patches == ()
        assert entry(decision.status).held_by == "Drifted"
        assert actions(decision.status) == ["Drifted", "Enabled"]


def test_a_changed_plan_ends_a_drift() -> None:
    scene = drifting().asking(criteria__disaggregation__ttftBudget="3s")
    assert told(scene.decide().status, ConditionType.DRIFTED) == ("False", "NoDrift")
    assert kinds(scene.after().approved().decide()) == ["Enable"]


def test_a_newer_approval_ends_a_drift() -> None:
    assert kinds(drifting().later(minutes=1).approved().decide()) == ["Enable"]


def test_half_switched_off_is_a_drift_too() -> None:
    scene = opened().later(hours=3).switched(Switch.MIXED)
    assert told(scene.decide().status, ConditionType.DRIFTED) == ("True", "Overwritten")
    assert scene.after().decide().patches == ()


def looping() -> Scene:
    """Rolled back twice within 24 h."""
    again = closed().later(hours=2).measured(FAST)
    reopened = opened(again)
    return closed(reopened)


def test_a_second_rollback_within_24_hours_is_a_loop() -> None:
    scene = looping().later(hours=5).measured(FAST).after()
    decision = scene.decide()
    assert decision.patches == ()
    assert entry(decision.status).held_by == "RollbackLoop"
    assert told(decision.status, ConditionType.STALLED) == ("True", "RollbackLoop")
    assert decision.status.permitted == ()


def test_a_newer_approval_ends_a_loop() -> None:
    scene = looping().later(hours=5).measured(FAST).after().approved()
    assert kinds(scene.decide()) == ["Enable"]


def test_a_changed_plan_ends_a_loop() -> None:
    scene = looping().later(hours=5).measured(FAST).asking(criteria__disaggregation__approval="NotRequired")
    assert kinds(scene.after().decide()) == ["Enable"]


def test_the_cool_down_delays_enabling_and_never_closing() -> None:
    def reopening(**later: float) -> Scene:
        return closed().asking(criteria__disaggregation__approval="NotRequired").later(**later).measured(FAST)

    assert entry(reopening(minutes=50).decide().status).held_by == "Cooldown"
    assert kinds(reopening(minutes=61).decide()) == ["Enable"]


UNREADABLE: dict[str, Change] = {
    "the target is gone": lambda s: s.but(target=GONE),
    "the target refuses": lambda s: s.but(toggles={SPLIT: refused(SPLIT, Switch.UNREADABLE)}),
    "the KV size is gone": lambda s: s.but(kv=KVUnknown("KVBytesUnknown", "supply bytesPerToken")),
    "the evidence is gone": lambda s: s.but(evidence=()),
}


@pytest.mark.parametrize("change", UNREADABLE.values(), ids=UNREADABLE)
def test_while_an_input_is_unreadable_the_last_hash_and_approval_stand(change: Change) -> None:
    scene = opened()
    before, after = entry(scene.status), entry(change(scene).decide().status)
    assert after.outcome not in {Outcome.PASS, Outcome.INCONCLUSIVE}
    assert (after.plan_hash, after.proposed_at) == (before.plan_hash, before.proposed_at)
    assert after.approval == before.approval
    assert after.approval.state is ApprovalState.VALID
    assert after.enabled


def test_ours_stays_ours_when_the_target_begins_to_refuse() -> None:
    scene = opened().but(toggles={SPLIT: refused(SPLIT, Switch.ON)})
    decision = scene.decide()
    assert actions(decision.status) == ["Enabled"], "nothing is adopted again"
    assert told(decision.status, ConditionType.STALLED) == ("True", "TargetNotToggleable")
    assert scene.after().after().status.history == scene.status.history
    assert kinds(confirmed(scene.after().switched(Switch.ON)).decide()) == ["Revert"]


def test_another_deployment_of_the_same_name_is_not_ours() -> None:
    recreated = opened().but(target_uid="another")
    decision = recreated.decide()
    assert decision.patches == ()
    assert told(decision.status, ConditionType.READY) == ("False", "EnabledOutsideGate")
    off = recreated.switched(Switch.OFF).decide()
    assert told(off.status, ConditionType.DRIFTED) == ("False", "NoDrift")


def test_storage_is_never_patched_and_a_person_may_accept_what_is_declared() -> None:
    declared = {"storageThroughput": "100GB/s", "prefillTokensPerSecond": 20000}
    scene = Scene().gating(STORAGE, Switch.OFF).asking(criteria__kvStorage__reloadVersusRecompute=declared)
    scene = scene.asking(criteria__disaggregation=None).after()
    assert entry(scene.status, STORAGE).outcome is Outcome.INCONCLUSIVE
    words = {"acceptInconclusive": ["Declared"], "attestations": STORAGE_ATTESTATIONS}
    accepting = scene.but(approvals=(approval(scene, STORAGE, **words),))
    decision = accepting.decide()
    assert decision.patches == ()
    assert entry(decision.status, STORAGE).outcome is Outcome.PASS
    assert decision.status.permitted == (STORAGE,)
    assert told(decision.status, ConditionType.KV_STORAGE_ACCEPTED) == ("True", "AcceptedInconclusive")


@pytest.mark.parametrize(("reason", "opens"), [("SameNodeUnmeasured", True), ("Unmeasured", False)])
def test_only_its_own_reason_accepts_that_paths_on_one_node_are_not_measured(reason: str, *, opens: bool) -> None:
    shared = cases.nodes(("p1", "d1"), ("d1",))
    scene = Scene().but(nodes=shared).measured(FAST).after()
    assert entry(scene.status, SPLIT).outcome is Outcome.INCONCLUSIVE
    decision = scene.but(approvals=(approval(scene, SPLIT, acceptInconclusive=[reason]),)).decide()
    assert (decision.patches != ()) is opens


def test_routing_alone_is_judged_without_a_fabric() -> None:
    scene = Scene(spec=cases.spec({"mode": "Enforce", "criteria": {"routing": {}}})).switched(Switch.OFF, ROUTING)
    decision = scene.decide()
    assert entry(decision.status, ROUTING).outcome is Outcome.UNKNOWN
    assert decision.patches == ()


REQUEUE: dict[str, tuple[Change, float]] = {
    "at once after a record": (lambda s: proposed(s).approved().after().switched(Switch.ON), 1),
    "at once while an operation is in flight": (lambda s: proposed(s).approved().after(), 1),
    "at the latest in five minutes": (proposed, 300),
    "when the next sweep is due": (
        lambda s: proposed(s.asking(fabric__schedule__jitter="0s")).but(now=NOW + timedelta(hours=22, minutes=58)),
        120,
    ),
}


@pytest.mark.parametrize(("change", "seconds"), REQUEUE.values(), ids=REQUEUE)
def test_it_looks_again(change: Change, seconds: float) -> None:
    assert change(Scene()).decide().requeue_after_seconds == pytest.approx(seconds)


def test_the_same_turn_read_twice_decides_the_same() -> None:
    for scene in (Scene(evidence=()), proposed().approved(), confirmed(opened()), drifting(), looping()):
        assert decide(scene.pool, scene.world, scene.now) == decide(scene.pool, scene.world, scene.now)


def test_a_drift_by_half_is_told_once_and_the_baseline_of_the_other_half_stays() -> None:
    scene = opened().later(hours=3).switched(Switch.MIXED).after().after().after()
    assert actions(scene.status) == ["Drifted", "Enabled"]
    assert scene.status.target is not None
    assert len(scene.status.target.baseline) == 2


def _accepted() -> Scene:
    """A pool whose endpoint was not measured, opened by an approval that accepts just that."""
    asked = Scene().asking(fabric__probe__endpoint__tool="ucx_get").but(generation=1)
    begun = proposed(asked).approved(acceptInconclusive=["EndpointUnmeasured"]).after()
    assert begun.status.operation is not None
    return begun.switched(Switch.ON).after().after()


def test_what_an_approval_accepted_is_kept_after_it_expired() -> None:
    scene = _accepted().asking(rollback__onEvidenceLost="Revert").but(generation=1)
    expired = scene.later(days=31).measured(FAST)
    assert kinds(expired.decide()) == []
    assert entry(expired.decide().status).outcome is Outcome.PASS
    assert kinds(expired.but(approvals=()).decide()) == ["Revert"]


def test_what_an_expired_approval_accepted_opens_nothing() -> None:
    asked = Scene().asking(fabric__probe__endpoint__tool="ucx_get").but(generation=1)
    late = proposed(asked).approved(acceptInconclusive=["EndpointUnmeasured"]).later(days=31).measured(FAST)
    assert kinds(late.decide()) == []
    assert entry(late.decide().status).outcome is Outcome.INCONCLUSIVE


def test_deleting_the_newest_evidence_brings_no_older_one_back() -> None:
    failed = proposed().approved().measured(SLOW).after()
    older = failed.but(evidence=failed.evidence[1:]).later(minutes=1)
    decision = older.decide()
    assert kinds(decision) == ["Measure"]
    assert entry(decision.status).outcome is Outcome.ERROR
    again = older.after().later(minutes=1)
    assert entry(again.decide().status).outcome is Outcome.ERROR
    healed = again.measured(FAST)
    assert entry(healed.decide().status).outcome is Outcome.PASS
