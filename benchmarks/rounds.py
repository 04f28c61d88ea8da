"""What the rendezvous of a sweep takes beyond its tests, for 8, 64 and 256 nodes, beside two pods for each pair."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import product
from math import ceil
from typing import Any

from benchmarks.tables import publish
from kvgate.api.words import Phase
from kvgate.core.evidence import Path
from kvgate.core.sampling import Sampling, sampled
from kvgate.probe.plan import LinkTest, plan_paths
from kvgate_probe.budget import Allowance
from kvgate_probe.partners import Patience
from kvgate_probe.peers import Address
from kvgate_probe.records import Trip
from kvgate_probe.tool import Ran, Serving
from kvgate_probe.walker import Walker
from kvgate_probe.wire import Result, Role, Schedule, Trouble, decode_schedule, encode_schedule
from tests.probe.simulation import Book, run_in_jumping_time, simulate

SECONDS = float(os.environ.get("KVGATE_BENCH_SECONDS", "10"))
MIDDLE_SAMPLE, LARGE_SAMPLE = 512, 1024
MOST_RATIO = 1.10
PORT = 5201
PROCESSES = 4
SETTLE_SECONDS = 5.0
POD_SECONDS = 3.4
"""From a Job to a pod that runs and knows its partner's address: the mean start-up in results/sweep-in-cluster.md."""
SIDE_BY_SIDE = 4
REAL, PLAYED = "measured on the loopback", "measured in jumping time"
ATTEMPTS, AGAIN_SECONDS = 5, 0.2

POD = """
import socket, sys, time
if sys.argv[1] == "serve":
    with socket.create_server(("127.0.0.1", int(sys.argv[2]))) as server:
        print("ready", flush=True)
        peer, _ = server.accept()
        peer.recv(1)
else:
    with socket.create_connection(("127.0.0.1", int(sys.argv[2]))) as peer:
        time.sleep(float(sys.argv[3]))
"""


@dataclass(frozen=True)
class Loopback:
    """Each node has an address of its own on the loopback."""

    nodes: tuple[str, ...]
    port: int

    def address(self, node: str) -> str:
        number = self.nodes.index(node)
        return f"127.8.{number // 250}.{number % 250 + 1}"

    def find(self, node: str) -> Address | None:
        return Address(self.address(node), self.port)


class Waiting:
    """Plays a tool that is a connection for as long as the test takes, and not a byte over it: its server listens for
    one, as iperf3's does, and ends with it."""

    starter = Role.SOURCE

    def __init__(self, bind: str) -> None:
        self._bind = bind

    def problem(self) -> Ran | None:
        return None

    async def serve(self, control_port: int, allowance: Allowance, local_address: str) -> Serving | Ran:
        del allowance, local_address
        done = asyncio.Event()

        async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()
            writer.close()
            done.set()

        return Served(await asyncio.start_server(one, self._bind, control_port + 1), control_port + 1, done)

    async def run(self, address: Address, allowance: Allowance) -> Ran:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                _, writer = await asyncio.open_connection(address.host, address.port)
            except OSError:
                await asyncio.sleep(AGAIN_SECONDS)
                continue
            await asyncio.sleep(allowance.seconds)
            writer.close()
            return Ran(document="{}", seconds=allowance.seconds, attempts=attempt)
        return Ran(trouble=Trouble.TOOL_FAILED, message="nobody listens", attempts=ATTEMPTS)


@dataclass
class Served:
    server: asyncio.Server
    port: int
    done: asyncio.Event

    async def ended(self, seconds: float) -> bool:
        try:
            await asyncio.wait_for(self.done.wait(), seconds)
        except TimeoutError:
            return False
        return True

    async def stop(self) -> Ran:
        self.server.close()
        return Ran(document="{}")


@dataclass(frozen=True)
class Walked:
    """Seconds from the common start to the last walker's end, tests that came to nothing, and processor seconds."""

    seconds: float
    troubled: int
    processor: float


def plan(side: int, most: int = LARGE_SAMPLE, port: int = PORT) -> Schedule:
    prefill, decode = ([f"{kind}{number:03}" for number in range(side)] for kind in "pd")
    paths = [Path(a, b) for a, b in product(prefill, decode)]
    if len(paths) > most:
        paths = list(sampled(Sampling(prefill, decode, most, "uid", 0)))
    return plan_paths("run", "uid", paths, LinkTest(SECONDS, 1, port), Phase.ISOLATED).schedule


def walked(schedule: Schedule) -> Walked:
    """All walkers of the schedule, in a few processes of their own."""
    context = multiprocessing.get_context("spawn")
    begins, text = time.time() + SETTLE_SECONDS, encode_schedule(schedule)
    parts = [schedule.nodes[place::PROCESSES] for place in range(PROCESSES)]
    with context.Pool(PROCESSES) as pool:
        ends: list[Walked] = pool.starmap(_walk_some, [(part, text, begins) for part in parts if part], chunksize=1)
    return Walked(max(e.seconds for e in ends), sum(e.troubled for e in ends), sum(e.processor for e in ends))


def _walk_some(nodes: Sequence[str], text: str, begins: float) -> Walked:
    schedule = decode_schedule(text)
    results = asyncio.run(_all(nodes, schedule, begins))
    used = resource.getrusage(resource.RUSAGE_SELF)
    return Walked(time.time() - begins, sum(r.trouble is not None for r in results), used.ru_utime + used.ru_stime)


async def _all(nodes: Sequence[str], schedule: Schedule, begins: float) -> list[Result]:
    peers, results = Loopback(schedule.nodes, schedule.port), list[Result]()

    async def one(node: str) -> None:
        address = peers.address(node)
        trip = Trip(schedule, node, schedule.port, address, Patience(), time.time)
        await Walker(trip, peers, (Waiting(address),), results.append).walk()

    await asyncio.sleep(begins - time.time())
    await asyncio.gather(*(one(node) for node in nodes))
    return results


def a_pair_at_a_time(side: int) -> float:
    """Seconds of two processes for each path, one path after the other."""
    began = time.monotonic()
    for _ in range(side * side):
        _pair(6000)
    return time.monotonic() - began


def a_round_at_a_time(side: int) -> float:
    """The same, all pairs of a round at once; the next round waits for the last of them."""
    began = time.monotonic()
    with ThreadPoolExecutor(side) as hands:
        for _ in range(side):
            list(hands.map(_pair, range(6001, 6001 + side)))
    return time.monotonic() - began


def _pair(port: int) -> None:
    with subprocess.Popen((sys.executable, "-c", POD, "serve", str(port)), stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        server.stdout.readline()
        subprocess.run((sys.executable, "-c", POD, "run", str(port), str(SECONDS)), check=True)


def main() -> bool:
    small, middle, large = plan(SIDE_BY_SIDE, port=PORT + 100), plan(32, MIDDLE_SAMPLE), plan(128, LARGE_SAMPLE)
    with ThreadPoolExecutor(4) as hands:
        asked: list[Any] = [
            hands.submit(work, argument)
            for work, argument in _works(
                (walked, middle), (walked, small), (a_pair_at_a_time, SIDE_BY_SIDE), (a_round_at_a_time, SIDE_BY_SIDE)
            )
        ]
        seen, smallest, one_pair, one_round = (answer.result() for answer in asked)
    tried = [(small, smallest, REAL), (middle, seen, REAL)]
    tried += [
        (schedule, in_jumping_time(schedule), PLAYED)
        for schedule in (middle, replace(middle, in_order=True), large, replace(large, in_order=True))
    ]
    rows, within = list[tuple[str, ...]](), True
    for schedule, told, how in tried:
        least = len(schedule.rounds) * SECONDS
        within = within and told.seconds / least <= MOST_RATIO and not told.troubled
        cells = (str(len(schedule.nodes)), f"{told.seconds:.1f} s", f"{told.seconds / least:.3f}", how)
        rows.append((f"walkers: {_what(schedule)}", str(len(schedule.rounds)), *cells))
    rows += _peers(one_pair, one_round, (small, middle, large))
    spent = seen.processor / seen.seconds / len(middle.nodes)
    publish(
        "rounds",
        "Rounds, and what they take beyond their tests",
        f"Walkers with their real rendezvous, tests of {SECONDS:g} s that hold a connection and send nothing; the time "
        f"is from a common start to the end of the last walker. Limit of the ratio: {MOST_RATIO}. {REAL}: over TCP, "
        f"{PROCESSES} processes hold all walkers, of which one uses {spent:.1%} of a processor at 64 nodes; 256 would "
        f"take more than this machine has. {PLAYED}: the same walkers in an event loop whose clock jumps to the next "
        "timer, with a millisecond for each question. The rows on the loopback and those of other tools, with two "
        "processes for each pair, were measured at one time. What is computed gives each test "
        f"{POD_SECONDS:g} s for the start of its pods, which a sweep of walkers takes once.",
        ("way", "rounds", "pods", "time", "÷ (rounds × duration)", "how known"),
        rows,
    )
    return within


def _what(schedule: Schedule) -> str:
    nodes, paths = len(schedule.nodes), schedule.packed.pairs
    sample = f" (a sample of {nodes**2 // 4:,})" if paths < nodes**2 // 4 else ""
    return f"{nodes} nodes, {paths:,} paths{sample}{', rounds in order' if schedule.in_order else ''}"


def in_jumping_time(schedule: Schedule) -> Walked:
    began = time.process_time()
    outcome = run_in_jumping_time(simulate(schedule, {}, Book(schedule.port), Patience()))
    troubled = sum(result.trouble is not None for result in outcome.results)
    return Walked(max(outcome.ended_at.values()), troubled, time.process_time() - began)


def _works(*pairs: tuple[Callable[[Any], Any], object]) -> tuple[tuple[Callable[[Any], Any], object], ...]:
    return pairs


def _peers(one_pair: float, one_round: float, schedules: Sequence[Schedule]) -> list[tuple[str, ...]]:
    side = SIDE_BY_SIDE
    pods, paths = 2 * side * side, side * side
    rows: list[tuple[str, ...]] = [
        ("a pair at a time: 8 nodes", str(paths), str(pods), f"{one_pair:.1f} s", f"{one_pair / side / SECONDS:.3f}",
         "measured, processes for pods"),
        ("a round at a time: 8 nodes", str(side), str(pods), f"{one_round:.1f} s", f"{one_round / side / SECONDS:.3f}",
         "measured, processes for pods"),
    ]  # fmt: skip
    each = SECONDS + POD_SECONDS
    for schedule in schedules:
        paths, rounds, nodes = schedule.packed.pairs, len(schedule.rounds), len(schedule.nodes)
        least = rounds * SECONDS
        for way, turns in (("a pair at a time", paths), ("a round at a time", rounds)):
            took = ceil(turns * each)
            cells = (str(turns), f"{2 * paths:,}", f"{took:,} s", f"{took / least:.3f}", "computed")
            rows.append((f"{way}: {nodes} nodes, {paths:,} paths", *cells))
    return rows


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
