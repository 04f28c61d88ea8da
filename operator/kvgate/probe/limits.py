"""Splits rounds so that no more paths are measured at once than the limits allow, in all and over a place's edge."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from kvgate.core.at_once import AtOnce
from kvgate.core.evidence import Path
from kvgate.probe.colouring import Rounds

LATEST = 64
"""How many rounds that still have room are looked through for a path."""


def within(rounds: Rounds, at_once: AtOnce) -> Rounds:
    """The same paths in rounds that keep to the limits; a path goes into the first such round that has room."""
    if at_once.paths is None and not at_once.places:
        return rounds
    open_rounds: list[_Round] = []
    full: list[_Round] = []
    for path in (path for paths in rounds for path in paths):
        edges = tuple(_edges(path, at_once))
        found = next((r for r in open_rounds if r.has_room(path, edges)), None)
        if found is None:
            found = _Round(at_once)
            open_rounds.append(found)
        found.add(path, edges)
        if found.full or len(open_rounds) > LATEST:
            closed = found if found.full else open_rounds[0]
            open_rounds.remove(closed)
            full.append(closed)
    return tuple(tuple(r.paths) for r in (*full, *open_rounds))


def _edges(path: Path, at_once: AtOnce) -> Iterator[tuple[int, str]]:
    """The places that the path loads, each with the limit that it counts for."""
    for number, limit in enumerate(at_once.places):
        ends = limit.places.get(path.source, ""), limit.places.get(path.destination, "")
        if limit.inside:
            yield from ((number, place) for place in dict.fromkeys(ends))
        elif ends[0] != ends[1]:
            yield from ((number, place) for place in ends if place)


class _Round:
    def __init__(self, at_once: AtOnce) -> None:
        self.paths: list[Path] = []
        self._limits = at_once
        self._nodes: set[str] = set()
        self._load: Counter[tuple[int, str]] = Counter()

    @property
    def full(self) -> bool:
        return self._limits.paths is not None and len(self.paths) >= self._limits.paths

    def has_room(self, path: Path, edges: Sequence[tuple[int, str]]) -> bool:
        if path.source in self._nodes or path.destination in self._nodes or self.full:
            return False
        return all(self._load[edge] < self._limits.places[edge[0]].most for edge in edges)

    def add(self, path: Path, edges: Sequence[tuple[int, str]]) -> None:
        self.paths.append(path)
        self._nodes |= {path.source, path.destination}
        self._load.update(edges)
