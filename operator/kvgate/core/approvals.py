"""Which approval counts for a plan, and what it accepts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from kvgate.api.approval import ApprovalSpec
from kvgate.api.words import Approval, ApprovalState, Capability
from kvgate.core import text

LONGEST_LIFE = timedelta(days=90)
PERMITS = frozenset({ApprovalState.VALID, ApprovalState.NOT_REQUIRED})
"""With these a capability may be enabled."""
KEEPS = PERMITS | {ApprovalState.EXPIRED}
"""With these one that is on may stay on: expiry bounds enabling only."""
_BEST_FIRST = (
    ApprovalState.VALID,
    ApprovalState.ATTESTATIONS_MISSING,
    ApprovalState.EXPIRED,
    ApprovalState.PLAN_CHANGED,
)


@dataclass(frozen=True)
class GivenApproval:
    """A GateApproval as it was found."""

    name: str
    created_at: datetime
    spec: ApprovalSpec


@dataclass(frozen=True)
class Plan:
    """What an approval must match: the plan of one capability of one pool, and since when it is proposed."""

    pool_name: str
    pool_uid: str
    capability: Capability
    plan_hash: str
    proposed_at: datetime | None
    needed: Approval
    attestations: tuple[str, ...] = ()


@dataclass(frozen=True)
class Standing:
    """Where the approval of a plan stands, by whom, why, and which Inconclusive reasons it accepts."""

    state: ApprovalState
    name: str = ""
    approver: str = ""
    message: str = ""
    accepted: frozenset[str] = frozenset()
    kept: frozenset[str] = frozenset()

    @property
    def permits(self) -> bool:
        return self.state in PERMITS


def standing(plan: Plan, given: Iterable[GivenApproval], now: datetime) -> Standing:
    """The best standing that the approvals of this pool and capability give the plan."""
    mine = [_judge(plan, approval, now) for approval in given if _about(plan, approval.spec)]
    best = min(mine, key=lambda found: (_BEST_FIRST.index(found.state), found.name), default=None)
    united = replace(
        best or Standing(ApprovalState.MISSING, message=_wanted(plan)),
        accepted=frozenset[str]().union(*(found.accepted for found in mine)),
        kept=frozenset[str]().union(*(found.kept for found in mine)),
    )
    if plan.needed is Approval.REQUIRED:
        return united
    given_anyway = united if united.state is ApprovalState.VALID else Standing(ApprovalState.NOT_REQUIRED)
    return replace(given_anyway, state=ApprovalState.NOT_REQUIRED, kept=united.kept)


def _about(plan: Plan, spec: ApprovalSpec) -> bool:
    ours = spec.pool_ref.name == plan.pool_name and spec.pool_ref.uid == plan.pool_uid
    return ours and spec.capability is plan.capability


def _judge(plan: Plan, given: GivenApproval, now: datetime) -> Standing:
    state, message = _state(plan, given, now)
    words, nothing = frozenset(given.spec.accept_inconclusive), frozenset[str]()
    accepted = words if state is ApprovalState.VALID else nothing
    kept = words if accepted or (state is ApprovalState.EXPIRED and not _too_long(given, now)) else nothing
    return Standing(state, given.name, given.spec.approver, message, accepted, kept)


def _too_long(given: GivenApproval, now: datetime) -> bool:
    return given.spec.expires_at - min(given.created_at, now) > LONGEST_LIFE


def _state(plan: Plan, given: GivenApproval, now: datetime) -> tuple[ApprovalState, str]:
    spec = given.spec
    if not plan.plan_hash or spec.plan_hash != plan.plan_hash:
        return ApprovalState.PLAN_CHANGED, f"GateApproval {given.name} names another plan. {_wanted(plan)}"
    if plan.proposed_at is not None and given.created_at < plan.proposed_at:
        return ApprovalState.PLAN_CHANGED, f"GateApproval {given.name} is older than the plan. {_wanted(plan)}"
    if _too_long(given, now):
        what = f"GateApproval {given.name} runs for more than 90 days, which is the limit"
        return ApprovalState.EXPIRED, f"{what}. {_wanted(plan)}"
    if spec.expires_at <= now:
        what = f"GateApproval {given.name} expired at {text.moment(spec.expires_at)}"
        return ApprovalState.EXPIRED, f"{what}. {_wanted(plan)}"
    if missing := [word for word in plan.attestations if word not in spec.attestations]:
        what = f"GateApproval {given.name} does not attest {', '.join(missing)}"
        return ApprovalState.ATTESTATIONS_MISSING, f"{what}. {_wanted(plan)}, and with these attestations"
    return ApprovalState.VALID, f"GateApproval {given.name} by {spec.approver}"


def _wanted(plan: Plan) -> str:
    return (
        f"an approver must create a GateApproval for {plan.capability} with planHash {plan.plan_hash}"
        if plan.plan_hash
        else f"no plan for {plan.capability} can be approved yet"
    )
