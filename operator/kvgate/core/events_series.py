"""Looks at one pod in the order of time: which of them count, what lasted, what grew, and which are kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import TypeVar

from kvgate.core.events_seen import FrontendCounts, FrontendLook, WorkerCounts, WorkerLook

LOOKS = 2
"""What is judged bad was so at each of the last LOOKS looks."""
Look = TypeVar("Look", WorkerLook, FrontendLook)
_RISING = frozenset({"dropped", "stored", "received", "filtered", "unconvertible", "requests", "queried_tokens"}) | {
    "cached_tokens",
    "refused",
    "batches",
    "input_tokens",
    "prompts",
    "errors",
    "failures",
}


def rose(earlier: WorkerCounts | FrontendCounts, later: WorkerCounts | FrontendCounts) -> bool:
    """Whether every counter stands at least as high as before. One that fell, or went away, began anew."""
    names = [field.name for field in fields(earlier) if field.name in _RISING]
    return all(_risen(getattr(earlier, name), getattr(later, name)) for name in names)


def _risen(earlier: int | None, later: int | None) -> bool:
    return earlier is None or (later is not None and later >= earlier)


def life(looks: tuple[Look, ...]) -> tuple[Look, ...]:
    """The looks that gave counters, since these last began anew: a restart starts another life."""
    counted = [look for look in looks if look.counts is not None]
    start = 0
    for place in range(1, len(counted)):
        earlier, later = counted[place - 1].counts, counted[place].counts
        if earlier is not None and later is not None and not rose(earlier, later):
            start = place
    return tuple(counted[start:])


def kept(looks: tuple[Look, ...], most: int) -> tuple[Look, ...]:
    """At most so many looks: the newest, and the oldest for as long as no stored event came since, so that silence is
    counted from its beginning however few requests there are."""
    while len(looks) > most:
        first, last = looks[0].counts, looks[-1].counts
        still = first is not None and last is not None and first.stored == last.stored
        looks = looks[:1] + looks[2:] if still else looks[1:]
    return looks


def lasted(looks: tuple[Look, ...], bad: Callable[[Look], bool]) -> bool:
    """Whether each of the last LOOKS looks was bad; fewer looks prove nothing."""
    return len(looks) >= LOOKS and all(bad(look) for look in looks[-LOOKS:])


def growth(looks: tuple[Look, ...], count: Callable[[Look], int | None]) -> int:
    """By how much a counter grew from the first look to the last. One that was absent in the first and is there in the
    last grew from 0: families of a running process appear with their first use."""
    if not looks or (last := count(looks[-1])) is None:
        return 0
    return max(0, last - (count(looks[0]) or 0)) if len(looks) > 1 else 0


def full_blocks(new_tokens: int, prompts: int, block_tokens: int) -> int:
    """The least number of blocks that this many new tokens fill, in blocks of `block_tokens` tokens.

    (new − prompts × (block − 1)) ÷ block, rounded up: the rest of a prompt that fills no block gives no event.
    """
    spare = new_tokens - prompts * (block_tokens - 1)
    return max(0, -(-spare // block_tokens))
