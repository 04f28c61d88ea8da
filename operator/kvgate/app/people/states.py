"""How each gated capability of a pool stands, for one line: on or held, why, since when, and who must act."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from kvgate.api.status import CapabilityStatus, PoolStatus
from kvgate.api.wire import Condition
from kvgate.api.words import Capability, ConditionStatus, ConditionType, Outcome
from kvgate.app.people import reasons
from kvgate.app.people.reasons import NOBODY, NOT_JUDGED
from kvgate.core.world import Pool

NOT_GATED = "-"


@dataclass(frozen=True)
class State:
    """One capability: `word` is on, held or off; `why` one reason; `since` when the state last changed."""

    capability: Capability
    word: str
    why: str
    who: str
    message: str
    next: str
    since: datetime | None
    condition: ConditionType
    """The condition that tells more."""


def condition(status: PoolStatus, kind: ConditionType) -> Condition | None:
    return next((one for one in status.conditions if one.type == kind), None)


def accepted(capability: Capability) -> ConditionType:
    return ConditionType(f"{capability}Accepted")


def enabled(capability: Capability) -> ConditionType:
    return ConditionType(f"{capability}Enabled")


def current(pool: Pool) -> bool:
    """Whether the status speaks of the spec as it is now."""
    return pool.status.observed_generation == pool.generation


def judged(pool: Pool) -> bool:
    """Whether any operator has ever written this pool's status."""
    return pool.status.observed_generation > 0


def passed(pool: Pool) -> bool:
    """Whether every gated capability passes; nothing gated, or nothing judged yet, is no pass."""
    outcomes = [entry.outcome for entry in pool.status.capabilities]
    return current(pool) and bool(outcomes) and all(outcome is Outcome.PASS for outcome in outcomes)


def states(pool: Pool) -> tuple[State, ...]:
    return tuple(_state(pool.status, entry) for entry in pool.status.capabilities)


def urgent(found: tuple[State, ...]) -> State | None:
    """The first that waits for somebody; else the first that is not on; None where all is on."""
    waiting = [state for state in found if state.who != NOBODY]
    return next(iter(waiting or [state for state in found if state.word != "on"]), None)


def _state(status: PoolStatus, entry: CapabilityStatus) -> State:
    deciding = _deciding(status, entry)
    told = condition(status, deciding)
    switched = condition(status, enabled(entry.name))
    reason = reasons.of_condition(told) if told else NOT_JUDGED
    return State(
        capability=entry.name,
        word="on" if entry.enabled else "held" if entry.held_by else "off",
        why=reason.word,
        who=reason.who,
        message=told.message if told else "",
        next=reason.next,
        since=switched.last_transition_time if switched else None,
        condition=deciding,
    )


def _deciding(status: PoolStatus, entry: CapabilityStatus) -> ConditionType:
    """What is on but not verified, or held for a time, says so itself; what criteria or an approval hold, they do."""
    switched = condition(status, enabled(entry.name))
    if entry.held_by == "Approval":
        return ConditionType.APPROVED
    if entry.held_by in {"Criteria", "Evidence"}:
        return accepted(entry.name)
    if entry.enabled and switched is not None and switched.status is ConditionStatus.TRUE:
        return accepted(entry.name) if entry.outcome is not Outcome.PASS else enabled(entry.name)
    return enabled(entry.name)


def age(since: datetime | None, now: datetime) -> str:
    """As kubectl writes it: `45s`, `12m`, `5h`, `3d`."""
    if since is None:
        return "-"
    passed_by = max(now - since, timedelta(0))
    for unit, length in (("d", timedelta(days=2)), ("h", timedelta(hours=2)), ("m", timedelta(minutes=2))):
        if passed_by >= length:
            return f"{passed_by // (length / 2)}{unit}"
    return f"{passed_by.seconds}s"
