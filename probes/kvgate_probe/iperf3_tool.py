"""Runs iperf3 for one test, at either end; hands back its own text and never reads a number from it."""

from __future__ import annotations

import asyncio
import json
import math
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kvgate_probe import running
from kvgate_probe.budget import SETTING, Allowance
from kvgate_probe.fields import Fields, WireError
from kvgate_probe.host import scratch_problem
from kvgate_probe.load import Meter
from kvgate_probe.paired import FIRST_PAUSE_SECONDS, TRIES, TextServer, not_started, port_for
from kvgate_probe.peers import Address
from kvgate_probe.tool import Ran, Serving
from kvgate_probe.watching import Watch
from kvgate_probe.wire import Role, Step, Trouble

CONNECT_MILLISECONDS = 5000
OVERHEAD_SECONDS = 15.0
NAME = "iperf3"
BUSY = "server is busy"
REFUSED = "connection refused"


@dataclass(frozen=True)
class Iperf3:
    """One one-off server or one client per test; `bind` is the address both use, where given.

    `paced_bits_per_second` is for all streams together.
    """

    step: Step
    bind: str | None = None
    paced_bits_per_second: int | None = None
    program: str = "iperf3"
    overhead_seconds: float = OVERHEAD_SECONDS

    @property
    def starter(self) -> Role:
        return Role.SOURCE

    def problem(self) -> Ran | None:
        """Why no test at all can run on this host."""
        if shutil.which(self.program) is None:
            return Ran(trouble=Trouble.TOOL_MISSING, message="iperf3 is not installed in the probe's image")
        scratch = scratch_problem()
        return Ran(trouble=Trouble.TOOL_FAILED, message=scratch) if scratch else None

    async def serve(self, control_port: int, allowance: Allowance, local_address: str) -> Serving | Ran:
        del allowance, local_address  # the client keeps to the one; this listens on every address, or on `bind`
        port = port_for(control_port, self.bind)
        if isinstance(port, Ran):
            return port
        try:
            return _Server(port, await running.start(self.server_command(port)), NAME)
        except OSError as error:
            return not_started(NAME, error)

    async def run(self, address: Address, allowance: Allowance) -> Ran:
        """Tries again, with growing pauses, while the server is busy or not yet listening."""
        pause = FIRST_PAUSE_SECONDS
        for attempt in range(1, TRIES + 1):
            ran = await self._run_once(address, allowance, attempt)
            error = error_in(ran.document).lower()
            if attempt == TRIES or not (BUSY in error or REFUSED in error):
                break
            await asyncio.sleep(pause)
            pause *= 2
        if BUSY in error_in(ran.document).lower():
            return Ran(ran.document, Trouble.SERVER_BUSY, f"busy at each of {TRIES} tries", TRIES, sent_bytes=0)
        return ran

    async def _run_once(self, address: Address, allowance: Allowance, attempt: int) -> Ran:
        try:
            process = await running.start(self.client_command(address, allowance.seconds))
        except OSError as error:
            return replace(not_started(NAME, error), sent_bytes=0)
        watch = Watch(process, allowance.most_bytes)
        watching, meter = asyncio.ensure_future(watch.run()), Meter(process)
        try:
            ran = await self._waited(process, allowance.seconds, attempt)
        finally:
            watching.cancel()
            load = meter.stop()
            await running.end(process)
        return replace(_counted(ran, watch, allowance), load=load)

    async def _waited(self, process: asyncio.subprocess.Process, seconds: float, attempt: int) -> Ran:
        limit = seconds + self.overhead_seconds
        try:
            return _ran(await asyncio.wait_for(running.read(process), limit), attempt)
        except TimeoutError:
            message = f"iperf3 did not end within {limit:g} s"
            return Ran(trouble=Trouble.TOOL_FAILED, message=message, attempts=attempt)

    def client_command(self, address: Address, seconds: float) -> Sequence[str]:
        plan, paced = self.step, self.paced_bits_per_second
        command = [self.program, "-c", address.host, "-p", str(address.port), "-J"]
        command += ["-t", str(math.ceil(seconds)), "-P", str(plan.streams)]
        command += ["--connect-timeout", str(CONNECT_MILLISECONDS)]
        if paced is not None:
            command += ["-b", str(max(1, paced // plan.streams))]
        return command + (["-B", self.bind] if self.bind else [])

    def server_command(self, port: int) -> Sequence[str]:
        idle = str(round(self.step.seconds + self.overhead_seconds))
        command = [self.program, "-s", "-p", str(port), "-1", "-J", "--idle-timeout", idle]
        return command + (["-B", self.bind] if self.bind else [])


class _Server(TextServer):
    async def stop(self) -> Ran:
        """Ends the server, if it still waits, and hands back what it printed."""
        load = self._meter.stop()
        try:
            return replace(_ran(await asyncio.wait_for(asyncio.shield(self._text), 0.5), 1), load=load)
        except TimeoutError:
            return Ran(trouble=Trouble.PARTNER_LOST, message="no test reached this end's server")
        finally:
            await running.end(self._process)
            self._text.cancel()


def error_in(document: str) -> str:
    """The error that the document itself speaks of, "" where it speaks of none or is no JSON."""
    try:
        values = json.loads(document)
    except (ValueError, RecursionError):
        return ""
    error = values.get("error") if isinstance(values, dict) else None
    return error if isinstance(error, str) else ""


def _counted(ran: Ran, watch: Watch, allowance: Allowance) -> Ran:
    """With what was sent. Where neither iperf3 nor the kernel tells, it counts as all that could be."""
    told, seconds = sent_in(ran.document)
    known = [count for count in (told, watch.written) if count is not None]
    sent = max(known, default=allowance.most_bytes)
    took = seconds or watch.seconds
    if not watch.stopped:
        return replace(ran, seconds=allowance.seconds, sent_bytes=sent, sent_seconds=took)
    what = f"stopped after {sent} bytes in {took:.2f} s, at most {allowance.most_bytes} were left"
    message = f"{what}: {SETTING} is spent"
    return Ran("", Trouble.BYTE_BUDGET_SPENT, message, ran.attempts, allowance.seconds, sent, took)


def sent_in(document: str) -> tuple[int | None, float]:
    """Bytes that a client's document says it has sent, and in how many seconds: in all, or up to where it broke off;
    (None, 0.0) where it does not tell."""
    try:
        fields = Fields.of(document, "iperf3")
        if isinstance(fields.within("end").values.get("sum_sent"), dict):
            whole = fields.within("end").within("sum_sent")
            return whole.count("bytes"), whole.number("seconds", above=-1)
        sums = [interval.within("sum") for interval in fields.objects("intervals")]
        return sum(one.count("bytes") for one in sums), sum(one.number("seconds") for one in sums)
    except WireError:
        return None, 0.0


def _ran(text: str, attempts: int) -> Ran:
    if not text.strip():
        return Ran(trouble=Trouble.TOOL_FAILED, message="iperf3 ended without a word", attempts=attempts)
    return Ran(_compact(text), attempts=attempts, failed=bool(error_in(text)))


def _compact(text: str) -> str:
    """Leaves out the indentation; a JSON string holds no raw line end, so no content is touched."""
    return re.sub(r"\n[ \t]*", "\n", text).strip()
