"""A sweep on this host that cannot be run says which field, why, and who must act, before anything is started."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from kvgate.core.evidence import NodeIdentity, Path
from kvgate.core.own_nodes import own_nodes
from kvgate.core.steps import Measure
from kvgate.edge.errors import MeasureError
from kvgate.edge.lab import LabNode, lab
from kvgate.edge.localsweep import LocalSweep
from kvgate.edge.nodes import NodeView, unpaired
from kvgate.edge.objects import Objects
from tests.core import cases
from tests.core.worlds import Scene
from tests.edge.rooted import as_root

GIGABIT = 1_000_000_000
OWN = Path("n", "n")


def playing(one: LabNode, other: LabNode | None = None) -> NodeView:
    """The node n, played by one namespace, and a second pod on it by another."""
    view = NodeView(NodeIdentity("n"), {}, (one.address,), one.namespace)
    return replace(view, addresses=(one.address, other.address), companion=other.namespace) if other else view


def test_rdma_on_a_host_without_it_names_the_field_the_lack_and_the_owner() -> None:
    scene = Scene().asking(fabric__probe__link__tool="ib_read_bw")
    sweep = LocalSweep(lambda: scene.now, lambda _: nullcontext(lambda done, planned: None))
    with pytest.raises(MeasureError) as told:
        sweep(scene.pool, Objects(), Measure("run-1", cases.PATHS, "a test"))
    for part in (scene.pool.key, "fabric.probe.link.tool is ib_read_bw", "this host", "owner", "iperf3"):
        assert part in str(told.value)


@pytest.mark.local
@as_root
def test_a_node_that_faces_itself_is_measured_to_the_namespace_of_its_companion() -> None:
    scene = Scene().asking(fabric__probe__link__duration="1s")
    sweep = LocalSweep(lambda: datetime.now(UTC), lambda _: nullcontext(lambda done, planned: None))
    with lab({"n": GIGABIT, "second": GIGABIT}) as (one, other):
        node = playing(one, other)
        evidence = sweep(scene.pool, Objects(nodes=(node,)), Measure("run-1", (OWN,), "a test"))

    assert unpaired(node) == ""
    assert (evidence.planned, evidence.problems) == ((OWN,), ())
    (found,) = evidence.samples
    assert (found.path, found.failure, found.interface) == (OWN, None, "eth0")
    assert found.bytes_per_second == pytest.approx(GIGABIT / 8 * 1448 / 1514, rel=0.1)


@pytest.mark.parametrize(
    "node",
    [
        pytest.param(playing(LabNode("n", "space", "10.0.0.1", "", "")), id="with one namespace"),
        pytest.param(NodeView(NodeIdentity("n"), {}, loopback=True), id="this host's own loopback"),
    ],
)
def test_a_node_that_faces_itself_without_a_companion_is_said_to_be_unmeasured(node: NodeView) -> None:
    on = replace(cases.nodes(("n",), ("n", "d")), unpaired=unpaired(node))
    far = Path("n", "d")
    seen = cases.case(on=on, measured=cases.evidence((cases.sample(far),), planned=(far,)))
    finding = own_nodes(seen)
    assert finding.reason == "SameNodeUnmeasured"
    assert unpaired(node) in finding.message
