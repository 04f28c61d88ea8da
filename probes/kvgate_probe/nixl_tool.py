"""Runs the real NIXL between two ends: it reads at the destination or writes from the source, piece by piece.

The two scripts run by the Python of KVGATE_NIXL_PYTHON, where NIXL has an environment of its own, else by this one.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from kvgate_probe import host
from kvgate_probe.budget import SETTING, Allowance
from kvgate_probe.nixl_pair import BUFFER_BYTES, MODULES, READ, WRITE
from kvgate_probe.paired import port_for, ran, served
from kvgate_probe.peers import Address
from kvgate_probe.tool import Ran, Serving
from kvgate_probe.ucx_tool import PIECE_BYTES, environment
from kvgate_probe.wire import Role, Step, Trouble

PYTHON = "KVGATE_NIXL_PYTHON"
OVERHEAD_SECONDS = 60.0
"""For loading the library at both ends, connecting, and two transfers that are checked."""


@dataclass(frozen=True)
class Nixl:
    """`read` is what vLLM's decode side does, `write` what a pushing prefill side does."""

    step: Step
    bind: str | None = None
    paced_bits_per_second: int | None = None
    python: str = ""
    overhead_seconds: float = OVERHEAD_SECONDS

    @property
    def starter(self) -> Role:
        return Role.SOURCE if self.step.operation == "write" else Role.DESTINATION

    @property
    def piece_bytes(self) -> int:
        return self.step.piece_bytes or PIECE_BYTES

    @property
    def interpreter(self) -> str:
        return self.python or os.environ.get(PYTHON) or sys.executable

    def problem(self) -> Ran | None:
        if self.paced_bits_per_second is not None:
            return Ran(trouble=Trouble.TOOL_FAILED, message="NIXL cannot be paced: measure the endpoint idle")
        if finds_nixl(self.interpreter):
            return None
        message = "the probe's image has no NIXL: use its variant with it, or the engine's own image"
        return Ran(trouble=Trouble.TOOL_MISSING, message=message)

    async def serve(self, control_port: int, allowance: Allowance, local_address: str) -> Serving | Ran:
        del allowance  # kept by the other end
        port = port_for(control_port, self.bind)
        if isinstance(port, Ran):
            return port
        address = self.bind or local_address
        command = self.command("serve", port, address)
        return await served("nixl", port, command, self._environment(address))

    async def run(self, address: Address, allowance: Allowance) -> Ran:
        if allowance.most_bytes is not None and allowance.most_bytes < 3 * self.buffer_bytes:
            what = f"{allowance.most_bytes} bytes are left, and NIXL moves {3 * self.buffer_bytes} at least"
            return Ran(trouble=Trouble.BYTE_BUDGET_SPENT, message=f"{what}: {SETTING} is spent", attempts=0)
        local = self.bind or host.local_address_towards(address.host)
        command = [*self.command("run", address.port, address.host), "--seconds", f"{allowance.seconds:g}"]
        if allowance.most_bytes is not None:
            command += ["--most-bytes", str(allowance.most_bytes)]
        limit = allowance.seconds + self.overhead_seconds
        done = await ran("nixl", command, self._environment(local), limit)
        return replace(done, seconds=allowance.seconds, sent_bytes=allowance.most_bytes if done.trouble else None)

    @property
    def buffer_bytes(self) -> int:
        return max(1, BUFFER_BYTES // self.piece_bytes) * self.piece_bytes

    def command(self, end: str, port: int, address: str) -> tuple[str, ...]:
        operation = WRITE if self.step.operation == "write" else READ
        asked = ("--port", str(port), "--host", address, "--piece-bytes", str(self.piece_bytes))
        return (self.interpreter, "-m", "kvgate_probe.nixl_pair", end, *asked, "--operation", operation)

    @staticmethod
    def _environment(address: str) -> Mapping[str, str]:
        packages = Path(__file__).resolve().parents[1]
        return {**environment(address), "PYTHONPATH": str(packages), "NIXL_TELEMETRY_ENABLE": "n"}


@cache
def finds_nixl(interpreter: str) -> bool:
    """Whether any of NIXL's wheels is there, without loading it."""
    names = ", ".join(repr(name.partition(".")[0]) for name in MODULES)
    look = f"import importlib.util as u, sys; sys.exit(not any(u.find_spec(n) for n in ({names},)))"
    try:
        looked = subprocess.run((interpreter, "-c", look), capture_output=True, check=False, timeout=30)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return False
    return looked.returncode == 0
