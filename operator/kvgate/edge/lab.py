"""A small network on one host: namespaces as nodes, plugged into one switch by links of a given rate."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from kvgate.edge.errors import EdgeError
from kvgate.edge.signals import orderly_end

_PREFIX = "kvgate"
_LABS = count()
"""Labs that this process has made; two may stand at once."""
_BURST = ("burst", "256kb", "latency", "50ms")
_NETWORK = "198.18.{number}.{host}"
"""From 198.18.0.0/15, which is set aside for measuring between networks (RFC 2544)."""
USER_NAMESPACE = ("unshare", "-Urnm")
"""Starts a command as root of a user namespace with a network and mounts of its own."""
PACKAGES = {"ip": "iproute2", "tc": "iproute2", "nsenter": "util-linux", "iperf3": "iperf3"}


class KernelRefusedError(EdgeError):
    """The tools are there, but links may not be made: no CAP_NET_ADMIN, or no such kernel module."""


@dataclass(frozen=True)
class LabNode:
    """A node of the lab: its namespace, its address, and the switch's end of its link."""

    name: str
    namespace: str
    address: str
    switch: str
    port: str


def require(tools: Sequence[str]) -> None:
    """Raises EdgeError with the command that installs what is missing."""
    missing = [tool for tool in tools if shutil.which(tool) is None]
    if missing:
        packages = " ".join(sorted({PACKAGES[tool] for tool in missing}))
        raise EdgeError(f"{', '.join(missing)} not found: apt-get install {packages} (macOS: brew install {packages})")


def user_namespaces_work() -> bool:
    """Whether a user without rights may become root of a namespace here; many containers forbid it."""
    command = (*USER_NAMESPACE, "true")
    try:
        return subprocess.run(command, capture_output=True, check=False, timeout=30).returncode == 0  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return False


@contextmanager
def lab(rates: Mapping[str, int]) -> Iterator[tuple[LabNode, ...]]:
    """Nodes on one switch, each on a link of its own rate (bits per second); gone when the block ends, however it ends.

    Needs CAP_NET_ADMIN. Raises EdgeError when a tool is missing, KernelRefusedError when the kernel refuses.
    """
    require(("ip", "tc", "nsenter"))
    clear_leftovers()
    number_of_lab = next(_LABS)
    switch = _namespace(number_of_lab, "switch")
    nodes = tuple(
        LabNode(
            name,
            _namespace(number_of_lab, name),
            _NETWORK.format(number=os.getpid() % 200, host=number),
            switch,
            f"p{number}",
        )
        for number, name in enumerate(rates, start=1)
    )
    with orderly_end():
        try:
            _ip("netns", "add", switch)
            _ip("-n", switch, "link", "add", "br0", "type", "bridge")
            _ip("-n", switch, "link", "set", "br0", "up")
            for node in nodes:
                _plug(node)
                _shape("add", node, rates[node.name])
            yield nodes
        finally:
            for namespace in (*(node.namespace for node in nodes), switch):
                _remove(namespace)


def shape(node: LabNode, bits_per_second: int) -> None:
    """Give the node's link another rate, both ways."""
    _shape("replace", node, bits_per_second)


def clear_leftovers() -> None:
    """Remove the namespaces of labs whose process is gone."""
    folder = Path("/run/netns")
    names = sorted(path.name for path in folder.glob(f"{_PREFIX}-*-*")) if folder.is_dir() else []
    for name in names:
        owner = name.split("-")[1]
        if owner.isdigit() and not Path(f"/proc/{owner}").exists():
            _remove(name)


def _namespace(number_of_lab: int, name: str) -> str:
    return f"{_PREFIX}-{os.getpid()}-{number_of_lab}-{name}"


def _plug(node: LabNode) -> None:
    _ip("netns", "add", node.namespace)
    _ip("-n", node.switch, "link", "add", node.port, "type", "veth", "peer", "name", "eth0", "netns", node.namespace)
    _ip("-n", node.switch, "link", "set", node.port, "master", "br0", "up")
    _ip("-n", node.namespace, "link", "set", "lo", "up")
    _ip("-n", node.namespace, "address", "add", f"{node.address}/24", "dev", "eth0")
    _ip("-n", node.namespace, "link", "set", "eth0", "up")


def _shape(verb: str, node: LabNode, bits_per_second: int) -> None:
    shaped = ("root", "tbf", "rate", f"{bits_per_second}bit", *_BURST)
    for namespace, device in ((node.namespace, "eth0"), (node.switch, node.port)):
        _run("tc", "-n", namespace, "qdisc", verb, "dev", device, *shaped)


def _ip(*arguments: str) -> None:
    _run("ip", *arguments)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)  # noqa: S603
    if done.returncode != 0:
        said = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise KernelRefusedError(f"{' '.join(command[:4])} ...: {said}")


def _remove(namespace: str) -> None:
    if Path("/run/netns", namespace).exists():
        command = ("ip", "netns", "del", namespace)
        subprocess.run(command, capture_output=True, check=False, timeout=30)  # noqa: S603
