"""Rounds that keep to limits: every path once, and never more at once than allowed."""

from __future__ import annotations

from collections import Counter
from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from kvgate.core.at_once import AtOnce, PlaceLimit
from kvgate.core.evidence import Path
from kvgate.probe.limits import within
from tests.probe.matrix import rounds_between

PREFILL, DECODE = [f"p{n}" for n in range(9)], [f"d{n}" for n in range(8)]
RACKS = {name: f"r{place // 3}" for side in (PREFILL, DECODE) for place, name in enumerate(side)}


def crossings(paths: tuple[Path, ...], racks: dict[str, str]) -> Counter[str]:
    apart = [path for path in paths if racks.get(path.source) != racks.get(path.destination)]
    ends = (racks.get(node, "") for path in apart for node in (path.source, path.destination))
    return Counter(rack for rack in ends if rack)


@settings(deadline=None)
@given(most=st.one_of(st.none(), st.integers(1, 10)), edge=st.integers(1, 6), known=st.integers(0, 9))
def test_no_round_is_above_a_limit_and_no_path_is_lost(most: int | None, edge: int, known: int) -> None:
    racks = {name: rack for name, rack in RACKS.items() if int(name[1:]) < known}
    rounds = within(rounds_between(PREFILL, DECODE), AtOnce(most, (PlaceLimit(edge, racks),)))
    assert sorted(p for r in rounds for p in r) == sorted(Path(a, b) for a, b in product(PREFILL, DECODE))
    for paths in rounds:
        nodes = [node for path in paths for node in (path.source, path.destination)]
        assert len(nodes) == len(set(nodes))
        assert most is None or len(paths) <= most
        assert max(crossings(paths, racks).values(), default=0) <= edge


def test_paths_inside_a_place_count_for_no_edge() -> None:
    racks = dict.fromkeys([*PREFILL, *DECODE], "r0")
    assert len(within(rounds_between(PREFILL, DECODE), AtOnce(None, (PlaceLimit(1, racks),)))) == 9


def test_without_limits_rounds_stay_as_they_are() -> None:
    rounds = rounds_between(PREFILL, DECODE)
    assert within(rounds, AtOnce()) is rounds


def test_a_limit_on_all_paths_wastes_no_place() -> None:
    rounds = within(rounds_between(PREFILL, DECODE), AtOnce(4))
    assert len(rounds) == 9 * 8 // 4
