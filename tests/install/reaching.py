"""Pods that listen and ask on a cluster whose NetworkPolicies are enforced."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from tests.cluster.access import Access, Document
from tests.e2e.podded import process_id

PORTS = CONTROL, OTHER, SYSTEM_PORT = 5201, 7777, 9090
LISTENS = """
import socket, time
open_ones = [socket.create_server(("", port)) for port in PORTS]
time.sleep(900)
"""
ASKS = """
import socket, sys
socket.create_connection((sys.argv[1], int(sys.argv[2])), 2)
"""
RIGHTS = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "runAsUser": 65532,
    "seccompProfile": {"type": "RuntimeDefault"},
}


@dataclass(frozen=True)
class Bystander:
    """A pod of the cluster that listens on PORTS and asks whom it is told to."""

    access: Access
    name: str
    namespace: str

    @property
    def address(self) -> str:
        return str(self.access.get("pod", self.name, "-n", self.namespace)["status"]["podIP"])

    def reaches(self, address: str, port: int) -> bool:
        ask = ("python3", "-c", ASKS, address, str(port))
        return self.access.kubectl("exec", self.name, "-n", self.namespace, "--", *ask).returncode == 0


def operator_reaches(address: str, port: int) -> bool:
    """Asked from the network of the operator's own pod."""
    ask = (sys.executable, "-c", ASKS, address, str(port))
    entered = ("nsenter", "-t", str(process_id()), "-n", *ask)
    return subprocess.run(entered, capture_output=True, check=False).returncode == 0


def bystander(name: str, namespace: str, image: str, labels: Mapping[str, str] = {}) -> Document:
    command = ["python3", "-c", LISTENS.replace("PORTS", repr(PORTS))]
    spec = {
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "main", "image": image, "command": command, "securityContext": RIGHTS}],
    }
    metadata = {"name": name, "namespace": namespace, "labels": dict(labels)}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
