"""Each condition in each of its states: status, reason, and a message with the number, the limit and who must act."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from kvgate.api.wire import Condition
from kvgate.api.words import ConditionStatus, ConditionType, Outcome
from kvgate.core.conditions import LONGEST_MESSAGE, Said, stamped
from kvgate.core.evidence import FailureKind, NodeIdentity
from kvgate.core.findings import Concern, Finding
from kvgate.core.metrics_seen import MetricsSeen
from kvgate.core.target import Deed, Hand, Switch, TargetProblem
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
    approval,
    closed,
    condition,
    gaps,
    opened,
    proposed,
    refused,
    toggle,
)

COSTLY = toggle(
    SPLIT,
    Switch.OFF,
    findings=(Finding("capacity", Outcome.INCONCLUSIVE, "ReducedCapacity", "free GPUs are not known", Concern.TARGET),),
)

Change = Callable[[Scene], Scene]
Row = tuple[Change, str, str, tuple[str, ...]]
GONE = TargetProblem("TargetNotFound", "there is no DynamoGraphDeployment qwen3; create it")
C = ConditionType
PROMETHEUS = {"monitor__prometheusRef": {"name": "default"}}
TAKEN = ("VllmPrefillWorker/DYN_DISAGGREGATION_MODE",)


def remeasured(**fields: object) -> Change:
    return lambda scene: scene.but(evidence=(cases.evidence(**fields),))  # type: ignore[arg-type]


DEAD = [*cases.everywhere(FAST, cases.PATHS[:3]), cases.failed("p2→d2", FailureKind.NO_ROUTE)]
SILENT = [*cases.everywhere(FAST, cases.PATHS[:3]), cases.failed("p2→d2", FailureKind.SERVER_BUSY)]
ALSO_STORAGE = {"storageThroughput": "100GB/s", "prefillTokensPerSecond": 20000}

TABLE: dict[ConditionType, dict[str, Row]] = {
    C.TARGET_RESOLVED: {
        "found": (lambda s: s, "True", "Resolved", ("qwen3",)),
        "not found": (lambda s: s.but(target=GONE), "False", "TargetNotFound", ("qwen3", "create it")),
        "refuses": (
            lambda s: s.but(toggles={SPLIT: refused(SPLIT, Switch.OFF)}),
            "False",
            "TargetNotToggleable",
            ("drop them",),
        ),
        "claimed": (lambda s: s.but(claimed_by="elder"), "False", "ClaimedByOlderPool", ("elder", "delete one")),
        "not given": (lambda s: s.but(target_uid=""), "Unknown", "TargetNotGiven", ("nothing is planned",)),
        "a window that says no time": (
            lambda s: s.asking(changeWindows=[{"schedule": "61 2 * * 6", "duration": "4h"}]),
            "False",
            "ChangeWindowUnreadable",
            ("changeWindows", "five cron fields"),
        ),
    },
    C.FABRIC_MEASURED: {
        "measured": (lambda s: s, "True", "Measured", ("4 of 4", "100%", "2026-11-30T11:00:00Z", "2026-12-02T11")),
        "under way": (lambda s: s.but(evidence=(), sweeping=True), "Unknown", "Measuring", ()),
        "suspended before the first": (
            lambda s: s.asking(suspend=True).but(evidence=()),
            "Unknown",
            "NotMeasured",
            ("no sweep",),
        ),
        "too old": (lambda s: s.later(days=3), "False", "EvidenceExpired", ("48h", "a new sweep is due")),
        "ahead of the clock": (lambda s: s.later(hours=-3), "False", "ClockSkew", ("2026-11-30T11:00:00Z", "clocks")),
        "a pod moved to a new node": (
            lambda s: s.but(nodes=cases.nodes(decode=("d1", "d2", "d3"))),
            "False",
            "NodeNotCovered",
            ("d3", "4 of 6"),
        ),
        "a node was replaced": (
            lambda s: s.but(nodes=cases.nodes(identities=cases.identities(p1=NodeIdentity("p1", "new")))),
            "False",
            "NodeNotCovered",
            ("p1",),
        ),
        "too little coverage": (
            remeasured(samples=SILENT),
            "False",
            "CoverageTooLow",
            ("3 of 4", "75%", "p2→d2", "ServerBusy"),
        ),
        "another pool": (remeasured(pool_uid="b"), "False", "EvidenceOfAnotherPool", ("measure again",)),
        "no nodes": (lambda s: s.but(nodes=cases.nodes(prefill=())), "False", "NoNodesMatched", ("pool's owner",)),
    },
    C.KV_EVENTS_HEALTHY: {
        "not gated": (lambda s: s, "Unknown", "NotGated", ("criteria.routing",)),
        "not observed": (lambda s: s.gating(ROUTING, Switch.OFF), "Unknown", "KVEventsNotObserved", ()),
        "ignored": (
            lambda s: s.gating(ROUTING, Switch.OFF).asking(criteria__routing__kvEvents="Ignored"),
            "Unknown",
            "KVEventsIgnored",
            (),
        ),
    },
    C.ROUTING_ACCEPTED: {
        "not gated": (lambda s: s, "Unknown", "NotGated", ()),
        "not benchmarked": (
            lambda s: s.gating(ROUTING, Switch.OFF).asking(criteria__routing__kvEvents="Ignored"),
            "Unknown",
            "BenchmarkNotConfigured",
            ("criteria.routing.benchmark", "targetRef"),
        ),
    },
    C.DISAGGREGATION_ACCEPTED: {
        "met": (lambda s: s, "True", "CriteriaMet", ("3000 tokens", "MiB", "MB/s", "ttftBudget is 2s", "screens")),
        "over budget": (
            lambda s: s.measured(SLOW),
            "False",
            "TTFTBudgetExceeded",
            ("3000 tokens", "60.0 MB/s", "ttftBudget is 2s"),
        ),
        "below the minimum": (
            lambda s: s.asking(criteria__disaggregation__minThroughput="10GB/s"),
            "False",
            "ThroughputTooLow",
            ("250.0 MB/s", "minThroughput is 10GB/s", "network team"),
        ),
        "a dead path": (remeasured(samples=DEAD), "False", "Unreachable", ("1 of 4", "p2→d2", "network team")),
        "too much load": (
            lambda s: s.asking(workload__peakRequestsPerSecond="1", criteria__disaggregation__ttftBudget="10m"),
            "False",
            "PathOversubscribed",
            ("1 requests/s", "86.2%", "maxUtilization is 70%"),
        ),
        "no peak rate": (
            lambda s: s.asking(workload__peakRequestsPerSecond=None),
            "Unknown",
            "PeakRateUnknown",
            ("workload.peakRequestsPerSecond", "pool's owner"),
        ),
        "not measured": (lambda s: s.but(evidence=()), "Unknown", "NotMeasured", ()),
        "an unknown KV size": (
            lambda s: s.but(kv=KVUnknown("KVBytesUnknown", "supply bytesPerToken")),
            "Unknown",
            "KVBytesUnknown",
            ("supply bytesPerToken",),
        ),
        "no target": (lambda s: s.but(target=GONE), "Unknown", "TargetNotFound", ("create it",)),
        "an outlier": (
            remeasured(samples=cases.everywhere(300e6, cases.PATHS[:3]) + cases.everywhere(60e6, cases.PATHS[3:])),
            "False",
            "TTFTBudgetExceeded",
            (),
        ),
        "an endpoint asked for": (
            lambda s: s.asking(fabric__probe__endpoint__tool="ucx_get"),
            "Unknown",
            "EndpointUnmeasured",
            ("ucx_get", "fabric.probe.endpoint.tool"),
        ),
        "an Inconclusive that a person accepts": (
            lambda s: accepting(s.asking(fabric__probe__endpoint__tool="ucx_get"), "EndpointUnmeasured"),
            "True",
            "AcceptedInconclusive",
            ("EndpointUnmeasured", "ann", "ttftBudget is 2s"),
        ),
        "an Inconclusive that nobody named": (
            lambda s: accepting(s.asking(fabric__probe__endpoint__tool="ucx_get"), "PathOutlier"),
            "Unknown",
            "EndpointUnmeasured",
            (),
        ),
        "of two Inconclusives the one that nobody accepts": (
            lambda s: accepting(
                s.but(toggles={SPLIT: COSTLY}).asking(fabric__probe__endpoint__tool="ucx_get"), "ReducedCapacity"
            ),
            "Unknown",
            "EndpointUnmeasured",
            ("ucx_get",),
        ),
        "a Fail that a person named": (
            lambda s: accepting(s.after(), "TTFTBudgetExceeded").measured(SLOW),
            "False",
            "TTFTBudgetExceeded",
            (),
        ),
    },
    C.KV_STORAGE_ACCEPTED: {
        "not gated": (lambda s: s, "Unknown", "NotGated", ()),
        "not declared": (lambda s: s.gating(STORAGE, Switch.OFF), "Unknown", "NotDeclared", ("pool's owner",)),
        "declared": (
            lambda s: s.gating(STORAGE, Switch.OFF).asking(criteria__kvStorage__reloadVersusRecompute=ALSO_STORAGE),
            "Unknown",
            "Declared",
            ("100GB/s", "break-even is 2.3 GB/s", "approver"),
        ),
    },
    C.APPROVED: {
        "nothing passes": (lambda s: s.measured(SLOW), "Unknown", "NothingToApprove", ()),
        "missing": (
            lambda s: s,
            "False",
            "ApprovalMissing",
            ("an approver must create a GateApproval for Disaggregation", "planHash v1:sha256:"),
        ),
        "valid": (lambda s: s.after().approved(), "True", "Approved", ("approval-1", "ann")),
        "expired": (
            lambda s: s.after().approved(expiresAt=NOW + timedelta(hours=1)).later(hours=2),
            "False",
            "ApprovalExpired",
            ("approval-1", "2026-11-30T13:00:00Z"),
        ),
        "not attested": (
            lambda s: (
                s.asking(criteria__disaggregation__attestations=["EncryptionInTransit", "TenantIsolation"])
                .after()
                .approved(attestations=["TenantIsolation"])
            ),
            "False",
            "ApprovalAttestationsMissing",
            ("EncryptionInTransit",),
        ),
        "another plan": (
            lambda s: s.after().approved().asking(criteria__disaggregation__ttftBudget="3s"),
            "False",
            "ApprovalPlanChanged",
            ("approval-1", "an approver must create"),
        ),
        "none needed": (
            lambda s: s.asking(criteria__disaggregation__approval="NotRequired"),
            "True",
            "Approved",
            ("Disaggregation needs none",),
        ),
    },
    C.DISAGGREGATION_ENABLED: {
        "not gated": (lambda s: s.asking(criteria={}), "Unknown", "NotGated", ()),
        "written and not yet seen on the pods": (opened, "Unknown", "AwaitingVerification", ("running pods",)),
        "on by another hand": (
            lambda s: s.switched(Switch.ON),
            "Unknown",
            "EnabledOutsideGate",
            ("enforcement.adopt", "switch it off"),
        ),
        "not to be seen": (lambda s: s.but(target=GONE), "Unknown", "NotObserved", ()),
        "held by criteria": (
            lambda s: s.measured(SLOW),
            "False",
            "HeldByCriteria",
            ("TTFTBudgetExceeded", "DisaggregationAccepted"),
        ),
        "held for an approval": (lambda s: s, "False", "HeldByApproval", ("an approver must create",)),
        "held for a window": (
            lambda s: s.asking(changeWindows=[{"schedule": "0 2 * * 6", "duration": "4h"}]).after().approved(),
            "False",
            "HeldByWindow",
            ("2026-12-05T02:00:00Z",),
        ),
        "held by the cool-down": (
            lambda s: closed(opened(s)).asking(criteria__disaggregation__approval="NotRequired").measured(FAST),
            "False",
            "HeldByCooldown",
            ("2026-11-30T13:01:0", "rollback.cooldown is 1h"),
        ),
        "held for another manager": (
            lambda s: s.after().approved().switched(Switch.OFF, conflict="argocd"),
            "False",
            "HeldByConflict",
            ("argocd", "drop that line", "TakeOver"),
        ),
        "half on": (
            lambda s: s.switched(Switch.MIXED),
            "False",
            "HeldByTarget",
            ("VllmDecodeWorker/DYN_DISAGGREGATION_MODE", "agree"),
        ),
        "held by the mode": (
            lambda s: s.asking(mode="Observe").after().approved(),
            "False",
            "HeldByMode",
            ("spec.mode", "Enforce"),
        ),
    },
    C.ROUTING_ENABLED: {"not gated": (lambda s: s, "Unknown", "NotGated", ())},
    C.KV_STORAGE_ENABLED: {
        "not gated": (lambda s: s, "Unknown", "NotGated", ()),
        "the user's to switch": (
            lambda s: s.gating(STORAGE, Switch.UNREADABLE),
            "Unknown",
            "NotObserved",
            ("KVStorage",),
        ),
    },
    C.DRIFTED: {
        "no": (opened, "False", "NoDrift", ()),
        "overwritten": (
            lambda s: opened(s).switched(Switch.OFF, hands=(Hand("argocd", Deed.OVERWROTE, TAKEN, "drop the line"),)),
            "True",
            "Overwritten",
            ("argocd overwrote VllmPrefillWorker/DYN_DISAGGREGATION_MODE", "drop the line", "newer approval"),
        ),
        "removed": (
            lambda s: opened(s).switched(Switch.OFF, hands=(Hand("argocd", Deed.REMOVED, TAKEN, "spare it"),)),
            "True",
            "Removed",
            ("VllmPrefillWorker/DYN_DISAGGREGATION_MODE was removed, by all signs by argocd", "spare it"),
        ),
        "one removed, the other overwritten by nobody known": (
            lambda s: opened(s).switched(
                Switch.OFF,
                hands=(Hand("argocd", Deed.REMOVED, TAKEN, "spare it"), Hand("", Deed.OVERWROTE, ("B/X",), "drop it")),
            ),
            "True",
            "Overwritten",
            ("by argocd", "a manager that left no trace overwrote B/X: drop it"),
        ),
        "taken by a hand of which nothing is known": (
            lambda s: opened(s).switched(Switch.OFF),
            "True",
            "Overwritten",
            ("another hand overwrote the fields of Disaggregation",),
        ),
    },
    C.METRICS_HEALTHY: {
        "no Prometheus": (lambda s: s, "Unknown", "NoPrometheus", ("monitor.prometheusRef",)),
        "nobody asks": (lambda s: s.asking(**PROMETHEUS), "Unknown", "MetricsNotObserved", ("only the operator",)),
        "nothing on": (lambda s: s.asking(**PROMETHEUS).but(metrics=MetricsSeen()), "Unknown", "NothingOn", ()),
        "not asked yet": (
            lambda s: opened(s.asking(**PROMETHEUS)).but(metrics=MetricsSeen()),
            "Unknown",
            "MetricsNotAsked",
            ("not been asked yet",),
        ),
    },
    C.ROLLED_BACK: {
        "no": (opened, "False", "NotRolledBack", ()),
        "yes": (lambda s: closed(opened(s)), "True", "Disaggregation", ("2026-11-30T12:01:0", "TTFTBudgetExceeded")),
        "cleared by an approval": (
            lambda s: closed(opened(s)).later(hours=2).measured(FAST).after().approved(),
            "False",
            "NotRolledBack",
            (),
        ),
        "cleared by the next enable": (
            lambda s: opened(
                closed(opened(s)).asking(criteria__disaggregation__approval="NotRequired").later(hours=2).measured(FAST)
            ).but(approvals=()),
            "False",
            "NotRolledBack",
            (),
        ),
    },
}


def accepting(scene: Scene, reason: str) -> Scene:
    asked = scene.after()
    return asked.but(approvals=(approval(asked, SPLIT, acceptInconclusive=[reason]),))


ROWS = [
    pytest.param(kind, *row, id=f"{kind.value}, {name}: {row[1]} {row[2]}")
    for kind, rows in TABLE.items()
    for name, row in rows.items()
]


@pytest.mark.parametrize(("kind", "change", "status", "reason", "words"), ROWS)
def test_row(kind: ConditionType, change: Change, status: str, reason: str, words: tuple[str, ...]) -> None:
    found = condition(change(Scene()).decide().status, kind)
    assert (found.status.value, found.reason) == (status, reason)
    assert gaps([found.message], *words) == []


def test_the_table_of_tests_has_every_condition() -> None:
    assert set(TABLE) == set(ConditionType) - {C.READY, C.RECONCILING, C.STALLED}


def stamp(before: Condition | None, said: Said, at: timedelta = timedelta(0)) -> Condition:
    old = () if before is None else (before,)
    return stamped([(C.DRIFTED, said)], old, 1, NOW + at)[0]


def test_the_transition_time_moves_with_the_status_alone() -> None:
    first = stamp(None, Said(ConditionStatus.FALSE, "NoDrift", "none"))
    assert first.last_transition_time == NOW
    reworded = stamp(first, Said(ConditionStatus.FALSE, "NoDrift", "still none"), timedelta(hours=1))
    assert reworded.last_transition_time == NOW
    changed = stamp(reworded, Said(ConditionStatus.TRUE, "Overwritten", "argocd"), timedelta(hours=2, microseconds=5))
    assert changed.last_transition_time == NOW + timedelta(hours=2)


def test_a_message_without_end_is_cut() -> None:
    assert len(stamp(None, Said(ConditionStatus.TRUE, "Overwritten", "x" * 9000)).message) == LONGEST_MESSAGE


def test_conditions_are_of_this_generation_even_while_suspended() -> None:
    scene = proposed().asking(suspend=True)
    assert {held.observed_generation for held in scene.decide().status.conditions} == {scene.generation}
