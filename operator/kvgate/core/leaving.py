"""A pool's deletion: what must be switched back before it, and the finalizer that makes it wait that long."""

from __future__ import annotations

from kvgate.api.words import Mode
from kvgate.core.judged import Judged, reverts_on_delete
from kvgate.core.judging import Case
from kvgate.core.operations import Ledger
from kvgate.core.steps import Enable, HoldDeletion, LetGo, Step
from kvgate.core.target import TargetProblem


def awaited(case: Case, judged: tuple[Judged, ...], ledger: Ledger) -> tuple[Judged, ...]:
    """What a deletion waits for: that which onDelete switches back, and which is ours or may be in a moment."""
    if unbound_by(case):
        return ()
    return tuple(entry for entry in judged if reverts_on_delete(case, entry.capability) and _is_ours(entry, ledger))


def unbound_by(case: Case) -> str:
    """Why nothing will be switched back here, so that no deletion may wait for it; empty where it may be."""
    spec, target = case.pool.spec, case.world.target
    if spec.mode is not Mode.ENFORCE:
        return f"Mode{spec.mode}"
    if case.world.claimed_by:
        return "ClaimedByOlderPool"
    if isinstance(target, TargetProblem):
        return "TargetGone" if target.reason == "TargetNotFound" else ""
    if target.leaving:
        return "TargetGone"
    return "Suspended" if spec.suspend and case.pool.deleted else ""


def _is_ours(entry: Judged, ledger: Ledger) -> bool:
    """By an operation in flight, or by the baseline that is kept while something of ours stands."""
    if ledger.operation is not None and ledger.operation.capability is entry.capability:
        return True
    if entry.toggle is None or not entry.toggle.steps:
        return entry.on and bool(ledger.baseline)
    fields = {(step.component, step.env) for step in entry.toggle.steps}
    return any((kept.component, kept.env) in fields for kept in ledger.baseline)


def guarded(case: Case, judged: tuple[Judged, ...], ledger: Ledger, steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """The turn's steps, where the finalizer stands before what it protects, and falls when nothing is left of that.

    Whatever is enabled waits for a look that finds the finalizer there. To a pool that is being deleted none can be
    added any more.
    """
    held, wanted = case.pool.finalizer, bool(awaited(case, judged, ledger))
    if held is None or held == wanted:
        return steps
    if held:
        return (*steps, LetGo(unbound_by(case) or "NothingToRevert"))
    if case.pool.deleted:
        return steps
    return (HoldDeletion(), *(step for step in steps if not isinstance(step, Enable)))
