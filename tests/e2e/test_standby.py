"""A second operator beside the one that acts: a standby whose holder is killed, another installation by mistake."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest
import yaml

from kvgate.app.operator.election import LEASE_SECONDS, RETRY_SECONDS
from tests.cluster.access import Document
from tests.cluster.waiting import eventually
from tests.e2e.running import LEASE, Operator
from tests.e2e.stage import ACCOUNT, Scene, Stage, is_settled, leave, running

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

SECOND = "kvgate-second"
WAITS = "another process holds the lease"
READS = frozenset({"get", "list", "watch"})
QUIET_SECONDS = 8.0
"""Two operators that take back what the other writes do so many times in it."""


@pytest.fixture
def first(stage: Stage, tmp_path: Path) -> Iterator[Operator]:
    made = stage.operator(tmp_path)
    yield made
    if made.process is not None:
        made.stop()


@pytest.fixture
def scene(audited: Stage, first: Operator) -> Iterator[Scene]:
    made = Scene(audited, first, f"two-{secrets.token_hex(2)}")
    made.deploy()
    yield made
    leave(audited.access, made.name)
    audited.check()


@pytest.fixture(scope="module")
def installed(stage: Stage) -> Iterator[None]:
    """A second installation in a namespace of its own, with every right that the first has."""
    stage.access.apply(*installation())
    yield
    stage.access.kubectl("delete", "namespace", SECOND, "--wait=false", check=True)
    stage.access.kubectl("delete", "clusterrolebinding", SECOND, f"{SECOND}-cluster", check=True)
    stage.access.kubectl("delete", "rolebinding", SECOND, "-n", LEASE[1], check=True)


@pytest.fixture
def second(audited: Stage, installed: None, tmp_path: Path) -> Operator:
    """Its operator, with other settings than the first: they name no image for probes."""
    user = audited.access.as_user("second", audited.access.mint_token(SECOND, ACCOUNT))
    settings = tmp_path / "second.yaml"
    settings.write_text(yaml.safe_dump({"logLevel": "Debug"}))
    return Operator(user.kubeconfig, settings, tmp_path / "second.log")


def installation() -> list[Document]:
    subject = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": SECOND}
    rights = {SECOND: "kvgate-operator", f"{SECOND}-cluster": "kvgate-operator-cluster"}
    bound = [
        binding("ClusterRoleBinding", {"name": name}, "ClusterRole", role, subject) for name, role in rights.items()
    ]
    lease = binding("RoleBinding", {"name": SECOND, "namespace": LEASE[1]}, "Role", "kvgate-operator-lease", subject)
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SECOND}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT, "namespace": SECOND}},
        *bound,
        lease,
    ]


def binding(kind: str, metadata: Document, role_kind: str, role: str, subject: Document) -> Document:
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": role_kind, "name": role}
    api = "rbac.authorization.k8s.io/v1"
    return {"apiVersion": api, "kind": kind, "metadata": metadata, "roleRef": reference, "subjects": [subject]}


def lease(stage: Stage) -> Document:
    name, namespace = LEASE
    spec: Document = stage.access.get("lease", name, "-n", namespace)["spec"]
    return spec


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


def test_a_second_installation_by_mistake_writes_nothing(scene: Scene, first: Operator, second: Operator) -> None:
    with running(first), running(second):
        mark = scene.stage.mark()
        eventually(lambda: second.said(WAITS))
        scene.gate("2s")
        scene.wait_for("a verdict", is_settled)
        scene.stage.wait_until_idle()
        before, quiet = scene.stage.watch.latest(scene.key), scene.stage.mark()
        time.sleep(QUIET_SECONDS)

        assert scene.stage.watch.latest(scene.key) == before
        assert not scene.stage.turns_since(quiet)
        assert (scene.jobs_made(mark), scene.reports()) == (2, 1)
        asked = [call for call in scene.access.audit_events(mark) if call.user.endswith(f":{SECOND}:{ACCOUNT}")]
        assert {call.resource for call in asked if call.verb not in READS} == set()
        assert "leases" in {call.resource for call in asked}


def test_one_that_was_killed_in_a_sweep_is_followed_only_when_its_lease_has_expired(
    scene: Scene, first: Operator, second: Operator
) -> None:
    first.start()
    mark = scene.stage.mark()
    scene.gate("2s")
    scene.wait_for("its Jobs", lambda status: status.sweep is not None)
    second.settings = first.settings
    with running(second):
        eventually(lambda: second.said(WAITS))
        first.kill()
        left = lease(scene.stage)
        scene.wait_for("a verdict", is_settled)
        taken = lease(scene.stage)

    assert taken["holderIdentity"] != left["holderIdentity"]
    assert taken["leaseTransitions"] == left["leaseTransitions"] + 1
    waited = (moment(taken["acquireTime"]) - moment(left["renewTime"])).total_seconds()
    assert LEASE_SECONDS <= waited <= LEASE_SECONDS + 5 * RETRY_SECONDS
    made = [call for call in scene.access.audit_events(mark) if (call.verb, call.resource) == ("create", "jobs")]
    assert (sum(call.status_code == 201 for call in made), scene.reports()) == (2, 1)
