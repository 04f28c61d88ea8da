"""Walkers in one event loop whose clock jumps: hours of waiting pass in milliseconds, the same way each time.

What is played, and nothing else: a control channel that answers while a walker lives and is silent or refuses
when it is dead; a tool that, like iperf3, serves one test at a time, refuses where nothing listens, and loses
a test whose other end goes away.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, TypeVar

from kvgate_probe.budget import Allowance
from kvgate_probe.control import Answer, Question, Standing
from kvgate_probe.partners import Patience
from kvgate_probe.peers import Address
from kvgate_probe.records import Trip
from kvgate_probe.summary import Summary
from kvgate_probe.tool import Ran, Serving
from kvgate_probe.walker import Walker
from kvgate_probe.wire import Result, Role, Schedule, Trouble

T = TypeVar("T")
REFUSED = '{"error":"unable to connect to server: Connection refused"}'
BUSY = '{"error":"the server is busy running a test. try again later"}'
LOST = '{"error":"control socket has closed unexpectedly"}'
GOOD = '{"end":{"sum_received":{}}}'
LATENCY_SECONDS = 0.001
FAR_TOO_LATE_SECONDS = 3600.0
STARTERS = {"": Role.SOURCE, "write": Role.SOURCE, "read": Role.DESTINATION}


class _JumpingSelector(selectors.SelectSelector):
    """Never sleeps: where the loop would, its clock moves on instead."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise AssertionError("a deadlock: every walker waits and no timer runs")
        self.now += max(timeout, 0.0)
        if self.now > FAR_TOO_LATE_SECONDS:
            raise AssertionError("a livelock: walkers ask each other without end")
        return super().select(0)


def run_in_jumping_time(main: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=_jumping_loop) as runner:
        return runner.run(main)


def _jumping_loop() -> asyncio.AbstractEventLoop:
    selector = _JumpingSelector()
    loop = asyncio.SelectorEventLoop(selector)
    loop.time = lambda: selector.now  # type: ignore[method-assign]
    return loop


@dataclass
class Net:
    """Who listens where; `silent` hosts swallow questions, others refuse them once their walker is gone."""

    test_seconds: float
    doors: dict[Address, Answer] = field(default_factory=dict)
    servers: dict[Address, _Server] = field(default_factory=dict)
    silent: set[str] = field(default_factory=set)
    testing: list[str] = field(default_factory=list)
    ports: count[int] = field(default_factory=lambda: count(20_000))


@dataclass
class Channel:
    """The control channel of one host."""

    net: Net
    host: str

    async def open(self, answer: Answer, host: str | None, port: int) -> Channel:
        del host
        self.net.doors[Address(self.host, port)] = answer
        return self

    def close(self) -> None:
        for address in [known for known in self.net.doors if known.host == self.host]:
            del self.net.doors[address]

    async def ask(self, address: Address, question: Question, seconds: float) -> Standing | None:
        await asyncio.sleep(LATENCY_SECONDS)
        answer = self.net.doors.get(address)
        if answer is not None:
            return answer(question)
        if address.host in self.net.silent:
            await asyncio.sleep(seconds)
        return None

    async def round_trip(self, address: Address) -> float | None:
        del address
        return LATENCY_SECONDS


class _Server:
    def __init__(self, net: Net, address: Address) -> None:
        self.net, self.address, self.port = net, address, address.port
        self.busy, self.ran = False, asyncio.get_running_loop().create_future()
        net.servers[address] = self

    async def ended(self, seconds: float) -> bool:
        await asyncio.wait({self.ran}, timeout=seconds)
        return self.ran.done()

    async def stop(self) -> Ran:
        self.net.servers.pop(self.address, None)
        if not self.ran.done():
            self.ran.set_result(Ran(trouble=Trouble.PARTNER_LOST))
        ran: Ran = self.ran.result()
        return ran


@dataclass
class Tool:
    """A tool that takes the planned time and checks that no host is in two tests at once."""

    net: Net
    host: str
    broken: Ran | None = None
    starter: Role = Role.SOURCE

    def problem(self) -> Ran | None:
        return self.broken

    async def serve(self, control_port: int, allowance: Allowance, local_address: str) -> Serving | Ran:
        del control_port, allowance, local_address
        return _Server(self.net, Address(self.host, next(self.net.ports)))

    async def run(self, address: Address, allowance: Allowance) -> Ran:
        server = self.net.servers.get(address)
        if server is None or server.busy:
            return Ran(REFUSED if server is None else BUSY, failed=True)
        assert not {self.host, address.host} & set(self.net.testing), "a host in two tests at once"
        server.busy = True
        self.net.testing += [self.host, address.host]
        try:
            done, _ = await asyncio.wait({server.ran}, timeout=self.net.test_seconds)
        except asyncio.CancelledError:
            if not server.ran.done():
                server.ran.set_result(Ran(LOST, failed=True))
            raise
        finally:
            self.net.testing.remove(self.host)
            self.net.testing.remove(address.host)
        if done:
            return Ran(LOST, failed=True)
        server.ran.set_result(Ran(GOOD))
        return Ran(GOOD)


@dataclass
class Book:
    """Addresses that become known at a time."""

    port: int
    known_from: dict[str, float] = field(default_factory=dict)
    empty: bool = False
    opened_at: float = 0.0
    """A book is delivered to each pod by itself: before that it holds nothing."""

    def find(self, node: str) -> Address | None:
        known = not self.empty and asyncio.get_running_loop().time() >= max(
            self.opened_at, self.known_from.get(node, 0.0)
        )
        return Address(node, self.port) if known else None


class Mortal(Walker):
    """A walker that can be killed outright: no farewell, no last record."""

    killed = False

    def _interrupt(self) -> None:
        if not self.killed:
            super()._interrupt()

    async def _say_farewell(self) -> None:
        if not self.killed:
            await super()._say_farewell()


@dataclass(frozen=True)
class Fate:
    """When a node's walker starts, dies or is told to end, and how it is troubled.

    A host that swallows answers a dead walker's questions with silence, not refusal; a blind one knows no address.
    """

    starts: float = 0.0
    killed_at: float | None = None
    told_at: float | None = None
    told_peers_at: float = 0.0
    swallows: bool = False
    run: str = ""
    blind: bool = False
    broken: Ran | None = None


@dataclass(frozen=True)
class Outcome:
    results: tuple[Result, ...]
    summaries: dict[str, Summary]
    ended_at: dict[str, float]


async def simulate(schedule: Schedule, fates: dict[str, Fate], book: Book, patience: Patience) -> Outcome:
    net = Net(test_seconds=schedule.duration_seconds)
    results: list[Result] = []
    nodes = sorted({node for test in schedule.tests() for node in (test.pair.source, test.pair.destination)})
    lives = [_live(node, fates.get(node, Fate()), schedule, net, book, patience, results) for node in nodes]
    ends = dict(zip(nodes, await asyncio.gather(*lives), strict=True))
    return Outcome(
        results=tuple(results),
        summaries={node: summary for node, (summary, _) in ends.items() if summary is not None},
        ended_at={node: at for node, (_, at) in ends.items()},
    )


async def _live(
    node: str, fate: Fate, schedule: Schedule, net: Net, book: Book, patience: Patience, results: list[Result]
) -> tuple[Summary | None, float]:
    loop = asyncio.get_running_loop()
    if fate.swallows:
        net.silent.add(node)
    await asyncio.sleep(fate.starts)
    plan = Schedule(**{**vars(schedule), "run_id": fate.run or schedule.run_id})
    trip = Trip(plan, node, book.port, None, patience, loop.time)
    tools = tuple(Tool(net, node, fate.broken, STARTERS[step.operation]) for step in plan.steps)
    known = replace(book, empty=fate.blind, opened_at=fate.told_peers_at)
    walker = Mortal(trip, known, tools, results.append, Channel(net, node))
    task = loop.create_task(walker.walk())
    for at, kill in ((fate.killed_at, True), (fate.told_at, False)):
        if at is not None:
            loop.call_at(at, _end, walker, task, kill)
    try:
        summary = await task
    except asyncio.CancelledError:
        return None, loop.time()
    return (None if walker.killed else summary), loop.time()


def _end(walker: Mortal, task: asyncio.Task[Summary], kill: bool) -> None:
    walker.killed = kill
    task.cancel()
