"""The sweep's plan: every path once, no node twice in a round, and no more rounds than promised."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvgate.api.words import Phase
from kvgate.core.at_once import Apart, AtOnce, PlaceLimit
from kvgate.core.evidence import Path
from kvgate.core.steps import Measure
from kvgate.probe.plan import MOST_ROUNDS_ALONE, LinkTest, plan_paths, plan_phases
from kvgate_probe.fields import WireError
from kvgate_probe.wire import Pair, Schedule, Step, decode_schedule, encode_schedule
from tests.probe.matrix import plan_sweep, rounds_between

NAMES = [f"n{number:02}" for number in range(12)]
LINK_TEST = LinkTest(duration_seconds=2, streams=4, port=5201)


def _busiest(paths: set[Path]) -> int:
    counts = Counter(node for path in paths for node in (path.source, path.destination))
    return max(counts.values(), default=0)


@given(prefill=st.sets(st.sampled_from(NAMES)), decode=st.sets(st.sampled_from(NAMES)))
def test_every_path_once_no_node_twice_in_a_round_and_few_rounds(prefill: set[str], decode: set[str]) -> None:
    rounds = rounds_between(prefill, decode)
    wanted = {Path(a, b) for a in prefill for b in decode if a != b}
    assert sorted(path for paths in rounds for path in paths) == sorted(wanted)
    for paths in rounds:
        nodes = [node for path in paths for node in (path.source, path.destination)]
        assert len(nodes) == len(set(nodes))
        assert paths
    odd_circle = prefill == decode and len(prefill) % 2 == 1 and len(prefill) > 1
    assert len(rounds) <= _busiest(wanted) + (2 if odd_circle else 1 if prefill & decode else 0)


@pytest.mark.parametrize(
    ("prefill", "decode", "count"),
    [
        pytest.param(2, 3, 3, id="two prefill and three decode nodes take three rounds"),
        pytest.param(12, 1, 12, id="one decode node is in every round"),
        pytest.param(8, 8, 8, id="eight by eight takes eight rounds"),
        pytest.param(0, 5, 0, id="no prefill node, nothing to measure"),
    ],
)
def test_bipartite_rounds_are_as_few_as_can_be(prefill: int, decode: int, count: int) -> None:
    assert len(rounds_between(NAMES[:prefill], [f"d{n}" for n in range(decode)])) == count


def test_nodes_with_both_roles_take_the_circle_in_each_direction() -> None:
    assert len(rounds_between(NAMES[:8], NAMES[:8])) == 14


def test_a_path_on_one_node_goes_from_its_walker_to_its_companion() -> None:
    paths = (Path("a", "b"), Path("b", "b"), Path("b", "c"))
    plan = plan_paths("run", "uid", paths, LINK_TEST, Phase.ISOLATED)
    assert plan.paths == paths
    assert plan.nodes == ("a", "b", "c")
    assert plan.schedule.nodes == ("a", "b", "b/2", "c")
    assert plan.schedule.rounds[-1] == (Pair("b", "b/2"),)
    assert decode_schedule(encode_schedule(plan.schedule)) == plan.schedule


@pytest.mark.parametrize(
    ("rounds", "refused"),
    [
        pytest.param([[("a", "a/2"), ("b", "b/2")]], "", id="each with its own companion"),
        pytest.param([[("a", "a/2"), ("b", "a")]], "two tests", id="a node in two tests, by one walker"),
        pytest.param([[("a", "b/2")]], "another than its own", id="the companion of another node"),
        pytest.param([[("a/2", "a")]], "another than its own", id="a companion that sends"),
        pytest.param([[("b", "a"), ("a/2", "c")]], "another than its own", id="a node in two tests, by two walkers"),
    ],
)
def test_a_schedule_in_which_a_node_would_be_in_two_tests_is_refused(
    rounds: list[list[tuple[str, str]]], refused: str
) -> None:
    plan = plan_paths("run", "uid", [Path("a", "b")], LINK_TEST, Phase.ISOLATED)
    crowded = replace(plan.schedule, rounds=tuple(tuple(Pair(*ends) for ends in pairs) for pairs in rounds))
    if not refused:
        assert decode_schedule(encode_schedule(crowded)) == crowded
        return
    with pytest.raises(WireError, match=refused):
        decode_schedule(encode_schedule(crowded))


def test_the_plan_does_not_depend_on_the_order_of_nodes() -> None:
    one = plan_sweep("run", "uid", ["a", "b"], ["c", "d"], LINK_TEST, Phase.ISOLATED)
    other = plan_sweep("run", "uid", ["b", "a", "a"], ["d", "c"], LINK_TEST, Phase.ISOLATED)
    assert one == other


def test_the_schedule_survives_the_wire() -> None:
    schedule = plan_sweep("run", "uid", NAMES[:3], NAMES[2:6], LINK_TEST, Phase.ISOLATED).schedule
    assert decode_schedule(encode_schedule(schedule)) == schedule


BOTH = (Phase.ISOLATED, Phase.CONCURRENT)


def measure(paths: Iterable[Path], **fields: Any) -> Measure:
    return Measure("run", tuple(paths), "due", **fields)


def grid(prefill: int, decode: int) -> list[Path]:
    return [Path(f"p{a}", f"d{b}") for a in range(prefill) for b in range(decode)]


def phases_of(schedule: Schedule) -> dict[str, list[tuple[Pair, ...]]]:
    found: dict[str, list[tuple[Pair, ...]]] = {}
    for number, pairs in enumerate(schedule.rounds):
        found.setdefault(schedule.phase_of(number), []).append(tuple(pairs))
    return found


def racks(**places: str) -> Apart:
    return Apart(AtOnce(places=(PlaceLimit(1, places, inside=True),)))


def test_both_phases_test_each_path_alone_first_and_then_all_at_once() -> None:
    plan = plan_phases(measure(grid(2, 2)), "uid", LINK_TEST, BOTH)
    found = phases_of(plan.schedule)
    assert list(found) == ["Isolated", "Concurrent"]
    assert [len(pairs) for pairs in found["Isolated"]] == [1, 1, 1, 1]
    assert [len(pairs) for pairs in found["Concurrent"]] == [2, 2]
    assert all(len({pair for pairs in rounds for pair in pairs}) == 4 for rounds in found.values())
    assert plan.schedule.in_order
    assert plan.paths == tuple(sorted(grid(2, 2)))
    assert decode_schedule(encode_schedule(plan.schedule)) == plan.schedule


def test_of_many_paths_a_sample_is_tested_alone_by_whole_rounds_and_another_one_each_time() -> None:
    seen: set[Pair] = set()
    for number in range(6):
        plan = plan_phases(measure(grid(6, 6), number=number), "uid", LINK_TEST, BOTH)
        found = phases_of(plan.schedule)
        alone = {pair for pairs in found["Isolated"] for pair in pairs}
        whole = [set(pairs) for pairs in found["Concurrent"] if set(pairs) <= alone]
        assert len(found["Isolated"]) == 12 <= MOST_ROUNDS_ALONE
        assert set().union(*whole) == alone
        seen |= alone
    assert len(seen) == 36


def test_of_a_round_that_is_too_large_to_test_alone_a_part_is() -> None:
    found = phases_of(plan_phases(measure(grid(40, 40)), "uid", LINK_TEST, BOTH).schedule)
    assert [len(pairs) for pairs in found["Isolated"]] == [1] * MOST_ROUNDS_ALONE
    assert [len(pairs) for pairs in found["Concurrent"]] == [40] * 40


def test_what_failed_is_tested_alone_before_anything_else() -> None:
    bad = Path("p7", "d3")
    step = measure(grid(40, 40), apart=Apart(first=frozenset({bad})))
    assert phases_of(plan_phases(step, "uid", LINK_TEST, BOTH).schedule)["Isolated"][0] == (Pair("p7", "d3"),)


@pytest.mark.parametrize(
    ("places", "alone"),
    [
        pytest.param({}, [1, 1, 1, 1], id="nodes of no place share everything"),
        pytest.param(dict.fromkeys(("p0", "p1", "d0", "d1"), "a"), [1, 1, 1, 1], id="one rack is one network"),
        pytest.param({"p0": "a", "p1": "a", "d0": "b", "d1": "b"}, [1, 1, 1, 1], id="all cross the same two edges"),
        pytest.param({"p0": "a", "d0": "a", "p1": "b", "d1": "b"}, [2, 1, 1], id="two racks test inside at once"),
    ],
)
def test_tests_alone_share_no_place(places: dict[str, str], alone: list[int]) -> None:
    found = phases_of(plan_phases(measure(grid(2, 2), apart=racks(**places)), "uid", LINK_TEST, BOTH).schedule)
    assert sorted((len(pairs) for pairs in found["Isolated"]), reverse=True) == alone


@pytest.mark.parametrize(
    ("phase", "limits", "ordered"),
    [
        pytest.param(Phase.ISOLATED, AtOnce(), False, id="disjoint pairs without a limit wait for nobody"),
        pytest.param(Phase.ISOLATED, AtOnce(paths=1), True, id="a limit holds over all rounds"),
        pytest.param(Phase.CONCURRENT, AtOnce(), True, id="what is meant to run at once begins at once"),
    ],
)
def test_one_phase_alone_has_every_path_once(phase: Phase, limits: AtOnce, *, ordered: bool) -> None:
    schedule = plan_phases(measure(grid(2, 3), at_once=limits), "uid", LINK_TEST, (phase,)).schedule
    assert (list(phases_of(schedule)), schedule.in_order) == ([phase.value], ordered)
    assert len(schedule.tests()) == 6


def test_a_sweep_beside_serving_sends_what_is_asked_for_and_keeps_unpaced_tools_short() -> None:
    test = replace(LINK_TEST, further=(Step("iperf3", 1, 10.0), Step("ucx_get", 1, 5.0, 32768)))
    schedule = plan_phases(measure(grid(1, 1), pace_bytes_per_second=30e6), "uid", test, BOTH).schedule
    assert schedule.paced_bits_per_second == 240_000_000
    assert schedule.steps[1:] == (Step("iperf3", 1, 10.0), Step("ucx_get", 1, 1.0, 32768, unpaced=True))
    assert decode_schedule(encode_schedule(schedule)) == schedule
    slower = plan_phases(
        measure(grid(1, 1), pace_bytes_per_second=30e6), "uid", replace(test, paced_bits_per_second=10**6), BOTH
    )
    assert slower.schedule.paced_bits_per_second == 10**6
