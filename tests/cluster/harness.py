"""Brings a whole cluster up and down: control plane, switch, nodes, images."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tests.cluster import images, network
from tests.cluster.access import Access
from tests.cluster.binaries import KUBERNETES_NAMES, binary
from tests.cluster.cache import CannotRunError
from tests.cluster.cgroups import find_hierarchies
from tests.cluster.controlplane import start_control_plane, wait_until
from tests.cluster.leftovers import Ledger
from tests.cluster.network import Plug, Switch
from tests.cluster.nodes import Node, NodePlan, Prepared, start_node

DEFAULT_RATES = ("1000mbit", "1000mbit", "200mbit")
PROGRAMS: Mapping[str, str] = {
    "containerd": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    "ip": "iproute2",
    "tc": "iproute2",
    "nsenter": "util-linux",
    "unshare": "util-linux",
    "openssl": "openssl",
    "mmdebstrap": "mmdebstrap",
}
CNI_PLUGINS = Path("/usr/lib/cni/bridge")
READY_SECONDS = 90.0


@dataclass
class Cluster:
    """Nodes n1, n2, ...: n1 has the label pool=prefill and the others pool=decode."""

    access: Access
    switch: Switch
    nodes: Mapping[str, Node]
    seconds_until_ready: float = field(default=0.0)

    @property
    def kubeconfig(self) -> Path:
        return self.access.kubeconfig

    def shape(self, node: str, rate: str) -> None:
        """Change the rate of the node's link in both directions, at once: `200mbit`, counting Ethernet frames."""
        network.shape(self.switch, self.nodes[node].plug, rate)

    def load_image(self, archive: Path) -> None:
        """Give an image to every node, as if each had pulled it."""
        for node in self.nodes.values():
            socket = str(node.state / "c.sock")
            argv = ["ctr", "--address", socket, "--namespace", "k8s.io", "images", "import", str(archive)]
            subprocess.run(argv, check=True, capture_output=True)

    def node_namespace(self, node: str) -> str:
        """The network namespace that stands for the node's host, as `ip netns exec` takes it."""
        return self.nodes[node].plug.namespace


def check_machine() -> None:
    """Raises CannotRunError with one line where this machine cannot hold a node."""
    if sys.platform != "linux":
        raise CannotRunError("a node needs Linux's namespaces and control groups: this machine has none")
    if os.geteuid() != 0:
        raise CannotRunError("a node needs root, for network namespaces and containerd: run this as root")
    lacking = sorted({package for program, package in PROGRAMS.items() if shutil.which(program) is None})
    if not CNI_PLUGINS.exists():
        lacking.append("containernetworking-plugins")
    if lacking:
        raise CannotRunError(f"a node needs what is not installed here: apt-get install {' '.join(lacking)}")


def start_cluster(ledger: Ledger, rates: Sequence[str] = DEFAULT_RATES) -> Cluster:
    """One node per rate. Returns when all are Ready and hold the probe's image."""
    check_machine()
    prepared = _prepare(ledger.state)
    began = time.monotonic()
    ledger.directory(Path("/var/lib/cni"))
    switch = network.make_switch(ledger)
    access = start_control_plane(ledger, switch.host_address)
    plugs = _plug_nodes(ledger, switch, rates)
    nodes = [start_node(ledger, prepared, _plan(index, plug, access)) for index, plug in enumerate(plugs, start=1)]
    cluster = Cluster(access, switch, {node.name: node for node in nodes})
    _wait(nodes, lambda node: node.name in ready_nodes(access))
    cluster.seconds_until_ready = time.monotonic() - began
    _wait(nodes, lambda node: node.images_imported)
    return cluster


def ready_nodes(access: Access) -> list[str]:
    """Names of the nodes whose condition Ready is True."""
    return [
        str(node["metadata"]["name"])
        for node in access.get("nodes")["items"]
        if any(c["type"] == "Ready" and c["status"] == "True" for c in node["status"].get("conditions", ()))
    ]


def _prepare(state: Path) -> Prepared:
    for name in KUBERNETES_NAMES:
        binary(name)
    return Prepared(find_hierarchies(), images.pause_image(state), (images.probe_image(state),))


def _plug_nodes(ledger: Ledger, switch: Switch, rates: Sequence[str]) -> tuple[Plug, ...]:
    plugs = tuple(network.plug_node(ledger, switch, index) for index in range(1, len(rates) + 1))
    network.route_pods(plugs)
    for plug, rate in zip(plugs, rates, strict=True):
        network.shape(switch, plug, rate)
    return plugs


def _plan(index: int, plug: Plug, access: Access) -> NodePlan:
    role = "prefill" if index == 1 else "decode"
    return NodePlan(f"n{index}", plug, f"pool={role}", access.kubeconfig, access.authority)


def _wait(nodes: Sequence[Node], ready: Callable[[Node], bool]) -> None:
    for node in nodes:
        try:
            wait_until(partial(ready, node), watch=(node.process, node.log), seconds=READY_SECONDS)
        except RuntimeError as error:
            raise RuntimeError(f"{error}\n{node.last_words()}") from None
