"""How many paths a sweep measures at the same time, where that is limited."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class PlaceLimit:
    """How many paths at once may lead into or out of each place; `places` says where each node stands."""

    most: int
    places: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class AtOnce:
    """No more than `paths` in all, and as each place allows; no limit by default."""

    paths: int | None = None
    places: tuple[PlaceLimit, ...] = ()


UNLIMITED = AtOnce()
