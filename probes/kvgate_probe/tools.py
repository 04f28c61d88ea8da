"""The tools that a walker knows, by the name that schedules use: one row and one module each."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kvgate_probe.ib_tool import IbReadBw
from kvgate_probe.iperf3_tool import Iperf3
from kvgate_probe.nixl_tool import Nixl
from kvgate_probe.tool import Tool
from kvgate_probe.ucx_tool import UcxGet
from kvgate_probe.wire import Schedule, Step

Make = Callable[[Step, str | None, int | None], Tool]
"""From a step, the address to bind to and the pace in bits per second; None where there is none of them."""

TOOLS: Mapping[str, Make] = {
    "iperf3": Iperf3,
    "ucx_get": UcxGet,
    "nixl": Nixl,
    "ib_read_bw": IbReadBw,
}


def tools_of(schedule: Schedule, bind: str | None) -> tuple[Tool, ...]:
    """The tool of each step. Raises KeyError where one is not known."""
    paced = schedule.paced_bits_per_second
    return tuple(TOOLS[step.tool](step, bind, None if step.unpaced else paced) for step in schedule.steps)
