"""The rounds of a schedule, kept as numbers of nodes: a million paths fit a ConfigMap, and a walker's memory."""

from __future__ import annotations

import base64
import sys
import zlib
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, chain, pairwise
from typing import Protocol, overload

from kvgate_probe.fields import WireError
from kvgate_probe.seats import companion_of, is_companion, node_of

MOST_NODES = 1 << 16
MOST_UNPACKED_BYTES = 64 * 1024 * 1024
_MASK = MOST_NODES - 1


@dataclass(frozen=True, order=True, slots=True)
class Pair:
    """Bytes flow from `source` to `destination`."""

    source: str
    destination: str


class Ends(Protocol):
    @property
    def source(self) -> str: ...
    @property
    def destination(self) -> str: ...


_Round = tuple["array[int]", "array[int]"]
"""The sources and the destinations of a round's pairs, as places in the list of nodes, in the order of the pairs."""


class Rounds(Sequence[tuple[Pair, ...]]):
    """Rounds of pairs, each in order; the pairs are made when they are asked for. `nodes` are sorted."""

    def __init__(self, nodes: tuple[str, ...], rounds: Sequence[_Round]) -> None:
        self.nodes = nodes
        self._rounds = tuple(rounds)

    @classmethod
    def of(cls, rounds: Iterable[Iterable[Ends]]) -> Rounds:
        """Raises WireError for more than MOST_NODES nodes."""
        if isinstance(rounds, Rounds):
            return rounds
        every = [tuple(pairs) for pairs in rounds]
        nodes = tuple(sorted({end for pairs in every for pair in pairs for end in (pair.source, pair.destination)}))
        if len(nodes) > MOST_NODES:
            raise WireError(f"a schedule may have {MOST_NODES} nodes at most, not {len(nodes)}")
        place = {name: number for number, name in enumerate(nodes)}
        return cls(nodes, [_split(sorted((place[p.source], place[p.destination]) for p in pairs)) for pairs in every])

    @property
    def pairs(self) -> int:
        return sum(len(sources) for sources, _ in self._rounds)

    def of_node(self, node: str) -> Iterator[tuple[int, int, Pair]]:
        """The node's meetings in order: each with its round, and its place among all meetings of the schedule."""
        number = self.nodes.index(node) if node in self.nodes else MOST_NODES
        before = 0
        for place, (sources, destinations) in enumerate(self._rounds):
            if number in sources or number in destinations:
                for offset, (a, b) in enumerate(zip(sources, destinations, strict=True)):
                    if number in (a, b):
                        yield place, before + offset, Pair(self.nodes[a], self.nodes[b])
            before += len(sources)

    @cached_property
    def _partners(self) -> list[array[int]]:
        found = [array("H") for _ in self.nodes]
        for sources, destinations in self._rounds:
            for a, b in zip(sources, destinations, strict=True):
                found[a].append(b)
                found[b].append(a)
        return found

    def partners_of(self, node: str) -> tuple[str, ...]:
        """Those that the node has tests with, sorted."""
        place = bisect_left(self.nodes, node)
        if self.nodes[place : place + 1] != (node,):
            return ()
        return tuple(self.nodes[number] for number in sorted(set(self._partners[place])))

    def of_any(self, places: Set[int]) -> Iterator[int]:
        """The rounds that any of these takes part in, by their places in the list of nodes."""
        for number, (sources, destinations) in enumerate(self._rounds):
            if not (places.isdisjoint(sources) and places.isdisjoint(destinations)):
                yield number

    def sent_by(self, node: str) -> int:
        """How many of the pairs the node is the source of."""
        return sum(pair.source == node for _, _, pair in self.of_node(node))

    def __len__(self) -> int:
        return len(self._rounds)

    @overload
    def __getitem__(self, place: int) -> tuple[Pair, ...]: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[tuple[Pair, ...], ...]: ...
    def __getitem__(self, place: int | slice) -> tuple[Pair, ...] | tuple[tuple[Pair, ...], ...]:
        if isinstance(place, slice):
            return tuple(map(self._pairs, self._rounds[place]))
        return self._pairs(self._rounds[place])

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Rounds):
            return (self.nodes, self._rounds) == (other.nodes, other._rounds)
        return tuple(self) == other if isinstance(other, tuple) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"Rounds({tuple(self)!r})"

    def _pairs(self, numbers: _Round) -> tuple[Pair, ...]:
        return tuple(Pair(self.nodes[a], self.nodes[b]) for a, b in zip(*numbers, strict=True))

    def raw(self) -> bytes:
        """Of each round the number of its pairs, then their sources and then their destinations, each as what it is
        more than the one before it: 16-bit numbers that wrap, the least significant byte first.

        Sources and destinations of a planned round mostly rise by one, so that this is small once it is compressed.
        """
        told = array("H", chain.from_iterable(_told(numbers) for numbers in self._rounds))
        return _little(told).tobytes()

    def packed(self) -> str:
        return base64.b64encode(zlib.compress(self.raw(), 9)).decode()

    @classmethod
    def unpacked(cls, nodes: Sequence[str], text: str) -> Rounds:
        """Raises WireError for anything but rounds of these nodes, sorted, in which none is in two tests of a round."""
        if len(nodes) > MOST_NODES or any(a >= b for a, b in pairwise(nodes)):
            raise WireError("schedule: nodes must be sorted, each once")
        rounds = [_checked(n, numbers, len(nodes)) for n, numbers in enumerate(_read(_inflated(text)))]
        found = cls(tuple(nodes), rounds)
        _refuse_crowded(found)
        return found


def refuse_strangers(pairs: Iterable[Pair], where: str) -> None:
    """Raises WireError where a companion meets another node than its own, or a node of these pairs is in two tests."""
    seen: set[str] = set()
    for pair in pairs:
        ends = {node_of(pair.source), node_of(pair.destination)}
        own = pair.destination == companion_of(pair.source)
        if not own and (is_companion(pair.source) or is_companion(pair.destination)):
            raise WireError(f"{where} has a companion that meets another than its own node's walker")
        if seen & ends:
            raise WireError(f"{where} has a node in two tests")
        seen |= ends


def _refuse_crowded(rounds: Rounds) -> None:
    """Only rounds that companions are in can have a node in two tests of walkers that are not the same."""
    second = {number for number, name in enumerate(rounds.nodes) if is_companion(name)}
    if not second:
        return
    for place in rounds.of_any(second):
        refuse_strangers(rounds[place], f"schedule: rounds[{place}]")


def _split(pairs: Sequence[tuple[int, int]]) -> _Round:
    return array("H", (a for a, _ in pairs)), array("H", (b for _, b in pairs))


def _told(numbers: _Round) -> Iterator[int]:
    yield len(numbers[0])
    for side in numbers:
        yield from side[:1]
        yield from ((b - a) & _MASK for a, b in pairwise(side))


def _little(numbers: array[int]) -> array[int]:
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


def _inflated(text: str) -> array[int]:
    """Raises WireError for what is no packed text, and for one that would be larger than MOST_UNPACKED_BYTES."""
    reader = zlib.decompressobj()
    try:
        raw = reader.decompress(base64.b64decode(text, validate=True), MOST_UNPACKED_BYTES)
    except (ValueError, zlib.error):
        raise WireError("schedule: packed cannot be unpacked") from None
    if not reader.eof or len(raw) % 2:
        raise WireError(f"schedule: packed must be whole, and at most {MOST_UNPACKED_BYTES} bytes when unpacked")
    numbers = array("H")
    numbers.frombytes(raw)
    return _little(numbers)


def _read(told: array[int]) -> Iterator[_Round]:
    at = 0
    while at < len(told):
        middle, end = at + 1 + told[at], at + 1 + 2 * told[at]
        if end > len(told):
            raise WireError("schedule: packed ends within a round")
        yield _summed(told[at + 1 : middle]), _summed(told[middle:end])
        at = end


def _summed(steps: array[int]) -> array[int]:
    return array("H", accumulate(steps, lambda total, step: (total + step) & _MASK))


def _checked(place: int, numbers: _Round, nodes: int) -> _Round:
    sources, destinations = numbers
    both = {*sources, *destinations}
    if len(both) != len(sources) + len(destinations):
        raise WireError(f"schedule: rounds[{place}] has a node in two tests")
    if both and (max(both) >= nodes or any(a >= b for a, b in pairwise(sources))):
        raise WireError(f"schedule: rounds[{place}] must be sorted pairs of the {nodes} nodes")
    return numbers
