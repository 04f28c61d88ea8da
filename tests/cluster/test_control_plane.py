"""The control plane without nodes: what the tier api stands on."""

import json
import stat
from pathlib import Path

import pytest
import yaml
from kubernetes import client

from tests.cluster.access import Access, Document
from tests.cluster.binaries import kubernetes_version
from tests.cluster.waiting import eventually

pytestmark = pytest.mark.api

CRD_WITH_WEBHOOK: Document = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "gauges.fixture.kvgate.dev"},
    "spec": {
        "group": "fixture.kvgate.dev",
        "names": {"kind": "Gauge", "plural": "gauges"},
        "scope": "Namespaced",
        "conversion": {
            "strategy": "Webhook",
            "webhook": {
                "conversionReviewVersions": ["v1"],
                "clientConfig": {"service": {"name": "absent", "namespace": "absent"}},
            },
        },
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {"spec": {"type": "object", "properties": {"turns": {"type": "integer"}}}},
                    }
                },
            }
        ],
    },
}


@pytest.fixture
def namespace(control_plane: Access, request: pytest.FixtureRequest) -> str:
    name = str(request.node.name).replace("_", "-")[:50].strip("-")
    control_plane.kubectl("create", "namespace", name, check=True)
    eventually(lambda: control_plane.kubectl("get", "serviceaccount", "default", "-n", name).returncode == 0)
    return name


def test_the_server_says_the_version_that_its_go_module_requires(control_plane: Access) -> None:
    found = client.VersionApi(control_plane.api_client()).get_code()

    assert found.git_version == kubernetes_version()


def test_a_service_account_token_is_denied_until_a_role_is_bound(control_plane: Access, namespace: str) -> None:
    reader = control_plane.as_user("reader", control_plane.mint_token(namespace, "default"))
    denied = reader.kubectl("get", "configmaps", "-n", namespace)
    control_plane.kubectl(
        *("create", "rolebinding", "reads", "--clusterrole=view", f"--serviceaccount={namespace}:default"),
        *("-n", namespace),
        check=True,
    )

    assert "Forbidden" in denied.stderr
    eventually(lambda: reader.kubectl("get", "configmaps", "-n", namespace).returncode == 0)


def test_a_bearer_of_no_known_token_is_unauthorized(control_plane: Access) -> None:
    stranger = control_plane.as_user("stranger", "not-a-token")

    assert "Unauthorized" in stranger.kubectl("get", "namespaces", "--request-timeout=5s").stderr


def test_secrets_of_the_fixture_are_readable_by_their_owner_alone(control_plane: Access) -> None:
    private = [control_plane.directory, control_plane.kubeconfig, control_plane.directory / "tokens.csv"]

    assert [stat.S_IMODE(path.stat().st_mode) & 0o077 for path in private] == [0, 0, 0]


def test_a_crd_loses_its_conversion_webhook_and_serves_its_schema(
    control_plane: Access, namespace: str, tmp_path: Path
) -> None:
    path = tmp_path / "crd.yaml"
    path.write_text(yaml.safe_dump(CRD_WITH_WEBHOOK))

    assert control_plane.load_crds([path]) == ["gauges.fixture.kvgate.dev"]
    assert control_plane.get("crd", "gauges.fixture.kvgate.dev")["spec"]["conversion"] == {"strategy": "None"}
    gauge = {"apiVersion": "fixture.kvgate.dev/v1", "kind": "Gauge", "metadata": {"name": "g"}}
    bad = json.dumps({**gauge, "spec": {"turns": "many"}})
    assert "must be of type integer" in control_plane.kubectl("create", "-n", namespace, "-f", "-", input=bad).stderr
    good = json.dumps({**gauge, "spec": {"turns": 3}})
    assert control_plane.kubectl("create", "-n", namespace, "-f", "-", input=good).returncode == 0


def test_a_job_gets_a_pod_that_waits_for_a_node(control_plane: Access, namespace: str) -> None:
    control_plane.kubectl("create", "job", "waits", "--image=local.test/none:1", "-n", namespace, check=True)

    def reasons() -> list[str]:
        pods = control_plane.get("pods", "-n", namespace)["items"]
        return [c["reason"] for pod in pods for c in pod["status"].get("conditions", ()) if "reason" in c]

    eventually(lambda: reasons() == ["Unschedulable"])


def test_the_audit_log_tells_each_write_and_who_made_it(control_plane: Access, namespace: str) -> None:
    control_plane.kubectl("create", "configmap", "counted", "-n", namespace, check=True)
    refused = control_plane.kubectl("create", "configmap", "counted", "-n", namespace)

    assert refused.returncode != 0
    written = [
        (event.user, event.verb, event.resource, event.status_code)
        for event in control_plane.audit_events()
        if (event.namespace, event.name, event.verb) == (namespace, "counted", "create")
    ]
    assert written == [("admin", "create", "configmaps", 201), ("admin", "create", "configmaps", 409)]
