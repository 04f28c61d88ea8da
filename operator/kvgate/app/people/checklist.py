"""`kubectl kvgate checklist`: a pool's readiness for a review, as Markdown to attach to a change request."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from kvgate.api.objects import GateApproval
from kvgate.api.status import CapabilityStatus
from kvgate.api.words import ApprovalState, Capability, ConditionStatus, ConditionType, EndpointTool, KVEvents, Outcome
from kvgate.app.output import printable
from kvgate.app.people import reasons
from kvgate.app.people.reasons import NOBODY, NOT_JUDGED
from kvgate.app.people.states import condition, current, enabled, judged
from kvgate.core import text
from kvgate.core.asked import asked
from kvgate.core.memory import LONGEST_HISTORY, Action, of
from kvgate.core.world import Pool

_GOOD = {Outcome.PASS}
_FALSE_IS_GOOD = frozenset({ConditionType.DRIFTED, ConditionType.ROLLED_BACK, ConditionType.STALLED})
_LAYERS = {"link": "link", "endpoint": "KV transport"}
_QUIET = frozenset({"NotGated", "NoPrometheus", "NothingOn", "NothingToApprove"})


@dataclass(frozen=True)
class Facts:
    """What the list is made of. `fabric_class` is what the vendor or the network team declares of the fabric."""

    pool: Pool
    approvals: Sequence[GateApproval]
    fabric_class: str
    now: datetime


def readiness(facts: Facts) -> tuple[str, ...]:
    """The lines of the page. A box is ticked where the status shows it, and by nothing else."""
    pool = facts.pool
    sections = (
        ("Ready for review?", _boxes(facts)),
        ("What was measured", _measured(facts)),
        ("What is not measured", _bulleted(_unmeasured(pool))),
        ("Criteria", _criteria(pool)),
        ("Approvals", _approvals(facts)),
        ("Rollback", _bulleted(_rollback(pool))),
        ("Runbook", _bulleted(_runbook(pool))),
    )
    body = (line for title, lines in sections for line in ("", f"## {title}", "", *lines))
    return (*_head(facts), *body)


def _head(facts: Facts) -> Iterable[str]:
    pool = facts.pool
    yield f"# Readiness of InferencePool {_safe(pool.key)}"
    yield ""
    what = f"Mode {pool.spec.mode}, deployment `{pool.spec.target_ref.name}`, model `{_safe(pool.spec.model.name)}`"
    yield f"{what}, generation {pool.generation}, as of {text.moment(facts.now)}."
    if not judged(pool):
        yield ""
        yield f"**{NOT_JUDGED.means.capitalize()}: nothing below rests on evidence ({NOT_JUDGED.who} acts).**"
        yield f"**{NOT_JUDGED.next}**"
    elif not current(pool):
        yield ""
        yield "**kvgate has not judged this generation yet: what follows is of an older spec.**"


def _boxes(facts: Facts) -> Iterable[str]:
    pool = facts.pool
    for entry in pool.status.capabilities:
        yield _box(f"{entry.name}: every criterion passes ({entry.outcome})", done=entry.outcome in _GOOD)
        state = entry.approval.state
        by = f" by {_safe(entry.approval.approver)}" if entry.approval.approver else ""
        given = state in {ApprovalState.VALID, ApprovalState.NOT_REQUIRED}
        yield _box(f"{entry.name}: approved ({state}{by})", done=given)
        yield _box(f"{entry.name}: a rollback was tried on this pool", done=bool(_reverts(pool, entry.name)))
        if entry.enabled:
            yield _box(f"{entry.name}: verified on the running deployment", done=_verified(pool, entry))
    if not pool.status.capabilities:
        words = "a capability is gated" if judged(pool) else "every gated capability has been judged"
        yield _box(words, done=False)
    fabric = pool.status.fabric
    fresh = fabric is not None and fabric.expires_at is not None and facts.now < fabric.expires_at
    yield _box("the fabric's evidence is fresh", done=fresh)
    yield _box(
        "errors are watched (monitor.prometheusRef)", done=judged(pool) and pool.spec.monitor.prometheus_ref is not None
    )
    yield _box("changes wait for a change window", done=judged(pool) and bool(pool.spec.change_windows))


def _verified(pool: Pool, entry: CapabilityStatus) -> bool:
    told = condition(pool.status, enabled(entry.name))
    return told is not None and told.status is ConditionStatus.TRUE


def _measured(facts: Facts) -> Iterable[str]:
    fabric = facts.pool.status.fabric
    declared = f"`{_safe(facts.fabric_class)}`" if facts.fabric_class else "nothing"
    if fabric is None:
        yield "Nothing yet."
        return
    yield "| layer | tool | paths | judged | worst path |"
    yield "|---|---|---|---|---|"
    for name, layer in fabric.layers:
        judged = "no number" if layer.judged_bytes_per_second is None else text.rate(layer.judged_bytes_per_second)
        worst = layer.worst
        least = f"{worst.source} → {worst.destination}, {text.rate(worst.bytes_per_second)}" if worst else "none"
        yield _row(_LAYERS[name], layer.tool, f"{layer.measured} of {layer.paths}", judged, least)
    yield ""
    when = text.moment(fabric.measured_at) if fabric.measured_at else "at no known time"
    until = text.moment(fabric.expires_at) if fabric.expires_at else "no known time"
    yield f"Measured {when}, holds until {until}, FabricReport `{_safe(fabric.report)}`."
    yield f"Class of the fabric, as its vendor or the network team declares it: {declared}. kvgate does not check it."


def _unmeasured(pool: Pool) -> Iterable[str]:
    """What no number stands for, in the order of the chain from the wire to the users."""
    spec, status = pool.spec, pool.status
    fabric = status.fabric
    if fabric is None:
        yield "The fabric: no sweep has ended."
    elif fabric.sample is not None:
        found = fabric.sample
        yield f"Paths: {found.covered} of {found.paths_in_use} in use are covered, {found.never_covered} never will be."
    if spec.fabric.probe.endpoint.tool is EndpointTool.NONE:
        yield "The KV transport: `fabric.probe.endpoint.tool` is `none`, so the link alone was measured."
    if spec.criteria.disaggregation is not None:
        if spec.workload.peak_requests_per_second is None:
            yield "The load: `workload.peakRequestsPerSecond` is not set, so waiting is not in the estimates."
        yield "What an engine spends on a handover: until the switch, `workload.fixedOverhead` stands for it."
    yield from _unmeasured_routing(pool)
    if spec.criteria.kv_storage is not None:
        yield "External KV storage: its throughput is declared by the owner, never measured."
    if spec.monitor.prometheus_ref is None:
        yield "Errors and latency of users: no Prometheus is named, so nobody watches them here."


def _unmeasured_routing(pool: Pool) -> Iterable[str]:
    block, seen = pool.spec.criteria.routing, pool.status.routing
    if block is None:
        return
    if seen is None or not seen.benchmark:
        yield "The gain of KV routing: no A/B against round-robin has ended."
    if block.kv_events is KVEvents.IGNORED:
        yield "KV events: `kvEvents: Ignored`, so a publisher that is silent is not noticed."
    elif seen is None or seen.events is None or not seen.events.expected_workers:
        yield "KV events: nobody has seen yet whether every worker publishes them."


def _criteria(pool: Pool) -> Iterable[str]:
    yield "| capability | criterion | asked | seen |"
    yield "|---|---|---|---|"
    for capability in Capability:
        for line in asked(pool.spec, pool.status, capability):
            yield _row(capability.value, line.criterion, line.asked, line.seen)


def _approvals(facts: Facts) -> Iterable[str]:
    if not facts.approvals:
        yield "None exists for this pool."
        return
    yield "| GateApproval | capability | by | plan | attests | accepts | until | reason |"
    yield "|---|---|---|---|---|---|---|---|"
    plans = {entry.plan_hash for entry in facts.pool.status.capabilities if entry.plan_hash}
    for one in facts.approvals:
        spec = one.spec
        plan = "the present one" if spec.plan_hash in plans else "another one"
        until = text.moment(spec.expires_at) + (" (expired)" if spec.expires_at <= facts.now else "")
        words = (", ".join(spec.attestations) or "-", ", ".join(spec.accept_inconclusive) or "-")
        yield _row(one.metadata.name, spec.capability.value, spec.approver, plan, *words, until, spec.reason or "-")


def _reverts(pool: Pool, capability: Capability) -> tuple[datetime, ...]:
    return tuple(entry.time for entry in of(pool.status.history, capability, Action.REVERTED))


def _rollback(pool: Pool) -> Iterable[str]:
    rollback = pool.spec.rollback
    for entry in pool.status.capabilities:
        tried = _reverts(pool, entry.name)
        when = f"last at {text.moment(tried[0])}" if tried else f"not among the last {LONGEST_HISTORY} things done"
        yield f"{entry.name} switched back by kvgate: {when}."
    lost = f"evidence lost: {rollback.on_evidence_lost}; approval lost: {rollback.on_approval_lost}"
    yield f"{lost}; KV events lost: {rollback.on_kv_events_lost}. No change window delays a rollback."


def _runbook(pool: Pool) -> Iterable[str]:
    """What is not as it should be, and where its remedy stands."""
    any_told = False
    for one in pool.status.conditions:
        good = ConditionStatus.FALSE if one.type in _FALSE_IS_GOOD else ConditionStatus.TRUE
        told = reasons.of_condition(one)
        if one.status is good or one.reason in _QUIET or one.type == ConditionType.RECONCILING:
            continue
        any_told = True
        who = "" if told.who == NOBODY else f" ({told.who} acts)"
        place = f" See {told.runbook}." if told.runbook else ""
        yield f"`{one.type}` {one.reason}{who}: {_safe(told.next or told.means or one.message)}{place}"
    if not any_told:
        yield "Nothing asks for a person now. First aid: docs/runbook.md."


def _bulleted(lines: Iterable[str]) -> Iterable[str]:
    return (f"- {line}" for line in lines)


def _box(words: str, *, done: bool) -> str:
    return f"- [{'x' if done else ' '}] {words}"


def _row(*cells: str) -> str:
    return f"| {' | '.join(_safe(cell) for cell in cells)} |"


def _safe(words: str) -> str:
    """Foreign words in a cell: no markup of theirs, no column of theirs."""
    plain = printable(words)
    for mark in "\\|`*_<>[]":
        plain = plain.replace(mark, f"\\{mark}")
    return plain
