"""Each criterion on paths from a node to itself against each thing that can be wrong with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from kvgate.api.words import Outcome
from kvgate.core import own_nodes as criteria
from kvgate.core.evidence import Path, Sample
from kvgate.core.findings import Finding
from kvgate.core.judging import Case
from tests.core.cases import case, evidence, nodes, path, sample


def found(finding: Finding) -> tuple[Outcome, str]:
    return finding.outcome, finding.reason


def path_of(samples: Sequence[Sample]) -> tuple[Path, ...]:
    return tuple(sample.path for sample in samples)


OWN_SLOW = [sample("a→a", 8e9), sample("b→b", 8e9), sample("c→c", 1e9)]
FAR_FAST = [*(sample(f"{n}→{n}", 1e9) for n in "abc"), sample("a→b", 9e9), sample("b→a", 9e9)]


BOTH = nodes(("a", "b"), ("a", "b"))
WIRES = [sample("a→b", 9e9), sample("b→a", 9e9)]


def test_a_slow_path_within_a_node_is_told_with_the_node_and_both_numbers() -> None:
    on = nodes(("a", "b", "c"), ("a", "b", "c"))
    told = criteria.own_alike(case(on=on, measured=evidence(OWN_SLOW, planned=path_of(OWN_SLOW)))).message
    assert "node c carries 1.0 GB/s" in told
    assert "8.0 GB/s" in told


@pytest.mark.parametrize(
    ("samples", "outcome", "reason"),
    [
        pytest.param(OWN_SLOW, Outcome.INCONCLUSIVE, "SameNodeSlow", id="slower than half of its own class"),
        pytest.param(FAR_FAST, Outcome.PASS, "SameNodesAlike", id="a faster wire between nodes is no measure of it"),
    ],
)
def test_own_alike(samples: list[Sample], outcome: Outcome, reason: str) -> None:
    on = nodes(("a", "b", "c"), ("a", "b", "c"))
    seen = case(on=on, measured=evidence(samples, planned=path_of(samples)))
    assert found(criteria.own_alike(seen)) == (outcome, reason)


@pytest.mark.parametrize(
    ("seen", "outcome", "reason"),
    [
        pytest.param(case(), Outcome.PASS, "NodesApart", id="own nodes for prefill and decode"),
        pytest.param(
            case(on=nodes(("a", "b"), ("b", "c"))),
            Outcome.INCONCLUSIVE,
            "SameNodeUnmeasured",
            id="one node with both roles, and a report that has no word of it",
        ),
        pytest.param(
            case(on=nodes(("a",), ("a",)), measured=evidence([sample("a→a", 8e9)], planned=(path("a→a"),))),
            Outcome.PASS,
            "SameNodeMeasured",
            id="measured between two pods of the node",
        ),
        pytest.param(
            case(on=replace(nodes(("a",), ("a",)), unpaired="the owner must"), measured=None),
            Outcome.INCONCLUSIVE,
            "SameNodeUnmeasured",
            id="no second pod can stand there",
        ),
        pytest.param(
            case({"criteria.disaggregation.minCoverage": "1%"}, on=nodes(("a", "b"), ("b", "c"))),
            Outcome.INCONCLUSIVE,
            "SameNodeUnmeasured",
            id="no minCoverage excuses it",
        ),
        pytest.param(
            case({"fabric.schedule.maxPaths": 2}, on=BOTH, measured=evidence(WIRES, planned=path_of(WIRES))),
            Outcome.INCONCLUSIVE,
            "SameNodeUnmeasured",
            id="a sample without any of them excuses none",
        ),
        pytest.param(
            case(
                {"fabric.schedule.maxPaths": 1},
                on=replace(BOTH, unpaired="the owner must"),
                measured=evidence(WIRES[:1], planned=path_of(WIRES[:1])),
            ),
            Outcome.INCONCLUSIVE,
            "SameNodeUnmeasured",
            id="nor one of nodes where no second pod can stand",
        ),
    ],
)
def test_own_nodes(seen: Case, outcome: Outcome, reason: str) -> None:
    assert found(criteria.own_nodes(seen)) == (outcome, reason)
