"""A namespace of a real API server with the sample pool in it, and hands that play the rest of a cluster there."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from importlib import resources
from pathlib import Path
from typing import Any

import yaml
from kubernetes import client as kubernetes

from kvgate.api.status import SweepStatus
from kvgate.core.evidence import Path as FabricPath
from kvgate.core.steps import Measure
from kvgate.core.world import World
from kvgate.edge.cluster.client import (
    CONFIG_MAPS,
    CORE_EVENTS,
    JOBS,
    PODS,
    POOLS,
    REPORTS,
    TARGETS,
    Client,
    Resource,
)
from kvgate.edge.cluster.ground import ClusterGround
from kvgate.edge.cluster.reading import ReadPool
from kvgate.edge.cluster.sweeps import ProbePolicy
from kvgate_probe.wire import Result, Role, Schedule, Test, encode_result
from tests.cluster.access import Access
from tests.probe.documents import finished, text_of

ROOT = Path(__file__).parents[3]
CRDS = sorted((ROOT / "crds").glob("kvgate.dev_*.yaml"))
DYNAMO_CRD = ROOT / "tests" / "data" / "dynamo-crds" / "nvidia.com_dynamographdeployments.yaml"
IMAGE = "kvgate.dev/probe:test"
IMAGE_ID = f"docker.io/library/{IMAGE}@sha256:{64 * 'a'}"
KINDS = {
    "kvpool": POOLS,
    "fabrep": REPORTS,
    "dgd": TARGETS,
    "jobs": JOBS,
    "pods": PODS,
    "configmaps": CONFIG_MAPS,
    "events": CORE_EVENTS,
    "resourcequotas": Resource("v1", "ResourceQuota", "resourcequotas"),
}
Document = dict[str, Any]


def sample(name: str) -> Document:
    text = (resources.files("kvgate.app") / "samples" / name).read_text(encoding="utf-8")
    document: Document = yaml.safe_load(text)
    return document


def in_namespace(document: Document, namespace: str) -> Document:
    return document | {"metadata": document["metadata"] | {"namespace": namespace}}


class KubeletLogs(Client):
    """Plays the kubelet's part of GET pods/log, which the API server forwards: what the container printed.

    `prints` is pod → text. `asked` notes whose log was read.
    """

    def __init__(self, configuration: Any) -> None:
        super().__init__(configuration)
        self.prints: dict[str, str] = {}
        self.asked: list[str] = []

    def log(self, namespace: str, pod: str, container: str, most_bytes: int) -> str:
        self.asked.append(pod)
        return self.prints.get(pod, "")


class Dying(Exception):  # noqa: N818
    """The operator's process ends here."""


class MortalClient(KubeletLogs):
    """Plays an operator that is killed: right after its `lives`-th write was carried out, nothing more happens."""

    def __init__(self, configuration: Any, lives: int) -> None:
        super().__init__(configuration)
        self._lives = lives

    def _ask(self, method: str, path: str, what: str, **rest: Any) -> str:
        told = super()._ask(method, path, what, **rest)
        if method != "GET":
            self._lives -= 1
            if self._lives <= 0:
                raise Dying
        return told


@dataclass
class Yard:
    """One namespace; `ground` acts in it as kvgate, `access` as everybody else."""

    access: Access
    namespace: str
    client: KubeletLogs
    nodes: tuple[str, ...]
    policy: ProbePolicy = field(default_factory=lambda: ProbePolicy(IMAGE))
    ahead: timedelta = timedelta(0)
    ground: ClusterGround = field(init=False)

    def __post_init__(self) -> None:
        self.ground = ClusterGround(self.client, lambda: self.policy, self.clock, namespaces=[self.namespace])

    @property
    def key(self) -> str:
        return f"{self.namespace}/qwen3"

    def clock(self) -> datetime:
        return datetime.now(UTC) + self.ahead

    def observe(self) -> tuple[ReadPool, World]:
        return self.ground.observe(self.key)

    def kubectl(self, *args: str, document: Document | None = None) -> str:
        text = None if document is None else yaml.safe_dump(document)
        return self.access.kubectl(*args, "-n", self.namespace, input=text, check=True).stdout

    def refused(self, *args: str, document: Document | None = None) -> str:
        """What kubectl says when the server refuses."""
        text = None if document is None else yaml.safe_dump(document)
        done = self.access.kubectl(*args, "-n", self.namespace, input=text)
        assert done.returncode != 0, done.stdout
        return done.stderr

    def get(self, kind: str, name: str = "") -> Document:
        """An object, or the list of them, with its managed fields."""
        if name:
            return dict(self.client.get(KINDS[kind], self.namespace, name))
        return {"items": [dict(item) for item in self.client.list(KINDS[kind], self.namespace)]}

    def names(self, kind: str) -> list[str]:
        return [str(item["metadata"]["name"]) for item in self.get(kind)["items"]]

    def deployment(self) -> Document:
        return self.get("dgd", "qwen3")

    def env(self, component: str, name: str) -> Document | None:
        """The entry of one env variable of a component's main container, as it stands; None when there is none."""
        parts = {part["name"]: part for part in self.deployment()["spec"]["components"]}
        entries = parts[component]["podTemplate"]["spec"]["containers"][0].get("env", [])
        return next((entry for entry in entries if entry["name"] == name), None)

    def pool(self, **changes: Any) -> None:
        """The sample pool over this namespace's nodes, with the default for conflicts; `changes` replace fields."""
        document = in_namespace(sample("pool.yaml"), self.namespace)
        sides = {
            "prefillNodes": {"matchLabels": {"yard": self.namespace, "role": "prefill"}},
            "decodeNodes": {"matchLabels": {"yard": self.namespace, "role": "decode"}},
        }
        document["spec"]["fabric"] |= sides
        document["spec"].pop("enforcement", None)
        document["spec"] |= changes
        self.kubectl("apply", "--server-side", "-f", "-", document=document)

    def target(self) -> None:
        """The sample deployment, as a person's server-side apply; its node selectors are those of this namespace."""
        self.kubectl("apply", "--server-side", "--field-manager=team", "-f", "-", document=self.manifest())

    def manifest(self, *, without: str = "") -> Document:
        """The sample's manifest; `without` names an env variable that it does not mention."""
        document = in_namespace(sample("deployment.yaml"), self.namespace)
        for part in document["spec"]["components"]:
            spec = part["podTemplate"]["spec"]
            spec.pop("nodeSelector", None)
            for container in spec["containers"]:
                container["env"] = [entry for entry in container.get("env", []) if entry["name"] != without]
        return document

    def measure(self, run_id: str) -> ReadPool:
        """Have the status mean a sweep, as the ring does before it starts one, and start it."""
        pool, _ = self.observe()
        fence = SweepStatus(run_id=run_id, started_at=self.clock(), reason="a test")
        self.ground.write_status(pool, pool.status.model_copy(update={"sweep": fence}))
        self.start(run_id)
        return self.observe()[0]

    def start(self, run_id: str) -> None:
        pool, world = self.observe()
        self.ground.carry_out(pool, world, Measure(run_id, self.paths(), "a test"))

    def paths(self) -> tuple[FabricPath, ...]:
        first, *others = self.nodes
        return tuple(FabricPath(first, other) for other in others)

    def record(self) -> ReadPool:
        """Have the status remember the sweep's Jobs, as the ring does."""
        pool, world = self.observe()
        assert pool.status.sweep is not None
        fence = pool.status.sweep.model_copy(update={"jobs": world.sweep_jobs})
        self.ground.write_status(pool, pool.status.model_copy(update={"sweep": fence}))
        return self.observe()[0]

    def run_pods(self, phase: str = "Running") -> dict[str, str]:
        """Play the Job controller's pods onto nodes, started and with an address: node → pod.

        The Job controller and the scheduler are real; the kubelet's status is written here, for there is none.
        """
        found: dict[str, str] = {}
        for number, pod in enumerate(self.pods_of_jobs(), start=1):
            name = str(pod["metadata"]["name"])
            self.set_pod_status(name, phase, f"10.9.0.{number}")
            found[str(pod["metadata"]["annotations"]["kvgate.dev/node"])] = name
        return found

    def pods_of_jobs(self) -> list[Document]:
        items: list[Document] = self.get("pods")["items"]
        owned = [pod for pod in items if pod["metadata"].get("ownerReferences")]
        return sorted(owned, key=lambda pod: str(pod["metadata"]["annotations"]["kvgate.dev/node"]))

    def set_pod_status(self, name: str, phase: str, address: str) -> None:
        state = {"running": {}} if phase == "Running" else {"terminated": {"exitCode": 0}}
        container = {
            "name": "walker",
            "image": IMAGE,
            "imageID": IMAGE_ID,
            "ready": phase == "Running",
            "restartCount": 0,
            "state": state,
        }
        status = {
            "phase": phase,
            "podIP": address,
            "podIPs": [{"ip": address}],
            "containerStatuses": [container],
        }
        api = kubernetes.CoreV1Api(self.access.api_client())
        api.patch_namespaced_pod_status(name, self.namespace, {"status": status})


def printed(schedule: Schedule, node: str, addresses: Mapping[str, str], bits_per_second: float) -> str:
    """What the walker of a node prints when each of its tests went well."""
    return "".join(
        encode_result(_result(schedule, test, node, addresses, bits_per_second)) + "\n"
        for test in schedule.tests_of(node)
    )


def _result(schedule: Schedule, test: Test, node: str, addresses: Mapping[str, str], bits_per_second: float) -> Result:
    role = Role.SOURCE if test.pair.source == node else Role.DESTINATION
    partner, seconds = test.partner_of(node), round(schedule.duration_seconds)
    document = finished(bits_per_second, seconds, schedule.streams, addresses[test.pair.destination])
    document["start"]["connected"] = [
        entry | {"local_host": addresses[test.pair.source]} for entry in document["start"]["connected"]
    ]
    ended = datetime.now(UTC).timestamp()
    return Result(
        run_id=schedule.run_id,
        pool_uid=schedule.pool_uid,
        node=node,
        role=role,
        pair=test.pair,
        round=test.round,
        phase=schedule.phase,
        tool=schedule.tool,
        streams=schedule.streams,
        planned_seconds=schedule.duration_seconds,
        started_at=ended - seconds,
        ended_at=ended,
        attempts=1,
        partner_run=schedule.run_id,
        partner_address=addresses[partner],
        local_address=addresses[node],
        interface="eth0",
        mtu=1500,
        interface_bytes_before=0,
        interface_bytes_after=round(bits_per_second / 8 * seconds * 1.05),
        document=text_of(document),
    )


def configuration(access: Access) -> Any:
    return access.api_client().configuration


def make_yard(access: Access, *, deployment: bool = True) -> Yard:
    name = f"yard-{secrets.token_hex(3)}"
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
    nodes = tuple(f"{name}-n{number}" for number in (1, 2, 3))
    roles = dict(zip(nodes, ("prefill", "decode", "decode"), strict=True))
    machines = [_node(node, {"yard": name, "role": role}) for node, role in roles.items()]
    access.apply(namespace, *machines, in_namespace(sample("config.yaml"), name))
    for node in nodes:
        set_ready(access, node, "True")
    yard = Yard(access, name, KubeletLogs(configuration(access)), nodes)
    yard.pool()
    if deployment:
        yard.target()
    return yard


def _node(name: str, labels: Mapping[str, str]) -> Document:
    """A Node as a kubelet registers it."""
    held = {**labels, "kubernetes.io/hostname": name}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": held}}


def set_ready(access: Access, name: str, ready: str) -> None:
    """What a kubelet, or the node controller in its place, says of a node; it has room for pods."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    times = {"lastHeartbeatTime": now, "lastTransitionTime": now}
    condition = {"type": "Ready", "status": ready, "reason": "Test", **times}
    room = {"cpu": "16", "memory": "64Gi", "pods": "110"}
    info = {"bootID": f"boot-{name}", "kernelVersion": "6.1.0"}
    status = {"conditions": [condition], "capacity": room, "allocatable": room, "nodeInfo": info}
    kubernetes.CoreV1Api(access.api_client()).patch_node_status(name, {"status": status})


@contextmanager
def beating(access: Access, nodes: Collection[str]) -> Iterator[None]:
    """Play the kubelets' heartbeat: without one the node controller takes the nodes away after 40 s."""
    stop = threading.Event()

    def beat() -> None:
        while not stop.wait(10):
            for node in nodes:
                set_ready(access, node, "True")

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
