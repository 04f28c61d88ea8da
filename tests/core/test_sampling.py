"""What a sample of too many paths holds: every node both ways, every distance, and in turn every path."""

from __future__ import annotations

import random
from collections import Counter
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvgate.core.evidence import Path
from kvgate.core.sampling import Sampling, _strata_of, sampled
from kvgate.core.topology import UNLABELLED, Places

RACK, ZONE = "topology.kubernetes.io/rack", "topology.kubernetes.io/zone"


def names(letter: str, count: int) -> list[str]:
    return [f"{letter}{number:03}" for number in range(count)]


def racked(*sides: list[str], per_rack: int = 4, per_zone: int = 16) -> Places:
    """Rack by rack and zone by zone, both sides alike."""
    return Places(
        {n: {RACK: f"r{i // per_rack}", ZONE: f"z{i // per_zone}"} for side in sides for i, n in enumerate(side)}
    )


COUNTS = st.integers(min_value=1, max_value=24)


@settings(deadline=None, max_examples=150)
@given(prefill=COUNTS, decode=COUNTS, shared=st.integers(0, 5), most=st.integers(1, 200), turn=st.integers(0, 50))
def test_a_sample_is_no_larger_than_allowed_holds_no_path_twice_and_none_within_a_node(
    prefill: int, decode: int, shared: int, most: int, turn: int
) -> None:
    both = names("b", shared)
    ask = Sampling([*names("p", prefill), *both], [*names("d", decode), *both], most, "uid", turn)
    paths = sampled(ask)
    assert len(paths) <= most
    assert len(paths) == len(set(paths))
    assert not any(path.same_node for path in paths)
    assert sampled(ask) == paths


@settings(deadline=None, max_examples=100)
@given(prefill=COUNTS, decode=COUNTS, turn=st.integers(0, 50), seed=st.text(max_size=8))
def test_every_node_sends_and_receives_while_there_is_room_for_it(
    prefill: int, decode: int, turn: int, seed: str
) -> None:
    sources, destinations = names("p", prefill), names("d", decode)
    paths = sampled(Sampling(sources, destinations, 2 * max(prefill, decode), seed, turn))
    assert {path.source for path in paths} == {path.destination for path in paths} == {*sources, *destinations}


def test_where_there_is_room_for_one_direction_alone_it_is_the_one_that_serving_uses() -> None:
    paths = sampled(Sampling(names("p", 10), names("d", 10), 12, "uid", 0))
    assert {path.source for path in paths} == set(names("p", 10))
    assert {path.destination for path in paths} == set(names("d", 10))
    assert len(paths) == 12


@pytest.mark.parametrize(("prefill", "decode"), [(40, 40), (3, 40), (40, 3)])
def test_samples_smaller_than_the_nodes_are_many_reach_every_node_in_turn(prefill: int, decode: int) -> None:
    sources, destinations, seen = names("p", prefill), names("d", decode), frozenset[Path]()
    for turn in range(5):
        seen |= frozenset(sampled(Sampling(sources, destinations, 8, "uid", turn, seen=seen)))
    many = sources if prefill >= decode else destinations
    assert {end for path in seen for end in (path.source, path.destination)} >= set(many)


@pytest.mark.parametrize(("prefill", "decode"), [(5, 7), (3, 40), (40, 3), (12, 12)])
def test_successive_samples_see_every_path_in_as_few_sweeps_as_can_be(prefill: int, decode: int) -> None:
    sources, destinations = names("p", prefill), names("d", decode)
    every, most = {Path(a, b) for a, b in product(sources, destinations)}, max(prefill, decode) + 2
    seen: set[Path] = set()
    fewest = -(-len(every) // most)
    for turn in range(fewest):
        seen |= set(sampled(Sampling(sources, destinations, most, "uid", turn, seen=frozenset(seen)))) & every
    assert seen == every


def test_samples_rotate_also_where_nothing_is_remembered_of_those_before() -> None:
    sources, destinations = names("p", 20), names("d", 20)
    seen = {path for turn in range(40) for path in sampled(Sampling(sources, destinations, 50, "uid", turn))}
    assert {Path(a, b) for a, b in product(sources, destinations)} <= seen


def test_rare_distances_are_sampled_more_than_their_share_and_common_ones_still_most() -> None:
    sources, destinations = names("p", 64), names("d", 64)
    places = racked(sources, destinations)
    strata = Counter(places.stratum(path) for path in sampled(Sampling(sources, destinations, 500, "uid", 0, places)))
    assert set(strata) == {"same rack", "same zone", "other zone"}
    assert strata["same rack"] > 500 * 4 / 64 * 2
    assert strata["other zone"] > strata["same rack"]


def test_a_sample_loads_all_nodes_alike_so_that_it_takes_few_rounds() -> None:
    sources, destinations = names("p", 50), names("d", 50)
    places = racked(sources, destinations)
    paths = sampled(Sampling(sources, destinations, 400, "uid", 3, places))
    tests = Counter(node for path in paths for node in (path.source, path.destination))
    assert max(tests.values()) <= 400 // 50 + 2


def test_another_pool_or_another_turn_gives_another_sample() -> None:
    sources, destinations = names("p", 30), names("d", 30)
    one, pool, turn = (sampled(Sampling(sources, destinations, 90, *by)) for by in (("a", 0), ("b", 0), ("a", 1)))
    assert set(one) != set(pool)
    assert set(one) != set(turn)


def test_paths_of_worker_pods_are_taken_before_all_others() -> None:
    first = (Path("p003", "d009"), Path("p001", "d001"))
    paths = sampled(Sampling(names("p", 10), names("d", 10), 20, "uid", 0, first=first))
    assert paths[:2] == first
    assert sampled(Sampling(names("p", 10), names("d", 10), 1, "uid", 0, first=first)) == first[:1]


@given(seed=st.integers(0, 1000))
def test_strata_of_classes_are_those_of_each_path(seed: int) -> None:
    draw = random.Random(seed)
    nodes = names("n", 8)
    labels = {n: {key: draw.choice("ab") for key in (RACK, ZONE) if draw.random() < 0.7} for n in nodes}
    places = Places({name: told for name, told in labels.items() if told})
    rows = _strata_of(nodes[:4], nodes[4:], places)
    assert rows == [[places.stratum(Path(a, b)) for b in nodes[4:]] for a in nodes[:4]]
    assert _strata_of(nodes, nodes, Places({}))[0] == [UNLABELLED] * 8
