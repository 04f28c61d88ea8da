"""Runs ucx_perftest's ucp_get: the destination reads pieces out of the source's memory, as NIXL reads KV blocks.

The destination's reader is ended once it has read for as long as planned: ucx_perftest counts pieces, not seconds.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from asyncio.subprocess import Process
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from kvgate_probe import host, running
from kvgate_probe.budget import SETTING, Allowance
from kvgate_probe.load import Meter
from kvgate_probe.paired import not_started, patiently, port_for, served
from kvgate_probe.peers import Address
from kvgate_probe.tool import Ran, Serving
from kvgate_probe.wire import MAX_DOCUMENT_CHARACTERS, Role, Step, Trouble

PIECE_BYTES = 32_768
OUTSTANDING = 64
MOST_OUTSTANDING_BYTES = 16 << 20
WARM_UP_BYTES = 4 << 20
ENDLESS = 1_000_000_000
OVERHEAD_SECONDS = 15.0
TLS, DEVICES, LOG, FAMILIES = "UCX_TLS", "UCX_NET_DEVICES", "UCX_LOG_LEVEL", "UCX_TCP_AF_PRIO"
_ROW = re.compile(r"^(?:\[thread \d+\])?(\d+),[^,]*,[^,]*,([0-9.]+),")
"""Of -v: pieces so far, percentile, average and overall microseconds per piece."""


@dataclass(frozen=True)
class UcxGet:
    """One server at the source and one reader at the destination per test. ucx_perftest cannot bind to one address."""

    step: Step
    bind: str | None = None
    paced_bits_per_second: int | None = None
    program: str = "ucx_perftest"
    overhead_seconds: float = OVERHEAD_SECONDS

    @property
    def starter(self) -> Role:
        return Role.DESTINATION

    @property
    def piece_bytes(self) -> int:
        return self.step.piece_bytes or PIECE_BYTES

    def problem(self) -> Ran | None:
        if shutil.which(self.program) is None:
            return Ran(trouble=Trouble.TOOL_MISSING, message="ucx_perftest is not installed in the probe's image")
        if self.paced_bits_per_second is not None:
            return Ran(trouble=Trouble.TOOL_FAILED, message="ucx_perftest cannot be paced: measure the endpoint idle")
        return None

    async def serve(self, control_port: int, allowance: Allowance, local_address: str) -> Serving | Ran:
        del allowance  # kept by the reader
        port = port_for(control_port, None)
        if isinstance(port, Ran):
            return port
        address = self.bind or local_address
        return await served("ucx_perftest", port, self.command(port, ENDLESS, address), environment(address))

    async def run(self, address: Address, allowance: Allowance) -> Ran:
        local = self.bind or host.local_address_towards(address.host)
        pieces = self._pieces(allowance)
        if pieces < 1:
            what = f"{allowance.most_bytes} bytes are left, and the warm-up takes {self.warm_up * self.piece_bytes}"
            return Ran(trouble=Trouble.BYTE_BUDGET_SPENT, message=f"{what}: {SETTING} is spent", attempts=0)
        return await patiently(lambda: self._once(address, pieces, local, allowance.seconds))

    async def _once(self, address: Address, pieces: int, local: str, seconds: float) -> Ran:
        try:
            command = (*self.command(address.port, pieces, address.host), address.host)
            process = await running.start(command, environment(local))
        except OSError as error:
            return not_started("ucx_perftest", error)
        reading = _Reading(process, seconds)
        try:
            await asyncio.wait_for(reading.until_read(), seconds + self.overhead_seconds)
        except TimeoutError:
            reading.late = True
        finally:
            load = reading.meter.stop()
            await running.end(process)
        return replace(reading.ran(), seconds=seconds, load=load)

    @property
    def warm_up(self) -> int:
        """Pieces that are read before the clock starts."""
        return max(1, min(100, WARM_UP_BYTES // self.piece_bytes))

    def _pieces(self, allowance: Allowance) -> int:
        if allowance.most_bytes is None:
            return ENDLESS
        return min(ENDLESS, allowance.most_bytes // self.piece_bytes - self.warm_up)

    def command(self, port: int, pieces: int, address: str) -> tuple[str, ...]:
        size = self.piece_bytes
        outstanding = max(1, min(OUTSTANDING, MOST_OUTSTANDING_BYTES // size))
        asked = ("-t", "ucp_get", "-m", "host", "-s", str(size), "-O", str(outstanding))
        counted = ("-n", str(pieces), "-w", str(self.warm_up), "-p", str(port), "-v")
        return (self.program, *asked, *counted, *(("-6",) if ":" in address else ()))


def environment(address: str) -> Mapping[str, str]:
    """TCP alone, on the interface of this address, where the pod's own variables name no transports: left to itself,
    UCX takes shared memory between pods of one host, and measures no network at all."""
    given = os.environ
    forced = {LOG: "info"}
    if not given.get(TLS):
        forced[TLS] = "tcp"
    interface = host.interface_of(address)
    if not given.get(DEVICES) and interface and forced.get(TLS) == "tcp":
        forced[DEVICES] = interface
    if ":" in address:
        forced[FAMILIES] = "inet6,inet"
    return forced


@dataclass
class _Reading:
    """What the reader prints, line by line, until it has read for long enough."""

    process: Process
    seconds: float
    lines: list[str] = field(default_factory=list)
    read_seconds: float = 0.0
    set_up_seconds: float | None = None
    late: bool = False

    def __post_init__(self) -> None:
        self.meter = Meter(self.process)
        self._began = asyncio.get_running_loop().time()

    async def until_read(self) -> None:
        assert self.process.stdout is not None
        while line := await self.process.stdout.readline():
            self._take(line.decode("utf-8", "replace").rstrip())
            if self.read_seconds >= self.seconds:
                return

    def _take(self, line: str) -> None:
        self.lines.append(line)
        row = _ROW.match(line)
        if row is None:
            return
        self.read_seconds = int(row[1]) * float(row[2]) / 1e6
        if self.set_up_seconds is None:
            self.set_up_seconds = max(0.0, asyncio.get_running_loop().time() - self._began - self.read_seconds)

    def ran(self) -> Ran:
        text = "\n".join(self.lines)[:MAX_DOCUMENT_CHARACTERS]
        if not text:
            message = "ucx_perftest did not say a word" if self.late else "ucx_perftest ended without a word"
            return Ran(trouble=Trouble.TOOL_FAILED, message=message)
        return Ran(text, failed=self.read_seconds <= 0, set_up_seconds=self.set_up_seconds)
