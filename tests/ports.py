"""Ports that a test may listen on: below those that the kernel lends to outgoing connections, and free now."""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack

_FIRST, _LAST = 10_000, 32_000


def free_ports(count: int, address: str = "127.0.0.1") -> int:
    """The first of `count` ports in a row that nothing listens on."""
    while True:
        first = random.randrange(_FIRST, _LAST - count)
        with ExitStack() as held:
            try:
                for port in range(first, first + count):
                    held.enter_context(socket.create_server((address, port)))
            except OSError:
                continue
            return first
