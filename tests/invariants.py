"""What holds for every status that kvgate writes, whatever the world: the kstatus rules and the API's own bounds."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta

from kvgate.api.status import PoolStatus
from kvgate.api.wire import Condition
from kvgate.api.words import ApprovalState, ConditionStatus, ConditionType, Outcome

ALWAYS = frozenset(ConditionType) - {ConditionType.RECONCILING, ConditionType.STALLED}
LONGEST_MESSAGE = 4096
LONGEST_HISTORY = 10
LARGEST_INTEGER = 2**63 - 1
CLOCK_TOLERANCE = timedelta(seconds=1)
_REASON = re.compile(r"[A-Z][A-Za-z0-9]*")
_PLAN_HASH = re.compile(r"v1:sha256:[0-9a-f]{64}")
_AGE = re.compile(r"\b(ago|old)\b|\bin \d+(\.\d+)? (ms|s|min|h|seconds|minutes|hours|days)\b")
_MAY_OPEN = frozenset({ApprovalState.VALID, ApprovalState.NOT_REQUIRED})


def broken(status: PoolStatus, generation: int, now: datetime, before: PoolStatus | None = None) -> list[str]:
    """Each rule that the status breaks, in one line; `before` is the status of the turn before, where one is known."""
    return [
        *_whole(status, generation),
        *_kstatus({condition.type: condition for condition in status.conditions}),
        *(line for condition in status.conditions for line in _condition(condition, generation, now)),
        *_capabilities(status),
        *_history(status),
        *_numbers(status.model_dump(mode="json"), "status"),
        *(_kept(status, before) if before is not None else ()),
    ]


def _whole(status: PoolStatus, generation: int) -> Iterator[str]:
    if status.observed_generation != generation:
        yield f"observedGeneration is {status.observed_generation}, the pool's is {generation}"
    counts = Counter(condition.type for condition in status.conditions)
    yield from (f"{kind} stands {count} times" for kind, count in counts.items() if count > 1)
    yield from (f"{kind} is missing" for kind in sorted(ALWAYS - counts.keys()))
    yield from (f"{kind} is no known type" for kind in sorted(counts.keys() - set(ConditionType)))


def _kstatus(held: dict[str, Condition]) -> Iterator[str]:
    ready, reconciling, stalled = (held.get(kind) for kind in ("Ready", "Reconciling", "Stalled"))
    if reconciling and stalled:
        yield "Reconciling and Stalled stand together"
    for extra in (reconciling, stalled):
        if extra and extra.status is not ConditionStatus.TRUE:
            yield f"{extra.type} is present and {extra.status.value}"
        if extra and ready and extra.reason != ready.reason:
            yield f"{extra.type} says {extra.reason}, Ready says {ready.reason}"
    if reconciling and ready and ready.status is ConditionStatus.TRUE:
        yield "Ready is True while Reconciling"
    if stalled and ready and ready.status is not ConditionStatus.FALSE:
        yield f"Ready is {ready.status.value} while Stalled"
    if ready and ready.status is ConditionStatus.UNKNOWN and not reconciling:
        yield "Ready is Unknown and nothing is Reconciling: a waiter would wait for ever"


def _condition(condition: Condition, generation: int, now: datetime) -> Iterator[str]:
    if condition.observed_generation != generation:
        yield f"{condition.type} was judged for generation {condition.observed_generation}, not {generation}"
    if not _REASON.fullmatch(condition.reason):
        yield f"{condition.type} has reason {condition.reason!r}, which is no CamelCase word"
    if not condition.message.strip() or len(condition.message) > LONGEST_MESSAGE:
        yield f"{condition.type} has a message of {len(condition.message)} characters"
    if _AGE.search(condition.message):
        yield f"{condition.type} tells an age, which changes with each turn: {condition.message!r}"
    if condition.last_transition_time > now + CLOCK_TOLERANCE:
        yield f"{condition.type} changed in the future"


def _capabilities(status: PoolStatus) -> Iterator[str]:
    held = {entry.name: entry for entry in status.capabilities}
    if len(held) != len(status.capabilities):
        yield "a capability stands twice"
    for capability in status.permitted:
        entry = held.get(capability)
        if entry is None or entry.outcome is not Outcome.PASS or entry.approval.state not in _MAY_OPEN:
            yield f"{capability} is permitted without a Pass and an approval that counts"
    for entry in status.capabilities:
        if entry.plan_hash and not _PLAN_HASH.fullmatch(entry.plan_hash):
            yield f"{entry.name} has the plan hash {entry.plan_hash!r}"
        if bool(entry.plan_hash) != (entry.proposed_at is not None):
            yield f"{entry.name} has a plan hash or a time of proposal, and not both"
        if entry.outcome is Outcome.PASS and not entry.plan_hash and status.target and status.target.uid:
            yield f"{entry.name} passes and has no plan that could be approved"


def _history(status: PoolStatus) -> Iterator[str]:
    times = [entry.time for entry in status.history]
    if len(times) > LONGEST_HISTORY:
        yield f"history holds {len(times)} entries"
    if times != sorted(times, reverse=True):
        yield "history is not newest first"


def _numbers(held: object, where: str) -> Iterator[str]:
    """JSON has no NaN and no infinity, and the API server keeps integers in 64 bits."""
    if isinstance(held, float) or (isinstance(held, int) and abs(held) > LARGEST_INTEGER):
        yield f"{where} is {held}"
    parts = held.items() if isinstance(held, dict) else enumerate(held) if isinstance(held, list) else ()
    for key, part in parts:
        yield from _numbers(part, f"{where}.{key}")


def _kept(status: PoolStatus, before: PoolStatus) -> Iterator[str]:
    old = {condition.type: condition for condition in before.conditions}
    for condition in status.conditions:
        past = old.get(condition.type)
        same = past is not None and past.status is condition.status
        if same and past is not None and past.last_transition_time != condition.last_transition_time:
            yield f"{condition.type} moved its transition time while its status stood"
