"""A cluster with kvgate installed in it by its own manifests, and what the people around it do there."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from kvgate.api.status import CapabilityStatus, PoolStatus
from kvgate.api.wire import Condition
from kvgate.api.words import Capability
from tests.cluster.access import Access, AuditEvent
from tests.cluster.harness import Cluster
from tests.cluster.waiting import eventually
from tests.e2e import documents
from tests.e2e.documents import MODE, NAMESPACE, Document
from tests.e2e.running import ROOT, SYSTEM, Operator
from tests.e2e.watching import PoolWatch, Seen

DATA = ROOT / "tests" / "data"
DGD_CRD = DATA / "dynamo-crds" / "nvidia.com_dynamographdeployments.yaml"
GAIE_CRD = DATA / "gaie-crd.yaml"
GAIE_POOL = "inferencepools.inference.networking.k8s.io"
DGD = "dynamographdeployments.v1beta1.nvidia.com"
POOL, APPROVAL, REPORT = "inferencepools.kvgate.dev", "gateapprovals.kvgate.dev", "fabricreports.kvgate.dev"
AB_REPORT = "benchmarkreports.kvgate.dev"
ACCOUNT = "kvgate-operator"
IDLE_SECONDS = 1.5
SPLIT, AS_BEFORE = ("prefill", "decode"), (None, None)
"""The modes of the prefill and the decode worker, on and off."""
OPERATOR_USER = f"system:serviceaccount:{SYSTEM}:{ACCOUNT}"
SWEEP_SECONDS = 60.0
"""From a pool to its verdict: Jobs, pods, one test of two seconds, logs."""


@dataclass
class Stage:
    """`cluster` is None in a cluster that is not the tests' own: its links and its audit log are out of reach."""

    access: Access
    nodes: tuple[str, str]
    image: str
    cluster: Cluster | None = None
    watch: PoolWatch = field(init=False)
    begun: int = 0
    """Where the audit log ended when the roles were known."""

    def __post_init__(self) -> None:
        self.watch = PoolWatch(self.access.api_client())

    def install(self) -> None:
        """As docs/operating.md says, but for the operator's own pod: the operator is a process here."""
        self.access.kubectl("apply", "-k", ROOT / "manifests" / "core", check=True)
        self.access.kubectl("scale", "deployment", "--all", "--replicas=0", "-n", SYSTEM, check=True)
        self.access.wait_established(POOL, APPROVAL, REPORT, AB_REPORT)
        self._load_foreign_crds()
        served = ("get", f"{POOL},{APPROVAL},{REPORT},{AB_REPORT},{DGD}", "-A")
        eventually(lambda: self.access.kubectl(*served).returncode == 0, 30)
        level = {"pod-security.kubernetes.io/enforce": "restricted"}
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": level}}
        self.access.apply(namespace, documents.sample("config.yaml"))
        eventually(self._roles_are_known, 20)
        self.begun = self.mark()

    def _load_foreign_crds(self) -> None:
        """A cluster that has them already keeps its own."""
        for path in (DGD_CRD, GAIE_CRD):
            name = yaml.safe_load(path.read_text())["metadata"]["name"]
            if self.access.kubectl("get", "crd", name).returncode != 0:
                self.access.load_crds([path])

    def _roles_are_known(self) -> bool:
        """The API server's authorizer learns of new roles by a watch."""
        asked = ("auth", "can-i", "update", POOL, "--subresource=status", "-n", NAMESPACE, f"--as={OPERATOR_USER}")
        return self.access.kubectl(*asked).returncode == 0

    def operator(self, directory: Path, **kept: object) -> Operator:
        """An operator that was not started yet, with the token of its ServiceAccount for an hour."""
        settings = directory / "settings.yaml"
        settings.write_text(yaml.safe_dump({"probe": {"image": self.image}, "logLevel": "Debug"}))
        user = self.access.as_user(f"operator-{directory.name}", self.access.mint_token(SYSTEM, ACCOUNT))
        return Operator(user.kubeconfig, settings, directory / "operator.log", **kept)  # type: ignore[arg-type]

    def shape(self, rate: str) -> None:
        """Hold both nodes' links to a rate as tc writes it."""
        assert self.cluster is not None
        for node in self.nodes:
            self.cluster.shape(node, rate)

    def check(self) -> None:
        """Raises AssertionError for a broken rule of a status, or for a call that the operator has no right to."""
        assert not self.watch.broken(), "\n".join(self.watch.broken())
        assert not self.forbidden(), "\n".join(self.forbidden())

    def mark(self) -> int:
        """Where the audit log ends now; 0 where there is none."""
        return self.access.audit_mark() if self.cluster is not None else 0

    def calls_since(self, mark: int) -> list[AuditEvent]:
        """What the operator has asked of the API server since; nothing where no audit log tells."""
        events = self.access.audit_events(mark) if self.cluster is not None else ()
        return [event for event in events if event.user == OPERATOR_USER]

    def turns_since(self, mark: int) -> list[AuditEvent]:
        """The calls since that belong to turns of pools: neither the Lease nor the watches."""
        return [call for call in self.calls_since(mark) if call.resource != "leases" and call.verb != "watch"]

    def wait_until_idle(self) -> None:
        """Until the operator has left its pools alone for a while: its own last writes came back as events."""
        eventually(self.is_idle, SWEEP_SECONDS)

    def is_idle(self) -> bool:
        """Whether no pool has had a turn in the next second and a half."""
        mark = self.mark()
        time.sleep(IDLE_SECONDS)
        return not self.turns_since(mark)

    def forbidden(self) -> list[str]:
        """What the API server answered 403 to the operator, as its audit log tells; nothing where there is none."""
        return [str(call) for call in self.calls_since(self.begun) if call.status_code == 403]


@dataclass
class Scene:
    """One pool and one deployment of the same name, on a stage where an operator runs."""

    stage: Stage
    operator: Operator
    name: str

    @property
    def key(self) -> str:
        return f"{NAMESPACE}/{self.name}"

    @property
    def access(self) -> Access:
        return self.stage.access

    def deploy(self, *, names_mode: bool = False) -> None:
        """As Flux does: server-side, by a manager of its own."""
        deploy(self.access, documents.deployment(self.name, names_mode=names_mode))

    def gate(
        self,
        budget: str,
        *,
        requests_per_second: str = "0.2",
        rollback: Mapping[str, object] | None = None,
        **fabric: object,
    ) -> None:
        """Make the pool."""
        document = documents.pool(self.name, self.stage.nodes, budget, requests_per_second, **fabric)
        document["spec"] |= {"rollback": rollback} if rollback else {}
        self.access.apply(document)

    def approve(self, seen: Seen, *accepted: str) -> None:
        self.access.apply(documents.approval(self.name, seen.uid, seen.status, accepted))

    def ask_to_measure(self, word: str) -> None:
        mark = f"kvgate.dev/measure-requested-at={word}"
        self.access.kubectl("annotate", POOL, self.name, "-n", NAMESPACE, "--overwrite", mark, check=True)

    def wait_for(self, what: str, holds: Callable[[PoolStatus], bool], seconds: float = SWEEP_SECONDS) -> Seen:
        """Wait for a status that was judged for the present spec and for which `holds`; all rules held on the way."""
        seen = self.stage.watch.wait_for(self.key, lambda one: one.current and holds(one.status), seconds)
        if seen is None:
            latest = self.stage.watch.latest(self.key)
            shown = json.dumps(shown_conditions(latest.status), indent=1) if latest else "there is no such pool"
            raise AssertionError(f"{what}: not within {seconds:.0f} s\n{shown}\n{self.operator.last_words()}")
        self.stage.check()
        return seen

    def deployment(self) -> Document:
        return self.access.get(DGD, self.name, "-n", NAMESPACE, "--show-managed-fields")

    def modes(self) -> tuple[str | None, str | None]:
        """The modes of the prefill and the decode worker as the deployment says them."""
        held = documents.values(self.deployment())
        return held.get(("PrefillWorker", MODE)), held.get(("DecodeWorker", MODE))

    def patches(self, mark: int) -> int:
        """How often the operator wrote the deployment since the mark of the audit log."""
        wanted = ("patch", "dynamographdeployments", self.name)
        return sum((call.verb, call.resource, call.name) == wanted for call in self.stage.calls_since(mark))

    def jobs_made(self, mark: int) -> int:
        """How many Jobs the operator made since; retries that found the first one there do not count."""
        calls = self.stage.calls_since(mark)
        return sum((call.verb, call.resource, call.status_code) == ("create", "jobs", 201) for call in calls)

    def reports(self) -> int:
        """How many sweeps' evidence is kept: each has one index."""
        owned = self.access.get(REPORT, "-n", NAMESPACE)["items"]
        ours = [report for report in owned if report["spec"]["poolRef"]["name"] == self.name]
        return sum(bool(report["spec"].get("shards")) for report in ours)

    def jobs(self) -> list[str]:
        """Names of the probe's Jobs of this pool that exist now."""
        owned = self.access.get("jobs", "-n", NAMESPACE)["items"]
        ours = (job for job in owned if job["metadata"]["ownerReferences"][0]["name"] == self.name)
        return [str(job["metadata"]["name"]) for job in ours]


def deploy(access: Access, *deployments: Document) -> None:
    manifests = yaml.safe_dump_all(deployments)
    access.kubectl("apply", "--server-side", "--field-manager=team", "-f", "-", input=manifests, check=True)


def leave(access: Access, *names: str) -> None:
    """Nothing of these scenes stays, so that no later test is measured beside them."""
    for kind in (POOL, DGD):
        access.kubectl("delete", kind, *names, "-n", NAMESPACE, "--ignore-not-found", "--timeout=30s", check=True)
    access.kubectl("delete", APPROVAL, "--all", "-n", NAMESPACE, check=True)


def condition(status: PoolStatus, kind: str) -> Condition:
    return next(entry for entry in status.conditions if entry.type == kind)


def is_true(kind: str) -> Callable[[PoolStatus], bool]:
    return lambda status: _says(status, kind, "True")


def is_false(kind: str) -> Callable[[PoolStatus], bool]:
    return lambda status: _says(status, kind, "False")


def _says(status: PoolStatus, kind: str, word: str) -> bool:
    return any(entry.type == kind and entry.status.value == word for entry in status.conditions)


def split_of(status: PoolStatus) -> CapabilityStatus:
    return next(entry for entry in status.capabilities if entry.name is Capability.DISAGGREGATION)


def ready(status: PoolStatus) -> tuple[str, str]:
    said = condition(status, "Ready")
    return said.status.value, said.reason


def waits_for_approval(status: PoolStatus) -> bool:
    return is_settled(status) and bool(split_of(status).plan_hash) and not split_of(status).enabled


def is_split(status: PoolStatus) -> bool:
    return is_settled(status) and split_of(status).enabled


def is_settled(status: PoolStatus) -> bool:
    """Whether a sweep has ended and nothing is under way."""
    return status.fabric is not None and status.sweep is None and status.operation is None


def shown_conditions(status: PoolStatus) -> dict[str, str]:
    return {entry.type: f"{entry.status.value} {entry.reason}: {entry.message}" for entry in status.conditions}


def own_stage(cluster: Cluster, image: str) -> Stage:
    """The tests' own cluster: bytes would flow from its node of the label pool=prefill to one of pool=decode."""
    return Stage(cluster.access, ("n1", "n2"), image, cluster)


def foreign_stage(kubeconfig: Path, image: str, directory: Path) -> Stage:
    """Any cluster whose kubeconfig may do all: its first two nodes that take pods are used."""
    found = Access(directory, kubeconfig, "", Path(), Path())
    told = json.loads(found.kubectl("config", "view", "--raw", "--minify", "-o", "json", check=True).stdout)
    cluster = told["clusters"][0]["cluster"]
    authority = directory / "authority.crt"
    inline = cluster.get("certificate-authority-data")
    authority.write_bytes(base64.b64decode(inline) if inline else Path(cluster["certificate-authority"]).read_bytes())
    access = Access(directory, kubeconfig, cluster["server"], authority, Path())
    first, second = _free_nodes(access)[:2]
    return Stage(access, (first, second), image)


def _free_nodes(access: Access) -> list[str]:
    nodes = access.get("nodes")["items"]
    free = [node for node in nodes if not node["spec"].get("unschedulable") and not node["spec"].get("taints")]
    assert len(free) >= 2, "the e2e tests need two nodes that are neither cordoned nor tainted"
    return sorted(str(node["metadata"]["labels"]["kubernetes.io/hostname"]) for node in free)


@contextmanager
def running(operator: Operator) -> Iterator[Operator]:
    """The operator from here to the end of the block; what it said about itself must have been in order."""
    operator.start()
    try:
        yield operator
    finally:
        operator.stop()
    assert not operator.faults(), "\n".join(operator.faults())
