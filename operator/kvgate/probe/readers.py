"""The tools whose texts the operator can read, by the name that schedules use: one row each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kvgate.core.evidence import Layer
from kvgate.probe.ib_reading import read_ib
from kvgate.probe.iperf3_guard import cookie_of, guard
from kvgate.probe.measured import Reader
from kvgate.probe.nixl_reading import read_nixl
from kvgate.probe.ucx_reading import read_ucx
from kvgate_probe.wire import Role, Step

READERS: Mapping[str, Reader] = {
    "iperf3": Reader(Layer.LINK, "tcp-stream", Role.SOURCE, guard, cookie=cookie_of),
    "ucx_get": Reader(Layer.ENDPOINT, "get", Role.DESTINATION, read_ucx, spins=True),
    "nixl": Reader(Layer.ENDPOINT, "read", Role.DESTINATION, read_nixl, spins=True),
    "ib_read_bw": Reader(Layer.LINK, "read", Role.DESTINATION, read_ib, spins=True, rdma=True),
}


def reader_of(step: Step) -> Reader:
    """Raises KeyError for a tool that is not known. What is written is told by the source."""
    reader = READERS[step.tool]
    return replace(reader, teller=Role.SOURCE) if step.operation == "write" else reader
