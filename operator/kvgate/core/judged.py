"""One capability, judged: its verdict, its plan and approval, where it stands, and what the table says to do."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from kvgate.api.status import BaselineEntry, CapabilityStatus
from kvgate.api.words import Approval, Capability, OnConflict, Outcome
from kvgate.core import memory
from kvgate.core.approvals import Plan, Standing, standing
from kvgate.core.findings import Verdict
from kvgate.core.judging import Case
from kvgate.core.memory import Action
from kvgate.core.planhash import plan_hash
from kvgate.core.switching import Held, Move, Ruling, Situation, Stands, rule
from kvgate.core.target import Switch, TargetView, Toggle
from kvgate.core.verdicts import judge
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

    @property
    def accepted_inconclusive(self) -> bool:
        return _accepted(self.verdict, self.standing)

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


def judge_capability(case: Case, capability: Capability, previous: Case | None) -> Judged:
    """`previous` is the same case before the sweep that came before; only two failed sweeps close a capability."""
    verdict = judge(case, capability)
    remembered = memory.remembered(case.pool.status, capability)
    target = case.world.target
    toggle = target.toggles.get(capability) if isinstance(target, TargetView) else None
    digest = plan_hash(case, capability, remembered.epoch) if verdict.settled else remembered.plan_hash
    proposed_at = remembered.proposed_at if digest == remembered.plan_hash else case.now.replace(microsecond=0)
    approval = standing(_plan(case, capability, digest, proposed_at), case.world.approvals, case.now)
    stands = _stands(case, capability, toggle, remembered)
    obstacle = _obstacle(case, capability, toggle, digest, approval)
    confirmed = stands is Stands.ON_OURS and verdict.outcome is Outcome.FAIL and _failed_too(previous, capability)
    ruling = rule(_situation(case, capability, stands, verdict, approval, obstacle, confirmed=confirmed))
    return Judged(
        capability=capability,
        verdict=verdict,
        remembered=remembered,
        plan_hash=digest,
        proposed_at=proposed_at if digest else None,
        standing=approval,
        stands=stands,
        ruling=_possible(ruling, toggle),
        toggle=toggle,
        baseline=memory.baseline_of(case.pool.status, toggle),
        obstacle=obstacle,
    )


def _failed_too(previous: Case | None, capability: Capability) -> bool:
    return previous is not None and previous.fresh and judge(previous, capability).outcome is Outcome.FAIL


def _plan(case: Case, capability: Capability, digest: str, proposed_at: datetime | None) -> Plan:
    needed, attestations = _asked(case, capability)
    return Plan(case.pool.name, case.pool.uid, capability, digest, proposed_at, needed, attestations)


def _asked(case: Case, capability: Capability) -> tuple[Approval, tuple[str, ...]]:
    criteria = case.pool.spec.criteria
    block = {
        Capability.ROUTING: criteria.routing,
        Capability.DISAGGREGATION: criteria.disaggregation,
        Capability.KV_STORAGE: criteria.kv_storage,
    }[capability]
    return (block.approval, block.attestations) if block else (Approval.REQUIRED, ())


def _stands(case: Case, capability: Capability, toggle: Toggle | None, remembered: CapabilityStatus) -> Stands:
    if toggle is None or toggle.switch is Switch.UNREADABLE:
        return Stands.ON_OURS if remembered.enabled else Stands.OFF
    if toggle.switch is not Switch.ON:
        return Stands.OFF
    ours = memory.baseline_of(case.pool.status, toggle) or capability in case.pool.status.permitted
    return Stands.ON_OURS if ours else Stands.ON_FOREIGN


def _obstacle(case: Case, capability: Capability, toggle: Toggle | None, digest: str, approval: Standing) -> Held:
    """The first thing that delays enabling, gravest first."""
    if case.world.claimed_by or not isinstance(case.world.target, TargetView):
        return Held.TARGET
    if toggle is not None and (toggle.refusal or toggle.switch in {Switch.MIXED, Switch.UNREADABLE}):
        return Held.DRIFTED if memory.baseline_of(case.pool.status, toggle) else Held.TARGET
    if drifted(case, capability, toggle, digest):
        return Held.DRIFTED
    if looping(case, capability):
        return Held.ROLLBACK_LOOP
    if toggle is not None and toggle.conflict and case.pool.spec.enforcement.on_conflict is OnConflict.HOLD:
        return Held.CONFLICT
    return _delay(case, capability)


def _delay(case: Case, capability: Capability) -> Held:
    operation = case.pool.status.operation
    if operation is not None and operation.capability is not capability:
        return Held.OPERATION
    try:
        if not window_open(case.pool.spec.change_windows, case.now):
            return Held.WINDOW
    except WindowError:
        return Held.TARGET
    ready_at = memory.cooled_down_at(case.pool.status, capability, case.pool.spec.rollback.cooldown.delta, case.now)
    return Held.COOLDOWN if ready_at is not None and case.now < ready_at else Held.NOTHING


def overwritten(case: Case, capability: Capability, toggle: Toggle | None) -> bool:
    """Whether another hand switched off what we had switched on: ours by baseline, off, and no operation in flight."""
    operation = case.pool.status.operation
    busy = operation is not None and operation.capability is capability
    ours = bool(memory.baseline_of(case.pool.status, toggle))
    return ours and not busy and toggle is not None and toggle.switch in {Switch.OFF, Switch.MIXED}


def drifted(case: Case, capability: Capability, toggle: Toggle | None, digest: str) -> bool:
    """Held as Drifted until the plan changes or a newer approval comes.

    The split drifts at once; routing is re-applied once in a cool-down before it counts.
    """
    entries = memory.of(case.pool.status.history, capability, Action.DRIFTED)
    if overwritten(case, capability, toggle):
        return capability is not Capability.ROUTING or any(_within_cooldown(case, entry.time) for entry in entries)
    newest = memory.of(case.pool.status.history, capability)[:1]
    return any(
        entry.action == Action.DRIFTED
        and entry.plan_hash == digest
        and not newer_approval(case, capability, entry.time)
        for entry in newest
    )


def _within_cooldown(case: Case, then: datetime) -> bool:
    return case.now - then < case.pool.spec.rollback.cooldown.delta


def looping(case: Case, capability: Capability) -> bool:
    """A second rollback within 24 h, and no approval since the last one."""
    rolled = memory.recent_rollbacks(case.pool.status, capability, case.now)
    return len(rolled) >= 2 and not newer_approval(case, capability, rolled[0].time)


def newer_approval(case: Case, capability: Capability, than: datetime) -> bool:
    """Whether an approval for this pool and capability came after that time."""
    return any(
        given.created_at > than
        for given in case.world.approvals
        if given.spec.capability is capability and given.spec.pool_ref.uid == case.pool.uid
    )


def _accepted(verdict: Verdict, approval: Standing) -> bool:
    inconclusive = verdict.outcome is Outcome.INCONCLUSIVE
    return inconclusive and verdict.inconclusive_reasons <= approval.accepted


def _situation(
    case: Case,
    capability: Capability,
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
        outcome=Outcome.PASS if _accepted(verdict, approval) else verdict.outcome,
        approval=approval.state,
        confirmed=confirmed,
        expired=capability is Capability.DISAGGREGATION and case.evidence is not None and not case.fresh,
        adopt=case.pool.spec.enforcement.adopt,
        on_evidence_lost=rollback.on_evidence_lost,
        on_approval_lost=rollback.on_approval_lost,
        obstacle=obstacle,
    )


def _possible(ruling: Ruling, toggle: Toggle | None) -> Ruling:
    """Without a toggle there is nothing to patch: storage is the user's to enable, an unreadable target nobody's."""
    if ruling.move not in {Move.ENABLE, Move.REVERT, Move.ADOPT} or (toggle is not None and toggle.steps):
        return ruling
    return Ruling(Move.HOLD, ruling.held or Held.ADVICE_ONLY)
