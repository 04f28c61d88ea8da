"""What is told of a pool as Kubernetes Events: the conditions that changed between two statuses."""

from __future__ import annotations

from typing import NamedTuple

from kvgate.api.status import PoolStatus
from kvgate.api.wire import Condition
from kvgate.api.words import ConditionStatus, ConditionType

NORMAL, WARNING = "Normal", "Warning"
LONGEST_MESSAGE = 1024
"""What an Event's message may hold; longer ones are refused by events.k8s.io."""
QUIET = frozenset({ConditionType.RECONCILING})
"""It comes and goes with each sweep, and Ready says the same."""
SUMS = frozenset({ConditionType.READY, ConditionType.STALLED})
BAD_WHEN_TRUE = frozenset({ConditionType.DRIFTED, ConditionType.ROLLED_BACK, ConditionType.STALLED})
NEUTRAL_WHEN_FALSE = frozenset(
    {
        ConditionType.APPROVED,
        ConditionType.ROUTING_ENABLED,
        ConditionType.DISAGGREGATION_ENABLED,
        ConditionType.KV_STORAGE_ENABLED,
        *BAD_WHEN_TRUE,
    }
)
"""Waiting for a person, or off: nothing is wrong."""


class Told(NamedTuple):
    """An Event: Normal or Warning, one word for programs, a sentence for people."""

    type: str
    reason: str
    message: str


def transitions(before: PoolStatus, after: PoolStatus) -> tuple[Told, ...]:
    """One Event per condition whose status or reason changed; its reason is the condition's. What a condition says
    from the start is told unless it is that nothing is known or wrong; one that goes away tells nothing. Ready and
    Stalled sum up the others, and are told where they say something else."""
    known = {condition.type: condition for condition in before.conditions}
    news = [condition for condition in after.conditions if _is_news(known.get(condition.type), condition)]
    said = {(condition.reason, condition.message) for condition in news if condition.type not in SUMS}
    told = (c for c in news if c.type not in SUMS or (c.reason, c.message) not in said)
    return tuple(dict.fromkeys(_told(condition) for condition in told))


def _is_news(before: Condition | None, after: Condition) -> bool:
    if after.type in QUIET:
        return False
    if before is None:
        fine = after.type in BAD_WHEN_TRUE and after.status is ConditionStatus.FALSE
        return after.status is not ConditionStatus.UNKNOWN and after.reason != "NotGated" and not fine
    return (before.status, before.reason) != (after.status, after.reason)


def _told(condition: Condition) -> Told:
    message = f"{condition.type} is {condition.status}: {condition.message}"
    return Told(WARNING if _is_bad(condition) else NORMAL, condition.reason, _shortened(message))


def _is_bad(condition: Condition) -> bool:
    if condition.type in BAD_WHEN_TRUE:
        return condition.status is ConditionStatus.TRUE
    return condition.status is ConditionStatus.FALSE and condition.type not in NEUTRAL_WHEN_FALSE


def _shortened(message: str) -> str:
    return message if len(message) <= LONGEST_MESSAGE else f"{message[: LONGEST_MESSAGE - 1]}…"
