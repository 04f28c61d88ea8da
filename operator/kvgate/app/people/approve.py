"""`kubectl kvgate approve`: shows plan, diff and evidence, and makes the GateApproval that is bound to that plan."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from rich.console import Console
from rich.text import Text

from kvgate.api.approval import ApprovalSpec, SeenEvidence
from kvgate.api.report import PoolRef
from kvgate.api.status import CapabilityStatus
from kvgate.api.words import ApprovalState, Capability, Outcome
from kvgate.app.output import printable
from kvgate.app.people.explain import print_asked
from kvgate.app.people.states import accepted, condition, current, enabled
from kvgate.core import text
from kvgate.core.approvals import LONGEST_LIFE
from kvgate.core.asked import asked, standing
from kvgate.core.memory import remembered
from kvgate.core.world import Pool
from kvgate.edge.errors import EdgeError
from kvgate.edge.objects import Source
from kvgate.edge.targets import planned_difference

USUAL_LIFE = "30d"
_LIFE = re.compile(r"([1-9][0-9]{0,3})([dh])")


@dataclass(frozen=True)
class Wish:
    """What an approver says. `accepts` are reasons of Inconclusive findings, each by name."""

    capability: Capability
    reason: str
    attests: tuple[str, ...] = ()
    accepts: tuple[str, ...] = ()
    expires: str = USUAL_LIFE


def waiting(pool: Pool, wish: Wish) -> CapabilityStatus:
    """The plan that waits for this approval. Raises EdgeError where there is none, or where it asks for more."""
    where, capability = f"InferencePool {pool.key}", wish.capability
    if not current(pool):
        what = f"kvgate has not judged this spec yet (generation {pool.generation})"
        raise EdgeError(f"{where}: {what}; try again, and where it stays so, see that its operator runs")
    entry = next((one for one in pool.status.capabilities if one.name is capability), None)
    if entry is None:
        raise EdgeError(f"{where}: {capability} is not gated: it has no criteria block")
    if not entry.plan_hash:
        told = condition(pool.status, accepted(capability))
        why = f": {told.reason}, {told.message}" if told else ""
        raise EdgeError(f"{where}: no plan of {capability} waits for an approval{why}")
    if entry.outcome not in {Outcome.PASS, Outcome.INCONCLUSIVE}:
        raise EdgeError(f"{where}: {capability} is {entry.outcome}, and an approval never accepts that")
    if _answered(pool, entry, wish):
        raise EdgeError(f"{where}: no plan of {capability} waits for an approval: it is {standing(entry.approval)}")
    _check(pool, entry, wish)
    return entry


def _answered(pool: Pool, entry: CapabilityStatus, wish: Wish) -> bool:
    """What is on and could not be verified may wait for a reason to be accepted, though its plan is approved."""
    settled = entry.approval.state in {ApprovalState.VALID, ApprovalState.NOT_REQUIRED}
    told = condition(pool.status, enabled(entry.name))
    doubted = told is not None and told.reason == "VerificationInconclusive" and bool(wish.accepts)
    return settled and not doubted and entry.outcome is Outcome.PASS


def _check(pool: Pool, entry: CapabilityStatus, wish: Wish) -> None:
    where = f"InferencePool {pool.key}"
    if missing := [word for word in _attestations(pool, wish.capability) if word not in wish.attests]:
        words = " ".join(f"--attest {word}" for word in missing)
        raise EdgeError(f"{where}: {wish.capability} asks for attestations; vouch for each: {words}")
    if missing := [word for word in entry.inconclusive if word not in wish.accepts]:
        words = " ".join(f"--accept {word}" for word in missing)
        raise EdgeError(f"{where}: {wish.capability} is Inconclusive; accept each reason by name: {words}")


def _attestations(pool: Pool, capability: Capability) -> tuple[str, ...]:
    block = pool.spec.criteria.of(capability)
    return block.attestations if block else ()


def expiry(asked_for: str, now: datetime) -> datetime:
    """`30d`, `12h` or a time with its zone. Raises EdgeError for none, a past one, or more than 90 days."""
    found = _LIFE.fullmatch(asked_for)
    try:
        until = now + _span(found) if found else datetime.fromisoformat(asked_for)
    except (ValueError, OverflowError) as error:
        raise EdgeError("--expires must be like 30d, 12h or 2027-01-31T00:00:00Z") from error
    if until.tzinfo is None:
        raise EdgeError("--expires must say its time zone, for example 2027-01-31T00:00:00Z")
    if not now < until <= now + LONGEST_LIFE:
        raise EdgeError(f"--expires must lie ahead by at most {LONGEST_LIFE.days} days; {text.moment(until)} does not")
    return until.astimezone(UTC).replace(microsecond=0)


def _span(found: re.Match[str]) -> timedelta:
    count = int(found[1])
    return timedelta(days=count) if found[2] == "d" else timedelta(hours=count)


def approval(pool: Pool, entry: CapabilityStatus, wish: Wish, approver: str, expires_at: datetime) -> ApprovalSpec:
    """Bound to the plan that was shown, and to nothing else."""
    return ApprovalSpec(
        pool_ref=PoolRef(name=pool.name, uid=pool.uid),
        capability=entry.name,
        plan_hash=entry.plan_hash,
        approver=approver,
        attestations=wish.attests,
        accept_inconclusive=wish.accepts,
        evidence=_evidence(pool, entry.name),
        reason=wish.reason,
        expires_at=expires_at,
    )


def _evidence(pool: Pool, capability: Capability) -> SeenEvidence | None:
    if capability is Capability.ROUTING:
        report = pool.status.routing.benchmark if pool.status.routing else ""
        return SeenEvidence(report=report) if report else None
    fabric = pool.status.fabric
    if fabric is None:
        return None
    rates = (layer.judged_bytes_per_second for _, layer in fabric.layers)
    return SeenEvidence(report=fabric.report, judged_bytes_per_second=min((r for r in rates if r), default=None))


def print_plan(pool: Pool, target: Source | None, spec: ApprovalSpec, console: Console) -> None:
    """All that the approver agrees to, before a question is asked. Raises EdgeError where the diff can't be made."""
    console.print(Text(f"{spec.capability} of InferencePool {pool.key}, mode {pool.spec.mode}", style="bold"))
    for line in _plan_lines(pool, spec):
        console.print(Text(printable(line)))
    print_asked(asked(pool.spec, pool.status, spec.capability), console)
    console.print()
    for line in _diff(pool, target, spec.capability):
        console.print(Text(printable(line)))


def _plan_lines(pool: Pool, spec: ApprovalSpec) -> Iterable[str]:
    said = condition(pool.status, accepted(spec.capability))
    yield f"plan      {spec.plan_hash}"
    if said:
        yield f"verdict   {said.reason}: {said.message}"
    for title, words in (("accepts", spec.accept_inconclusive), ("attests", spec.attestations)):
        if words:
            yield f"{title:<10}{', '.join(words)}"
    yield f"approver  {spec.approver}"
    yield f"expires   {text.moment(spec.expires_at)}: bounds enabling, not staying enabled"


def _diff(pool: Pool, target: Source | None, capability: Capability) -> Sequence[str]:
    name = f"DynamoGraphDeployment {pool.namespace}/{pool.spec.target_ref.name}"
    if target is None:
        raise EdgeError(f"{name}: there is none, so nothing can be shown of what would change")
    if capability is Capability.KV_STORAGE:
        return (f"{name} is not patched: KV storage is switched on by whoever owns its manifest",)
    changed = planned_difference(target, capability)
    return changed.splitlines() or (f"{name} holds the values of the plan already: nothing would change",)


def same_plan(now: Pool, shown: Pool, spec: ApprovalSpec) -> None:
    """Raises EdgeError where the plan is another one than the approver was shown."""
    found = remembered(now.status, spec.capability).plan_hash
    if now.uid != shown.uid or found != spec.plan_hash:
        raise EdgeError(f"InferencePool {shown.key}: the plan changed while it was shown; nothing was approved")
