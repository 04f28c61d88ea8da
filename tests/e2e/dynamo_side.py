"""Deployments whose pods are Dynamo's own frontends and mock workers, beside kvgate in the tests' own cluster."""

from __future__ import annotations

import secrets
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kvgate.api.status import PoolStatus
from kvgate.api.words import Capability
from kvgate.dynamo.metadata import read_metadata
from kvgate.probe.jobs import RUN
from tests.cluster.access import Access
from tests.dynamo_stage import model
from tests.dynamo_stage.client import UserDoor
from tests.dynamo_stage.image import put_on
from tests.dynamo_stage.specs import Worker
from tests.dynamo_stage.stage import HTTP_PORT
from tests.dynamo_stage.standin.batches import Batch
from tests.dynamo_stage.standin.controller import StandIn
from tests.dynamo_stage.standin.installing import install, uninstall_rules
from tests.dynamo_stage.standin.pods import PodRuntime
from tests.dynamo_stage.standin.samples import deployment, set_env
from tests.dynamo_stage.standin.sources import ApiSource
from tests.e2e import documents
from tests.e2e.documents import Document
from tests.e2e.running import Operator
from tests.e2e.stage import DGD, POOL, Stage, shown_conditions

SPACE = "routing"
"""A Kubernetes namespace of its own: the stand-in's pods do not meet Pod Security `restricted`, as the Jobs' do."""
NODES = {"Frontend": "n1", "PrefillWorker": "n1", "DecodeWorker": "n2"}
UP_SECONDS = 120.0
PROCESSES = Path("/proc")
DROPS = """table inet kvgate_test {{
  chain arriving {{
    type filter hook input priority 0
    tcp dport {port} drop
    tcp sport {port} drop
  }}
}}
"""


@dataclass(frozen=True)
class Side:
    """A deployment, and what its workers publish."""

    access: Access
    runtime: PodRuntime
    name: str

    def apply(self, *, replicas: tuple[int, int, int] = (1, 1, 1), frontend: Mapping[str, str] | None = None) -> None:
        """`frontend` are more variables of the frontend's."""
        document = deployment(self.name, namespace=SPACE, replicas=replicas)
        for name, value in (frontend or {}).items():
            set_env(document["spec"], "Frontend", name, value)
        for component in document["spec"]["components"]:
            node = {"kubernetes.io/hostname": NODES[component["name"]]}
            component["podTemplate"]["spec"]["nodeSelector"] = node
        self.access.apply(document)

    def document(self) -> Document:
        return self.access.get(DGD, self.name, "-n", SPACE)

    def serves(self) -> bool:
        status = self.document().get("status", {})
        ready = [one for one in status.get("conditions", ()) if (one["type"], one["status"]) == ("Ready", "True")]
        return bool(ready) and self.door.readiness().ready

    def frontend(self) -> UserDoor:
        """Its pod, by its own address: a pod that a loaded machine reports late as ready answers all the same."""
        [pod] = (one for one in self.pods("frontend") if "deletionTimestamp" not in one["metadata"])
        return UserDoor(f"http://{pod['status']['podIP']}:{HTTP_PORT}")

    @property
    def door(self) -> UserDoor:
        """In front of whatever frontends are ready: users are to notice nothing when they are replaced."""
        return self.runtime.door(self.name, SPACE)

    def pods(self, kind: str = "") -> list[Document]:
        """Of one type of component, or all."""
        label = f"nvidia.com/dynamo-graph-deployment-name={self.name}"
        label += f",nvidia.com/dynamo-component-type={kind}" if kind else ""
        found: list[Document] = self.access.get("pods", "-n", SPACE, "-l", label)["items"]
        return found

    def workers(self) -> frozenset[str]:
        """Instance IDs, in decimal."""
        own = {pod["metadata"]["uid"] for pod in self.pods()}
        told = (read_metadata(body) for body in self.access.get("dynamoworkermetadatas", "-n", SPACE)["items"])
        return frozenset(str(card.instance) for one in told if one.pod_uid in own for card in one.cards)

    def event_addresses(self) -> Mapping[str, str]:
        """Where each worker's KV events can be had, by its pod's name."""
        own = {pod["metadata"]["uid"] for pod in self.pods()}
        told = (read_metadata(body) for body in self.access.get("dynamoworkermetadatas", "-n", SPACE)["items"])
        return {one.pod: address for one in told if one.pod_uid in own for address in one.kv_event_addresses}


def as_asked(_: Batch, worker: Worker) -> Worker:
    return worker


@contextmanager
def sides(
    stage: Stage, *suffixes: str, shape: Callable[[Batch, Worker], Worker] = as_asked
) -> Iterator[tuple[Side, ...]]:
    """One deployment for each suffix of a common name, not applied yet, and the stand-in that makes their pods."""
    cluster = stage.cluster
    assert cluster is not None
    put_on(cluster, "n1", "n2")
    dynamo = install(cluster.access)
    cluster.access.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}})
    runtime, name = PodRuntime(dynamo, shape=shape), f"qwen-{secrets.token_hex(2)}"
    with StandIn(ApiSource(dynamo.api_client(), SPACE), runtime):
        try:
            yield tuple(Side(cluster.access, runtime, f"{name}{suffix}") for suffix in suffixes)
        finally:
            _clear(stage.access)
    stage.access.kubectl("delete", "namespace", SPACE, "--timeout=60s", check=True, timeout_seconds=70)
    uninstall_rules(cluster.access)


def _clear(access: Access) -> None:
    for kind in (POOL, DGD):
        access.kubectl("delete", kind, "--all", "-n", SPACE, "--timeout=60s", check=True, timeout_seconds=70)


def routing_pool(side: Side, criteria: Document, **spec: object) -> Document:
    """Its fabric's nodes do not exist, so that no sweep is due beside what is tested."""
    document = documents.pool(side.name, ("n1", "n2"), "2s")
    nowhere = {"matchLabels": {"role": "nowhere"}}
    document["metadata"]["namespace"] = SPACE
    document["spec"] |= {"model": {"name": model.NAME}, "workload": {"prompts": [{"tokens": 320}]}, **spec}
    document["spec"]["fabric"] |= {"prefillNodes": nowhere, "decodeNodes": nowhere}
    document["spec"]["criteria"] = {"routing": criteria}
    return document


def of_runs(access: Access, kind: str) -> list[Document]:
    """What belongs to the runs that kvgate makes."""
    found: list[Document] = access.get(kind, "-n", SPACE, "-l", RUN)["items"]
    return found


def nothing_left(access: Access) -> bool:
    return not any(of_runs(access, kind) for kind in ("jobs", "pods", "configmaps"))


def told_when(
    stage: Stage, operator: Operator, side: Side, what: str, holds: Callable[[PoolStatus], bool], seconds: float
) -> PoolStatus:
    """The first status of the side's pool, judged for its present spec, for which `holds`."""
    key = f"{SPACE}/{side.name}"
    found = stage.watch.wait_for(key, lambda one: one.current and holds(one.status), seconds)
    latest = stage.watch.latest(key)
    shown = shown_conditions(latest.status) if latest else key
    assert found is not None, f"{what}: not within {seconds:.0f} s\n{shown}\n{operator.last_words()}"
    return found.status


def is_on(status: PoolStatus) -> bool:
    """Whether kvgate says that it has switched KV routing on."""
    return any(one.name is Capability.ROUTING and one.enabled for one in status.capabilities)


def router_of(side: Side) -> str:
    """How the deployment says that its frontends route."""
    return documents.values(side.document())["Frontend", "DYN_ROUTER_MODE"]


def mute(pod: str, port: int) -> None:
    """Drop what comes to a port of the pod or from one, from another pod as within it, as long as the pod lives."""
    enter = ("nsenter", "--net", f"--target={_process_of(pod)}", "nft", "-f", "-")
    subprocess.run(enter, input=DROPS.format(port=port), text=True, capture_output=True, check=True)


def _process_of(pod: str) -> int:
    """Any process of the pod that knows its name, as this machine numbers it."""
    for entry in PROCESSES.glob("[0-9]*"):
        try:
            if f"POD_NAME={pod}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                return int(entry.name)
        except OSError:
            continue
    raise AssertionError(f"no process on this machine is of the pod {pod}")
