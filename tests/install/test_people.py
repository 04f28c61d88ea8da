"""Least privilege with real ServiceAccounts: what each role may do, and above all what it may not."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

import pytest
import yaml

from tests.cluster.access import Access, Document
from tests.cluster.waiting import eventually
from tests.install import gated
from tests.install.gated import GATED, deployment, pool
from tests.install.plane import OPERATOR, SYSTEM, Answer, Plane, answer

pytestmark = pytest.mark.api
ROLES = {
    "gitops": "kvgate-pool-editor",
    "approver": "kvgate-approver",
    "network": "kvgate-network",
    "viewer": "view",
    "editor": "edit",
}
MEASURE = "kvgate.dev/measure-requested-at"


@dataclass(frozen=True)
class People:
    """Each as the bearer of a token of its own ServiceAccount, bound to one role in one namespace."""

    plane: Plane
    by_name: Mapping[str, Access]

    def create(self, who: str, document: Document) -> Answer:
        return answer(
            self.by_name[who].kubectl("create", "--dry-run=server", "-f", "-", input=yaml.safe_dump(document))
        )

    def patch(self, who: str, what: str, change: Document, *more: str) -> Answer:
        argv = ("patch", what, "-n", GATED, "--type=merge", "--dry-run=server", *more, "-p", json.dumps(change))
        return answer(self.by_name[who].kubectl(*argv))

    def read(self, who: str, *what: str) -> Answer:
        return answer(self.by_name[who].kubectl("get", *what))

    def delete(self, who: str, what: str) -> Answer:
        return answer(self.by_name[who].kubectl("delete", what, "-n", GATED, "--dry-run=server"))


def user(who: str) -> str:
    return f"system:serviceaccount:{GATED}:{who}"


@pytest.fixture(scope="module")
def people(policed: Plane) -> People:
    access = policed.access
    found = {}
    for who, role in ROLES.items():
        access.kubectl("create", "serviceaccount", who, "-n", GATED, check=True)
        bound = (f"--clusterrole={role}", f"--serviceaccount={GATED}:{who}")
        access.kubectl("create", "rolebinding", f"{who}-people", *bound, "-n", GATED, check=True)
        found[who] = access.as_user(who, access.mint_token(GATED, who))
    found["operator"] = access.as_user("operator", access.mint_token(SYSTEM, "kvgate-operator"))
    eventually(lambda: all(policed.allowed(user(w), "list", "inferencepools.kvgate.dev", GATED) for w in ROLES), 30)
    return People(policed, found)


def test_who_writes_pools_approves_nothing_and_who_approves_writes_no_pool(people: People) -> None:
    mine, theirs = gated.approval(user("gitops"), name="b"), gated.approval(user("approver"), name="c")

    assert people.create("gitops", pool("new")).done
    assert people.create("approver", theirs).done
    assert "forbidden" in people.create("gitops", mine).says
    assert "forbidden" in people.create("approver", pool("new")).says
    assert "must be the user who creates" in people.create("approver", mine).says


def test_an_approver_sees_the_deployment_whose_change_is_approved_and_writes_it_not(people: People) -> None:
    assert people.read("approver", "dgd.v1beta1.nvidia.com/off-held", "-n", GATED).done
    assert "forbidden" in people.read("approver", "dgd.v1beta1.nvidia.com", "-n", GATED).says
    change = {"metadata": {"labels": {"a": "b"}}}
    assert "forbidden" in people.patch("approver", "dgd.v1beta1.nvidia.com/off-held", change).says


def test_a_tenant_reaches_no_other_tenants_deployment(people: People) -> None:
    """A pool names a deployment of its own namespace; there is no way to say another, and no right to write there."""
    assert "forbidden" in people.create("gitops", pool("theirs", gated.FREE)).says
    assert "unknown field" in people.create("gitops", pool("far", targetRef={"name": "free", "namespace": "free"})).says


def test_an_approval_may_be_revoked_and_not_changed(people: People) -> None:
    written = gated.approval(user("approver"), name="kept")
    people.by_name["approver"].kubectl("create", "-f", "-", input=yaml.safe_dump(written), check=True)

    assert people.delete("approver", "gapp/kept").done
    assert "forbidden" in people.patch("approver", "gapp/kept", {"spec": {"reason": "x"}}).says
    for who in ("gitops", "network", "viewer", "editor", "operator"):
        assert "forbidden" in people.delete(who, "gapp/kept").says


@pytest.mark.parametrize("who", [*ROLES])
def test_nobody_but_the_operator_writes_a_status_or_a_report(people: People, who: str) -> None:
    change = {"status": {"claimed": False}}

    assert "forbidden" in people.patch(who, "kvpool/off-held", change, "--subresource=status").says
    report = {
        "apiVersion": "kvgate.dev/v1alpha1",
        "kind": "FabricReport",
        "metadata": {"name": "f", "namespace": GATED},
    }
    assert "forbidden" in people.create(who, report | {"spec": {"runID": "r", "data": "x"}}).says


def test_the_network_team_asks_for_a_sweep_and_changes_nothing_else(people: People) -> None:
    def asks(**annotations: str | None) -> Document:
        return {"metadata": {"annotations": annotations}}

    name = "kvpool/off-held"
    assert people.patch("network", name, asks(**{MEASURE: "2026-11-30T08:00:00Z"})).done
    assert people.read("network", "kvpool,fabrep,benchrep", "-n", GATED).done
    for change in (
        asks(other="x"),
        {"spec": {"suspend": True}},
        {"metadata": {"labels": {"a": "b"}}},
        {"metadata": {"finalizers": ["example.com/x"]}},
    ):
        assert "alone" in people.patch("network", name, change).says
    assert people.patch("gitops", name, {"spec": {"suspend": True}}).done


@pytest.mark.parametrize("who", ["viewer", "editor"])
def test_who_views_or_edits_a_namespace_reads_all_and_writes_none_of_ours(people: People, who: str) -> None:
    eventually(lambda: people.read(who, "kvpool,gapp,fabrep,benchrep", "-n", GATED).done, 30)
    assert "forbidden" in people.create(who, pool("new")).says
    assert "forbidden" in people.patch(who, "kvpool/off-held", {"spec": {"suspend": True}}).says
    assert "forbidden" in people.create(who, gated.approval(user(who), name="d")).says


def test_the_operator_opens_what_is_permitted_and_may_do_little_else(people: People) -> None:
    asked = people.plane.allowed
    granted = [
        ("patch", "dynamographdeployments.nvidia.com"),
        ("update", "inferencepools.kvgate.dev/status"),
        ("create", "jobs.batch"),
    ]
    denied = [
        ("get", "secrets"),
        ("create", "pods/exec"),
        ("create", "pods"),
        ("delete", "pods"),
        ("create", "serviceaccounts/token"),
        ("create", "dynamographdeployments.nvidia.com"),
        ("delete", "dynamographdeployments.nvidia.com"),
        ("create", "gateapprovals.kvgate.dev"),
        ("delete", "gateapprovals.kvgate.dev"),
        ("update", "inferencepools.kvgate.dev"),
        ("delete", "inferencepools.kvgate.dev"),
        ("patch", "nodes"),
        ("create", "rolebindings.rbac.authorization.k8s.io"),
        ("delete", "validatingadmissionpolicies.admissionregistration.k8s.io"),
        ("impersonate", "users"),
    ]
    assert [one for one in granted if not asked(OPERATOR, *one, GATED)] == []
    assert [one for one in denied if asked(OPERATOR, *one, GATED)] == []


def test_a_writer_of_deployments_alone_does_not_get_round_the_gate(people: People) -> None:
    access = people.plane.access
    access.kubectl(
        "create", "role", "deployer", "--verb=*", "--resource=dynamographdeployments.nvidia.com", "-n", GATED
    )
    access.kubectl("create", "rolebinding", "deployer", "--role=deployer", "--user=deployer", "-n", GATED)
    eventually(lambda: people.plane.allowed("deployer", "update", "dynamographdeployments.nvidia.com", GATED), 20)

    assert people.plane.replace(deployment("off-permitted", gated.ON), "deployer").done
    assert "does not permit" in people.plane.replace(deployment("off-held", gated.ON), "deployer").says
