"""Rounds of any set of paths: every path once, no node twice in a round, and as few rounds as theory allows."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import combinations, product

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kvgate.core.at_once import AtOnce
from kvgate.core.evidence import Path
from kvgate.probe.colouring import rounds_of
from kvgate.probe.limits import within
from tests.probe.matrix import rounds_between

NODES = [f"n{number:02}" for number in range(64)]


def busiest(paths: Iterable[Path]) -> int:
    counts = Counter(node for path in paths for node in (path.source, path.destination))
    return max(counts.values(), default=0)


def check(rounds: Sequence[Sequence[Path]], wanted: set[Path]) -> None:
    """Knows nothing of how rounds are made: each path once, and a node at most once in a round."""
    planned = [path for paths in rounds for path in paths]
    assert len(planned) == len(wanted)
    assert set(planned) == wanted
    for paths in rounds:
        nodes = [node for path in paths for node in (path.source, path.destination)]
        assert nodes
        assert len(nodes) == len(set(nodes))


def drawn(paths: list[Path], share: float, seed: int) -> set[Path]:
    return set(random.Random(seed).sample(paths, round(share * len(paths))))


def ways(sources: Iterable[str], destinations: Iterable[str]) -> list[Path]:
    return [Path(a, b) for a, b in product(sources, destinations) if a != b]


SOME = st.sets(st.sampled_from(NODES[:12]))
SIZES = st.integers(min_value=1, max_value=32)
SHARES, SEEDS = st.floats(min_value=0, max_value=1), st.integers(min_value=0, max_value=10_000)


@settings(deadline=None, max_examples=150)
@given(prefill=SIZES, decode=SIZES, share=SHARES, seed=SEEDS)
def test_two_sides_take_exactly_as_many_rounds_as_the_busiest_node_has_tests(
    prefill: int, decode: int, share: float, seed: int
) -> None:
    wanted = drawn(ways(NODES[:prefill], NODES[32 : 32 + decode]), share, seed)
    rounds = rounds_of(wanted)
    check(rounds, wanted)
    assert len(rounds) == busiest(wanted)


@settings(deadline=None, max_examples=150)
@given(nodes=st.integers(min_value=1, max_value=64), share=SHARES, seed=SEEDS)
def test_one_way_between_any_nodes_takes_one_round_more_at_most(nodes: int, share: float, seed: int) -> None:
    wanted = drawn([Path(a, b) for a, b in combinations(NODES[:nodes], 2)], share, seed)
    rounds = rounds_of(wanted)
    check(rounds, wanted)
    assert len(rounds) <= busiest(wanted) + 1


@settings(deadline=None, max_examples=60)
@given(nodes=st.integers(min_value=1, max_value=64), missing=st.integers(min_value=0, max_value=40), seed=SEEDS)
@example(nodes=63, missing=30, seed=0)
@example(nodes=63, missing=31, seed=0)
@example(nodes=64, missing=31, seed=0)
def test_nearly_all_paths_both_ways_take_a_second_further_round_only_where_an_odd_group_cannot_do_without(
    nodes: int, missing: int, seed: int
) -> None:
    every = ways(NODES[:nodes], NODES[:nodes])
    bounded(set(random.Random(seed).sample(every, max(0, len(every) - missing))))


@settings(deadline=None, max_examples=60)
@given(nodes=st.integers(min_value=1, max_value=64), share=SHARES, seed=SEEDS)
def test_a_part_of_the_paths_both_ways_takes_a_second_further_round_only_where_an_odd_group_cannot_do_without(
    nodes: int, share: float, seed: int
) -> None:
    bounded(drawn(ways(NODES[:nodes], NODES[:nodes]), share, seed))


def bounded(wanted: set[Path]) -> None:
    rounds, delta = rounds_of(wanted), busiest(wanted)
    check(rounds, wanted)
    assert len(rounds) <= delta + 2
    assert len(rounds) <= delta + 1 or crowded(wanted) == len(rounds)


def crowded(paths: set[Path]) -> int:
    """Rounds that no schedule undercuts: in an odd group one node always stands idle. The groups looked at are what is
    left after the node with the fewest paths went, one after the other."""
    group, fewest = {node for path in paths for node in (path.source, path.destination)}, 0
    while len(group) >= 3:
        inside = [path for path in paths if {path.source, path.destination} <= group]
        if len(group) % 2:
            fewest = max(fewest, -(-len(inside) // (len(group) // 2)))
        tests = Counter(node for path in inside for node in (path.source, path.destination))
        group.discard(min(sorted(group), key=lambda node: tests[node]))
    return fewest


@pytest.mark.parametrize("missing", [1, 15, 16])
def test_the_second_further_round_is_saved_where_it_can_be(missing: int) -> None:
    """All paths between 33 nodes but 16 fit Δ + 1 rounds without one place left over."""
    every = ways(NODES[:33], NODES[:33])
    wanted = set(random.Random(1).sample(every, len(every) - missing))
    assert len(rounds_of(wanted)) == busiest(wanted) + (2 if missing < 16 else 1)


@settings(deadline=None, max_examples=60)
@given(both=st.integers(min_value=1, max_value=32), prefill=st.integers(0, 16), decode=st.integers(0, 16))
def test_all_paths_of_any_mixture_of_roles_take_one_round_more_at_most(both: int, prefill: int, decode: int) -> None:
    """But for an odd number of nodes that all have both roles, which take the circle's rounds."""
    sources, destinations = NODES[: both + prefill], [*NODES[:both], *NODES[48 : 48 + decode]]
    wanted = set(ways(sources, destinations))
    rounds = rounds_between(sources, destinations)
    check(rounds, wanted)
    odd_circle = not prefill and not decode and both % 2
    assert len(rounds) <= busiest(wanted) + (2 if odd_circle else 1)


@pytest.mark.parametrize("both", range(1, 12))
def test_nodes_with_both_roles_beside_some_with_one_take_one_round_more_at_most(both: int) -> None:
    for prefill, decode in product(range(5), range(5)):
        sources, destinations = NODES[: both + prefill], [*NODES[:both], *NODES[40 : 40 + decode]]
        wanted = set(ways(sources, destinations))
        rounds = rounds_between(sources, destinations)
        check(rounds, wanted)
        odd_circle = not prefill and not decode and both % 2
        assert len(rounds) <= busiest(wanted) + (2 if odd_circle else 1)


@pytest.mark.parametrize("nodes", range(1, 65))
def test_a_complete_graph_takes_the_circle_in_each_direction(nodes: int) -> None:
    rounds = rounds_between(NODES[:nodes], NODES[:nodes])
    check(rounds, set(ways(NODES[:nodes], NODES[:nodes])))
    assert len(rounds) == (0 if nodes == 1 else 2 * (nodes - 1 + nodes % 2))


@pytest.mark.parametrize("missing", [0, 1, 999])
def test_a_thousand_by_a_thousand_take_a_thousand_rounds(missing: int) -> None:
    """The whole matrix, and what is left of it once a few paths need no test."""
    prefill, decode = [f"p{n:03}" for n in range(1000)], [f"d{n:03}" for n in range(1000)]
    wanted = set(ways(prefill, decode)[missing:])
    rounds = rounds_of(wanted)
    check(rounds, wanted)
    assert len(rounds) == 1000


def test_rounds_do_not_depend_on_the_order_of_the_paths() -> None:
    wanted = sorted(drawn(ways(NODES[:20], NODES[10:40]), 0.4, seed=7))
    assert rounds_of(wanted) == rounds_of(reversed(wanted)) == rounds_of([*wanted, *wanted])


def test_paths_from_a_node_to_itself_share_the_last_round_where_nobody_else_waits_for_a_companion() -> None:
    assert rounds_of([Path("a", "a"), Path("a", "b")]) == ((Path("a", "b"),), (Path("a", "a"),))
    assert rounds_of([Path("b", "b"), Path("a", "a")]) == ((Path("a", "a"), Path("b", "b")),)


@settings(deadline=None, max_examples=100)
@given(prefill=SOME, decode=SOME, most=st.integers(1, 5))
def test_a_node_is_in_one_test_at_a_time_also_with_itself(prefill: set[str], decode: set[str], most: int) -> None:
    wanted = set(product(prefill, decode))
    rounds = within(rounds_of(Path(*path) for path in wanted), AtOnce(most))
    assert sorted(path for paths in rounds for path in paths) == sorted(wanted)
    for paths in rounds:
        busy = [node for path in paths for node in {path.source, path.destination}]
        assert len(busy) == len(set(busy))


def test_one_node_less_on_one_side_of_a_whole_product_takes_no_round_more_than_vizing_promises() -> None:
    """Seven nodes of both roles and one that only sends: repainting alone ends a round above that."""
    prefill = [f"n0{number}" for number in range(8)]
    rounds = rounds_between(prefill, [name for name in prefill if name != "n06"])
    assert len(rounds) <= 14
    assert sum(map(len, rounds)) == 49
