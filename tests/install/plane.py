"""One control plane, the people who use it, and the API server's death."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from tests.cluster import processes
from tests.cluster.access import Access, Document
from tests.cluster.leftovers import Kind, Ledger
from tests.cluster.processes import Process
from tests.cluster.waiting import eventually

ROOT = Path(__file__).parents[2]
SYSTEM = "kvgate-system"
OPERATOR = f"system:serviceaccount:{SYSTEM}:kvgate-operator"
SERVER = "kube-apiserver"


@dataclass(frozen=True)
class Answer:
    """What the API server said: whether it did it, and in which words."""

    done: bool
    says: str


@dataclass(frozen=True)
class Plane:
    access: Access
    ledger: Ledger

    def create(self, document: Document, user: str = "", *, keep: bool = False) -> Answer:
        return self._send("create", document, user, (), keep=keep)

    def replace(self, document: Document, user: str = "", *, subresource: str = "", keep: bool = False) -> Answer:
        part = (f"--subresource={subresource}",) if subresource else ()
        return self._send("replace", document, user, part, keep=keep)

    def _send(self, verb: str, document: Document, user: str, more: Sequence[str], *, keep: bool) -> Answer:
        argv = [verb, *more, "-f", "-", *([f"--as={user}"] if user else []), *([] if keep else ["--dry-run=server"])]
        return answer(self.access.kubectl(*argv, input=yaml.safe_dump(document)))

    def allowed(self, user: str, verb: str, resource: str, namespace: str = "", groups: Sequence[str] = ()) -> bool:
        """By the authorizer itself; `resource` is PLURAL.GROUP or PLURAL.GROUP/SUBRESOURCE."""
        name, _, part = resource.partition("/")
        plural, _, group = name.partition(".")
        attributes = {"verb": verb, "group": group, "resource": plural, "subresource": part, "namespace": namespace}
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {"user": user, "groups": list(groups), "resourceAttributes": attributes},
        }
        done = self.access.kubectl("create", "-o", "json", "-f", "-", input=json.dumps(review), check=True)
        return bool(json.loads(done.stdout)["status"]["allowed"])

    def restart_server(self) -> None:
        """Killed, and started again as it was: what it knew from its watches it must read again."""
        process, argv = self._server()
        processes.kill([process])
        self.ledger.start(SERVER, *argv)
        eventually(lambda: self.access.kubectl("get", "--raw", "/readyz").returncode == 0, 60)

    def _server(self) -> tuple[Process, list[str]]:
        started = [Process(int(e.name), e.start_ticks) for e in self.ledger.entries() if e.kind is Kind.PROCESS]
        for process in started:
            if process.runs() and (argv := command_line(process.pid))[0].endswith(SERVER):
                return process, argv
        raise AssertionError(f"no {SERVER} runs")


def command_line(pid: int) -> list[str]:
    return (Path("/proc") / str(pid) / "cmdline").read_bytes().decode().rstrip("\0").split("\0")


def answer(done: subprocess.CompletedProcess[str]) -> Answer:
    return Answer(done.returncode == 0, done.stdout + done.stderr)


def namespace(name: str, **labels: str) -> Document:
    named = {label.replace("__", "/").replace("_", "-"): value for label, value in labels.items()}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": named}}
