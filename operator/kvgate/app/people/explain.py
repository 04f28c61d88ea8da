"""`kubectl kvgate explain`: one condition in full, its criteria with numbers, and what the runbook says."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from rich.console import Console
from rich.text import Text

from kvgate.api.words import Capability, ConditionType
from kvgate.app.output import printable, section
from kvgate.app.people import reasons
from kvgate.app.people.reasons import NOT_JUDGED, Reason
from kvgate.app.people.states import age, condition, states, urgent
from kvgate.core.asked import Asked, asked, measured
from kvgate.core.world import Pool
from kvgate.edge.errors import EdgeError

_ALIASES = {"split": Capability.DISAGGREGATION, "storage": Capability.KV_STORAGE}
_ASKED_OF = {ConditionType.KV_EVENTS_HEALTHY: Capability.ROUTING}


def condition_of(pool: Pool, word: str) -> ConditionType:
    """The condition that is meant by its type or by a capability, in any case; without a word, the one that the pool
    waits for. Raises EdgeError for a word that means none."""
    if not word:
        waits = urgent(states(pool))
        return waits.condition if waits else ConditionType.READY
    for kind in ConditionType:
        if kind.lower() == word.lower():
            return kind
    for capability in Capability:
        if word.lower() == capability.lower() or _ALIASES.get(word.lower()) is capability:
            return ConditionType(f"{capability}Accepted")
    raise EdgeError(f"no such condition; say one of {', '.join(ConditionType)}, or {', '.join(Capability)}")


def print_condition(pool: Pool, kind: ConditionType, now: datetime, console: Console) -> None:
    said = condition(pool.status, kind)
    if said is None:
        absent = kind in {ConditionType.RECONCILING, ConditionType.STALLED} and pool.status.conditions
        console.print(Text(f"{kind} of {pool.key}: {'it is not True now' if absent else NOT_JUDGED.means}"))
        if not absent:
            _tell(NOT_JUDGED, console)
        return
    told = reasons.of_condition(said)
    since = age(said.last_transition_time, now)
    console.print(Text(f"{kind} of {pool.key} is {said.status} for {since}: {said.reason}", style="bold"))
    for line in (said.message, ""):
        console.print(Text(printable(line)))
    if told.means:
        console.print(Text(printable(f"{'Means':<10}{told.means}")))
    _tell(told, console)
    print_asked(_criteria(pool, kind), console)


def _tell(reason: Reason, console: Console) -> None:
    """What the reader does next."""
    for title, words in (("Who acts", reason.who), ("Next", reason.next), ("Runbook", reason.runbook)):
        if words:
            console.print(Text(printable(f"{title:<10}{words}")))


def print_asked(lines: Sequence[Asked], console: Console) -> None:
    section(console, ("CRITERION", "ASKED", "SEEN"), ((line.criterion, line.asked, line.seen) for line in lines))


def _criteria(pool: Pool, kind: ConditionType) -> tuple[Asked, ...]:
    """Those of the capability that the condition is of; of the evidence for FabricMeasured, of all for Ready."""
    if kind is ConditionType.FABRIC_MEASURED:
        return measured(pool.spec, pool.status)
    if kind in {ConditionType.READY, ConditionType.APPROVED, ConditionType.STALLED}:
        return tuple(line for capability in Capability for line in asked(pool.spec, pool.status, capability))
    found = _ASKED_OF.get(kind) or next((c for c in Capability if kind.startswith(c)), None)
    return asked(pool.spec, pool.status, found) if found else ()
