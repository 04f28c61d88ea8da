"""Starts a tool's process, reads what it prints, and ends it; nothing here knows which tool it is."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Mapping, Sequence


async def start(command: Sequence[str], environment: Mapping[str, str] | None = None) -> asyncio.subprocess.Process:
    """Raises OSError where it cannot be started. Both of its streams come as one."""
    return await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=None if environment is None else {**os.environ, **environment},
    )


async def read(process: asyncio.subprocess.Process) -> str:
    output, _ = await process.communicate()
    return output.decode("utf-8", "replace")


async def end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    await process.wait()


def free_port(candidates: range, bind: str | None) -> int | None:
    return next((port for port in candidates if _is_free(port, bind)), None)


def _is_free(port: int, bind: str | None) -> bool:
    family, address = _any_address(bind)
    with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_STREAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((address, port))
        sock.listen(1)
        return True
    return False


def _any_address(bind: str | None) -> tuple[socket.AddressFamily, str]:
    if bind:
        return (socket.AF_INET6 if ":" in bind else socket.AF_INET), bind
    return (socket.AF_INET6, "::") if socket.has_ipv6 and socket.has_dualstack_ipv6() else (socket.AF_INET, "0.0.0.0")  # noqa: S104
