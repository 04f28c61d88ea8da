"""The operator as it ships: a pod of its own Deployment, from its own image, under the kubelet's eyes."""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import yaml

from tests.cluster.access import Access, Document
from tests.cluster.operator_image import HOME, REPOSITORY, TAG
from tests.cluster.waiting import eventually
from tests.e2e.running import LAST_LINES, LEASE, ROOT, SYSTEM

DEPLOYMENT, CONFIG_MAP = "kvgate-operator", "kvgate-settings"
PODS = "app.kubernetes.io/component=operator"
START_SECONDS, END_SECONDS = 60.0, 90.0
NOTICED_SECONDS, STIR_SECONDS = 100.0, 2.0
TAKEN = "settings taken"


@dataclass(frozen=True)
class Pod:
    """The operator's pod as it was last seen."""

    name: str
    address: str
    restarts: int


@dataclass(frozen=True)
class PodOperator:
    access: Access

    def install(self, directory: Path) -> None:
        """By an overlay that names the image, and the API server's own address: no kube-proxy leads to its Service."""
        server = urlsplit(self.access.server)
        variables = {"KUBERNETES_SERVICE_HOST": server.hostname, "KUBERNETES_SERVICE_PORT": str(server.port)}
        environment = [{"name": name, "value": value} for name, value in variables.items()]
        patch = deployment({"template": {"spec": {"containers": [{"name": "operator", "env": environment}]}}})
        kustomization = {
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "resources": [os.path.relpath(ROOT / "manifests" / "core", directory.resolve())],
            "images": [{"name": "kvgate-operator", "newName": REPOSITORY, "newTag": TAG}],
            "patches": [{"path": "api-server.yaml"}],
        }
        (directory / "api-server.yaml").write_text(yaml.safe_dump(patch))
        (directory / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
        self.access.kubectl("apply", "-k", directory, check=True)

    def remove(self) -> None:
        """As the stage has it: installed, and no operator running."""
        self.access.kubectl("scale", "deployment", DEPLOYMENT, "--replicas=0", "-n", SYSTEM, check=True)
        eventually(lambda: not self.documents(), END_SECONDS)

    def documents(self) -> list[Document]:
        found: list[Document] = self.access.get("pods", "-n", SYSTEM, "-l", PODS)["items"]
        return found

    def ready(self) -> Pod | None:
        """The one pod that is Ready and is not about to end; None when there is none or another beside it."""
        staying = [pod for pod in self.documents() if "deletionTimestamp" not in pod["metadata"]]
        seen = [pod_of(pod) for pod in staying if is_ready(pod)]
        return seen[0] if len(seen) == len(staying) == 1 else None

    def leader(self) -> Pod:
        """The pod, once it is Ready and holds the Lease."""
        eventually(self._leads, START_SECONDS)
        pod = self.ready()
        assert pod is not None
        return pod

    def _leads(self) -> bool:
        pod = self.ready()
        return pod is not None and self.lease()["holderIdentity"].startswith(f"{pod.name}_")

    def lease(self) -> Document:
        name, namespace = LEASE
        spec: Document = self.access.get("lease", name, "-n", namespace)["spec"]
        return spec

    def settle(self, settings: Document) -> None:
        """Change the settings as their administrator does, and have them noticed sooner than within a minute: the
        kubelet looks after a pod at once when the pod itself was changed."""
        patch = {"data": {"settings.yaml": yaml.safe_dump(settings)}}
        argv = ("patch", "configmap", CONFIG_MAP, "-n", SYSTEM, "--type=merge", "-p", yaml.safe_dump(patch))
        taken = self.said(TAKEN)
        if "no change" not in self.access.kubectl(*argv, check=True).stdout:
            eventually(lambda: self._takes_more_than(taken), NOTICED_SECONDS)

    def _takes_more_than(self, taken: int) -> bool:
        mark = f"test/stirred={secrets.token_hex(4)}"
        self.access.kubectl("annotate", "pod", "-l", PODS, "-n", SYSTEM, "--overwrite", mark, check=True)
        time.sleep(STIR_SECONDS)
        return self.said(TAKEN) > taken

    def said(self, message: str) -> int:
        """How many lines of the present container's log say it."""
        lines = self.access.kubectl("logs", "-l", PODS, "-n", SYSTEM, "--tail=-1").stdout.splitlines()
        return sum(json.loads(line).get("message") == message for line in lines)

    def delete(self, pod: Pod) -> None:
        self.access.kubectl("delete", "pod", pod.name, "-n", SYSTEM, "--wait=false", check=True)

    def last_words(self) -> str:
        said = self.access.kubectl("logs", "-l", PODS, "-n", SYSTEM, f"--tail={LAST_LINES}")
        return said.stdout + said.stderr


@contextmanager
def podded(access: Access, directory: Path) -> Iterator[PodOperator]:
    made = PodOperator(access)
    made.install(directory)
    try:
        yield made
    finally:
        made.remove()


def deployment(spec: Document) -> Document:
    metadata = {"name": DEPLOYMENT, "namespace": SYSTEM}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}


def is_ready(pod: Document) -> bool:
    return any((c["type"], c["status"]) == ("Ready", "True") for c in pod["status"].get("conditions", ()))


def pod_of(pod: Document) -> Pod:
    (container,) = pod["status"]["containerStatuses"]
    return Pod(pod["metadata"]["name"], pod["status"]["podIP"], container["restartCount"])


def process_id() -> int:
    """Of the operator in its container, as this machine numbers it."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            command = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if f"/{HOME}/bin/kvgate".encode() in command and b"operator" in command:
            found.append(int(entry.name))
    (pid,) = found
    return pid
