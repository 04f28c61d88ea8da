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
    """One Event per condition whose status or reason changed; its reason is the condition's. A condition that is
    Unknown from the start tells nothing, nor does one that goes away."""
    known = {condition.type: condition for condition in before.conditions}
    return tuple(
        _told(condition) for condition in after.conditions if _is_news(known.get(condition.type), condition)
    )  # fmt: skip


def _is_news(before: Condition | None, after: Condition) -> bool:
    if after.type in QUIET:
        return False
    if before is None:
        return after.status is not ConditionStatus.UNKNOWN and after.reason != "NotGated"
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
