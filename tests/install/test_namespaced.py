"""The operator's real process with Roles in one namespace and, of the cluster, nodes alone: `watchNamespaces`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import yaml

from tests.app.operator.test_chart import rendered
from tests.cluster.access import Access, Document
from tests.cluster.controlplane import LOOPBACK, start_control_plane
from tests.cluster.fixtures import fresh_state
from tests.cluster.waiting import eventually
from tests.e2e.running import Operator
from tests.install.gated import deployment, pool
from tests.install.plane import OPERATOR, ROOT, SYSTEM, namespace
from tests.install.policed import DGD_CRD

pytestmark = pytest.mark.api
SERVED, OTHER = "team-a", "team-b"
NODES = f"kvgate-operator-nodes-{SYSTEM}"


@dataclass(frozen=True)
class Yard:
    access: Access
    operator: Operator

    def status(self, where: str) -> Document:
        found: Document = self.access.get("kvpool", "qwen3", "-n", where).get("status", {})
        return found

    def seen(self, where: str) -> bool:
        return bool(self.status(where).get("observedGeneration", -1) >= 1)


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    directory = tmp_path_factory.mktemp("namespaced")
    with fresh_state() as ledger:
        access = start_control_plane(ledger, LOOPBACK)
        access.load_crds([DGD_CRD, *sorted((ROOT / "crds").glob("kvgate.dev_*.yaml"))])
        access.apply(*map(namespace, (SYSTEM, SERVED, OTHER)))
        access.apply(*(d for d in rendered(watchNamespaces=[SERVED]) if d["kind"] != "CustomResourceDefinition"))
        for where in (SERVED, OTHER):
            access.apply(deployment("qwen3", namespace=where), pool("qwen3", where))
        held = access.as_user("operator", access.mint_token(SYSTEM, "kvgate-operator"))
        settings = directory / "settings.yaml"
        settings.write_text(yaml.safe_dump({"workers": 1}))
        operator = Operator(held.kubeconfig, settings, directory / "log", options=(f"--namespace={SERVED}",))
        yield Yard(access, operator)
        operator.stop()


def test_with_roles_alone_it_judges_where_it_serves_and_nowhere_else(yard: Yard) -> None:
    yard.operator.start()
    eventually(lambda: yard.seen(SERVED), 60)
    yard.operator.stop()
    told = {c["type"]: c["reason"] for c in yard.status(SERVED)["conditions"]}

    assert told["TargetResolved"] == "TargetNotToggleable", "it read the deployment"
    assert not yard.seen(OTHER)
    asked = [event for event in yard.access.audit_events() if event.user == OPERATOR]
    assert [e for e in asked if e.status_code == 403] == []
    assert yard.operator.faults() == []
    granted = [e for e in asked if e.status_code < 300 and e.verb in {"get", "list", "watch"} and e.resource]
    assert {e.resource for e in granted if not e.namespace} == {"nodes"}
    assert {e.namespace for e in granted} <= {"", SERVED, "kube-system"}


def test_without_nodes_nothing_is_judged_and_the_log_says_what_is_missing(yard: Yard) -> None:
    yard.operator.start()
    eventually(lambda: yard.seen(SERVED), 60)
    yard.operator.stop()
    before = yard.status(SERVED)
    yard.access.kubectl("delete", "clusterrolebinding", NODES, check=True)
    yard.operator.start(wait=False)
    failed = "Node list of the cluster: forbidden; give the operator's ServiceAccount the permission"
    eventually(lambda: any(str(line.get("reason", "")).startswith(failed) for line in yard.operator.lines()), 60)

    assert yard.status(SERVED) == before
