"""What a decision about one capability rested on, for an auditor: digests of what went in, findings, actor, patch."""

from __future__ import annotations

from collections.abc import Iterable

from kvgate.api.status import BaselineEntry, CapabilityStatus, HistoryEntry
from kvgate.api.words import ApprovalState, Capability, Outcome
from kvgate.core.digests import digest
from kvgate.core.findings import Finding
from kvgate.core.judged import Judged
from kvgate.core.judging import Case
from kvgate.core.memory import Action
from kvgate.core.steps import Decided, Enable, Revert, Step
from kvgate.core.target import Switch, ToggleStep
from kvgate.core.world import KVKnown

MOST_WORDS = 32
"""Of findings and of patched fields, in one entry."""
KVGATE = "kvgate"


def decided(case: Case, judged: Judged, after: CapabilityStatus, steps: tuple[Step, ...]) -> Decided | None:
    """None where neither verdict, plan, approval nor state is another one than before, and nothing is to be written."""
    patches = [s for s in steps if isinstance(s, Enable | Revert) and s.capability is judged.capability]
    begun = case.pool.status.operation is None or any(s.operation_id != case.pool.status.operation.id for s in patches)
    if _same(judged.remembered, after) and not (patches and begun):
        return None
    return Decided(
        capability=judged.capability,
        outcome=judged.outcome.value,
        decisive=judged.verdict.decisive.reason,
        held_by=after.held_by,
        enabled=after.enabled,
        plan_hash=after.plan_hash,
        approval=after.approval.state.value,
        actor=actor(judged, Action.ENABLED),
        operation=patches[0].operation_id if patches else "",
        inputs=inputs(case, judged),
        findings=findings(judged),
        patch=tuple(word for patch in patches for word in _values(patch)),
    )


def _same(before: CapabilityStatus, after: CapabilityStatus) -> bool:
    return before.model_copy(update={"proposed_at": None}) == after.model_copy(update={"proposed_at": None})


def recorded(case: Case, judged: Judged, entry: HistoryEntry) -> HistoryEntry:
    """The entry with what it rested on, as this turn sees it."""
    action = Action(entry.action)
    told = {
        "actor": actor(judged, action),
        "inputs": inputs(case, judged),
        "findings": findings(judged),
        "patch": _written(judged, action),
    }
    return entry.model_copy(update=told)


def inputs(case: Case, judged: Judged) -> tuple[str, ...]:
    """Each as a name and a digest, or the name of the object that holds it; nothing that was not there."""
    spec = case.pool.spec.model_dump_json(by_alias=True)
    kv, evidence = case.world.kv, case.evidence
    runs = [one.report or one.run_id for one in case.world.benchmarks[:1]]
    found = (
        ("generation", str(case.pool.generation)),
        ("spec", digest(spec)),
        ("target", digest(judged.toggle.projection) if judged.toggle and judged.toggle.projection else ""),
        ("model", (kv.digest or kv.source) if isinstance(kv, KVKnown) else ""),
        ("fabricReport", (evidence.report or evidence.run_id) if evidence else ""),
        ("benchmarkReport", runs[0] if runs and judged.capability is Capability.ROUTING else ""),
        ("gateApproval", judged.standing.name),
    )
    return tuple(f"{name} {value}" for name, value in found if value)


def findings(judged: Judged) -> tuple[str, ...]:
    """Criterion, outcome and reason of each, those that are not Pass first: the numbers are in the conditions."""
    ordered = sorted(judged.verdict.findings, key=lambda finding: finding.outcome is Outcome.PASS)
    return tuple(_told(finding) for finding in ordered)[:MOST_WORDS]


def _told(finding: Finding) -> str:
    return f"{finding.criterion} {finding.outcome} {finding.reason}"


def actor(judged: Judged, action: Action) -> str:
    """Who stands behind it: kvgate, with the approver where one approved; or the hand that took the field."""
    if action is Action.DRIFTED:
        hands = judged.toggle.hands if judged.toggle else ()
        return next((hand.manager for hand in hands if hand.manager), "a manager that left no trace")
    if action is Action.REVERTED or judged.standing.state is not ApprovalState.VALID:
        return KVGATE
    return f"{KVGATE}, approved by {judged.standing.approver}"


def _written(judged: Judged, action: Action) -> tuple[str, ...]:
    """What stands in the deployment by now, as far as it was ours to write."""
    if judged.toggle is None or action is Action.DRIFTED or action is Action.ADOPTED:
        return ()
    if action is Action.ENABLED and judged.toggle.switch is Switch.ON:
        return _switched(judged.toggle.steps)
    return _put_back(judged.baseline) if action is Action.REVERTED else ()


def _values(patch: Enable | Revert) -> tuple[str, ...]:
    return _switched(patch.steps) if isinstance(patch, Enable) else _put_back(patch.baseline)


def _switched(steps: Iterable[ToggleStep]) -> tuple[str, ...]:
    return tuple(f"{step.component}/{step.env}={step.to}" for step in steps)[:MOST_WORDS]


def _put_back(entries: Iterable[BaselineEntry]) -> tuple[str, ...]:
    told = (f"{one.component}/{one.env}" + (f"={one.value}" if one.present else " removed") for one in entries)
    return tuple(told)[:MOST_WORDS]
