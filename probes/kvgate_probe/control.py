"""The control channel between walkers: one JSON line asked, one answered, over TCP."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Protocol

from kvgate_probe.fields import WireError
from kvgate_probe.latency import round_trip_seconds
from kvgate_probe.peers import Address
from kvgate_probe.wire import MAX_SECONDS, Trouble

MAX_LINE_BYTES = 4096


class State(StrEnum):
    WALKING = "Walking"
    DONE = "Done"
    LEAVING = "Leaving"


@dataclass(frozen=True)
class Standing:
    """Where a walker stands: its place in the order, and the port its tool listens on for that test.

    `settled` is the trouble that ended the test which was asked about, if one did. A source that serves says how long
    it may be read from, and how much.
    """

    run: str
    node: str
    round: int
    state: State
    position: int
    port: int | None = None
    settled: Trouble | None = None
    seconds: float | None = None
    most_bytes: int | None = None


@dataclass(frozen=True)
class Question:
    """The asker's own standing, and the index of the test that it asks about."""

    standing: Standing
    test: int | None = None


Answer = Callable[[Question], Standing]


class Door(Protocol):
    """An open control channel."""

    def close(self) -> None: ...


class Channel(Protocol):
    """How walkers reach each other; TCP outside of simulations."""

    async def open(self, answer: Answer, host: str | None, port: int) -> Door: ...

    async def ask(self, address: Address, question: Question, seconds: float) -> Standing | None: ...

    async def round_trip(self, address: Address) -> float | None: ...


class TcpChannel:
    """One connection per question."""

    async def open(self, answer: Answer, host: str | None, port: int) -> Door:
        return await open_control(answer, host, port)

    async def ask(self, address: Address, question: Question, seconds: float) -> Standing | None:
        return await ask(address, question, seconds)

    async def round_trip(self, address: Address) -> float | None:
        return await round_trip_seconds(address)


async def open_control(answer: Answer, host: str | None, port: int) -> asyncio.Server:
    """Answers every well-formed question until closed. Raises OSError where the port is taken."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, ValueError, asyncio.TimeoutError, asyncio.CancelledError):
            line = await asyncio.wait_for(reader.readline(), 5)
            writer.write(_encode(answer(_question(line))))
            await asyncio.wait_for(writer.drain(), 5)
        writer.close()

    return await asyncio.start_server(serve, host, port, limit=MAX_LINE_BYTES, reuse_address=True)


async def ask(address: Address, question: Question, seconds: float) -> Standing | None:
    """The partner's standing, or None after silence, refusal or an answer that is none."""
    try:
        return await asyncio.wait_for(_exchange(address, question), seconds)
    except (TimeoutError, OSError, ValueError, EOFError):
        return None


async def _exchange(address: Address, question: Question) -> Standing:
    reader, writer = await asyncio.open_connection(address.host, address.port, limit=MAX_LINE_BYTES)
    try:
        writer.write(_encode(question.standing, question.test))
        await writer.drain()
        return _standing(_object(await reader.readline()))
    finally:
        writer.close()


def _encode(standing: Standing, test: int | None = None) -> bytes:
    return json.dumps({**asdict(standing), "test": test}).encode() + b"\n"


def _question(line: bytes) -> Question:
    values = _object(line)
    test = values.get("test")
    return Question(_standing(values), test if isinstance(test, int) else None)


def _object(line: bytes) -> dict[str, object]:
    values = json.loads(line)
    if not isinstance(values, dict):
        raise WireError("not an object")
    return values


def _standing(values: dict[str, object]) -> Standing:
    port, settled = values.get("port"), values.get("settled")
    seconds, most = values.get("seconds"), values.get("most_bytes")
    return Standing(
        run=str(values.get("run", ""))[:128],
        node=str(values.get("node", ""))[:255],
        round=_whole(values.get("round")),
        state=State(str(values.get("state"))),
        position=_whole(values.get("position")),
        port=port if isinstance(port, int) and 0 < port < 65536 else None,
        settled=None if settled is None else Trouble(str(settled)),
        seconds=float(seconds) if isinstance(seconds, (int, float)) and 0 < seconds <= MAX_SECONDS else None,
        most_bytes=None if most is None else max(0, _whole(most)),
    )


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise WireError("not a whole number")
    return value
