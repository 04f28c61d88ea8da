"""How many paths a sweep measures at the same time, where that is limited."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kvgate.core.evidence import Path


@dataclass(frozen=True)
class PlaceLimit:
    """How many paths at once may lead into or out of each place; `places` says where each node stands.

    Where `inside`, paths within a place count for it too, and all nodes of no place stand in one.
    """

    most: int
    places: Mapping[str, str] = field(default_factory=dict)
    inside: bool = False


@dataclass(frozen=True)
class AtOnce:
    """No more than `paths` in all, and as each place allows; no limit by default."""

    paths: int | None = None
    places: tuple[PlaceLimit, ...] = ()


UNLIMITED = AtOnce()


@dataclass(frozen=True)
class Apart:
    """How tests of the phase Isolated keep out of each other's way, and which come first where not all can be run."""

    at_once: AtOnce = AtOnce(paths=1)
    first: frozenset[Path] = frozenset()


ONE_BY_ONE = Apart()
