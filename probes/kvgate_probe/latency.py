"""The round trip between two hosts, by the kernel's own clock: taken of a few connections, before any load."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import statistics
import struct

from kvgate_probe.peers import Address

CONNECTIONS = 7
PATIENCE_SECONDS = 2.0
_RTT_OFFSET = 68
"""Of tcpi_rtt in Linux's struct tcp_info: microseconds, one sample after the handshake."""
_LEAST_BYTES = 72


async def round_trip_seconds(address: Address, connections: int = CONNECTIONS) -> float | None:
    """The median over connections to a port that listens; None where the system does not tell or nobody answers."""
    seen = []
    for _ in range(connections):
        took = await _one(address)
        if took is None:
            break
        seen.append(took)
    return statistics.median(seen) if seen else None


async def _one(address: Address) -> float | None:
    with contextlib.suppress(OSError, TimeoutError):
        opened = asyncio.open_connection(address.host, address.port)
        _, writer = await asyncio.wait_for(opened, PATIENCE_SECONDS)
        try:
            return _kernel_says(writer.get_extra_info("socket"))
        finally:
            writer.close()
    return None


def _kernel_says(sock: socket.socket) -> float | None:
    option = getattr(socket, "TCP_INFO", None)
    if option is None:
        return None
    with contextlib.suppress(OSError):
        told = sock.getsockopt(socket.IPPROTO_TCP, option, 256)
        if len(told) >= _LEAST_BYTES:
            return float(struct.unpack_from("I", told, _RTT_OFFSET)[0]) / 1e6
    return None
