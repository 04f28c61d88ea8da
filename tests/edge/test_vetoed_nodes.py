"""Whose word counts: that on nodes which sweeps may measure, and on nodes between which worker pods move KV bytes."""

from __future__ import annotations

import pytest

from kvgate.core.evidence import NodeIdentity
from kvgate.core.vetoes import Told
from kvgate.core.workers import PodRole, WorkerPod
from kvgate.core.world import Nodes
from kvgate.edge.nodes import NodeView
from kvgate.edge.observe import vetoed

SICK = Told(labels={"autopilot.ibm.com/gpuhealth": "EVICT"})
IN_USE = Nodes(("p1",), ("d1",))


def node(name: str) -> NodeView:
    return NodeView(NodeIdentity(name), {}, told=SICK)


def pod(role: PodRole, on: str, *, leaving: bool = False) -> WorkerPod:
    return WorkerPod(f"{role}-{on}", f"uid-{on}", "worker", role, node=on, leaving=leaving)


@pytest.mark.parametrize(
    ("pods", "against"),
    [
        pytest.param((), ["d1", "p1"], id="no pods: the nodes that a sweep may measure"),
        pytest.param(
            (pod(PodRole.PREFILL, "p1"), pod(PodRole.DECODE, "cordoned")),
            ["cordoned", "d1", "p1"],
            id="a cordoned node on which a decode pod still runs",
        ),
        pytest.param(
            (pod(PodRole.PREFILL, "p1"), pod(PodRole.DECODE, "cordoned", leaving=True)),
            ["d1", "p1"],
            id="a cordoned node whose last pod is leaving",
        ),
    ],
)
def test_words_against_nodes_in_use_count(pods: tuple[WorkerPod, ...], against: list[str]) -> None:
    found = vetoed(IN_USE, map(node, ("p1", "d1", "cordoned", "elsewhere")), pods)
    assert sorted(veto.node for veto in found.vetoes) == against
