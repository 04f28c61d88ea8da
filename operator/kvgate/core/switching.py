"""The decision table: what Enforce does with one capability, from where it stands, its verdict and its approval."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from kvgate.api.words import ApprovalState, LossAction, Outcome
from kvgate.core.approvals import KEEPS, PERMITS


class Stands(StrEnum):
    """Where a capability stands on the deployment."""

    OFF = "Off"
    ON_OURS = "OnOurs"
    ON_FOREIGN = "OnForeign"


class Move(StrEnum):
    """What to do about it."""

    ENABLE = "Enable"
    HOLD = "Hold"
    STAY = "Stay"
    SWEEP_AGAIN = "SweepAgain"
    REVERT = "Revert"
    ADOPT = "Adopt"
    LEAVE_ALONE = "LeaveAlone"


class Held(StrEnum):
    """Why a capability is not enabled, or stays as it is; the word in `heldBy`."""

    NOTHING = ""
    CRITERIA = "Criteria"
    APPROVAL = "Approval"
    WINDOW = "Window"
    COOLDOWN = "Cooldown"
    MODE = "Mode"
    SUSPENDED = "Suspended"
    DRIFTED = "Drifted"
    ROLLBACK_LOOP = "RollbackLoop"
    TARGET = "Target"
    OPERATION = "Operation"
    BASELINE = "Baseline"
    METRICS = "Metrics"
    CONFLICT = "Conflict"
    DELETED = "Deleted"
    OUTSIDE_GATE = "OutsideGate"
    EVIDENCE = "Evidence"
    ADVICE_ONLY = "AdviceOnly"


@dataclass(frozen=True)
class Situation:
    """All that the table looks at."""

    stands: Stands
    outcome: Outcome
    approval: ApprovalState
    confirmed: bool = False
    adopt: bool = False
    on_evidence_lost: LossAction = LossAction.HOLD
    on_approval_lost: LossAction = LossAction.HOLD
    obstacle: Held = Held.NOTHING
    """The first of drift, rollback loop, window, cool-down or another operation that delays enabling."""


@dataclass(frozen=True)
class Ruling:
    """What to do, and by what it is held if nothing is done."""

    move: Move
    held: Held = Held.NOTHING


def rule(seen: Situation) -> Ruling:
    """The row of the decision table that the situation falls into. Total: each situation has exactly one."""
    if seen.stands is Stands.OFF:
        return _off(seen)
    if seen.stands is Stands.ON_FOREIGN:
        return Ruling(Move.ADOPT) if seen.adopt else Ruling(Move.LEAVE_ALONE, Held.OUTSIDE_GATE)
    return _on(seen)


def _off(seen: Situation) -> Ruling:
    if seen.obstacle in {Held.DRIFTED, Held.ROLLBACK_LOOP, Held.TARGET}:
        return Ruling(Move.HOLD, seen.obstacle)
    if seen.outcome is not Outcome.PASS:
        return Ruling(Move.HOLD, Held.CRITERIA)
    if seen.approval not in PERMITS:
        return Ruling(Move.HOLD, Held.APPROVAL)
    return Ruling(Move.HOLD, seen.obstacle) if seen.obstacle else Ruling(Move.ENABLE)


def _on(seen: Situation) -> Ruling:
    if seen.outcome is Outcome.FAIL:
        return Ruling(Move.REVERT) if seen.confirmed else Ruling(Move.SWEEP_AGAIN)
    if seen.outcome is not Outcome.PASS:
        return _lost(seen.on_evidence_lost, Held.EVIDENCE)
    if seen.approval in KEEPS:
        return Ruling(Move.STAY)
    return _lost(seen.on_approval_lost, Held.APPROVAL)


def _lost(action: LossAction, held: Held) -> Ruling:
    return Ruling(Move.REVERT, held) if action is LossAction.REVERT else Ruling(Move.HOLD, held)
