"""Splits the paths of a sweep into rounds in which no node is in two tests: an edge colouring."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product

from kvgate.core.evidence import Path

Edge = tuple[str, str]
Rounds = tuple[tuple[Path, ...], ...]


def rounds_between(prefill: Iterable[str], decode: Iterable[str]) -> Rounds:
    """Every path from a prefill node to another decode node, once.

    max(P, D) rounds where no node has both roles (the fewest possible); the circle method, once for each
    direction, where all have both; at most Δ + 1 rounds where some have, Δ being the busiest node's tests.
    """
    sources, destinations = sorted(set(prefill)), sorted(set(decode))
    both = sorted(set(sources) & set(destinations))
    if not both:
        return _bipartite(sources, destinations)
    if sources == destinations:
        circle = [_paths(edges) for edges in circle_rounds(both)]
        return tuple(direction for edges in circle for direction in (edges, _reversed(edges)) if edges)
    return _mixed(sources, destinations, both)


def _bipartite(sources: Sequence[str], destinations: Sequence[str]) -> Rounds:
    width = max(len(sources), len(destinations))
    few, many = sorted((sources, destinations), key=len)
    if not few:
        return ()
    shifted = ([(name, many[(place + shift) % width]) for place, name in enumerate(few)] for shift in range(width))
    straight = few is sources
    return tuple(tuple(Path(a, b) if straight else Path(b, a) for a, b in edges) for edges in shifted)


def circle_rounds(nodes: Sequence[str]) -> list[list[Edge]]:
    """Each pair of nodes once: n - 1 rounds for an even number of nodes, n for an odd one.

    Round-robin by the circle method: one seat stands still and the others turn; an odd number leaves the
    node that would meet the empty seat idle.
    """
    seats: list[str | None] = list(nodes) if len(nodes) % 2 == 0 else [*nodes, None]
    rounds = []
    for _ in range(len(seats) - 1):
        half = len(seats) // 2
        facing = zip(seats[:half], reversed(seats[half:]), strict=True)
        rounds.append([(a, b) for a, b in facing if a is not None and b is not None])
        seats = [seats[0], seats[-1], *seats[1:-1]]
    return rounds


def _mixed(sources: Sequence[str], destinations: Sequence[str], both: Sequence[str]) -> Rounds:
    """One direction between the nodes with both roles by the circle method, all the rest by Vizing's theorem.

    With an odd number of them each circle round leaves one idle: it meets a node with one role, in turn, which
    takes one off the degree of every node with both and so keeps the sum at Δ + 1.
    """
    paths = {Path(a, b) for a, b in product(sources, destinations) if a != b}
    single = _alternate(sorted(set(sources) - set(both)), sorted(set(destinations) - set(both)))
    circle: list[tuple[Path, ...]] = []
    for number, edges in enumerate(circle_rounds(both)):
        idle = set(both) - {node for edge in edges for node in edge}
        extra = [_planned(paths, node, single[number % len(single)]) for node in idle] if len(both) > 1 else []
        circle.append((*_paths(edges), *extra))
    rest = paths - {path for paths_of_round in circle for path in paths_of_round}
    coloured = colour([(path.source, path.destination) for path in sorted(rest)])
    return tuple(r for r in (*circle, *(_paths(edges) for edges in coloured)) if r)


def _planned(paths: set[Path], one: str, other: str) -> Path:
    return Path(one, other) if Path(one, other) in paths else Path(other, one)


def _alternate(one: Sequence[str], other: Sequence[str]) -> list[str]:
    shared = min(len(one), len(other))
    mixed = [name for pair in zip(one, other, strict=False) for name in pair]
    return [*mixed, *one[shared:], *other[shared:]]


def _paths(edges: Iterable[Edge]) -> tuple[Path, ...]:
    return tuple(Path(a, b) for a, b in edges)


def _reversed(paths: Iterable[Path]) -> tuple[Path, ...]:
    return tuple(Path(path.destination, path.source) for path in paths)


def colour(edges: Sequence[Edge]) -> list[list[Edge]]:
    """The edges of a simple graph in at most Δ + 1 classes without a shared node (Misra and Gries, 1992)."""
    painting = _Painting(edges)
    for edge in edges:
        painting.paint(*edge)
    return painting.classes()


class _Painting:
    """Colours given so far: `at[node][colour]` is the neighbour that the colour leads to."""

    def __init__(self, edges: Sequence[Edge]) -> None:
        self._edges = edges
        self.at: dict[str, dict[int, str]] = {node: {} for edge in edges for node in edge}
        degree = {node: sum(node in edge for edge in edges) for node in self.at}
        self._palette = range(max(degree.values(), default=0) + 1)

    def paint(self, node: str, neighbour: str) -> None:
        fan = self._fan(node, neighbour)
        c, d = self._free(node), self._free(fan[-1])
        self._invert(node, c, d)
        kept = self._rotatable(node, fan, d)
        self._rotate(node, kept)
        self._set(node, kept[-1], d)

    def classes(self) -> list[list[Edge]]:
        by_colour: dict[int, list[Edge]] = {}
        for a, b in self._edges:
            by_colour.setdefault(self._colour(a, b), []).append((a, b))
        return [by_colour[c] for c in sorted(by_colour)]

    def _free(self, node: str) -> int:
        return next(c for c in self._palette if c not in self.at[node])

    def _colour(self, a: str, b: str) -> int:
        return next(c for c, other in self.at[a].items() if other == b)

    def _fan(self, node: str, first: str) -> list[str]:
        fan, waiting = [first], dict(self.at[node])
        while True:
            step = next((c for c in waiting if c not in self.at[fan[-1]]), None)
            if step is None:
                return fan
            fan.append(waiting.pop(step))

    def _invert(self, node: str, c: int, d: int) -> None:
        """Swaps the two colours along the path that leaves `node` by d."""
        trail, at, colour_now = [], node, d
        while colour_now in self.at[at]:
            onward = self.at[at][colour_now]
            trail.append((at, onward, colour_now))
            at, colour_now = onward, c if colour_now == d else d
        for a, b, old in trail:
            del self.at[a][old], self.at[b][old]
        for a, b, old in trail:
            self._set(a, b, c if old == d else d)

    def _rotatable(self, node: str, fan: Sequence[str], d: int) -> list[str]:
        """The shortest prefix of the fan that is still a fan and whose end has d free."""
        for end, leaf in enumerate(fan):
            if end and self._colour(node, leaf) in self.at[fan[end - 1]]:
                break
            if d not in self.at[leaf]:
                return list(fan[: end + 1])
        raise AssertionError("a fan always has such a prefix")

    def _rotate(self, node: str, fan: Sequence[str]) -> None:
        colours = [self._colour(node, leaf) for leaf in fan[1:]]
        for leaf, old in zip(fan[1:], colours, strict=True):
            del self.at[node][old], self.at[leaf][old]
        for leaf, new in zip(fan, colours, strict=False):
            self._set(node, leaf, new)

    def _set(self, a: str, b: str, c: int) -> None:
        self.at[a][c], self.at[b][c] = b, a
