"""What ships to run the operator: it fits the code, and asks for no more than is needed."""

from __future__ import annotations

import copy

import kubernetes_validate
import pytest
import yaml
from click.testing import CliRunner

from kvgate import __version__
from kvgate.app.cli import cli
from kvgate.app.operator import election, main, watching
from kvgate.app.settings import Settings, read_settings
from kvgate.probe.jobs import Owner, labels
from tests.app.operator.shipped import NAMESPACE, ROOT, base, by_name, one
from tests.cluster.access import Access

CHART = ROOT / "charts" / "kvgate"


def test_the_charts_crds_are_the_generated_ones() -> None:
    generated = {path.name: path.read_bytes() for path in (ROOT / "crds").glob("*.yaml")}
    assert {path.name: path.read_bytes() for path in (CHART / "crds").iterdir()} == generated


def test_versions_agree() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    image = one(base(), "Deployment")["spec"]["template"]["spec"]["containers"][0]["image"]

    assert (chart["version"], chart["appVersion"], image.rpartition(":")[2]) == (__version__,) * 3


def test_every_object_of_the_base_is_valid() -> None:
    for document in base():
        if document["kind"] != "CustomResourceDefinition":
            kubernetes_validate.validate(document, "1.34", strict=True)


def test_the_settings_that_ship_are_read_and_start_no_sweep() -> None:
    read = read_settings(yaml.safe_dump(one(base(), "ConfigMap")))

    assert isinstance(read, Settings)
    assert read.probe.image is None


def test_the_pod_runs_a_command_that_exists_and_is_probed_where_it_answers() -> None:
    spec = one(base(), "Deployment")["spec"]["template"]["spec"]
    container = spec["containers"][0]
    given = {argument.partition("=")[0] for argument in container["args"][1:]}
    known = {option for parameter in cli.commands["operator"].params for option in parameter.opts}

    assert container["args"][0] == "operator"
    assert given <= known
    assert container["ports"][0]["containerPort"] == main.HEALTH_PORT
    assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert CliRunner().invoke(cli, ["operator", "--help"]).exit_code == 0


def test_the_pod_may_take_as_long_to_end_as_the_operator_does() -> None:
    seconds = one(base(), "Deployment")["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]

    assert seconds >= 3 * main.LAST_TURNS_SECONDS + watching.CALL_SECONDS
    assert main.LAST_TURNS_SECONDS >= election.RENEW_SECONDS


def test_the_image_runs_as_the_user_that_the_pod_asks_for_and_is_made_of_what_is_there() -> None:
    lines = (ROOT / "operator" / "Dockerfile").read_text().splitlines()
    security = one(base(), "Deployment")["spec"]["template"]["spec"]["securityContext"]
    copied = [
        word for line in lines if line.startswith("COPY ") and "--from" not in line for word in line.split()[1:-1]
    ]

    assert f"USER {security['runAsUser']}:{security['runAsGroup']}" in lines
    assert [name for name in copied if not (ROOT / name).exists()] == []
    assert {f"!{name}" for name in copied} <= set((ROOT / "operator" / "Dockerfile.dockerignore").read_text().split())


def test_the_watch_sees_the_jobs_of_sweeps() -> None:
    label, _, value = watching.OUR_JOBS.partition("=")

    assert labels(Owner("qwen3", "serving", "uid"), "run-1")[label] == value


def rules(name: str) -> set[tuple[str, str, str]]:
    role = by_name(base())[name]
    return {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_the_operator_may_not_what_it_need_not() -> None:
    held = rules("ClusterRole /kvgate-operator") | rules("ClusterRole /kvgate-operator-cluster")
    resources = {resource for _, resource, _ in held}
    verbs = {verb for _, _, verb in held}

    assert not {"*", "secrets", "pods/exec", "pods/attach", "serviceaccounts", "serviceaccounts/token"} & resources
    assert not {"*", "impersonate", "bind", "escalate", "deletecollection"} & verbs
    assert {verb for _, resource, verb in held if resource == "gateapprovals"} == {"get", "list", "watch"}
    assert {verb for _, resource, verb in held if resource == "nodes"} == {"get", "list", "watch"}
    assert ("nvidia.com", "dynamographdeployments", "create") not in held
    assert ("nvidia.com", "dynamographdeployments", "delete") not in held
    assert ("kvgate.dev", "inferencepools", "delete") not in held


@pytest.mark.api
def test_the_pod_is_admitted_where_pod_security_is_restricted(control_plane: Access) -> None:
    control_plane.kubectl("apply", "-k", ROOT / "manifests" / "core", check=True)
    template = one(base(), "Deployment")["spec"]["template"]
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "operator", "namespace": NAMESPACE, **template["metadata"]},
        "spec": template["spec"],
    }
    lax = copy.deepcopy(pod)
    del lax["spec"]["containers"][0]["securityContext"]
    create = ("create", "--dry-run=server", "--validate=strict", "-f", "-")

    assert control_plane.kubectl(*create, input=yaml.safe_dump(pod)).stderr == ""
    assert "violates PodSecurity" in control_plane.kubectl(*create, input=yaml.safe_dump(lax)).stderr
