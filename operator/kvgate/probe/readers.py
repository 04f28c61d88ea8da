"""The tools whose texts the operator can read, by the name that schedules use: one row each."""

from __future__ import annotations

from collections.abc import Mapping

from kvgate.core.evidence import Layer
from kvgate.probe.iperf3_guard import cookie_of, guard
from kvgate.probe.measured import Reader
from kvgate.probe.ucx_reading import read_ucx
from kvgate_probe.wire import Role

READERS: Mapping[str, Reader] = {
    "iperf3": Reader(Layer.LINK, "tcp-stream", Role.SOURCE, guard, cookie=cookie_of),
    "ucx_get": Reader(Layer.ENDPOINT, "get", Role.DESTINATION, read_ucx, spins=True),
}
