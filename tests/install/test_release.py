"""The chart through its life, by the real Helm on a real API server: installed, upgraded, rolled back, removed."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from kvgate.api.crds import render
from tests.cluster.access import Access, Document
from tests.cluster.controlplane import LOOPBACK, start_control_plane
from tests.cluster.fixtures import fresh_state
from tests.cluster.waiting import eventually
from tests.install.gated import pool
from tests.install.plane import ROOT, SYSTEM, namespace
from tests.install.release import BEFORE, CHART, RESTRICTED, Helm, is_ours

pytestmark = pytest.mark.api
CRDS = sorted(yaml.safe_load(text)["metadata"]["name"] for text in render().values())
POLICY, BINDING = "validatingadmissionpolicy", "validatingadmissionpolicybinding"
POLICIES = ["approver", "evidence", "measure", "transitions-v1alpha1", "transitions-v1beta1"]


@pytest.fixture(scope="module")
def installer(helm: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Helm]:
    with fresh_state() as ledger:
        access = start_control_plane(ledger, LOOPBACK)
        access.apply(namespace(SYSTEM, **RESTRICTED), *map(namespace, ("team-a", "team-b", "second")))
        yield Helm(helm, access, tmp_path_factory.mktemp("helm"))


@pytest.fixture
def clean(installer: Helm) -> Iterator[Helm]:
    """With nothing of ours installed but the kinds, which Helm leaves."""
    yield installer
    for where in (SYSTEM, "second"):
        installer("uninstall", "kvgate", "-n", where, "--ignore-not-found")


def is_kept(access: Access, crd: str) -> bool:
    """The API server takes its time to end a kind that it has begun to serve a moment ago."""
    found = access.kubectl("get", "crd", crd, "-o", "jsonpath={.metadata.deletionTimestamp}")
    return found.returncode == 0 and not found.stdout


def pods(access: Access) -> list[Document]:
    found: list[Document] = access.get("pods", "-n", SYSTEM, "-l", "app.kubernetes.io/name=kvgate")["items"]
    return found


def test_it_lints_strictly(helm: Path) -> None:
    done = subprocess.run([helm, "lint", "--strict", CHART], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout
    assert "[WARNING]" not in done.stdout + done.stderr


def test_installed_upgraded_rolled_back_and_removed_and_a_pool_outlives_it_all(clean: Helm) -> None:
    access = clean.access
    clean.does("install", "kvgate", BEFORE, "-n", SYSTEM, "--set", "image.repository=registry.example.com/k")
    access.wait_established(*CRDS)
    eventually(lambda: pods(access), 30)
    access.apply(pool("kept", "team-a"))
    uid = access.get("kvpool", "kept", "-n", "team-a")["metadata"]["uid"]
    assert clean.names(POLICY) == []

    access.kubectl("apply", "--server-side", "--force-conflicts", "-f", ROOT / "crds", check=True)
    clean.does("upgrade", "kvgate", CHART, "-n", SYSTEM, "--reset-then-reuse-values")
    assert clean.names(POLICY) == POLICIES
    assert "network" in clean.names("clusterrole")

    clean.does("rollback", "kvgate", "1", "-n", SYSTEM)
    assert clean.names(POLICY) == clean.names(BINDING) == []
    assert "network" not in clean.names("clusterrole")
    assert [status for _, status in clean.history("kvgate")] == ["superseded", "superseded", "deployed"]

    clean.does("uninstall", "kvgate", "-n", SYSTEM)
    eventually(lambda: pods(access) == [], 30)
    assert clean.names("clusterrole") == clean.names("clusterrolebinding") == []
    assert access.get("kvpool", "kept", "-n", "team-a")["metadata"]["uid"] == uid


def test_a_second_release_by_mistake_is_refused_and_the_first_stands(clean: Helm) -> None:
    clean.does("install", "kvgate", CHART, "-n", SYSTEM)
    before = clean.access.get("clusterrolebinding", "kvgate-operator")
    refused = clean("install", "kvgate", CHART, "-n", "second")

    assert "cannot be imported into the current release" in refused.stderr
    assert clean.access.get("clusterrolebinding", "kvgate-operator") == before
    assert clean.access.get("deployments,sa,cm", "-n", "second", "-l", "app.kubernetes.io/name=kvgate")["items"] == []


def test_two_releases_with_namespaces_of_their_own_stand_side_by_side_and_the_same_namespace_is_refused(
    clean: Helm,
) -> None:
    own = ("--set", "watchNamespaces={team-b},leaseNamespace=second,peopleRoles=false,admission.enabled=false")
    same = ("--set", "watchNamespaces={team-a},leaseNamespace=second,peopleRoles=false,admission.enabled=false")
    clean.does("install", "kvgate", CHART, "-n", SYSTEM, "--set", "watchNamespaces={team-a}")

    assert "cannot be imported" in clean("install", "kvgate", CHART, "-n", "second", *same).stderr
    clean("uninstall", "kvgate", "-n", "second", "--ignore-not-found")
    clean.does("install", "kvgate", CHART, "-n", "second", *own)
    nodes = [name for name in clean.names("clusterrolebinding") if name.startswith("operator")]
    assert nodes == [f"operator-nodes-{SYSTEM}", "operator-nodes-second"]


def test_values_that_cannot_be_are_refused_before_anything_is_sent(clean: Helm) -> None:
    refused = clean("install", "kvgate", CHART, "-n", SYSTEM, "--set", "replicas=9")

    assert "replicas" in refused.stderr
    assert clean.names("clusterrole") == []


def test_everything_switched_on_at_once_is_taken_by_the_server(clean: Helm) -> None:
    switches = "networkPolicy.enabled=true,networkPolicy.servingNamespaces={team-a},monitoring.dashboard=true"
    clean.does("install", "kvgate", CHART, "-n", SYSTEM, "--set", switches)

    found = clean.access.get("networkpolicy", "-A")["items"]
    assert sorted((n["metadata"]["namespace"], n["metadata"]["name"]) for n in found) == [
        (SYSTEM, "kvgate-operator"),
        ("team-a", "kvgate-probes"),
        ("team-a", "kvgate-to-deployments"),
    ]


def test_installed_anew_it_is_whole_and_removed_in_the_documented_order_nothing_is_left(clean: Helm) -> None:
    access = clean.access
    notes = clean.does("install", "kvgate", CHART, "-n", SYSTEM)
    access.wait_established(*CRDS)
    eventually(lambda: pods(access), 30)
    assert "No sweep is started until settings.probe.image" in notes
    assert clean.names(POLICY) == POLICIES
    assert clean.names("clusterrole") == sorted(
        ["approver", "network", "operator", "operator-cluster", "pool-editor", "viewer"]
    )
    access.apply(pool("gone", "team-a"))

    clean.does("upgrade", "kvgate", CHART, "-n", SYSTEM, "--reuse-values", "--set", "admission.enabled=false")
    assert clean.names(POLICY) == clean.names(BINDING) == []
    access.kubectl("delete", "kvpool", "--all", "-A", check=True)
    clean.does("uninstall", "kvgate", "-n", SYSTEM)
    access.kubectl("delete", "-f", ROOT / "crds", "--wait=false", check=True)
    kinds = ("clusterrole", "clusterrolebinding", POLICY, BINDING)
    assert [name for kind in kinds for name in clean.names(kind)] == []
    assert [crd for crd in CRDS if is_kept(access, crd)] == []
    left = access.get("all,cm,sa,role,rolebinding,networkpolicy", "-n", SYSTEM)["items"]
    assert [item["metadata"]["name"] for item in left if is_ours(item)] == []
