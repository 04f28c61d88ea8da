"""The sweep's plan: every path once, no node twice in a round, and no more rounds than promised."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvgate.api.words import Phase
from kvgate.core.evidence import Path
from kvgate.probe.colouring import rounds_between
from kvgate.probe.plan import LinkTest, plan_sweep
from kvgate_probe.wire import decode_schedule, encode_schedule

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
    extra = 2 if prefill == decode and len(prefill) % 2 else 1 if prefill & decode else 0
    assert len(rounds) <= _busiest(wanted) + extra


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


def test_a_path_on_one_node_is_left_out() -> None:
    plan = plan_sweep("run", "uid", ["a", "b"], ["b", "c"], LINK_TEST, Phase.ISOLATED)
    assert plan.paths == (Path("a", "b"), Path("a", "c"), Path("b", "c"))
    assert plan.nodes == ("a", "b", "c")


def test_the_plan_does_not_depend_on_the_order_of_nodes() -> None:
    one = plan_sweep("run", "uid", ["a", "b"], ["c", "d"], LINK_TEST, Phase.ISOLATED)
    other = plan_sweep("run", "uid", ["b", "a", "a"], ["d", "c"], LINK_TEST, Phase.ISOLATED)
    assert one == other


def test_the_schedule_survives_the_wire() -> None:
    schedule = plan_sweep("run", "uid", NAMES[:3], NAMES[2:6], LINK_TEST, Phase.ISOLATED).schedule
    assert decode_schedule(encode_schedule(schedule)) == schedule
