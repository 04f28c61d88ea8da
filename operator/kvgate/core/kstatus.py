"""The kstatus table: Ready, Reconciling and Stalled from one turn, by the first row that applies."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from kvgate.api.status import Operation
from kvgate.api.words import Capability, ConditionStatus, ConditionType, Mode, Outcome
from kvgate.core import text
from kvgate.core.conditions import (
    Said,
    Turn,
    drifted,
    false,
    held_message,
    outside,
    rolled_back,
    target_resolved,
    true,
    unknown,
)
from kvgate.core.evidence_criteria import nodes_matched
from kvgate.core.judged import Judged
from kvgate.core.leaving import awaited
from kvgate.core.links import Progress
from kvgate.core.switching import Held, Move, Stands
from kvgate.core.verification import CHAINS

ROLLBACK_PATIENCE = timedelta(minutes=5)
REFUSAL_PATIENCE = timedelta(seconds=30)
_TAKEN_BACK = (
    "it was accepted, and the deployment holds the switched-on value still: the deployer must see in its managedFields "
    "who else holds the field, or which webhook writes it again"
)
"""An admission policy learns from an informer what the status permits: a first refusal is no news."""

_RECONCILING = ConditionType.RECONCILING
_STALLED = ConditionType.STALLED
Row = Callable[[Turn], tuple[Said, ConditionType | None] | None]


def summary(turn: Turn) -> tuple[tuple[ConditionType, Said], ...]:
    """Ready, and Reconciling or Stalled while true; never both."""
    for row in ROWS:
        if (found := row(turn)) is not None:
            ready, extra = found
            beside = ((extra, true(ready.reason, ready.message)),) if extra else ()
            return ((ConditionType.READY, ready), *beside)
    return ((ConditionType.READY, true("Observing", "nothing to do")),)


def suspended(turn: Turn) -> tuple[Said, ConditionType | None] | None:
    if not turn.case.pool.spec.suspend:
        return None
    return true("Suspended", "spec.suspend is true: nothing is measured, enabled or rolled back"), None


def status_unreadable(why: str) -> Said:
    """Said by whoever reads pools, for of such a one nothing is judged."""
    return false("StatusUnreadable", why)


def bad_spec(turn: Turn) -> tuple[Said, ConditionType | None] | None:
    target = target_resolved(turn)
    if target.status is ConditionStatus.FALSE:
        return false(target.reason, target.message), _STALLED
    nodes = nodes_matched(turn.case)
    if nodes.outcome is Outcome.ERROR and turn.judged:
        return false(nodes.reason, nodes.message), _STALLED
    return None


def blocked(turn: Turn) -> tuple[Said, ConditionType | None] | None:
    if drifted(turn).status is ConditionStatus.TRUE:
        return false("Drifted", drifted(turn).message), _STALLED
    looping = _with(turn, lambda entry: entry.obstacle is Held.ROLLBACK_LOOP)
    if looping:
        what = f"{looping[0].capability} was rolled back twice within 24 h: change the plan or approve anew"
        return false("RollbackLoop", what), _STALLED
    foreign = _with(turn, lambda entry: entry.stands is Stands.ON_FOREIGN)
    if foreign and turn.case.pool.spec.mode is Mode.ENFORCE and not turn.ledger.recorded:
        what = f"{foreign[0].capability} was switched on outside the gate: {outside(turn, foreign[0].capability)}"
        return false("EnabledOutsideGate", what), _STALLED
    return None


def in_flight(turn: Turn) -> tuple[Said, ConditionType | None] | None:
    operation = turn.ledger.operation
    if operation is None:
        return None
    refused = turn.case.world.patch_problem
    landed = operation.id == turn.case.world.patch_landed
    since, what = _in_flight(operation), refused or (_TAKEN_BACK if landed else "look at the deployment")
    age = turn.case.now - operation.started_at
    stuck = bool(refused) or landed
    if operation.step == Move.REVERT and (age > ROLLBACK_PATIENCE or (stuck and age > REFUSAL_PATIENCE)):
        return false("RollbackFailed", f"{since}: {what}{_to_let_go(turn, operation.capability)}"), _RECONCILING
    if refused and age > REFUSAL_PATIENCE:
        return false("PatchRefused", f"{since}: {what}"), _RECONCILING
    return unknown("Progressing", f"{since}: {refused}" if refused else since), _RECONCILING


def _in_flight(operation: Operation) -> str:
    since = text.moment(operation.started_at)
    return f"{operation.step} of {operation.capability} is being written since {since} (operation {operation.id})"


def _to_let_go(turn: Turn, capability: Capability) -> str:
    if not turn.case.pool.deleted:
        return ""
    field = f"spec.rollback.onDelete.{capability[0].lower()}{capability[1:]}"
    return f"; the pool's deletion waits for it: to let it go as it is, set {field} to Leave"


def leaving(turn: Turn) -> tuple[Said, ConditionType | None] | None:
    """The pool is being deleted, and something must be switched back first."""
    waiting = awaited(turn.case, turn.judged, turn.ledger) if turn.case.pool.deleted else ()
    if not waiting:
        return None
    operation, capability = turn.ledger.operation, waiting[0].capability
    if operation is not None and operation.step == Move.REVERT:
        return in_flight(turn)
    if turn.ledger.recorded:
        return unknown("Progressing", f"{capability} is switched back before the pool goes"), _RECONCILING
    why = f"{capability} cannot be switched back: {target_resolved(turn).message}"
    return false("RollbackFailed", f"{why}{_to_let_go(turn, capability)}"), _RECONCILING


def lost(turn: Turn) -> tuple[Said, ConditionType | None] | None:
    """Something is on that would not be opened today."""
    for entry in _with(turn, lambda entry: entry.stands is Stands.ON_OURS):
        if entry.ruling.held is Held.APPROVAL:
            return false("ApprovalLost", f"{entry.capability} stays on: {entry.standing.message}"), None
        if entry.outcome is not Outcome.PASS:
            stale = entry.verdict.decisive.reason == "EvidenceExpired"
            said = f"{entry.capability} stays on: {entry.verdict.decisive.message}"
            return false("EvidenceStale" if stale else "EvidenceLost", said), None
    return None


def adopting(turn: Turn) -> tuple[Said, ConditionType | None] | None:
    for entry in _with(
        turn, lambda entry: entry.stands is Stands.ON_FOREIGN and entry.capability in turn.ledger.recorded
    ):
        return unknown("Progressing", f"{entry.capability} was on and is taken over"), _RECONCILING
    return None


def verifying(turn: Turn) -> tuple[Said, ConditionType | None] | None:
    if turn.case.pool.spec.mode is not Mode.ENFORCE:
        return None
    ours = _with(turn, lambda entry: entry.stands is Stands.ON_OURS)
    for entry in ours:
        if entry.chain is None and entry.capability in CHAINS:
            what = f"{entry.capability} is written; its running pods are not observed here"
            return unknown("Progressing", what), _RECONCILING
        if entry.chain is not None and entry.chain.state not in {Progress.PASSED, Progress.INCONCLUSIVE}:
            return unknown("Progressing", f"{entry.capability} is being verified: {entry.chain.message}"), _RECONCILING
    for entry in ours:
        if entry.chain is not None and entry.chain.state is Progress.INCONCLUSIVE:
            return false("VerificationInconclusive", f"{entry.capability} stays on: {entry.chain.message}"), None
    return None


def enabled(turn: Turn) -> tuple[Said, ConditionType | None] | None:
    on = _with(turn, lambda entry: entry.stands is Stands.ON_OURS)
    if turn.case.pool.spec.mode is not Mode.ENFORCE or not on:
        return None
    told = [f"{entry.capability} is {entry.chain.message if entry.chain else 'on'}" for entry in on]
    return true("Enabled", "; ".join(told)), None


def first_sweep(turn: Turn) -> tuple[Said, ConditionType | None] | None:
    if turn.case.evidence is not None or not turn.judged:
        return None
    if turn.case.world.sweep_problem:
        return unknown("SweepTroubled", turn.case.world.sweep_problem), _RECONCILING
    if turn.wait is not None:
        by = turn.wait
        reconciling = unknown(
            "WaitingForTurn" if by.line else "WaitingForWindow" if by.window else "WaitingForInterval", by.message
        )
        return reconciling, _RECONCILING
    return (unknown("Measuring", "the first sweep has not ended yet"), _RECONCILING) if turn.measuring else None


def switched_back(turn: Turn) -> tuple[Said, ConditionType | None] | None:
    said = rolled_back(turn)
    return (true("RolledBack", said.message), None) if said.status is ConditionStatus.TRUE else None


def observing(turn: Turn) -> tuple[Said, ConditionType | None] | None:
    mode = turn.case.pool.spec.mode
    if not turn.judged:
        return true("Observing", "spec.criteria is empty: nothing is gated"), None
    if mode is Mode.ENFORCE:
        return None
    if mode is Mode.RECOMMEND and turn.case.world.patch_problem:
        return false("PatchRefused", f"mode Recommend: {turn.case.world.patch_problem}"), _RECONCILING
    told = [f"{entry.capability}: {entry.verdict.decisive.message}" for entry in turn.judged]
    left = [
        f"{entry.capability} stays on as Enforce left it" for entry in turn.judged if entry.stands is Stands.ON_OURS
    ]
    return true("Observing", "; ".join((f"mode {mode} never patches", *left, *told))), None


def holding(turn: Turn) -> tuple[Said, ConditionType | None] | None:
    for entry in _with(turn, lambda entry: entry.stands is Stands.OFF):
        why = held_message(turn, entry)
        word = entry.ruling.held or Held.CRITERIA
        return true(f"HoldingFor{word}", f"{entry.capability} stays off: {why}"), None
    return None


ROWS: tuple[Row, ...] = (
    leaving,
    suspended,
    bad_spec,
    blocked,
    in_flight,
    adopting,
    lost,
    verifying,
    first_sweep,
    switched_back,
    enabled,
    observing,
    holding,
)


def _with(turn: Turn, test: Callable[[Judged], bool]) -> list[Judged]:
    return [entry for entry in turn.judged if test(entry)]
