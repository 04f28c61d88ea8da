"""Whom a test waits for where the rounds of a schedule go in order, so that none disturbs one of another round."""

from __future__ import annotations

from collections.abc import Sequence

from kvgate_probe.wire import Pair, Schedule, Test

MOST_ASKED = 32
"""Walkers of the round before that one walker asks; in a larger round, each asks others."""
SECONDS_PER_ASKER = 0.002
"""A walker that many wait for is asked by each of them the more seldom."""


class Order:
    """The rounds of a schedule as one node sees them; nothing is waited for where they are in no order."""

    def __init__(self, schedule: Schedule, node: str) -> None:
        self._rounds: Sequence[Sequence[Pair]] = schedule.rounds if schedule.in_order else ()
        self._node = node
        self._steps = len(schedule.steps)
        self._first = [0]
        for pairs in self._rounds:
            self._first.append(self._first[-1] + len(pairs) * self._steps)

    def before(self, test: Test) -> tuple[str, ...]:
        """The walkers that must be past the round before the test's: one end of each of its tests, as far as asked."""
        if not self._rounds or test.round == 0 or test.step > 0:
            return ()
        pairs = sorted(self._rounds[test.round - 1])
        first = (test.index - self._first[test.round]) // self._steps
        turned = [pairs[(first + place * _stride(pairs)) % len(pairs)] for place in range(min(len(pairs), MOST_ASKED))]
        return tuple(dict.fromkeys(pair.source for pair in turned if self._node not in (pair.source, pair.destination)))

    def begins_at(self, test: Test) -> int:
        """The place of the first test of this round in the one order: who stands there or further is past the one
        before."""
        return self._first[test.round] if self._rounds else 0

    def pause_seconds(self, test: Test) -> float:
        """How long to wait between two questions, so that no walker is asked too often while it tests."""
        before, askers = len(self._rounds[test.round - 1]), 2 * len(self._rounds[test.round])
        return SECONDS_PER_ASKER * askers * min(before, MOST_ASKED) / before

    def followers(self) -> frozenset[str]:
        """Who may wait for this node: the ends of all tests in rounds after one that it sends in."""
        mine = [number for number, pairs in enumerate(self._rounds) if any(p.source == self._node for p in pairs)]
        later = (self._rounds[number + 1] for number in mine if number + 1 < len(self._rounds))
        ends = {end for pairs in later for pair in pairs for end in (pair.source, pair.destination)}
        return frozenset(ends - {self._node})


def _stride(pairs: Sequence[Pair]) -> int:
    return max(1, len(pairs) // MOST_ASKED)
