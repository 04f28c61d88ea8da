"""A sweep on this host that cannot be run says which field, why, and who must act, before anything is started."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from kvgate.core.steps import Measure
from kvgate.edge.errors import MeasureError
from kvgate.edge.localsweep import LocalSweep
from kvgate.edge.objects import Objects
from tests.core import cases
from tests.core.worlds import Scene


def test_rdma_on_a_host_without_it_names_the_field_the_lack_and_the_owner() -> None:
    scene = Scene().asking(fabric__probe__link__tool="ib_read_bw")
    sweep = LocalSweep(lambda: scene.now, lambda _: nullcontext(lambda done, planned: None))
    with pytest.raises(MeasureError) as told:
        sweep(scene.pool, Objects(), Measure("run-1", cases.PATHS, "a test"))
    for part in (scene.pool.key, "fabric.probe.link.tool is ib_read_bw", "this host", "owner", "iperf3"):
        assert part in str(told.value)
