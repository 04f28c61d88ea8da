"""NetworkPolicies enforced on the tests' nodes, for as long as a test wants them: by kube-router's own controller."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from tests.cluster import processes
from tests.cluster.binaries import binary
from tests.cluster.cache import CannotRunError
from tests.cluster.harness import Cluster
from tests.cluster.leftovers import MARK
from tests.cluster.nodes import Node
from tests.cluster.processes import Process

PROGRAMS = {"iptables": "iptables", "ipset": "ipset", "nft": "nftables"}


@contextmanager
def enforcing(cluster: Cluster) -> Iterator[None]:
    """Rules follow the cluster's policies within seconds: wait for what they do. At the end none is left on a node."""
    if lacking := sorted(package for program, package in PROGRAMS.items() if shutil.which(program) is None):
        raise CannotRunError(f"to enforce NetworkPolicies takes what is not installed here: apt-get install {lacking}")
    started = [_start(cluster, node) for node in cluster.nodes.values()]
    try:
        yield
    finally:
        assert all(process.runs() for process in started), "an enforcer ended: see enforcer.log in its node's directory"
        processes.kill(started)
        for node in cluster.nodes.values():
            _inside(node, "nft", "flush", "ruleset")
            _inside(node, "ipset", "destroy")


def _start(cluster: Cluster, node: Node) -> Process:
    """In the namespace that stands for the node's host; what a killed run leaves of it is found by the mark."""
    enforcer = (binary("netpol"), f"--kubeconfig={cluster.kubeconfig}", f"--node={node.name}")
    argv = ("ip", "netns", "exec", node.plug.namespace, *enforcer)
    return processes.start(argv, node.state / "enforcer.log", {MARK: str(cluster.access.directory)})


def _inside(node: Node, *argv: str) -> None:
    subprocess.run(("ip", "netns", "exec", node.plug.namespace, *argv), check=True)
