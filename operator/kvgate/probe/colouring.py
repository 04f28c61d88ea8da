"""Splits the paths of a sweep into rounds in which no node is in two tests: an edge colouring."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import attrgetter

from kvgate.core.evidence import Path
from kvgate.probe.painting import Edge, painted

Rounds = tuple[tuple[Path, ...], ...]


def in_order(paths: Iterable[Path]) -> list[Path]:
    """As `sorted`, without a comparison of two paths in Python for each step."""
    return sorted(paths, key=attrgetter("source", "destination"))


def rounds_of(paths: Iterable[Path]) -> Rounds:
    """Each of these paths once, a node never in two tests of a round; Δ is the number of tests of the busiest node.

    Exactly Δ rounds where no node has both roles (Kőnig), at most Δ + 1 where no two nodes have paths both ways
    (Vizing). Where some have, Δ + 2 at most, and that only if the paths within some odd group of n nodes are too many
    for Δ + 1 rounds of (n - 1) / 2 tests: as they are for an odd number of nodes that all send to each other.

    Paths from a node to itself share one more round, the last: nobody else waits there for a companion that never came.
    """
    every = set(paths)
    own = in_order(path for path in every if path.same_node)
    return (*_between(in_order(path for path in every if not path.same_node)), *((tuple(own),) if own else ()))


def _between(wanted: Sequence[Path]) -> Rounds:
    sources, destinations = sorted({p.source for p in wanted}), sorted({p.destination for p in wanted})
    apart = not set(sources) & set(destinations)
    if apart and len(wanted) == len(sources) * len(destinations):
        return _bipartite(sources, destinations)
    if sources == destinations and len(wanted) == len(sources) * (len(sources) - 1):
        return _circle(sources)
    return _coloured(wanted, sources, destinations) if wanted else ()


def _bipartite(sources: Sequence[str], destinations: Sequence[str]) -> Rounds:
    width = max(len(sources), len(destinations))
    few, many = sorted((sources, destinations), key=len)
    if not few:
        return ()
    shifted = ([(name, many[(place + shift) % width]) for place, name in enumerate(few)] for shift in range(width))
    straight = few is sources
    return tuple(tuple(Path(a, b) if straight else Path(b, a) for a, b in edges) for edges in shifted)


def _circle(nodes: Sequence[str]) -> Rounds:
    there = [tuple(Path(a, b) for a, b in edges) for edges in circle_rounds(nodes)]
    back = (tuple(Path(path.destination, path.source) for path in paths) for paths in there)
    return tuple(paths for pair in zip(there, back, strict=True) for paths in pair if paths)


def circle_rounds(nodes: Sequence[str]) -> list[list[tuple[str, str]]]:
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


def _coloured(wanted: Sequence[Path], sources: Sequence[str], destinations: Sequence[str]) -> Rounds:
    """The edges are given diagonal by diagonal, which leaves little to repaint where most paths are wanted."""
    places = {name: place for place, name in enumerate(dict.fromkeys((*sources, *destinations)))}
    names, apart = list(places), not set(sources) & set(destinations)
    shift = len(sources) if apart else 0
    width = max(len(sources), len(destinations)) if apart else len(names) | 1

    def diagonal(edge: Edge) -> tuple[int, bool, int]:
        a, b = edge
        return ((b - shift - a) % width, False, a) if apart else ((a + b) % width, a > b, min(a, b))

    edges = sorted(((places[path.source], places[path.destination]) for path in wanted), key=diagonal)
    rounds = painted(edges, len(names), two_sided=apart)
    return tuple(tuple(Path(names[a], names[b]) for a, b in edges) for edges in rounds)
