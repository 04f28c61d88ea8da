"""Runs perftest's ib_read_bw: the destination reads the source's memory over RDMA, with no TCP in between.

Never run on RDMA hardware by its authors: its command lines and texts are those of perftest's documentation.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import shutil
import subprocess
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from kvgate_probe.budget import Allowance
from kvgate_probe.paired import patiently, port_for, ran, served
from kvgate_probe.peers import Address
from kvgate_probe.tool import Ran, Serving
from kvgate_probe.wire import Role, Step, Trouble

DEVICES = Path("/sys/class/infiniband")
PIECE_BYTES = 65_536
OVERHEAD_SECONDS = 20.0
HCA, UCX_DEVICES, GID_INDEX = "NCCL_IB_HCA", "UCX_NET_DEVICES", "NCCL_IB_GID_INDEX"
ETHERNET, ROCE_2 = "Ethernet", "RoCE v2"


@dataclass(frozen=True)
class RdmaPort:
    """One port of a device, and the index of the address that packets are sent from; None leaves it to the tool."""

    device: str
    port: int
    gid_index: int | None = None


@dataclass(frozen=True)
class IbReadBw:
    """Its ends find each other over TCP on one of the data ports."""

    step: Step
    bind: str | None = None
    paced_bits_per_second: int | None = None
    program: str = "ib_read_bw"
    overhead_seconds: float = OVERHEAD_SECONDS
    devices: Path = DEVICES

    @property
    def starter(self) -> Role:
        return Role.DESTINATION

    def problem(self) -> Ran | None:
        if shutil.which(self.program) is None:
            return Ran(trouble=Trouble.TOOL_MISSING, message="ib_read_bw (perftest) is not installed")
        if self.paced_bits_per_second is not None:
            return Ran(trouble=Trouble.TOOL_FAILED, message="ib_read_bw cannot be paced here")
        if rdma_port(self.devices) is None:
            message = "there is no active RDMA port: a probe's pod must ask for the workers' RDMA device"
            return Ran(trouble=Trouble.TOOL_FAILED, message=message)
        return None

    async def serve(self, control_port: int, allowance: Allowance, local_address: str) -> Serving | Ran:
        del local_address
        port = port_for(control_port, self.bind)
        if isinstance(port, Ran):
            return port
        return await served("ib_read_bw", port, self.command(port, allowance.seconds), {})

    async def run(self, address: Address, allowance: Allowance) -> Ran:
        if allowance.most_bytes is not None:
            message = "ib_read_bw reads for a time, and cannot keep to a number of bytes: unset probe.maxBytesPerSweep"
            return Ran(trouble=Trouble.TOOL_FAILED, message=message, attempts=0)
        command = (*self.command(address.port, allowance.seconds), address.host)
        limit = allowance.seconds + self.overhead_seconds
        done = await patiently(lambda: ran("ib_read_bw", command, {}, limit))
        said = f"{version(self.program)}{done.document}" if done.document else ""
        return replace(done, seconds=allowance.seconds, document=said)

    def command(self, port: int, seconds: float) -> tuple[str, ...]:
        """The same at both ends, but for the server's address."""
        chosen = rdma_port(self.devices)
        size, pairs = str(self.step.piece_bytes or PIECE_BYTES), str(self.step.streams)
        asked = (self.program, "-F", "--report_gbits", "-s", size, "-q", pairs, "-D", str(max(2, round(seconds))))
        where = () if chosen is None else ("-d", chosen.device, "-i", str(chosen.port))
        index = () if chosen is None or chosen.gid_index is None else ("-x", str(chosen.gid_index))
        bound = ("--bind_source_ip", self.bind) if self.bind else ()
        return (*asked, "-p", str(port), *where, *index, *bound)


@cache
def version(program: str) -> str:
    """The line in which perftest says its version, "" where it does not: its results do not tell."""
    try:
        asked = subprocess.run((program, "--version"), capture_output=True, check=False, timeout=10)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return ""
    lines = asked.stdout.decode("ascii", "replace").splitlines()
    return next((f"{line.strip()}\n" for line in lines if line.strip().startswith("Version:")), "")


def rdma_port(devices: Path = DEVICES) -> RdmaPort | None:
    """The port that the workers' own variables name, else the first that is active; None where there is none."""
    named = _named()
    for device in sorted(_names(devices)):
        for port in sorted(_names(devices / device / "ports")):
            folder = devices / device / "ports" / port
            asked = not named or device in named or f"{device}:{port}" in named
            if asked and port.isdigit() and "ACTIVE" in _text(folder / "state"):
                return RdmaPort(device, int(port), gid_index(folder))
    return None


def gid_index(folder: Path) -> int | None:
    """What the variables say; over Ethernet else the first IPv4 address for RoCE v2, or any for it; else None."""
    asked = os.environ.get(GID_INDEX, "")
    if asked.isdigit():
        return int(asked)
    if _text(folder / "link_layer") != ETHERNET:
        return None
    indexes = sorted(int(name) for name in _names(folder / "gids") if name.isdigit())
    fit = [index for index in indexes if _text(folder / "gid_attrs" / "types" / str(index)) == ROCE_2]
    mapped = [index for index in fit if _is_ipv4(_text(folder / "gids" / str(index)))]
    return next(iter([*mapped, *fit]), None)


def _named() -> frozenset[str]:
    """Devices, with or without a port, of NCCL's variable or else of UCX's."""
    for variable in (HCA, UCX_DEVICES):
        words = os.environ.get(variable, "").lstrip("=^").split(",")
        found = frozenset(word.strip() for word in words if word.strip() and not word.startswith("eth"))
        if found and not os.environ.get(variable, "").startswith("^"):
            return found - {"all"}
    return frozenset()


def _is_ipv4(gid: str) -> bool:
    with contextlib.suppress(ValueError):
        return ipaddress.IPv6Address(gid).ipv4_mapped is not None
    return False


def _names(folder: Path) -> list[str]:
    with contextlib.suppress(OSError):
        return [entry.name for entry in folder.iterdir()]
    return []


def _text(path: Path) -> str:
    with contextlib.suppress(OSError, UnicodeDecodeError):
        return path.read_text(encoding="ascii").strip()
    return ""
