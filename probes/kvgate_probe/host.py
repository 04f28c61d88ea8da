"""What the walker reads of its own machine: interfaces, their byte counters, and whether it may write files."""

from __future__ import annotations

import array
import contextlib
import ipaddress
import os
import socket
import struct
import tempfile
from dataclasses import dataclass
from pathlib import Path

SIOCGIFADDR = 0x8915
SIOCGIFMTU = 0x8921
SIOCETHTOOL = 0x8946
ETHTOOL_GDRVINFO = 0x03
DRIVER_INFO = struct.Struct("=I32s32s32s32s")
"""The head of Linux's struct ethtool_drvinfo: command, driver, its version, firmware, bus."""


@dataclass(frozen=True)
class Counters:
    """Bytes an interface has moved since it came up."""

    received: int
    sent: int


def local_address_towards(address: str) -> str:
    """The address this host would send from, or "" where it has no route; a name is never looked up."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with contextlib.suppress(OSError, ValueError), socket.socket(family, socket.SOCK_DGRAM) as probe:
        ipaddress.ip_address(address.partition("%")[0])
        probe.connect((address, 9))
        return str(probe.getsockname()[0])
    return ""


def interface_of(address: str) -> str:
    """The interface that owns `address`, or "" where the system does not tell."""
    with contextlib.suppress(OSError, ValueError):
        wanted = ipaddress.ip_address(address.partition("%")[0])
        if wanted.is_loopback:
            return _loopback()
        for _, name in socket.if_nameindex():
            if wanted in _addresses(name):
                return name
    return ""


def mtu_of(interface: str) -> int | None:
    answer = _ask(interface, SIOCGIFMTU)
    return None if answer is None else int(struct.unpack_from("i", answer, 16)[0])


def speed_of(interface: str, folder: Path = Path("/sys/class/net")) -> float | None:
    """What the interface says that it carries, in bytes per second; None where it does not say. A virtual one may say
    less than it carries."""
    with contextlib.suppress(OSError, ValueError):
        megabits = int((folder / interface / "speed").read_text(encoding="ascii"))
        return megabits * 125_000.0 if interface and megabits > 0 else None
    return None


def driver_of(interface: str) -> tuple[str, str]:
    """The interface's driver and its firmware's version; "" where the driver does not tell, or the system."""
    try:
        import fcntl  # noqa: PLC0415 -- not every system has it

        told = array.array("B", DRIVER_INFO.pack(ETHTOOL_GDRVINFO, b"", b"", b"", b"") + bytes(256))
        asked = struct.pack("16sP", interface.encode()[:15], told.buffer_info()[0])
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            fcntl.ioctl(sock.fileno(), SIOCETHTOOL, asked + bytes(16))
    except (ImportError, OSError):
        return "", ""
    _, driver, _, firmware, _ = DRIVER_INFO.unpack_from(told)
    return _word(driver), _word(firmware)


def _word(told: bytes) -> str:
    text = told.split(b"\0", 1)[0].decode("ascii", "replace").strip()
    return "" if text == "N/A" else text


def counters_of(interface: str, table: Path = Path("/proc/net/dev")) -> Counters | None:
    """Read from /proc/net/dev, which follows the network namespace even where /sys does not."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in table.read_text(encoding="ascii").splitlines():
            name, _, numbers = line.partition(":")
            if name.strip() == interface:
                fields = numbers.split()
                return Counters(received=int(fields[0]), sent=int(fields[8]))
    return None


def scratch_problem() -> str:
    """Why iperf3 could not make its buffer file, in the directory where iperf3 makes it, or "" where it can."""
    named = (os.environ.get(name) for name in ("TMPDIR", "TEMP", "TMP"))
    folder = next((value for value in named if value is not None), "/tmp")  # noqa: S108 -- iperf3's own choice
    try:
        with tempfile.TemporaryFile(prefix="kvgate-", dir=folder):
            return ""
    except OSError:
        return f"{folder} is not writable and iperf3 needs it: mount an emptyDir (medium Memory) there"


def _loopback() -> str:
    names = {name for _, name in socket.if_nameindex()}
    return next((name for name in ("lo", "lo0") if name in names), "")


def _addresses(interface: str) -> frozenset[ipaddress.IPv4Address | ipaddress.IPv6Address]:
    found: set[ipaddress.IPv4Address | ipaddress.IPv6Address] = set()
    answer = _ask(interface, SIOCGIFADDR)
    if answer is not None:
        found.add(ipaddress.IPv4Address(answer[20:24]))
    with contextlib.suppress(OSError):
        for line in Path("/proc/net/if_inet6").read_text(encoding="ascii").splitlines():
            fields = line.split()
            if fields[-1] == interface:
                found.add(ipaddress.IPv6Address(int(fields[0], 16)))
    return frozenset(found)


def _ask(interface: str, request: int) -> bytes | None:
    try:
        import fcntl  # noqa: PLC0415 -- not every system has it

        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            return fcntl.ioctl(sock.fileno(), request, struct.pack("256s", interface.encode()[:15]))
    except (ImportError, OSError):
        return None
