"""The kstatus table: what `kubectl wait`, Argo CD or Flux reads from Ready, Reconciling and Stalled."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

import pytest

from kvgate.api.status import PoolStatus
from kvgate.api.wire import Condition
from kvgate.api.words import ConditionStatus, ConditionType
from kvgate.core.target import Switch, TargetProblem
from kvgate.core.world import KVUnknown
from tests.core import cases
from tests.core.worlds import (
    FAST,
    NOW,
    ROUTING,
    SLOW,
    SPLIT,
    Scene,
    closed,
    condition,
    gaps,
    opened,
    proposed,
    refused,
    told,
)
from tests.invariants import broken

Change = Callable[[Scene], Scene]
Row = tuple[Change, str, str, str, tuple[str, ...]]
READY, RECONCILING, STALLED = ConditionType.READY, ConditionType.RECONCILING, ConditionType.STALLED
WINDOW = [{"schedule": "0 2 * * 6", "duration": "4h"}]
GONE = TargetProblem("TargetNotFound", "there is no DynamoGraphDeployment qwen3; create it")


def confirmed(scene: Scene) -> Scene:
    return scene.measured(SLOW).later(minutes=1).measured(SLOW)


def looping(scene: Scene) -> Scene:
    again = closed(opened(scene)).later(hours=2).measured(FAST)
    return closed(opened(again)).later(hours=5).measured(FAST)


ROWS: dict[str, Row] = {
    "new, first sweep": (lambda s: s.but(evidence=()), "Unknown", "Measuring", "Reconciling", ("first sweep",)),
    "off, Fail": (
        lambda s: s.measured(SLOW),
        "True",
        "HoldingForCriteria",
        "",
        ("Disaggregation stays off", "60.0 MB/s", "ttftBudget is 2s"),
    ),
    "off, Unknown": (
        lambda s: s.but(kv=KVUnknown("KVBytesUnknown", "supply bytesPerToken")),
        "True",
        "HoldingForCriteria",
        "",
        ("supply bytesPerToken",),
    ),
    "off, evidence expired, sweep again": (lambda s: s.later(days=3), "True", "HoldingForCriteria", "", ("48h",)),
    "off, waiting for approval": (proposed, "True", "HoldingForApproval", "", ("an approver must create",)),
    "off, waiting for the window": (
        lambda s: s.asking(changeWindows=WINDOW).after().approved(),
        "True",
        "HoldingForWindow",
        "",
        ("2026-12-05T02:00:00Z",),
    ),
    "off, another's field": (
        lambda s: proposed(s).approved().switched(Switch.OFF, conflict="argocd"),
        "True",
        "HoldingForConflict",
        "",
        ("argocd", "TakeOver"),
    ),
    "Observe": (lambda s: s.asking(mode="Observe"), "True", "Observing", "", ("mode Observe never patches",)),
    "Observe, Fail": (lambda s: s.asking(mode="Observe").measured(SLOW), "True", "Observing", "", ("60.0 MB/s",)),
    "Observe, on by another hand": (
        lambda s: s.asking(mode="Observe").switched(Switch.ON),
        "True",
        "Observing",
        "",
        ("never patches",),
    ),
    "Recommend": (lambda s: s.asking(mode="Recommend"), "True", "Observing", "", ("mode Recommend",)),
    "Enforce, then Observe: says that it leaves it on": (
        lambda s: opened(s).asking(mode="Observe"),
        "True",
        "Observing",
        "",
        ("stays on as Enforce left it",),
    ),
    "nothing gated": (lambda s: s.asking(criteria={}), "True", "Observing", "", ("spec.criteria is empty",)),
    "on, Pass, not verified": (opened, "Unknown", "Progressing", "Reconciling", ("is written", "not observed")),
    "on, Pass, approval expired": (
        lambda s: opened(s).later(days=31).measured(FAST),
        "Unknown",
        "Progressing",
        "Reconciling",
        (),
    ),
    "on, a first Fail": (lambda s: opened(s).measured(SLOW), "False", "EvidenceLost", "", ("stays on", "60.0 MB/s")),
    "on, evidence expired": (lambda s: opened(s).later(days=3), "False", "EvidenceStale", "", ("stays on", "48h")),
    "on, KV size gone": (
        lambda s: opened(s).but(kv=KVUnknown("KVBytesUnknown", "supply bytesPerToken")),
        "False",
        "EvidenceLost",
        "",
        ("supply bytesPerToken",),
    ),
    "on, approval deleted": (
        lambda s: opened(s).but(approvals=()),
        "False",
        "ApprovalLost",
        "",
        ("stays on", "an approver must create"),
    ),
    "on, plan changed": (
        lambda s: opened(s).switched(Switch.ON, projection="{}"),
        "False",
        "ApprovalLost",
        "",
        ("another plan",),
    ),
    "enable in flight": (lambda s: proposed(s).approved(), "Unknown", "Progressing", "Reconciling", ("Enable of",)),
    "revert in flight": (lambda s: confirmed(opened(s)), "Unknown", "Progressing", "Reconciling", ("Revert of",)),
    "revert in flight for five minutes": (
        lambda s: confirmed(opened(s)).after().later(minutes=4, seconds=59),
        "Unknown",
        "Progressing",
        "Reconciling",
        (),
    ),
    "revert in flight for more": (
        lambda s: confirmed(opened(s)).after().later(minutes=5),
        "False",
        "RollbackFailed",
        "Reconciling",
        ("Revert of Disaggregation", "look at the deployment"),
    ),
    "enable in flight for an hour": (
        lambda s: proposed(s).approved().after().later(hours=1),
        "Unknown",
        "Progressing",
        "Reconciling",
        (),
    ),
    "suspended": (lambda s: s.asking(suspend=True), "True", "Suspended", "", ("spec.suspend",)),
    "suspended, whatever is wrong": (
        lambda s: confirmed(opened(s)).asking(suspend=True).but(target=GONE),
        "True",
        "Suspended",
        "",
        (),
    ),
    "rolled back": (lambda s: closed(opened(s)), "True", "RolledBack", "", ("TTFTBudgetExceeded",)),
    "no target": (lambda s: s.but(target=GONE), "False", "TargetNotFound", "Stalled", ("create it",)),
    "a target that refuses": (
        lambda s: s.but(toggles={SPLIT: refused(SPLIT, Switch.OFF)}),
        "False",
        "TargetNotToggleable",
        "Stalled",
        ("drop them",),
    ),
    "an older pool": (lambda s: s.but(claimed_by="elder"), "False", "ClaimedByOlderPool", "Stalled", ("elder",)),
    "no nodes": (
        lambda s: s.but(nodes=cases.nodes(problem="fabric.prefillNodes match none of 3 nodes")),
        "False",
        "NoNodesMatched",
        "Stalled",
        ("none of 3 nodes",),
    ),
    "no nodes and no evidence": (
        lambda s: s.but(nodes=cases.nodes(prefill=()), evidence=()),
        "False",
        "NoNodesMatched",
        "Stalled",
        (),
    ),
    "an unreadable window": (
        lambda s: s.asking(changeWindows=[{"schedule": "61 2 * * 6", "duration": "4h"}]),
        "False",
        "ChangeWindowUnreadable",
        "Stalled",
        (),
    ),
    "drifted": (lambda s: opened(s).switched(Switch.OFF), "False", "Drifted", "Stalled", ("newer approval",)),
    "on by another hand": (
        lambda s: s.switched(Switch.ON),
        "False",
        "EnabledOutsideGate",
        "Stalled",
        ("enforcement.adopt", "switch it off"),
    ),
    "on by another hand, adopted": (
        lambda s: s.switched(Switch.ON).asking(enforcement__adopt=True),
        "Unknown",
        "Progressing",
        "Reconciling",
        ("taken over",),
    ),
    "rolled back twice": (looping, "False", "RollbackLoop", "Stalled", ("twice within 24 h",)),
}


@pytest.mark.parametrize(("change", "status", "reason", "extra", "words"), ROWS.values(), ids=ROWS)
def test_row(change: Change, status: str, reason: str, extra: str, words: tuple[str, ...]) -> None:
    found = change(Scene()).decide().status
    ready = condition(found, READY)
    assert (ready.status.value, ready.reason) == (status, reason)
    assert [kind.value for kind in (RECONCILING, STALLED) if told(found, kind)[0] == "True"] == (
        [extra] if extra else []
    )
    assert gaps([ready.message], *words) == []


ROUTINE: dict[str, Change] = {
    "off and held": proposed,
    "on": opened,
    "rolled back": lambda s: closed(opened(s)),
    "observed": lambda s: s.asking(mode="Observe"),
}


@pytest.mark.parametrize("change", ROUTINE.values(), ids=ROUTINE)
def test_a_routine_sweep_leaves_ready_as_it_was(change: Change) -> None:
    before = change(Scene()).after()
    due = before.later(hours=24, minutes=15)
    assert any(type(step).__name__ == "Measure" for step in due.decide().steps)
    assert condition(due.decide().status, READY) == condition(before.status, READY)
    assert condition(due.but(sweeping=True).decide().status, READY) == condition(before.status, READY)


def test_one_capability_that_is_off_does_not_hide_one_that_lost_its_evidence() -> None:
    scene = opened().gating(ROUTING, Switch.OFF).measured(SLOW)
    assert told(scene.decide().status, READY) == ("False", "EvidenceLost")


def said(kind: str, status: ConditionStatus, **fields: object) -> Condition:
    plain: dict[str, object] = {
        "type": kind,
        "status": status,
        "reason": "Tested",
        "message": "for the test",
        "observedGeneration": 1,
        "lastTransitionTime": NOW,
    }
    return Condition.model_validate({**plain, **fields})


def edited(*changed: Condition, **fields: object) -> PoolStatus:
    """A status that holds, with some of its conditions replaced or added."""
    whole = proposed().status
    kept = {held.type: held for held in whole.conditions} | {held.type: held for held in changed}
    return whole.model_copy(update={"conditions": tuple(kept.values()), **fields})


T, F, U = ConditionStatus.TRUE, ConditionStatus.FALSE, ConditionStatus.UNKNOWN
HOLDS = proposed().status
BROKEN: dict[str, tuple[PoolStatus, str]] = {
    "both at once": (
        edited(said("Ready", F), said("Reconciling", T), said("Stalled", T)),
        "Reconciling and Stalled stand together",
    ),
    "Reconciling and False": (edited(said("Ready", F), said("Reconciling", F)), "Reconciling is present and False"),
    "Stalled and Unknown": (edited(said("Ready", F), said("Stalled", U)), "Stalled is present and Unknown"),
    "Ready while Reconciling": (edited(said("Ready", T), said("Reconciling", T)), "Ready is True while Reconciling"),
    "Ready while Stalled": (edited(said("Ready", U), said("Stalled", T)), "Ready is Unknown while Stalled"),
    "Unknown for ever": (edited(said("Ready", U)), "a waiter would wait for ever"),
    "no Ready": (
        HOLDS.model_copy(update={"conditions": tuple(c for c in HOLDS.conditions if c.type != "Ready")}),
        "Ready is missing",
    ),
    "twice": (HOLDS.model_copy(update={"conditions": HOLDS.conditions * 2}), "Ready stands 2 times"),
    "an unknown type": (edited(said("Healthy", T)), "Healthy is no known type"),
    "an old generation": (edited(observed_generation=0), "observedGeneration is 0"),
    "an old condition": (edited(said("Drifted", F, observedGeneration=0)), "judged for generation 0"),
    "a reason of two words": (edited(said("Drifted", F, reason="No drift")), "no CamelCase word"),
    "no message": (edited(said("Drifted", F, message=" ")), "has a message of 1 characters"),
    "a long message": (edited(said("Drifted", F, message="x" * 5000)), "has a message of 5000 characters"),
    "an age": (edited(said("Drifted", F, message="measured 3 h ago")), "tells an age"),
    "a countdown": (edited(said("Drifted", F, message="opens in 12 min")), "tells an age"),
    "the future": (edited(said("Drifted", F, lastTransitionTime=NOW + timedelta(minutes=1))), "in the future"),
    "permitted without an approval": (edited(permitted=(SPLIT,)), "permitted without"),
    "permitted and not gated": (edited(permitted=(ROUTING,)), "permitted without"),
    "another hash": (
        edited(capabilities=(HOLDS.capabilities[0].model_copy(update={"plan_hash": "v2:1"}),)),
        "has the plan hash",
    ),
    "no proposal": (
        edited(capabilities=(HOLDS.capabilities[0].model_copy(update={"proposed_at": None}),)),
        "and not both",
    ),
    "too long a history": (edited(history=opened().status.history * 11), "history holds 11 entries"),
    "oldest first": (edited(history=closed().status.history[::-1]), "not newest first"),
    "too large a number": (edited(longest_prompt_within_budget=2**64), "longest_prompt_within_budget is"),
}


@pytest.mark.parametrize(("status", "line"), BROKEN.values(), ids=BROKEN)
def test_the_checker_finds(status: PoolStatus, line: str) -> None:
    assert gaps(broken(status, 1, NOW), line) == []


def test_the_checker_finds_a_transition_time_that_moved() -> None:
    moved = edited(said("Drifted", F, lastTransitionTime=NOW - timedelta(hours=1)))
    assert gaps(broken(moved, 1, NOW, HOLDS), "Drifted moved its transition time") == []


def test_the_checker_is_content_with_what_holds() -> None:
    later: datetime = NOW + timedelta(days=400)
    assert broken(HOLDS, 1, later) == []
