"""The conditions of a pool: one pure function per type, in one table; transition times change only with the status."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from kvgate.api.status import HistoryEntry
from kvgate.api.wire import Condition
from kvgate.api.words import Capability, ConditionStatus, ConditionType, Outcome
from kvgate.core import evidence_criteria, own_nodes, text
from kvgate.core.drift import newer_approval, removed, rests_until
from kvgate.core.findings import Finding
from kvgate.core.judged import Judged
from kvgate.core.judging import Case
from kvgate.core.links import Progress
from kvgate.core.memory import Action, cooled_down_at, of
from kvgate.core.monitoring import awaited
from kvgate.core.monitoring_memory import monitored
from kvgate.core.operations import Ledger
from kvgate.core.sweeping import Wait
from kvgate.core.switching import Held, Stands
from kvgate.core.target import Deed, Hand, Switch, TargetProblem, TargetView
from kvgate.core.verification import Chain
from kvgate.core.windows import WindowError, next_opening, window_open

LONGEST_MESSAGE = 4096


@dataclass(frozen=True)
class Said:
    """What one condition says, before it has a time."""

    status: ConditionStatus
    reason: str
    message: str


@dataclass(frozen=True)
class Turn:
    """Everything that a condition may look at."""

    case: Case
    judged: tuple[Judged, ...]
    ledger: Ledger
    measuring: bool
    wait: Wait | None = None

    def of(self, capability: Capability) -> Judged | None:
        return next((entry for entry in self.judged if entry.capability is capability), None)


def true(reason: str, message: str) -> Said:
    return Said(ConditionStatus.TRUE, reason, message)


def false(reason: str, message: str) -> Said:
    return Said(ConditionStatus.FALSE, reason, message)


def unknown(reason: str, message: str) -> Said:
    return Said(ConditionStatus.UNKNOWN, reason, message)


def target_resolved(turn: Turn) -> Said:
    world, pool = turn.case.world, turn.case.pool
    if world.claimed_by:
        what = f"pool {world.claimed_by} is older and owns {pool.spec.target_ref.name}; delete one of the two pools"
        return false("ClaimedByOlderPool", what)
    if isinstance(world.target, TargetProblem):
        return false(world.target.reason, world.target.message)
    if not world.target.uid:
        return unknown("TargetNotGiven", "no deployment was given, so only the criteria are judged; nothing is planned")
    try:
        window_open(pool.spec.change_windows, turn.case.now)
    except WindowError as error:
        return false("ChangeWindowUnreadable", str(error))
    for entry in turn.judged:
        if entry.toggle is not None and entry.toggle.refusal is not None:
            return false(entry.toggle.refusal.reason, entry.toggle.refusal.message)
    return true("Resolved", f"DynamoGraphDeployment {pool.spec.target_ref.name} was found and can be switched")


MOST_NOTED = 4


def fabric_measured(turn: Turn) -> Said:
    checks = (
        evidence_criteria.nodes_matched,
        evidence_criteria.evidence_readable,
        evidence_criteria.evidence_of_this_pool,
        evidence_criteria.evidence_fresh,
        evidence_criteria.nodes_unchanged,
        evidence_criteria.paths_covered,
        evidence_criteria.pods_covered,
        own_nodes.own_nodes,
    )
    findings = [check(turn.case) for check in checks]
    bad = next((finding for finding in findings if finding.outcome is not Outcome.PASS), None)
    if bad is None:
        told = {finding.criterion: finding.message for finding in findings}
        noted = [told["evidence"]] if turn.case.evidence and turn.case.evidence.problems else []
        within = [told["sameNode"]] if turn.case.fabric.own.paths else []
        return true("Measured", "; ".join((told["coverage"], *within, told["freshness"], *noted)))
    if trouble := _trouble(turn):
        return unknown("SweepTroubled", f"{trouble}; {bad.message}")
    if bad.reason == "NotMeasured" and turn.wait:
        what = f"{bad.message}; {turn.wait.message}"
        by = turn.wait
        return unknown("WaitingForTurn" if by.line else "WaitingForWindow" if by.window else "WaitingForInterval", what)
    if bad.reason == "NotMeasured":
        return unknown("Measuring" if turn.measuring else bad.reason, bad.message)
    problems = turn.case.evidence.problems if turn.case.evidence else ()
    waits = (turn.wait.message,) if turn.wait else ()
    return false(bad.reason, "; ".join((bad.message, *waits, *_noted(problems))))


def _noted(problems: tuple[str, ...]) -> tuple[str, ...]:
    """The first few: nodes that failed in different ways are all to be named."""
    more = (f"and {len(problems) - MOST_NOTED} more",) if len(problems) > MOST_NOTED else ()
    return (f"the sweep noted: {'; '.join((*problems[:MOST_NOTED], *more))}",) if problems else ()


def _trouble(turn: Turn) -> str:
    """What keeps the sweep that is meant from going on: named by node, for whoever looks after the nodes."""
    world = turn.case.world
    walkers = world.sweep.walkers if world.sweep else ()
    told = tuple(f"node {walker}: {walker.trouble}" for walker in walkers if walker.trouble)
    return world.sweep_problem or text.listed(told)


def kv_events_healthy(turn: Turn) -> Said:
    routing = turn.of(Capability.ROUTING)
    if routing is None:
        return unknown("NotGated", "criteria.routing is not set, so KV events are not looked at")
    finding = next(f for f in routing.verdict.findings if f.criterion == "kvEvents")
    observed = turn.case.events is not None
    tells = {Outcome.PASS: true, Outcome.FAIL: false} if observed else {}
    return tells.get(finding.outcome, unknown)(finding.reason, finding.message)


def metrics_healthy(turn: Turn) -> Said:
    """What the frontends' metrics say of what is on; only errors and readiness soon after a switch close anything."""
    if turn.case.pool.spec.monitor.prometheus_ref is None:
        return unknown("NoPrometheus", "monitor.prometheusRef is not set, so no metrics are watched")
    if turn.case.world.metrics is None:
        return unknown("MetricsNotObserved", "only the operator asks Prometheus, and not while spec.suspend is true")
    finding = monitored(turn.case).finding
    if finding is None:
        return unknown("NothingOn", "nothing that kvgate watches is on")
    tells = {Outcome.PASS: true, Outcome.FAIL: false}
    return tells.get(finding.outcome, unknown)(finding.reason, finding.message)


def accepted(capability: Capability) -> Callable[[Turn], Said]:
    def said(turn: Turn) -> Said:
        entry = turn.of(capability)
        if entry is None:
            return unknown("NotGated", f"no criteria block for {capability}: it is not gated")
        finding = entry.decisive
        if entry.accepted_inconclusive:
            what = f"{', '.join(sorted(entry.verdict.inconclusive_reasons))} accepted by {entry.standing.approver}"
            return true("AcceptedInconclusive", f"{what}: {_telling(entry).message}")
        if entry.outcome is Outcome.PASS:
            return true("CriteriaMet", _telling(entry).message)
        return (false if entry.outcome is Outcome.FAIL else unknown)(finding.reason, finding.message)

    return said


def _telling(entry: Judged) -> Finding:
    """The finding with the number that people ask for, when all pass."""
    budget = (finding for finding in entry.verdict.findings if finding.criterion == "ttftBudget")
    return next(budget, entry.verdict.decisive)


def approved(turn: Turn) -> Said:
    passing = [entry for entry in turn.judged if entry.verdict.settled and entry.plan_hash]
    waiting = [entry for entry in passing if not entry.standing.permits]
    if not passing:
        return unknown("NothingToApprove", "no capability has a plan that could be approved yet")
    if waiting:
        return false(f"Approval{waiting[0].standing.state}", "; ".join(entry.standing.message for entry in waiting))
    told = [entry.standing.message or f"{entry.capability} needs none" for entry in passing]
    return true("Approved", "; ".join(told))


def enabled(capability: Capability) -> Callable[[Turn], Said]:
    def said(turn: Turn) -> Said:
        entry = turn.of(capability)
        if entry is None:
            return unknown("NotGated", f"no criteria block for {capability}: it is not gated")
        if entry.toggle is None or entry.toggle.switch is Switch.UNREADABLE:
            return unknown("NotObserved", f"whether {capability} is on cannot be read from the deployment")
        if entry.stands is Stands.ON_FOREIGN:
            return unknown("EnabledOutsideGate", outside(turn, capability))
        if entry.stands is Stands.ON_OURS:
            return verified(entry.chain)
        if entry.ruling.held is Held.CRITERIA:
            return false("HeldByCriteria", f"{entry.decisive.reason}: see {capability}Accepted")
        return false(f"HeldBy{entry.ruling.held}" if entry.ruling.held else "Off", held_message(turn, entry))

    return said


def outside(turn: Turn, capability: Capability) -> str:
    target = turn.case.world.target
    if capability is Capability.KV_STORAGE and isinstance(target, TargetView):
        what = f"KV cache leaves the workers without {capability}Accepted and its approval"
        return f"{what}: {text.listed(target.stores)}; take it out of the manifest, or have it approved first"
    return "it was switched on by another hand; set enforcement.adopt to take it over, or switch it off"


def verified(chain: Chain | None) -> Said:
    """What the chain after the patch has come to."""
    if chain is None:
        return unknown("AwaitingVerification", "the deployment's spec holds it; the running pods were not observed")
    match chain.state:
        case Progress.PASSED:
            return true("Verified", chain.message)
        case Progress.FAILED:
            return false("VerificationFailed", f"{chain.message}; it is switched back")
        case Progress.INCONCLUSIVE:
            advice = "it stays on: a person must accept that reason by name in an approval, or switch it off"
            return unknown("VerificationInconclusive", f"{chain.message}; {advice}")
        case _:
            return unknown("AwaitingVerification", chain.message)


def held_message(turn: Turn, entry: Judged) -> str:
    messages = {
        Held.CRITERIA: entry.decisive.message,
        Held.APPROVAL: entry.standing.message,
        Held.WINDOW: _until_window(turn) if entry.ruling.held is Held.WINDOW else "",
        Held.COOLDOWN: _until_cooled_down(turn, entry),
        Held.CONFLICT: _conflict(entry),
        Held.DRIFTED: "another hand overwrote the field",
        Held.ROLLBACK_LOOP: "rolled back twice within 24 h: change the plan or approve anew",
        Held.TARGET: _unswitchable(entry),
        Held.OPERATION: "another capability is being switched, or verified after it was",
        Held.METRICS: awaited(turn.case),
        Held.BASELINE: entry.preparation.message if entry.preparation else "",
        Held.MODE: "spec.mode never writes the deployment; set it to Enforce to switch it on",
        Held.SUSPENDED: "spec.suspend is true",
        Held.DELETED: "the pool is being deleted",
        Held.ADVICE_ONLY: "kvgate has no field to switch for it: it is the user's to switch",
    }
    return messages.get(entry.ruling.held, "it is off")


def _until_window(turn: Turn) -> str:
    opens = next_opening(turn.case.pool.spec.change_windows, turn.case.now)
    when = f"the next opens at {text.moment(opens)}" if opens else "none ever opens: correct spec.changeWindows"
    return f"no change window is open, {when}"


def _until_cooled_down(turn: Turn, entry: Judged) -> str:
    cooldown = turn.case.pool.spec.rollback.cooldown
    ready = cooled_down_at(turn.case.pool.status, entry.capability, cooldown.delta, turn.case.now)
    spared = rests_until(turn.case, entry.capability, entry.plan_hash)
    if spared is not None and (ready is None or spared > ready):
        return f"held until {text.moment(spared)}, for another hand took its fields: rollback.cooldown is {cooldown}"
    until = text.moment(ready) if ready else "its end"
    return f"held until {until} after a rollback: rollback.cooldown is {cooldown}, doubled for each one within 24 h"


def _unswitchable(entry: Judged) -> str:
    if entry.toggle is not None and entry.toggle.switch is Switch.MIXED and entry.toggle.refusal is None:
        fields = ", ".join(f"{step.component}/{step.env}" for step in entry.toggle.steps)
        return f"of {fields} some are on and some are off: whoever set them must make them agree"
    return "the target cannot be switched: see TargetResolved"


def _conflict(entry: Judged) -> str:
    who = entry.toggle.conflict if entry.toggle else ""
    return f"the manifest of {who} names the gated field: drop that line there, or set enforcement.onConflict: TakeOver"


def drifted(turn: Turn) -> Said:
    hit = [entry for entry in turn.judged if entry.obstacle is Held.DRIFTED]
    if not hit:
        return false("NoDrift", "no gated field was overwritten")
    told = [_deed(hand) for hand in (hit[0].toggle.hands if hit[0].toggle else ())]
    what = "; ".join(told) or f"another hand overwrote the fields of {hit[0].capability}"
    then = "else take its criteria off here; a changed plan or a newer approval opens it again"
    return true("Removed" if removed(hit[0].toggle) else "Overwritten", f"{what}; {then}")


def _deed(hand: Hand) -> str:
    fields, who = text.listed(hand.fields), hand.manager or "a manager that left no trace"
    if hand.deed is Deed.OVERWROTE:
        return f"{who} overwrote {fields}: {hand.remedy}"
    return f"{fields} was removed, by all signs by {who}, who applies the whole list of components: {hand.remedy}"


def rolled_back(turn: Turn) -> Said:
    for entry in turn.judged:
        newest = of(turn.ledger.history, entry.capability, Action.REVERTED, Action.ENABLED, Action.ADOPTED)[:1]
        if not newest or newest[0].action != Action.REVERTED:
            continue
        if not newer_approval(turn.case, entry.capability, entry.plan_hash, newest[0].time):
            return true(entry.capability, _switched_back(entry, newest[0]))
    return false("NotRolledBack", "nothing was rolled back")


def _switched_back(entry: Judged, newest: HistoryEntry) -> str:
    failure = entry.failure
    told = f"; {failure.link}: {failure.message}" if failure and failure.reason == newest.reason else ""
    return f"switched back at {text.moment(newest.time)}: {newest.reason}{told}"


TABLE: Mapping[ConditionType, Callable[[Turn], Said]] = {
    ConditionType.TARGET_RESOLVED: target_resolved,
    ConditionType.FABRIC_MEASURED: fabric_measured,
    ConditionType.KV_EVENTS_HEALTHY: kv_events_healthy,
    ConditionType.METRICS_HEALTHY: metrics_healthy,
    ConditionType.ROUTING_ACCEPTED: accepted(Capability.ROUTING),
    ConditionType.DISAGGREGATION_ACCEPTED: accepted(Capability.DISAGGREGATION),
    ConditionType.KV_STORAGE_ACCEPTED: accepted(Capability.KV_STORAGE),
    ConditionType.APPROVED: approved,
    ConditionType.ROUTING_ENABLED: enabled(Capability.ROUTING),
    ConditionType.DISAGGREGATION_ENABLED: enabled(Capability.DISAGGREGATION),
    ConditionType.KV_STORAGE_ENABLED: enabled(Capability.KV_STORAGE),
    ConditionType.DRIFTED: drifted,
    ConditionType.ROLLED_BACK: rolled_back,
}


def stamped(
    said: Iterable[tuple[ConditionType, Said]], before: Iterable[Condition], generation: int, now: datetime
) -> tuple[Condition, ...]:
    """Conditions with their times: the old transition time stands while the status does."""
    old = {condition.type: condition for condition in before}
    return tuple(_stamped(kind, words, old.get(kind), generation, now) for kind, words in said)


def _stamped(kind: ConditionType, said: Said, old: Condition | None, generation: int, now: datetime) -> Condition:
    same = old is not None and old.status is said.status
    return Condition(
        type=kind,
        status=said.status,
        reason=said.reason,
        message=said.message[:LONGEST_MESSAGE],
        observed_generation=generation,
        last_transition_time=old.last_transition_time if same and old is not None else now.replace(microsecond=0),
    )
