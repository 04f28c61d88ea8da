"""One capability, judged: its verdict, its plan and approval, where it stands, and what the table says to do."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from kvgate.api.status import BaselineEntry, CapabilityStatus, LinkFailed
from kvgate.api.words import Approval, Capability, DeleteAction, EventLossAction, LossAction, Mode, OnConflict, Outcome
from kvgate.core import memory
from kvgate.core.apart import failing
from kvgate.core.approvals import Plan, Standing, standing
from kvgate.core.benchmark_criteria import TOPOLOGY_CHANGED, WORKLOAD_CHANGED
from kvgate.core.clearing import answered
from kvgate.core.drift import drifted, looping, rests_until
from kvgate.core.findings import Concern, Finding, Verdict
from kvgate.core.judging import Case
from kvgate.core.monitoring import awaited
from kvgate.core.planhash import plan_hash
from kvgate.core.preparing import Preparation, prepare
from kvgate.core.switching import Held, Move, Ruling, Situation, Stands, rule
from kvgate.core.target import Switch, TargetView, Toggle
from kvgate.core.verdicts import judge
from kvgate.core.verification import Chain, under_way, verify
from kvgate.core.verification import remembered as verified_before
from kvgate.core.windows import WindowError, window_open


@dataclass(frozen=True)
class Judged:
    """All that is known about one gated capability in this turn."""

    capability: Capability
    verdict: Verdict
    remembered: CapabilityStatus
    plan_hash: str
    proposed_at: datetime | None
    standing: Standing
    stands: Stands
    ruling: Ruling
    toggle: Toggle | None
    baseline: tuple[BaselineEntry, ...]
    obstacle: Held
    chain: Chain | None = None
    preparation: Preparation | None = None
    failure: LinkFailed | None = None
    """The link at which its last verification failed."""

    @property
    def accepted_inconclusive(self) -> bool:
        return _accepted(self.verdict, self.standing, self.stands)

    @property
    def outcome(self) -> Outcome:
        """The verdict's outcome, where an Inconclusive that a valid approval names counts as Pass."""
        return Outcome.PASS if self.accepted_inconclusive else self.verdict.outcome

    @property
    def on(self) -> bool:
        return self.stands is not Stands.OFF

    @property
    def permitted(self) -> bool:
        """What admission reads: criteria Pass, approval valid, window open, and no drift or loop."""
        blocked = self.obstacle in {Held.DRIFTED, Held.ROLLBACK_LOOP, Held.TARGET, Held.WINDOW}
        return self.outcome is Outcome.PASS and self.standing.permits and not blocked

    @property
    def decisive(self) -> Finding:
        """What keeps it off: of inconclusive findings the first that no approval accepts."""
        found, words = self.verdict, self.standing.accepted
        left = (f for f in found.findings if f.outcome is Outcome.INCONCLUSIVE and f.reason not in words)
        return next(left, found.decisive) if found.outcome is Outcome.INCONCLUSIVE else found.decisive

    @property
    def closing_reason(self) -> str:
        """Why it is or was switched back: evidence that no longer passes, a lost approval, or a deleted pool."""
        if self.ruling.held is Held.DELETED:
            return "PoolDeleted"
        if self.failure is not None:
            return self.failure.reason
        return f"Approval{self.standing.state}" if self.outcome is Outcome.PASS else self.verdict.decisive.reason


def judge_capability(case: Case, capability: Capability, previous: Case | None) -> Judged:
    """`previous` is the same case before the sweep that came before; only two failed sweeps close a capability."""
    verdict = judge(case, capability)
    remembered = memory.remembered(case.pool.status, capability)
    target = case.world.target
    toggle = target.toggles.get(capability) if isinstance(target, TargetView) else None
    digest = (plan_hash(case, capability, remembered.epoch) if verdict.settled else "") or remembered.plan_hash
    proposed_at = remembered.proposed_at if digest == remembered.plan_hash else case.now.replace(microsecond=0)
    approval = standing(_plan(case, capability, digest, proposed_at), case.world.approvals, case.now)
    stands = _stands(case, capability, toggle)
    obstacle = _obstacle(case, capability, toggle, digest, settled=verdict.settled)
    chain = verify(case, capability, approval.kept) if _seen_on(stands, toggle) else None
    preparation = None
    if stands is Stands.OFF and obstacle is Held.NOTHING and not _going_back(case, capability):
        preparation = prepare(case, capability, digest, approval.accepted)
        obstacle = _awaits(case, preparation)
    confirmed = stands is Stands.ON_OURS and _confirmed(case, previous, capability, verdict)
    situation = _situation(case, stands, verdict, approval, obstacle, confirmed=confirmed)
    ruling = _by_events(case, verdict, rule(situation))
    failure = chain.failed if chain else verified_before(case.pool.status, capability).failed
    if chain is not None and failure is not None:
        ruling = Ruling(Move.REVERT)
    if case.pool.deleted:
        ruling = _leaving(case, capability, stands, toggle)
    return Judged(
        capability=capability,
        verdict=verdict,
        remembered=remembered,
        plan_hash=digest,
        proposed_at=proposed_at if digest else None,
        standing=approval,
        stands=stands,
        ruling=_allowed(case, _possible(ruling, toggle)),
        toggle=toggle,
        baseline=memory.baseline_of(case.pool.status, toggle),
        obstacle=obstacle,
        chain=chain,
        preparation=preparation,
        failure=failure,
    )


def _awaits(case: Case, preparation: Preparation | None) -> Held:
    """What a switch waits for where nothing else stands in its way: measurements before it, then metrics."""
    if preparation is not None and not preparation.ready:
        return Held.BASELINE
    return Held.METRICS if awaited(case) else Held.NOTHING


def _by_events(case: Case, verdict: Verdict, ruling: Ruling) -> Ruling:
    """KV events that are lost go by rollback.onKVEventsLost alone. Those that cannot be judged now, as after a restart
    of kvgate or while nobody asks anything, switch nothing back."""
    worst = [finding for finding in verdict.findings if finding.outcome is verdict.outcome]
    if ruling.move is not Move.REVERT or any(finding.concern is not Concern.EVENTS for finding in worst):
        return ruling
    wish = case.pool.spec.rollback.on_kv_events_lost
    lost = verdict.outcome is Outcome.FAIL and wish is EventLossAction.ROUND_ROBIN
    return ruling if lost else Ruling(Move.HOLD, Held.EVIDENCE)


def _going_back(case: Case, capability: Capability) -> bool:
    operation = case.pool.status.operation
    return operation is not None and operation.capability is capability and operation.step == Move.REVERT


def _seen_on(stands: Stands, toggle: Toggle | None) -> bool:
    return stands is Stands.ON_OURS and toggle is not None and toggle.switch is Switch.ON


def _confirmed(case: Case, previous: Case | None, capability: Capability, verdict: Verdict) -> bool:
    """A failure of the fabric stands once another, earlier sweep failed too, and the newest measured what failed both
    times; any other failure stands by itself."""
    failed = [finding for finding in verdict.findings if finding.outcome is Outcome.FAIL]
    if any(finding.concern not in {Concern.FABRIC, Concern.LOAD} for finding in failed):
        return True
    if not failed or previous is None or previous.evidence is None or case.evidence is None:
        return False
    then, now = previous.evidence, case.evidence
    another = then.run_id != now.run_id and then.measured_at <= now.measured_at
    looked = answered(now)
    seen = not looked.isdisjoint(failing(case)) and not looked.isdisjoint(failing(previous))
    return another and seen and judge(previous, capability).outcome is Outcome.FAIL


def _leaving(case: Case, capability: Capability, stands: Stands, toggle: Toggle | None) -> Ruling:
    """The pool is being deleted: nothing is enabled, and what is ours goes back where the pool says so; also the half
    that another hand left of it."""
    half = toggle is not None and toggle.switch is Switch.MIXED and memory.baseline_of(case.pool.status, toggle)
    back = (stands is Stands.ON_OURS or half) and reverts_on_delete(case, capability)
    return Ruling(Move.REVERT if back else Move.HOLD, Held.DELETED)


def reverts_on_delete(case: Case, capability: Capability) -> bool:
    wish = case.pool.spec.rollback.on_delete
    asked = {Capability.ROUTING: wish.routing, Capability.DISAGGREGATION: wish.disaggregation}
    return asked.get(capability) is DeleteAction.REVERT


def _plan(case: Case, capability: Capability, digest: str, proposed_at: datetime | None) -> Plan:
    block = case.block(capability)
    needed, attestations = (block.approval, block.attestations) if block else (Approval.REQUIRED, ())
    return Plan(case.pool.name, case.pool.uid, capability, digest, proposed_at, needed, attestations)


def _stored(case: Case, toggle: Toggle | None) -> Stands:
    """Storage is its owner's to switch: what was on while the gate permitted it stays ours for as long as it is on."""
    before = memory.remembered(case.pool.status, Capability.KV_STORAGE)
    kept = before.enabled and before.held_by != Held.OUTSIDE_GATE
    if toggle is None or toggle.switch is Switch.UNREADABLE:
        return Stands.ON_OURS if kept else Stands.OFF
    if toggle.switch is not Switch.ON:
        return Stands.OFF
    return Stands.ON_OURS if kept or Capability.KV_STORAGE in case.pool.status.permitted else Stands.ON_FOREIGN


def _stands(case: Case, capability: Capability, toggle: Toggle | None) -> Stands:
    if capability is Capability.KV_STORAGE:
        return _stored(case, toggle)
    if toggle is None or toggle.switch is Switch.UNREADABLE:
        return Stands.ON_OURS if memory.left_on(case.pool.status, capability) else Stands.OFF
    if toggle.switch is not Switch.ON:
        return Stands.OFF
    ours = memory.baseline_of(case.pool.status, toggle) or capability in case.pool.status.permitted
    nameless = not toggle.steps and memory.left_on(case.pool.status, capability)
    return Stands.ON_OURS if ours or nameless else Stands.ON_FOREIGN


def _obstacle(case: Case, capability: Capability, toggle: Toggle | None, digest: str, *, settled: bool) -> Held:
    """The first thing that delays enabling, gravest first."""
    if case.world.claimed_by or not isinstance(case.world.target, TargetView) or (toggle and toggle.refusal):
        return Held.TARGET
    if toggle is not None and toggle.steps and toggle.switch in {Switch.MIXED, Switch.UNREADABLE}:
        return Held.DRIFTED if memory.baseline_of(case.pool.status, toggle) else Held.TARGET
    if drifted(case, capability, toggle, digest):
        return Held.DRIFTED
    if looping(case, capability, digest, settled=settled):
        return Held.ROLLBACK_LOOP
    return _closed(case) or _delay(case, capability, toggle, digest)


def _closed(case: Case) -> Held:
    try:
        return Held.NOTHING if window_open(case.pool.spec.change_windows, case.now) else Held.WINDOW
    except WindowError:
        return Held.TARGET


def _delay(case: Case, capability: Capability, toggle: Toggle | None, digest: str) -> Held:
    if toggle is not None and toggle.conflict and case.pool.spec.enforcement.on_conflict is OnConflict.HOLD:
        return Held.CONFLICT
    operation = case.pool.status.operation
    if (operation is not None and operation.capability is not capability) or under_way(case, capability):
        return Held.OPERATION
    ready_at = memory.cooled_down_at(case.pool.status, capability, case.pool.spec.rollback.cooldown.delta, case.now)
    waits = (ready_at, rests_until(case, capability, digest))
    return Held.COOLDOWN if any(until is not None and case.now < until for until in waits) else Held.NOTHING


def _accepted(verdict: Verdict, approval: Standing, stands: Stands) -> bool:
    """What is off opens by a valid approval; what is on keeps what was accepted, though the approval has expired."""
    words = approval.accepted if stands is Stands.OFF else approval.kept
    inconclusive = verdict.outcome is Outcome.INCONCLUSIVE
    return inconclusive and verdict.inconclusive_reasons <= words


def _situation(
    case: Case,
    stands: Stands,
    verdict: Verdict,
    approval: Standing,
    obstacle: Held,
    *,
    confirmed: bool,
) -> Situation:
    rollback = case.pool.spec.rollback
    return Situation(
        stands=stands,
        outcome=Outcome.PASS if _accepted(verdict, approval, stands) else verdict.outcome,
        approval=approval.state,
        confirmed=confirmed,
        adopt=case.pool.spec.enforcement.adopt,
        on_evidence_lost=_on_evidence_lost(case, verdict),
        on_approval_lost=rollback.on_approval_lost,
        obstacle=obstacle,
    )


def _on_evidence_lost(case: Case, verdict: Verdict) -> LossAction:
    """An A/B of another topology or workload says nothing bad of this one: routing is kept until it was run again."""
    moved = verdict.decisive.reason in {TOPOLOGY_CHANGED, WORKLOAD_CHANGED}
    return LossAction.HOLD if moved else case.pool.spec.rollback.on_evidence_lost


def _possible(ruling: Ruling, toggle: Toggle | None) -> Ruling:
    """Without a toggle there is nothing to patch: storage is the user's to enable, an unreadable target nobody's."""
    if ruling.move not in {Move.ENABLE, Move.REVERT, Move.ADOPT} or (toggle is not None and toggle.steps):
        return ruling
    left = ruling.move is Move.ADOPT and toggle is not None and toggle.refusal is None
    return Ruling(Move.HOLD, ruling.held or (Held.OUTSIDE_GATE if left else Held.ADVICE_ONLY))


def _allowed(case: Case, ruling: Ruling) -> Ruling:
    """Observe, Recommend and suspended pools never write the deployment, rollbacks included."""
    spec = case.pool.spec
    if ruling.move not in {Move.ENABLE, Move.REVERT, Move.ADOPT} or not (spec.suspend or spec.mode is not Mode.ENFORCE):
        return ruling
    return Ruling(Move.HOLD, ruling.held or (Held.SUSPENDED if spec.suspend else Held.MODE))
