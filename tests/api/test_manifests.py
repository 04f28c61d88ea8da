"""`kubectl apply -k manifests` on a real API server: the kinds, and who may approve."""

import time
from pathlib import Path

import pytest
import yaml

from kvgate.api.crds import render
from kvgate.api.validate import is_ours
from kvgate.app.lint import lint_files
from tests.cluster.access import Access

ROOT = Path(__file__).parents[2]
SAMPLES = sorted(path for path in (ROOT / "manifests" / "samples").glob("*.yaml") if "kvgate.dev/" in path.read_text())


@pytest.fixture(scope="module")
def installed(control_plane: Access) -> Access:
    control_plane.kubectl("apply", "-k", ROOT / "manifests" / "core", check=True)
    waited = ("wait", "--for=condition=Established", "--timeout=30s")
    control_plane.kubectl(
        *waited, *(f"crd/{yaml.safe_load(text)['metadata']['name']}" for text in render().values()), check=True
    )
    return control_plane


def test_the_kustomization_names_exactly_the_generated_crds() -> None:
    listed = yaml.safe_load((ROOT / "crds" / "Kustomization").read_text())["resources"]
    assert listed == sorted(render())


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.name)
def test_a_sample_has_no_complaint(path: Path) -> None:
    assert lint_files((path,)).lines == ()


def test_there_are_samples_of_a_pool_and_an_approval() -> None:
    kinds = {d["kind"] for path in SAMPLES for d in yaml.safe_load_all(path.read_text()) if is_ours(d)}
    assert kinds == {"InferencePool", "GateApproval"}


@pytest.mark.api
def test_kustomize_reads_nothing_outside_its_roots_and_a_plain_directory_works_too(installed: Access) -> None:
    again = installed.kubectl("apply", "-k", ROOT / "manifests" / "core", check=True).stdout
    assert again.count("unchanged") == len(again.splitlines()) == 18
    plain = installed.kubectl("apply", "--dry-run=server", "-f", ROOT / "crds", check=True).stdout
    assert len(plain.splitlines()) == 4


@pytest.mark.api
@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.name)
def test_the_server_accepts_a_sample(installed: Access, path: Path) -> None:
    installed.kubectl("create", "namespace", "serving")
    installed.kubectl("create", "--dry-run=server", "--validate=strict", "-f", path, check=True)


@pytest.mark.api
@pytest.mark.parametrize(
    ("role", "verb", "resource", "allowed"),
    [
        ("edit", "create", "inferencepools.kvgate.dev", False),
        ("edit", "get", "gateapprovals.kvgate.dev", True),
        ("edit", "create", "gateapprovals.kvgate.dev", False),
        ("edit", "patch", "inferencepools.kvgate.dev/status", False),
        ("edit", "create", "fabricreports.kvgate.dev", False),
        ("admin", "create", "inferencepools.kvgate.dev", False),
        ("admin", "get", "inferencepools.kvgate.dev", True),
        ("admin", "create", "gateapprovals.kvgate.dev", False),
        ("admin", "update", "gateapprovals.kvgate.dev", False),
        ("edit", "create", "benchmarkreports.kvgate.dev", False),
        ("view", "list", "fabricreports.kvgate.dev", True),
        ("view", "list", "benchmarkreports.kvgate.dev", True),
        ("view", "create", "inferencepools.kvgate.dev", False),
        ("kvgate-approver", "create", "gateapprovals.kvgate.dev", True),
        ("kvgate-approver", "delete", "gateapprovals.kvgate.dev", True),
        ("kvgate-approver", "update", "gateapprovals.kvgate.dev", False),
        ("kvgate-approver", "get", "inferencepools.kvgate.dev", True),
        ("kvgate-approver", "create", "inferencepools.kvgate.dev", False),
        ("kvgate-approver", "patch", "inferencepools.kvgate.dev", False),
        ("kvgate-pool-editor", "create", "inferencepools.kvgate.dev", True),
        ("kvgate-pool-editor", "delete", "inferencepools.kvgate.dev", True),
        ("kvgate-pool-editor", "create", "gateapprovals.kvgate.dev", False),
        ("kvgate-pool-editor", "update", "inferencepools.kvgate.dev/status", False),
        ("kvgate-pool-editor", "create", "fabricreports.kvgate.dev", False),
        ("kvgate-network", "patch", "inferencepools.kvgate.dev", True),
        ("kvgate-network", "update", "inferencepools.kvgate.dev", False),
        ("kvgate-network", "list", "fabricreports.kvgate.dev", True),
        ("kvgate-network", "create", "fabricreports.kvgate.dev", False),
        ("kvgate-network", "create", "gateapprovals.kvgate.dev", False),
        ("kvgate-network", "patch", "dynamographdeployments.nvidia.com", False),
    ],
)
def test_who_edits_a_namespace_cannot_approve_in_it(
    installed: Access, role: str, verb: str, resource: str, allowed: bool
) -> None:
    user = f"{role}-of-default"
    installed.kubectl("create", "rolebinding", user, f"--clusterrole={role}", f"--user={user}", "-n", "default")
    _until_aggregated(installed)
    name, _, part = resource.partition("/")
    argv = ("auth", "can-i", verb, name, *([f"--subresource={part}"] if part else []))
    said = installed.kubectl(*argv, f"--as={user}", "-n", "default").stdout.strip()
    assert said == ("yes" if allowed else "no")


def _until_aggregated(access: Access) -> None:
    """The controller manager folds labelled roles into edit, admin and view a moment after they appear."""
    deadline = time.monotonic() + 30
    for role in ("edit", "admin", "view"):
        while "kvgate.dev" not in str(access.get("clusterrole", role)["rules"]):
            assert time.monotonic() < deadline, f"kvgate's roles did not reach {role} in 30 s"
            time.sleep(0.1)
