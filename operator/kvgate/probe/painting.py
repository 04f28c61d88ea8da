"""Colours the edges of a graph so that no two of one colour meet: Kőnig's and Vizing's theorems as procedures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

Edge = tuple[int, int]
NOBODY = -1
TURNS = 1000
"""Edges that one without a colour may push out of theirs, one after the other, before a colour is added."""


def painted(edges: Sequence[Edge], nodes: int, *, two_sided: bool) -> list[list[Edge]]:
    """The edges by colour; nodes are 0 to `nodes` - 1, and an edge may stand beside its reverse.

    Δ colours, Δ being the largest degree, where the graph is two-sided. Elsewhere one is added whenever an edge finds
    none: Δ + 1 at most without reverse edges (Vizing). With them an odd group of nodes may need Δ + 2, and no graph
    needs more; a second attempt then looks for an answer with Δ + 1.
    """
    degrees = Counter(node for edge in edges for node in edge)
    fewest = max(degrees.values(), default=0)
    if two_sided:
        return _painted_across(edges, nodes, fewest)
    best = _painted(edges, nodes, fewest)
    if len(best) <= fewest + 1:
        return best
    return min(best, _painted(edges, nodes, fewest + 1, turns=TURNS), key=len)


def _painted_across(edges: Sequence[Edge], nodes: int, colours: int) -> list[list[Edge]]:
    canvas = _Canvas(nodes, colours)
    for a, b in edges:
        canvas.paint_across(a, b)
    return canvas.by_colour(edges)


def _painted(edges: Sequence[Edge], nodes: int, colours: int, turns: int = 0) -> list[list[Edge]]:
    canvas = _Canvas(nodes, colours)
    for a, b in edges:
        canvas.paint(a, b, turns)
    return canvas.by_colour(edges)


def _lowest(mask: int) -> int:
    return (mask & -mask).bit_length() - 1


def _each(mask: int) -> list[int]:
    found = []
    while mask:
        found.append(_lowest(mask))
        mask &= mask - 1
    return found


class _Canvas:
    """`at[node][colour]` is the neighbour that the colour leads to, `free[node]` the colours that lead nowhere."""

    def __init__(self, nodes: int, colours: int) -> None:
        self.at = [[NOBODY] * colours for _ in range(nodes)]
        self.free = [(1 << colours) - 1] * nodes

    def paint_across(self, a: int, b: int) -> None:
        """Between the sides of a two-sided graph: a chain of two colours from b never comes to a."""
        common = self.free[a] & self.free[b]
        if not common:
            here, there = _lowest(self.free[a]), _lowest(self.free[b])
            self._invert(self._chain(b, here, there))
            common = 1 << here
        self._set(a, b, _lowest(common))

    def paint(self, a: int, b: int, turns: int = 0) -> None:
        for turn in range(turns):
            if self._painted(a, b):
                return
            a, b = self._pushed_on(a, b, turn)
        while not self._painted(a, b):
            self._add_colour()

    def _pushed_on(self, a: int, b: int, turn: int) -> Edge:
        """The edge takes a colour that a lacks, from another edge of b, which is without one now."""
        lacking = _each(self.free[a])
        colour = lacking[turn % len(lacking)]
        other = self.at[b][colour]
        self._clear(b, other, colour)
        self._set(a, b, colour)
        return b, other

    def by_colour(self, edges: Sequence[Edge]) -> list[list[Edge]]:
        left, found = set(edges), dict[int, list[Edge]]()
        for a, row in enumerate(self.at):
            for colour, b in enumerate(row):
                if b > a:
                    edge = (a, b) if (a, b) in left else (b, a)
                    left.discard(edge)
                    found.setdefault(colour, []).append(edge)
        return [found[colour] for colour in sorted(found)]

    def _add_colour(self) -> None:
        colour = len(self.at[0])
        for node, row in enumerate(self.at):
            row.append(NOBODY)
            self.free[node] |= 1 << colour

    def _painted(self, hub: int, first: int) -> bool:
        """Vizing's fan around the hub, as a tree: a leaf hangs on the one at which the colour of its edge is free."""
        common = self.free[hub] & self.free[first]
        if common:
            self._set(hub, first, _lowest(common))
            return True
        fan, parent, owner = [first], {first: NOBODY}, dict[int, int]()
        for leaf in fan:
            if ready := self.free[leaf] & self.free[hub]:
                return self._shift(hub, leaf, parent, _lowest(ready))
            for colour in _each(self.free[leaf]):
                if colour in owner:
                    return self._make_room(hub, (owner[colour], leaf), parent, colour)
                owner[colour] = leaf
                onward = self.at[hub][colour]
                if onward not in parent:
                    parent[onward] = leaf
                    fan.append(onward)
        return False

    def _make_room(self, hub: int, leaves: Edge, parent: dict[int, int], shared: int) -> bool:
        """Both leaves lack the shared colour. The chain of it and one that the hub lacks leaves the hub and ends at one
        of them at most: at the other one the two colours are swapped."""
        lacking = _lowest(self.free[hub])
        one, other = leaves
        chain = self._chain(one, lacking, shared)
        leaf = one
        if chain and hub in chain[-1][:2]:
            leaf, chain = other, self._chain(other, lacking, shared)
        self._invert(chain)
        return self._shift(hub, leaf, parent, lacking)

    def _shift(self, hub: int, leaf: int, parent: dict[int, int], colour: int) -> bool:
        """The leaf's edge takes the colour, and hands its own on to the leaf that it hangs on."""
        while parent[leaf] != NOBODY:
            above = parent[leaf]
            old = next(c for c in _each(self.free[above] & ~self.free[hub]) if self.at[hub][c] == leaf)
            self._clear(hub, leaf, old)
            self._set(hub, leaf, colour)
            leaf, colour = above, old
        self._set(hub, leaf, colour)
        return True

    def _chain(self, start: int, first: int, second: int) -> list[tuple[int, int, int, int]]:
        """The path of the two colours that leaves `start` by the first: (from, to, colour, the other colour)."""
        chain, at, colour, other = [], start, first, second
        while (onward := self.at[at][colour]) != NOBODY:
            chain.append((at, onward, colour, other))
            at, colour, other = onward, other, colour
        return chain

    def _invert(self, chain: Sequence[tuple[int, int, int, int]]) -> None:
        for a, b, colour, _ in chain:
            self._clear(a, b, colour)
        for a, b, _, colour in chain:
            self._set(a, b, colour)

    def _set(self, a: int, b: int, colour: int) -> None:
        self.at[a][colour], self.at[b][colour] = b, a
        self.free[a] &= ~(1 << colour)
        self.free[b] &= ~(1 << colour)

    def _clear(self, a: int, b: int, colour: int) -> None:
        self.at[a][colour] = self.at[b][colour] = NOBODY
        self.free[a] |= 1 << colour
        self.free[b] |= 1 << colour
