"""Other hands on a real API server: clients with the field managers and content types of the tools that they play.

Client-side applies are kubectl's own, which Argo CD's default sync is too: of a custom resource they send a JSON merge
patch that replaces the whole list of components. Argo CD by ServerSideApply=true and Flux apply server-side, forced.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import yaml

from kvgate.edge.cluster.client import TARGETS, Client
from kvgate.edge.errors import WriteConflictError
from tests.cluster.waiting import eventually
from tests.dynamo_stage.standin.installing import ADMISSION
from tests.edge.cluster.yard import Yard, configuration

ARGO_CLIENT_SIDE, ARGO_SERVER_SIDE = "argocd-application-controller", "argocd-controller"
FLUX = "kustomize-controller"
KUBECTL = "kubectl-client-side-apply"
Document = dict[str, Any]


def client_side(yard: Yard, document: Document, manager: str = KUBECTL) -> None:
    yard.kubectl("apply", f"--field-manager={manager}", "-f", "-", document=document)


def server_side(yard: Yard, document: Document, manager: str) -> None:
    """By force, as both tools do it."""
    forced = ("--server-side", "--force-conflicts", f"--field-manager={manager}")
    yard.kubectl("apply", *forced, "-f", "-", document=document)


def scale(yard: Yard, component: str, before: int, replicas: int) -> None:
    """The planner's own patch: JSON, with a test of what it read."""
    place = [part["name"] for part in yard.deployment()["spec"]["components"]].index(component)
    path = f"/spec/components/{place}/replicas"
    operations = [{"op": "test", "path": path, "value": before}, {"op": "replace", "path": path, "value": replicas}]
    patch = ("patch", "dgd.v1beta1.nvidia.com", "qwen3", "--type=json", "--field-manager=planner", "-p")
    yard.kubectl(*patch, json.dumps(operations))


@dataclass
class Rewriter:
    """A controller that reads the whole object and PUTs it back with a mark, again and again.

    `written` are the PUTs that went through; `refused` those that met a newer version, which it reads anew.
    """

    yard: Yard
    every_seconds: float
    written: int = 0
    refused: int = 0

    def run(self, stop: threading.Event) -> None:
        client = Client(configuration(self.yard.access), agent="rewriter")
        while not stop.is_set():
            found = dict(client.get(TARGETS, self.yard.namespace, "qwen3"))
            metadata = dict(found["metadata"])
            marks = metadata.get("annotations", {}) | {"team.example/rewrites": str(self.written + 1)}
            stop.wait(self.every_seconds / 2)
            try:
                client.replace(TARGETS, self.yard.namespace, found | {"metadata": metadata | {"annotations": marks}})
                self.written += 1
            except WriteConflictError:
                self.refused += 1
            stop.wait(self.every_seconds / 2)


@contextmanager
def rewriting(yard: Yard, every_seconds: float) -> Iterator[Rewriter]:
    rewriter, stop = Rewriter(yard, every_seconds), threading.Event()
    thread = threading.Thread(target=rewriter.run, args=(stop,), name="rewriter")
    thread.start()
    try:
        yield rewriter
    finally:
        stop.set()
        thread.join()


@contextmanager
def webhook_rules(yard: Yard) -> Iterator[None]:
    """The rules of Dynamo's webhook, as the stand-in for its operator plays them, for this namespace's deployments."""
    policy, binding = yaml.safe_load_all(ADMISSION.read_text(encoding="utf-8"))
    name = {"name": yard.namespace}
    policy |= {"metadata": name}
    here = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": yard.namespace}}}
    binding |= {"metadata": name, "spec": binding["spec"] | {"policyName": yard.namespace, "matchResources": here}}
    yard.access.apply(policy, binding)
    try:
        eventually(lambda: "cannot be modified directly" in _scaled_by_hand(yard), 30)
        yield
    finally:
        kinds = "validatingadmissionpolicybinding,validatingadmissionpolicy"
        yard.access.kubectl("delete", kinds, yard.namespace, "--ignore-not-found", check=True)


def _scaled_by_hand(yard: Yard) -> str:
    operations = json.dumps([{"op": "replace", "path": "/spec/components/0/replicas", "value": 7}])
    patch = ("patch", "dgd.v1beta1.nvidia.com", "qwen3", "--type=json", "--dry-run=server", "-p", operations)
    return yard.access.kubectl(*patch, "-n", yard.namespace).stderr
