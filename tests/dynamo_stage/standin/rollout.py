"""One step of the operator's managed rolling update for one component: how many pods each generation is to have now.

Each component is computed alone, and by pod availability alone, as the operator does: nothing here knows whether a
generation is complete. So a component whose wanted number is zero loses its old pods in the first step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Counts:
    """Pods of one generation of a component: those asked for, those that exist and those that are available."""

    asked: int
    existing: int
    available: int


NONE = Counts(0, 0, 0)


@dataclass(frozen=True)
class Budget:
    """`surge` and `unavailable` in pods; `recreates` ends the old ones before the first new one starts."""

    wanted: int
    surge: int
    unavailable: int
    recreates: bool = False


def step(budget: Budget, new: str, counts: Mapping[str, Counts]) -> Mapping[str, int]:
    """Generation → pods asked for next. `counts` holds every generation of the component that still has any."""
    old = {generation: held for generation, held in counts.items() if generation != new}
    fresh = counts.get(new, NONE)
    existing = sum(held.existing for held in old.values())
    if budget.recreates:
        return {**dict.fromkeys(old, 0), new: 0 if existing else budget.wanted}
    room = budget.wanted + budget.surge - existing
    asked = min(budget.wanted, max(fresh.asked, room)) if old else budget.wanted
    floor = max(0, budget.wanted - budget.unavailable)
    return {**_shrunk(old, max(0, floor - fresh.available)), new: max(0, asked)}


def _shrunk(old: Mapping[str, Counts], kept: int) -> Mapping[str, int]:
    """Keep at most so many old pods, in the order given; none is added to a generation that is on its way out."""
    asked = {}
    for generation, held in old.items():
        asked[generation] = min(held.asked, kept)
        kept -= asked[generation]
    return asked
