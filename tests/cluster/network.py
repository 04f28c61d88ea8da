"""One switch, a network namespace per node, and links between them whose rate is shaped at both ends.

The bridge enforces no NetworkPolicy by itself, there is no kube-proxy and no DNS: pods talk to pod and node addresses.
"""

import ipaddress
import json
import secrets
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.cache import CannotRunError, locked
from tests.cluster.leftovers import Kind, Ledger, is_mounted, states

CANDIDATES = range(64, 128)
"""Second octets of the 10.N.0.0/16 that a cluster may take; one that overlaps a route of this host is left alone."""
NAMESPACES = Path("/run/netns")
BURST = "256kb"
LATENCY = "50ms"


@dataclass(frozen=True)
class Plug:
    """One node's place on the switch: namespace, address on the node network, and the range of its pods."""

    namespace: str
    port: str
    address: str
    pods: str


@dataclass(frozen=True)
class Switch:
    """The node network is 10.N.0.0/24 with this host as .1; node i is .10+i, and its pods are 10.N.i.0/24."""

    prefix: str
    second_octet: int

    @property
    def namespace(self) -> str:
        return f"{self.prefix}-sw"

    @property
    def host_address(self) -> str:
        return f"10.{self.second_octet}.0.1"

    def plug(self, index: int) -> Plug:
        return Plug(
            namespace=f"{self.prefix}-n{index}",
            port=f"p{index}",
            address=f"10.{self.second_octet}.0.{10 + index}",
            pods=f"10.{self.second_octet}.{index}.0/24",
        )


def make_switch(ledger: Ledger) -> Switch:
    """A bridge in a namespace of its own, with this host plugged in as the control plane's node."""
    with locked(states() / ".network.lock"):
        switch = Switch(f"kvg{secrets.token_hex(2)}", free_second_octet(_routes()))
        _prepare_namespaces(ledger)
        _make_namespace(ledger, switch.namespace)
        ledger.note(Kind.LINK, switch.prefix)
        _ip("-n", switch.namespace, "link", "add", "br0", "type", "bridge")
        _ip("-n", switch.namespace, "link", "set", "br0", "up")
        _ip("link", "add", switch.prefix, "type", "veth", "peer", "name", "host", "netns", switch.namespace)
        _ip("-n", switch.namespace, "link", "set", "host", "master", "br0", "up")
        _ip("address", "add", f"{switch.host_address}/24", "dev", switch.prefix)
        _ip("link", "set", switch.prefix, "up")
    return switch


def plug_node(ledger: Ledger, switch: Switch, index: int) -> Plug:
    plug = switch.plug(index)
    _make_namespace(ledger, plug.namespace)
    inside = ("-n", plug.namespace)
    _ip(
        "-n",
        switch.namespace,
        "link",
        "add",
        plug.port,
        "type",
        "veth",
        "peer",
        "name",
        "eth0",
        "netns",
        plug.namespace,
    )
    _ip("-n", switch.namespace, "link", "set", plug.port, "master", "br0", "up")
    _ip(*inside, "link", "set", "lo", "up")
    _ip(*inside, "address", "add", f"{plug.address}/24", "dev", "eth0")
    _ip(*inside, "link", "set", "eth0", "up")
    _ip(*inside, "route", "add", "default", "via", switch.host_address)
    _ip("route", "add", plug.pods, "via", plug.address, "dev", switch.prefix)
    return plug


def route_pods(plugs: tuple[Plug, ...]) -> None:
    """Let every node reach the pods of every other over the switch."""
    for here in plugs:
        for there in plugs:
            if here is not there:
                _ip("-n", here.namespace, "route", "add", there.pods, "via", there.address)


def shape(switch: Switch, plug: Plug, rate: str) -> None:
    """Hold the node's link to `rate` in both directions; a tc rate such as `200mbit`, counting Ethernet frames."""
    limit = ("root", "tbf", "rate", rate, "burst", BURST, "latency", LATENCY)
    _tc("-n", plug.namespace, "qdisc", "replace", "dev", "eth0", *limit)
    _tc("-n", switch.namespace, "qdisc", "replace", "dev", plug.port, *limit)


def free_second_octet(routes: list[str]) -> int:
    """One whose 10.N.0.0/16 overlaps no route; a default route overlaps nothing."""
    taken = [ipaddress.ip_network(route) for route in routes if route not in {"default", "0.0.0.0/0"}]
    free = [n for n in CANDIDATES if not any(t.overlaps(ipaddress.ip_network(f"10.{n}.0.0/16")) for t in taken)]
    if not free:
        raise CannotRunError(
            f"every network from 10.{CANDIDATES[0]}.0.0/16 to 10.{CANDIDATES[-1]}.0.0/16 overlaps a route of this host"
        )
    return secrets.choice(free)


def _routes() -> list[str]:
    raw = subprocess.run(["ip", "-j", "-4", "route", "show"], capture_output=True, text=True, check=True).stdout
    return [str(route["dst"]) for route in json.loads(raw)]


def _prepare_namespaces(ledger: Ledger) -> None:
    """Where nobody used `ip netns` before, it makes its directory and mounts it on itself: note both, to undo them."""
    ledger.directory(NAMESPACES)
    if not is_mounted(NAMESPACES):
        ledger.note(Kind.MOUNT, str(NAMESPACES))


def _make_namespace(ledger: Ledger, name: str) -> None:
    ledger.note(Kind.NAMESPACE, name)
    _ip("netns", "add", name)


def _ip(*args: str) -> None:
    _run("ip", *args)


def _tc(*args: str) -> None:
    _run("tc", *args)


def _run(*argv: str) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(argv)}: {done.stderr.strip()}")
