"""Rounds in order: no test begins before those of the round before it have ended, whoever dies or comes late."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvgate.api.words import Phase
from kvgate_probe.order import MOST_ASKED, Order
from kvgate_probe.partners import Patience
from kvgate_probe.wire import Pair, Result, Role, Schedule, Trouble
from tests.probe.simulation import GOOD, Book, Fate, Outcome, run_in_jumping_time, simulate

PATIENCE = Patience()
TEST_SECONDS = 10.0
OVERHEAD_SECONDS = 1.2
NODES = [f"n{number}" for number in range(6)]
ONE_BY_ONE = tuple((Pair(a, b),) for a, b in product(NODES[:3], NODES[3:]))
TOGETHER = tuple(tuple(Pair(f"n{a}", f"n{3 + (a + shift) % 3}") for a in range(3)) for shift in range(3))
PLAN = Schedule(
    "run", "uid", "played", (*ONE_BY_ONE, *TOGETHER), TEST_SECONDS, 1, 7000, Phase.ISOLATED.value,
    in_order=True, beside=(Phase.CONCURRENT.value, len(TOGETHER)),
)  # fmt: skip


def run(plan: Schedule, fates: dict[str, Fate] | None = None) -> Outcome:
    return run_in_jumping_time(simulate(plan, fates or {}, Book(7000), PATIENCE))


def good_sources(outcome: Outcome) -> list[Result]:
    return [result for result in outcome.results if result.role is Role.SOURCE and result.document == GOOD]


def overlapping(results: list[Result]) -> list[tuple[Result, Result]]:
    """Tests of different rounds that ran at the same time."""
    pairs = ((a, b) for a, b in product(results, results) if a.round < b.round)
    return [(a, b) for a, b in pairs if min(a.ended_at, b.ended_at) > max(a.started_at, b.started_at) + 0.001]


def test_without_an_order_tests_of_different_rounds_run_at_once() -> None:
    assert overlapping(good_sources(run(replace(PLAN, in_order=False))))


def test_in_order_tests_alone_are_alone_and_those_at_once_begin_together() -> None:
    outcome = run(PLAN)
    results = good_sources(outcome)
    assert overlapping(results) == []
    assert len(results) == len(PLAN.tests())
    for number in range(len(ONE_BY_ONE), len(PLAN.rounds)):
        starts = [result.started_at for result in results if result.round == number]
        assert max(starts) - min(starts) < 0.2 * TEST_SECONDS
    assert max(outcome.ended_at.values()) <= len(PLAN.rounds) * (TEST_SECONDS + OVERHEAD_SECONDS)


def test_each_record_names_the_phase_of_its_round() -> None:
    told = {(result.round, result.phase) for result in run(PLAN).results}
    assert told == {(number, PLAN.phase_of(number)) for number in range(len(PLAN.rounds))}
    assert {phase for _, phase in told} == {"Isolated", "Concurrent"}


@given(late=st.dictionaries(st.sampled_from(NODES), st.floats(0, 14), max_size=4))
@settings(max_examples=20, deadline=None)
def test_however_unevenly_they_start_nothing_is_lost_or_disturbed(late: dict[str, float]) -> None:
    outcome = run(PLAN, {node: Fate(starts=at) for node, at in late.items()})
    assert {result.trouble for result in outcome.results} == {None}
    assert overlapping(good_sources(outcome)) == []


@given(
    killed=st.dictionaries(st.sampled_from(NODES), st.tuples(st.floats(0, 140), st.booleans()), max_size=3),
)
@settings(max_examples=20, deadline=None)
def test_deaths_cost_their_silence_once_and_the_living_measure_each_other(
    killed: dict[str, tuple[float, bool]],
) -> None:
    outcome = run(PLAN, {node: Fate(killed_at=at, swallows=swallows) for node, (at, swallows) in killed.items()})
    living = {pair for pair in ONE_BY_ONE if not {pair[0].source, pair[0].destination} & set(killed)}
    good = [result.pair for result in good_sources(outcome)]
    assert all(good.count(pair) == 2 for (pair,) in living)
    touched = (r for r in outcome.results if r.trouble is not None)
    assert all({r.pair.source, r.pair.destination} & set(killed) for r in touched)
    limit = len(PLAN.rounds) * (TEST_SECONDS + OVERHEAD_SECONDS) + len(killed) * (PATIENCE.silence_seconds + 3.0) + 1
    assert max(outcome.ended_at.values(), default=0.0) <= limit


def test_a_walker_that_was_told_to_end_holds_up_nobody() -> None:
    outcome = run(PLAN, {"n0": Fate(told_at=5.0)})
    assert max(outcome.ended_at.values()) <= len(PLAN.rounds) * (TEST_SECONDS + OVERHEAD_SECONDS)
    assert {r.trouble for r in outcome.results if "n0" not in (r.pair.source, r.pair.destination)} == {None}
    assert Trouble.INTERRUPTED in {r.trouble for r in outcome.results}


@pytest.mark.parametrize("size", [1, 40, 500])
def test_however_many_tests_a_round_has_a_walker_asks_few_and_each_is_asked_by_few(size: int) -> None:
    pairs = tuple(Pair(f"p{number:03}", f"d{number:03}") for number in range(size))
    plan = replace(PLAN, rounds=(pairs, pairs), beside=None)
    asked: dict[str, int] = {}
    for node in (pair.source for pair in pairs):
        (test,) = (test for test in plan.tests_of(node) if test.round == 1)
        names = Order(plan, node).before(test)
        assert len(names) <= MOST_ASKED
        assert node not in names
        for name in names:
            asked[name] = asked.get(name, 0) + 1
    assert max(asked.values(), default=0) <= 2 * MOST_ASKED
    assert len(asked) == (size if size > 1 else 0)
