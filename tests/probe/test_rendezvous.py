"""How walkers meet: no deadlock, no live node called unreachable, and an end within the promised time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvgate.api.words import Phase
from kvgate.core.evidence import Path
from kvgate.probe.plan import LinkTest, plan_paths
from kvgate_probe.partners import Patience
from kvgate_probe.tool import Ran
from kvgate_probe.wire import Pair, Result, Schedule, Step, Trouble
from tests.probe.matrix import plan_sweep
from tests.probe.simulation import GOOD, Book, Fate, Outcome, run_in_jumping_time, simulate

NODES = [f"n{number}" for number in range(6)]
PATIENCE = Patience()
SELDOM = Patience(poll_seconds=0.5)
"""For tests that promise no time: they ask less often, and so are told the same in a fifth of the turns."""
OVERHEAD_SECONDS = 0.8
ROUND_SECONDS = 10.0


def schedule(prefill: list[str], decode: list[str]) -> Schedule:
    test = LinkTest(duration_seconds=ROUND_SECONDS, streams=1, port=7000)
    return plan_sweep("run", "uid", prefill, decode, test, Phase.ISOLATED).schedule


def stepped(plan: Schedule, *operations: str) -> Schedule:
    """The same sweep, with a further test per meeting that is started by the end which the operation names."""
    return replace(plan, further=tuple(Step("played", 1, ROUND_SECONDS, operation=one) for one in operations))


def run(
    plan: Schedule,
    fates: dict[str, Fate] | None = None,
    known: dict[str, float] | None = None,
    patience: Patience = PATIENCE,
) -> Outcome:
    return run_in_jumping_time(simulate(plan, fates or {}, Book(7000, known or {}), patience))


def good_sources(outcome: Outcome) -> set[tuple[str, str]]:
    return {
        (result.pair.source, result.pair.destination)
        for result in outcome.results
        if result.document == GOOD and result.node == result.pair.source
    }


def troubles(outcome: Outcome) -> set[tuple[str, Trouble]]:
    return {(result.node, result.trouble) for result in outcome.results if result.trouble is not None}


def touched(result: Result, nodes: set[str]) -> bool:
    return bool({result.pair.source, result.pair.destination} & nodes)


roles = st.tuples(
    st.lists(st.sampled_from(NODES), min_size=1, unique=True), st.lists(st.sampled_from(NODES), min_size=1, unique=True)
)
moments = st.floats(0, 80)


@given(roles=roles, killed=st.dictionaries(st.sampled_from(NODES), st.tuples(moments, st.booleans()), max_size=3))
@settings(max_examples=40, deadline=None)
def test_deaths_cost_their_silence_once_and_the_living_measure_each_other(
    roles: tuple[list[str], list[str]], killed: dict[str, tuple[float, bool]]
) -> None:
    plan = schedule(*roles)
    fates = {node: Fate(killed_at=at, swallows=swallows) for node, (at, swallows) in killed.items()}
    outcome = run(plan, fates)
    dead, pairs = set(killed), {test.pair for test in plan.tests()}
    living = {pair for pair in pairs if not {pair.source, pair.destination} & dead}
    assert {(pair.source, pair.destination) for pair in living} <= good_sources(outcome)
    assert all(touched(result, dead) for result in outcome.results if result.trouble is not None)
    limit = len(plan.rounds) * (ROUND_SECONDS + OVERHEAD_SECONDS) + len(dead) * (PATIENCE.silence_seconds + 1.5) + 1
    assert max(outcome.ended_at.values(), default=0.0) <= limit
    every = [(result.node, result.pair) for result in outcome.results]
    assert len(every) == len(set(every))


@given(roles=roles, late=st.dictionaries(st.sampled_from(NODES), st.floats(0, 14), max_size=4))
@settings(max_examples=30, deadline=None)
def test_no_live_node_is_called_unreachable_however_unevenly_they_start(
    roles: tuple[list[str], list[str]], late: dict[str, float]
) -> None:
    plan = schedule(*roles)
    outcome = run(plan, {node: Fate(starts=starts) for node, starts in late.items()})
    assert troubles(outcome) == set()
    assert len(outcome.results) == 2 * len(plan.tests())
    limit = len(plan.rounds) * (ROUND_SECONDS + OVERHEAD_SECONDS) + 14 + 2
    assert max(outcome.ended_at.values(), default=0.0) <= limit


@given(roles=roles, late=st.dictionaries(st.sampled_from(NODES), st.floats(0, 14), max_size=4))
@settings(max_examples=30, deadline=None)
def test_addresses_that_reach_the_two_ends_at_different_times_cost_no_test(
    roles: tuple[list[str], list[str]], late: dict[str, float]
) -> None:
    """As the kubelet delivers them: a partner that was told first asks an end that cannot ask back yet."""
    plan = schedule(*roles)
    outcome = run(plan, {node: Fate(told_peers_at=at) for node, at in late.items()}, patience=SELDOM)
    assert troubles(outcome) == set()
    assert {(test.pair.source, test.pair.destination) for test in plan.tests()} <= good_sources(outcome)


@given(roles=roles, known=st.dictionaries(st.sampled_from(NODES), st.floats(0, 100), max_size=4))
@settings(max_examples=30, deadline=None)
def test_an_address_that_comes_late_is_waited_for(roles: tuple[list[str], list[str]], known: dict[str, float]) -> None:
    outcome = run(schedule(*roles), {node: Fate(starts=at) for node, at in known.items()}, known, SELDOM)
    assert troubles(outcome) == set()


def test_the_overhead_of_a_sweep_without_trouble_is_small() -> None:
    plan = schedule(NODES[:3], NODES[3:])
    outcome = run(plan)
    assert max(outcome.ended_at.values()) <= 1.25 * len(plan.rounds) * ROUND_SECONDS
    assert all(summary.measured == 3 and not summary.troubled for summary in outcome.summaries.values())


@given(
    roles=roles,
    operations=st.lists(st.sampled_from(["read", "write"]), min_size=1, max_size=2),
    killed=st.dictionaries(st.sampled_from(NODES), st.tuples(moments, st.booleans()), max_size=2),
)
@settings(max_examples=25, deadline=None)
def test_a_pair_that_meets_for_tests_in_either_direction_ends_all_of_them_or_says_why(
    roles: tuple[list[str], list[str]], operations: list[str], killed: dict[str, tuple[float, bool]]
) -> None:
    plan = stepped(schedule(*roles), *operations)
    outcome = run(plan, {node: Fate(killed_at=at, swallows=swallows) for node, (at, swallows) in killed.items()})
    living = {test.index for test in plan.tests() if not {test.pair.source, test.pair.destination} & set(killed)}
    by_place = {(test.pair, test.step): test.index for test in plan.tests()}
    good = [by_place[result.pair, result.step] for result in outcome.results if result.document == GOOD]
    assert all(good.count(index) == 2 for index in living)
    assert all(touched(result, set(killed)) for result in outcome.results if result.trouble is not None)
    limit = len(plan.rounds) * (plan.round_seconds + len(plan.steps) * OVERHEAD_SECONDS)
    assert max(outcome.ended_at.values(), default=0.0) <= limit + len(killed) * (PATIENCE.silence_seconds + 1.5) + 1


def test_a_node_that_starts_after_it_was_given_up_is_measured_in_the_make_up_pass() -> None:
    plan = schedule(NODES[:3], NODES[3:])
    outcome = run(plan, {"n0": Fate(starts=20)})
    assert troubles(outcome) == set()
    assert len(good_sources(outcome)) == 9


@pytest.mark.parametrize(
    ("fate", "seen"),
    [
        pytest.param(Fate(killed_at=0.0), Trouble.PARTNER_SILENT, id="a walker that never came is silent"),
        pytest.param(
            Fate(killed_at=0.0, swallows=True), Trouble.PARTNER_SILENT, id="a host that swallows packets is silent"
        ),
        pytest.param(Fate(told_at=5.0), Trouble.INTERRUPTED, id="a walker told to end says so: no fault of the path"),
        pytest.param(Fate(run="other"), Trouble.WRONG_RUN, id="a walker of another run is refused by its run ID"),
        pytest.param(
            Fate(broken=Ran(trouble=Trouble.TOOL_MISSING)),
            Trouble.TOOL_MISSING,
            id="a partner without the tool says so",
        ),
        pytest.param(
            Fate(broken=Ran(trouble=Trouble.TOOL_FAILED)), Trouble.TOOL_FAILED, id="a partner without /tmp says so"
        ),
    ],
)
def test_what_the_partners_of_a_troubled_walker_record(fate: Fate, seen: Trouble) -> None:
    outcome = run(schedule(["n0"], ["n1", "n2"]), {"n0": fate})
    partners = [result for result in outcome.results if result.node != "n0" and result.round > 0]
    assert {result.trouble for result in partners} == {seen}
    assert all(result.message for result in partners)


def test_an_address_that_never_comes_is_not_called_silence() -> None:
    outcome = run(schedule(["n0"], ["n1"]), known={"n0": 1e9, "n1": 1e9})
    assert {trouble for _, trouble in troubles(outcome)} == {Trouble.ADDRESS_UNKNOWN}
    assert max(outcome.ended_at.values()) <= 2 * PATIENCE.address_seconds


@pytest.mark.parametrize("killed_at", [None, 0.5, 5.0, 12.0])
def test_a_walker_without_addresses_ends_with_those_that_found_it(killed_at: float | None) -> None:
    fates = {"n0": Fate(killed_at=killed_at), "n1": Fate(blind=True)}
    outcome = run(schedule(["n0"], ["n1"]), fates)
    assert max(outcome.ended_at.values()) <= 120 + ROUND_SECONDS
    assert killed_at is not None or good_sources(outcome) == {("n0", "n1")}


OWN = [Path("a", "a"), Path("a", "b"), Path("b", "a"), Path("b", "b")]


def test_nodes_and_their_companions_measure_all_paths_of_nodes_with_both_roles() -> None:
    plan = plan_paths("run-1", "pool-uid", OWN, LinkTest(ROUND_SECONDS, 4, 5201), Phase.ISOLATED).schedule
    outcome = run(plan)
    assert troubles(outcome) == set()
    assert good_sources(outcome) == {("a", "a/2"), ("a", "b"), ("b", "a"), ("b", "b/2")}


def test_a_companion_that_never_comes_keeps_no_path_between_nodes_waiting() -> None:
    plan = plan_paths("run-1", "pool-uid", OWN, LinkTest(ROUND_SECONDS, 4, 5201), Phase.ISOLATED).schedule
    outcome = run(plan, {"a/2": Fate(killed_at=0.0)})
    assert good_sources(outcome) == {("a", "b"), ("b", "a"), ("b", "b/2")}
    assert {result.pair for result in outcome.results if result.trouble is not None} == {Pair("a", "a/2")}


def test_a_stranger_that_ends_before_it_is_given_up_stays_a_stranger() -> None:
    outcome = run(schedule(["n0"], ["n1"]), {"n0": Fate(run="other", killed_at=10.0)})
    assert [result.trouble for result in outcome.results if result.node == "n1"] == [Trouble.WRONG_RUN]


@pytest.mark.parametrize("victim", ["n0", "n1"])
@pytest.mark.parametrize("how", ["killed_at", "told_at"])
def test_an_end_that_dies_during_the_test_leaves_no_number(victim: str, how: str) -> None:
    outcome = run(schedule(["n0"], ["n1"]), {victim: _fate(how, 5.0)})
    assert outcome.results
    assert all(result.document != GOOD for result in outcome.results)


def _fate(how: str, at: float) -> Fate:
    values: dict[str, Any] = {how: at}
    return Fate(**values)


def test_a_walker_told_to_end_records_the_test_in_flight_and_says_so_in_its_summary() -> None:
    outcome = run(schedule(["n0"], ["n1"]), {"n0": Fate(told_at=5.0)})
    mine = [result for result in outcome.results if result.node == "n0"]
    assert [result.trouble for result in mine] == [Trouble.INTERRUPTED]
    assert outcome.summaries["n0"].interrupted
    assert max(outcome.ended_at.values()) < 5.0 + 3.0


def test_a_walker_that_is_done_stays_to_tell_its_reasons_to_those_that_come_later() -> None:
    broken = Fate(broken=Ran(trouble=Trouble.TOOL_MISSING))
    outcome = run(schedule(["n0"], ["n1"]), {"n0": broken, "n1": Fate(starts=8)})
    assert troubles(outcome) == {("n0", Trouble.TOOL_MISSING), ("n1", Trouble.TOOL_MISSING)}
