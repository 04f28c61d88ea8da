"""`kubectl kvgate status`: what is on, what is held, why, who must act, and since when."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from rich.console import Console
from rich.text import Text

from kvgate.api.status import CapabilityStatus, FabricStatus, LayerStatus
from kvgate.api.words import ApprovalState, Capability, ConditionType, Outcome
from kvgate.app.output import printable, section
from kvgate.app.people.reasons import NOBODY, NOT_JUDGED, of_condition
from kvgate.app.people.states import NOT_GATED, State, age, condition, current, states, urgent
from kvgate.core import text
from kvgate.core.world import Pool

_COLUMNS = {Capability.ROUTING: "ROUTING", Capability.DISAGGREGATION: "SPLIT", Capability.KV_STORAGE: "STORAGE"}
_NO_NUMBER = "-"


def print_pools(pools: Sequence[Pool], now: datetime, console: Console, *, everywhere: bool) -> None:
    """One line for each pool."""
    heads = ("POOL", "MODE", *_COLUMNS.values(), "WORST PATH", "READY", "WHY", "WHO ACTS", "SINCE")
    rows = [_line(pool, now) for pool in pools]
    spaces = [(pool.namespace,) for pool in pools] if everywhere else [()] * len(rows)
    where = ("NAMESPACE",) if everywhere else ()
    section(console, (*where, *heads), [(*space, *row) for space, row in zip(spaces, rows, strict=True)], gap=False)


def _line(pool: Pool, now: datetime) -> tuple[str, ...]:
    found, ready = states(pool), condition(pool.status, ConditionType.READY)
    by_name = {state.capability: state.word for state in found}
    first = urgent(found)
    why, who = (ready.reason, of_condition(ready).who) if ready else (NOT_JUDGED.word, NOT_JUDGED.who)
    if first is not None and (ready is None or who == NOBODY or first.who != NOBODY):
        why, who = first.why, first.who
    return (
        pool.name,
        pool.spec.mode.value,
        *(by_name.get(capability, NOT_GATED) for capability in _COLUMNS),
        _worst(pool.status.fabric),
        ready.status.value if ready else "Unknown",
        f"{why} (of an older spec)" if ready and not current(pool) else why,
        who,
        age(first.since if first else ready.last_transition_time if ready else None, now),
    )


def print_pool(pool: Pool, now: datetime, console: Console, command: str) -> None:
    """One pool on one screen. `command` is how the reader called kvgate."""
    spec, found = pool.spec, states(pool)
    head = f"   mode {spec.mode}   target {spec.target_ref.name}   model {spec.model.name}"
    console.print(Text(f"InferencePool {pool.key}", style="bold") + Text(printable(head)))
    for line in (*_notes(pool), _ready(pool, now)):
        console.print(Text(printable(line)))
    heads = ("CAPABILITY", "STATE", "SINCE", "WHY", "WHO ACTS", "MESSAGE")
    section(console, heads, [_row(state, now) for state in found])
    for title, lines in (("Fabric", _fabric(pool, now)), ("Last", _last(pool, now)), ("Next", _next(pool, command))):
        for line in lines:
            console.print(Text(printable(f"{title:<8}{line}")))


def _row(state: State, now: datetime) -> tuple[str, ...]:
    return state.capability.value, state.word, age(state.since, now), state.why, state.who, state.message


def _notes(pool: Pool) -> Iterable[str]:
    if not current(pool):
        seen, is_now = pool.status.observed_generation, pool.generation
        yield f"kvgate has not judged this spec yet: it saw generation {max(seen, 0)}, and it is at {is_now}"
    if pool.spec.suspend:
        yield "spec.suspend is true: nothing is measured, enabled or rolled back"
    if pool.deleted:
        yield "it is being deleted"


def _ready(pool: Pool, now: datetime) -> str:
    ready = condition(pool.status, ConditionType.READY)
    if ready is None:
        return f"Ready is not known: {NOT_JUDGED.means}, {NOT_JUDGED.who} acts"
    who = of_condition(ready).who
    acts = "" if who == NOBODY else f", {who} acts"
    return f"Ready {ready.status}: {ready.reason} for {age(ready.last_transition_time, now)}{acts}"


def _fabric(pool: Pool, now: datetime) -> Iterable[str]:
    fabric = pool.status.fabric
    if fabric is None:
        yield "not measured"
        return
    for name, layer in fabric.layers:
        yield f"{name} ({layer.tool}): {_layer(layer)}"
    expires = f", holds until {text.moment(fabric.expires_at)}" if fabric.expires_at else ""
    report = f" in {fabric.report}" if fabric.report else ""
    yield f"measured {age(fabric.measured_at, now)} ago{report}{expires}"
    if pool.status.longest_prompt_within_budget is not None:
        yield f"longest prompt within the budget: {pool.status.longest_prompt_within_budget} tokens"


def _layer(layer: LayerStatus) -> str:
    judged = "no number" if layer.judged_bytes_per_second is None else text.rate(layer.judged_bytes_per_second)
    worst = layer.worst
    least = f", worst {worst.source}→{worst.destination} {text.rate(worst.bytes_per_second)}" if worst else ""
    return f"{judged} judged{least}, {layer.measured} of {layer.paths} paths"


def _worst(fabric: FabricStatus | None) -> str:
    layers = fabric.layers if fabric else ()
    rates = [layer.worst.bytes_per_second for _, layer in layers if layer.worst is not None]
    return text.rate(min(rates)) if rates else _NO_NUMBER


def _last(pool: Pool, now: datetime) -> Iterable[str]:
    for entry in pool.status.history[:1]:
        yield f"{entry.action} {entry.capability} {age(entry.time, now)} ago: {entry.reason}"


def _next(pool: Pool, command: str) -> Iterable[str]:
    """What the reader may type, and what the pages say to do."""
    if condition(pool.status, ConditionType.READY) is None:
        yield f"{NOT_JUDGED.who}: {NOT_JUDGED.next}"
    for entry, state in zip(pool.status.capabilities, states(pool), strict=True):
        where = f"-n {pool.namespace} {pool.name}"
        if _approvable(entry):
            accepts = "".join(f" --accept {word}" for word in entry.inconclusive)
            yield f"{command} approve {where} --capability {entry.name} --reason '…'{accepts}"
        elif state.who != NOBODY:
            yield f"{state.who}: {state.next}" if state.next else f"{command} explain {where} {state.condition}"


def _approvable(entry: CapabilityStatus) -> bool:
    """Whether an approval, and nothing else that is wrong, is what it waits for."""
    given = {ApprovalState.VALID, ApprovalState.NOT_REQUIRED}
    settled = entry.outcome in {Outcome.PASS, Outcome.INCONCLUSIVE} and bool(entry.plan_hash)
    return settled and not entry.enabled and entry.approval.state not in given
