"""A small network on one host: namespaces as nodes, plugged into one switch by links of a given rate."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kvgate.edge.errors import EdgeError

_PREFIX = "kvgate"
_BURST = ("burst", "256kb", "latency", "50ms")
_NETWORK = "198.18.{number}.{host}"
"""From 198.18.0.0/15, which is set aside for measuring between networks (RFC 2544)."""
PACKAGES = {"ip": "iproute2", "tc": "iproute2", "nsenter": "util-linux", "iperf3": "iperf3"}


@dataclass(frozen=True)
class LabNode:
    """A node of the lab: its namespace, its address, and the rate of its link in bits per second, both ways."""

    name: str
    namespace: str
    address: str
    bits_per_second: int


def require(tools: Sequence[str]) -> None:
    """Raises EdgeError with the command that installs what is missing."""
    missing = [tool for tool in tools if shutil.which(tool) is None]
    if missing:
        packages = " ".join(sorted({PACKAGES[tool] for tool in missing}))
        raise EdgeError(f"{', '.join(missing)} not found: apt-get install {packages} (macOS: brew install {packages})")


@contextmanager
def lab(rates: Mapping[str, int]) -> Iterator[tuple[LabNode, ...]]:
    """Nodes on one switch, each on a link of its own rate (bits per second); gone when the block ends, however it ends.

    Needs CAP_NET_ADMIN. Raises EdgeError when a tool is missing or the kernel refuses.
    """
    require(("ip", "tc", "nsenter"))
    clear_leftovers()
    switch = _namespace("switch")
    nodes = tuple(
        LabNode(name, _namespace(name), _NETWORK.format(number=os.getpid() % 200, host=number), rate)
        for number, (name, rate) in enumerate(rates.items(), start=1)
    )
    try:
        _ip("netns", "add", switch)
        _ip("-n", switch, "link", "add", "br0", "type", "bridge")
        _ip("-n", switch, "link", "set", "br0", "up")
        for number, node in enumerate(nodes):
            _plug(node, switch, f"p{number}")
        yield nodes
    finally:
        for namespace in (*(node.namespace for node in nodes), switch):
            _remove(namespace)


def shape(node: LabNode, bits_per_second: int) -> None:
    """Give the node's link another rate."""
    _tc(node.namespace, "replace", "eth0", bits_per_second)


def clear_leftovers() -> None:
    """Remove the namespaces of labs whose process is gone."""
    folder = Path("/run/netns")
    names = sorted(path.name for path in folder.glob(f"{_PREFIX}-*-*")) if folder.is_dir() else []
    for name in names:
        owner = name.split("-")[1]
        if owner.isdigit() and not Path(f"/proc/{owner}").exists():
            _remove(name)


def _namespace(name: str) -> str:
    return f"{_PREFIX}-{os.getpid()}-{name}"


def _plug(node: LabNode, switch: str, port: str) -> None:
    _ip("netns", "add", node.namespace)
    _ip("-n", switch, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", node.namespace)
    _ip("-n", switch, "link", "set", port, "master", "br0", "up")
    _ip("-n", node.namespace, "link", "set", "lo", "up")
    _ip("-n", node.namespace, "address", "add", f"{node.address}/24", "dev", "eth0")
    _ip("-n", node.namespace, "link", "set", "eth0", "up")
    _tc(node.namespace, "add", "eth0", node.bits_per_second)
    _tc(switch, "add", port, node.bits_per_second)


def _tc(namespace: str, verb: str, device: str, bits_per_second: int) -> None:
    shaped = ("root", "tbf", "rate", f"{bits_per_second}bit", *_BURST)
    _run("tc", "-n", namespace, "qdisc", verb, "dev", device, *shaped)


def _ip(*arguments: str) -> None:
    _run("ip", *arguments)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)  # noqa: S603
    if done.returncode != 0:
        said = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise EdgeError(f"{' '.join(command[:4])} ...: {said}")


def _remove(namespace: str) -> None:
    if Path("/run/netns", namespace).exists():
        command = ("ip", "netns", "del", namespace)
        subprocess.run(command, capture_output=True, check=False, timeout=30)  # noqa: S603
