"""Tools whose two ends are one process each: the server waits for a test, the client runs it and prints the result."""

from __future__ import annotations

import asyncio
from asyncio.subprocess import Process
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace

from kvgate_probe import running
from kvgate_probe.load import Meter
from kvgate_probe.tool import Ran, Serving
from kvgate_probe.wire import DATA_PORTS, MAX_DOCUMENT_CHARACTERS, Trouble

TRIES = 6
FIRST_PAUSE_SECONDS = 0.2
NOBODY_LISTENS = ("refused", "couldn't connect")


class TextServer:
    """A server process that is ended once its test is over, or once nobody will come any more."""

    def __init__(self, port: int, process: Process, name: str) -> None:
        self.port = port
        self._process, self._name = process, name
        self._meter = Meter(process)
        self._text = asyncio.ensure_future(running.read(process))

    async def ended(self, seconds: float) -> bool:
        await asyncio.wait({self._text}, timeout=seconds)
        return self._text.done()

    async def stop(self) -> Ran:
        """One whose client went away may wait for ever, and says nothing meanwhile: it is ended."""
        load, gone = self._meter.stop(), self._process.returncode
        await running.end(self._process)
        text = (await self._text).strip()[:MAX_DOCUMENT_CHARACTERS]
        return Ran(text or f"{self._name} served, and was ended without a word", failed=bool(gone), load=load)


def port_for(control_port: int, bind: str | None) -> int | Ran:
    port = running.free_port(range(control_port + 1, control_port + 1 + DATA_PORTS), bind)
    if port is None:
        first, last = control_port + 1, control_port + DATA_PORTS
        return Ran(trouble=Trouble.PORT_IN_USE, message=f"ports {first} to {last} are all in use")
    return port


async def served(name: str, port: int, command: Sequence[str], environment: Mapping[str, str]) -> Serving | Ran:
    try:
        return TextServer(port, await running.start(command, environment), name)
    except OSError as error:
        return not_started(name, error)


async def ran(name: str, command: Sequence[str], environment: Mapping[str, str], limit_seconds: float) -> Ran:
    """The client's whole text; one that does not end in time is ended, and has measured nothing."""
    try:
        process = await running.start(command, environment)
    except OSError as error:
        return not_started(name, error)
    meter = Meter(process)
    try:
        text = await asyncio.wait_for(running.read(process), limit_seconds)
    except TimeoutError:
        message = f"{name} did not end within {limit_seconds:g} s"
        return Ran(trouble=Trouble.TOOL_FAILED, message=message)
    finally:
        load = meter.stop()
        await running.end(process)
    if not text.strip():
        return Ran(trouble=Trouble.TOOL_FAILED, message=f"{name} ended without a word", load=load)
    return replace(Ran(text.strip()[:MAX_DOCUMENT_CHARACTERS], failed=bool(process.returncode)), load=load)


async def patiently(once: Callable[[], Awaitable[Ran]]) -> Ran:
    """Tries again, with growing pauses, while the server has been started and does not listen yet."""
    pause = FIRST_PAUSE_SECONDS
    for attempt in range(1, TRIES):
        done = await once()
        if not (done.failed and any(word in done.document.lower() for word in NOBODY_LISTENS)):
            return replace(done, attempts=attempt)
        await asyncio.sleep(pause)
        pause *= 2
    return replace(await once(), attempts=TRIES)


def not_started(name: str, error: OSError) -> Ran:
    return Ran(trouble=Trouble.TOOL_FAILED, message=f"{name} cannot be started: {error.strerror}", attempts=0)
