"""Which of too many paths a sweep measures: each node, each kind of distance, and in turn every path."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from kvgate.core.evidence import Path
from kvgate.core.topology import UNLABELLED, Places, short

LOOKAHEAD = 4
"""How many of a node's next partners are compared, to take the one with the fewest tests."""
EVEN_SHARE = 2
"""One part in this many of a sample is spread evenly over the strata, the rest by their size."""


@dataclass(frozen=True)
class Sampling:
    """What a sample is taken from and by: the same values always give the same paths.

    `seen` are the paths that need no measurement now, `first` those that are taken before all others; `turn` is the
    number of the sweep, by which samples rotate.
    """

    sources: Sequence[str]
    destinations: Sequence[str]
    most: int
    seed: str
    turn: int
    places: Places = field(default_factory=lambda: Places({}))
    seen: frozenset[Path] = frozenset()
    first: tuple[Path, ...] = ()


def sampled(ask: Sampling) -> tuple[Path, ...]:
    """At most `most` paths that are not seen. While `most` allows, every node sends and receives in some: also the
    other way round where it has one role alone, for a fault of its interface may lie in either direction."""
    picking = _Picking(ask)
    picking.begin()
    picking.cover()
    backwards = picking.backwards()
    picking.fill(ask.most - len(backwards))
    return (*picking.paths(), *backwards)


class _Picking:
    def __init__(self, ask: Sampling) -> None:
        self._ask = ask
        self._sources, self._destinations = sorted(set(ask.sources)), sorted(set(ask.destinations))
        self._place = {name: place for place, name in enumerate(self._destinations)}
        self._taken: list[set[int]] = [set() for _ in self._sources]
        self._out, self._in = [0] * len(self._sources), [0] * len(self._destinations)
        self._picked: list[tuple[int, int]] = []
        self._salt = int.from_bytes(hashlib.sha256(ask.seed.encode()).digest()[:8], "big")
        self._strata = _Strata(self._sources, self._destinations, ask.places)
        self._close_seen()

    def paths(self) -> tuple[Path, ...]:
        return tuple(Path(self._sources[a], self._destinations[b]) for a, b in self._picked)

    def _close_seen(self) -> None:
        """What needs no measurement can't be taken: seen paths, and a node's path onto itself."""
        here = {name: place for place, name in enumerate(self._sources)}
        for path in self._ask.seen:
            if path.source in here and path.destination in self._place:
                self._taken[here[path.source]].add(self._place[path.destination])
        for name, place in here.items():
            if name in self._place:
                self._taken[place].add(self._place[name])

    def _take(self, a: int, b: int) -> None:
        self._taken[a].add(b)
        self._picked.append((a, b))
        self._out[a] += 1
        self._in[b] += 1

    def begin(self) -> None:
        here = {name: place for place, name in enumerate(self._sources)}
        for path in self._ask.first[: self._ask.most]:
            a, b = here.get(path.source), self._place.get(path.destination)
            if a is not None and b is not None and b not in self._taken[a]:
                self._take(a, b)

    def cover(self) -> None:
        """One path for each node at least, as long as there is room: the one that this turn's diagonal gives it. Nodes
        that no seen path ends at come first, so that samples smaller than the nodes are many reach all in turn."""
        few, many = sorted((len(self._sources), len(self._destinations)))
        shift, straight = self._salt + self._ask.turn, len(self._sources) == many
        names = self._sources if straight else self._destinations
        known = {path.source if straight else path.destination for path in self._ask.seen if not path.same_node}
        for step in sorted(range(many if few else 0), key=lambda place: names[place] in known):
            a, b = (step, (step + shift) % few) if straight else ((step + shift) % few, step)
            if len(self._picked) < self._ask.most and (not self._out[a] or not self._in[b]):
                self._cover_one(a, b)

    def _cover_one(self, a: int, b: int) -> None:
        if b not in self._taken[a]:
            self._take(a, b)
            return
        if not self._out[a]:
            after = (self._destinations_from(b, other) for other in range(1, len(self._destinations)))
            free = next((other for other in after if other not in self._taken[a]), None)
            if free is not None:
                self._take(a, free)
        if not self._in[b] and len(self._picked) < self._ask.most:
            others = ((a + other) % len(self._sources) for other in range(1, len(self._sources)))
            sender = next((other for other in others if b not in self._taken[other]), None)
            if sender is not None:
                self._take(sender, b)

    def _destinations_from(self, place: int, steps: int) -> int:
        return (place + steps) % len(self._destinations)

    def backwards(self) -> tuple[Path, ...]:
        """The paths that were taken to cover nodes, turned round, where both nodes have one role alone: all that fit
        beside them, or none, for half of it would cover nothing."""
        both = set(self._sources) & set(self._destinations)
        turned = (Path(path.destination, path.source) for path in self.paths())
        found = tuple(path for path in turned if not {path.source, path.destination} & both)
        return found if len(self._picked) + len(found) <= self._ask.most else ()

    def fill(self, most: int) -> None:
        wanted = self._strata.quotas(most)
        for path in self._picked:
            wanted[self._strata.of(*path)] -= 1
        for stratum in sorted(wanted, key=lambda name: (self._strata.sizes[name], name)):
            self._draw(stratum, min(wanted[stratum], most - len(self._picked)))
        for stratum in sorted(wanted, key=lambda name: (-self._strata.sizes[name], name)):
            self._draw(stratum, most - len(self._picked))

    def _draw(self, stratum: str, count: int) -> None:
        """Round after round, each sender that may take one more of this stratum takes its next."""
        if count <= 0:
            return
        partners = self._strata.partners(stratum)
        senders = [a for a, owned in enumerate(partners) if owned]
        each = -(-count // max(1, len(senders)))
        begins = {a: self._salt + a + self._ask.turn * each for a in senders}
        spent = dict.fromkeys(senders, 0)
        shift = (self._salt + self._ask.turn * count) % max(1, len(senders))
        waiting = senders[shift:] + senders[:shift]
        while waiting and count > 0:
            waiting.sort(key=lambda a: self._out[a])
            still = []
            for a in waiting:
                if count > 0 and self._next_of(a, partners[a], begins[a], spent):
                    count -= 1
                    still.append(a)
            waiting = still

    def _next_of(self, a: int, owned: Sequence[int], begin: int, spent: dict[int, int]) -> bool:
        """Takes the least used of the sender's next few partners; False once it has none left."""
        ahead: list[int] = []
        step, length, taken = spent[a], len(owned), self._taken[a]
        while step < length and len(ahead) < LOOKAHEAD:
            b = owned[(begin + step) % length]
            if b not in taken:
                ahead.append(b)
            elif not ahead:
                spent[a] = step + 1
            step += 1
        if not ahead:
            return False
        self._take(a, min(ahead, key=lambda b: self._in[b]))
        return True


class _Strata:
    """How far apart the ends of each path stand; nodes whose labels agree are looked at once."""

    def __init__(self, sources: Sequence[str], destinations: Sequence[str], places: Places) -> None:
        self._from, firsts = _classes(sources, places)
        self._to, seconds = _classes(destinations, places)
        self._names = _strata_of(firsts, seconds, places)
        members, senders = defaultdict[int, int](int), defaultdict[int, int](int)
        for kind in self._to:
            members[kind] += 1
        for kind in self._from:
            senders[kind] += 1
        self.sizes = _summed(
            (name, senders[a] * members[b]) for a, row in enumerate(self._names) for b, name in enumerate(row)
        )

    def of(self, a: int, b: int) -> str:
        return self._names[self._from[a]][self._to[b]]

    def partners(self, stratum: str) -> list[Sequence[int]]:
        """For each sender the receivers that stand this far away."""
        by_class = [
            [b for b, kind in enumerate(self._to) if row[kind] == stratum] if stratum in row else []
            for row in self._names
        ]
        return [by_class[kind] for kind in self._from]

    def quotas(self, most: int) -> dict[str, int]:
        """How much of a sample each stratum is given; what rounding leaves is drawn from the largest."""
        even, whole = most // (EVEN_SHARE * max(1, len(self.sizes))), sum(self.sizes.values())
        rest = most - even * len(self.sizes)
        return {name: min(size, even + rest * size // max(1, whole)) for name, size in self.sizes.items()}


def _classes(names: Sequence[str], places: Places) -> tuple[list[int], list[str]]:
    """The class of each node, and the first node of each class."""
    known: dict[tuple[tuple[str, str], ...], int] = {}
    firsts: list[str] = []
    kinds: list[int] = []
    for name in names:
        labels = tuple(sorted(places.labels.get(name, {}).items()))
        if labels not in known:
            known[labels] = len(firsts)
            firsts.append(name)
        kinds.append(known[labels])
    return kinds, firsts


def _strata_of(sources: Sequence[str], destinations: Sequence[str], places: Places) -> list[list[str]]:
    """`places.stratum` of each source with each destination, without asking for every pair."""
    keys = [key for key in places.keys if any(key in labels for labels in places.labels.values())]
    standing: dict[tuple[str, str], list[int]] = {}
    for b, name in enumerate(destinations):
        for key in keys:
            if value := _at(places, name, key):
                standing.setdefault((key, value), []).append(b)
    apart: dict[tuple[str, ...], list[str]] = {}
    rows: list[list[str]] = []
    for name in sources:
        named = tuple(key for key in keys if _at(places, name, key))
        if named not in apart:
            apart[named] = [_apart(named, other, places) for other in destinations]
        row = list(apart[named])
        for key in reversed(named):
            for b in standing.get((key, _at(places, name, key)), ()):
                row[b] = f"same {short(key)}"
        rows.append(row)
    return rows


def _apart(named: Sequence[str], other: str, places: Places) -> str:
    shared = [key for key in named if _at(places, other, key)]
    return f"other {short(shared[-1])}" if shared else UNLABELLED


def _at(places: Places, node: str, key: str) -> str:
    return places.labels.get(node, {}).get(key, "")


def _summed(counts: Iterable[tuple[str, int]]) -> Mapping[str, int]:
    total = defaultdict[str, int](int)
    for name, count in counts:
        total[name] += count
    return dict(total)
