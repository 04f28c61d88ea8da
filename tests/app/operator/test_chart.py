"""The chart says the same as kustomize's base, by Helm's own engine."""

from __future__ import annotations

from typing import Any

import kubernetes_validate
import pytest
import yaml

from kvgate.app.operator.main import LEASE_NAMESPACE
from kvgate.app.settings import Settings, read_settings
from tests.app.operator.shipped import NAMESPACE, ROOT, base, by_name, one, plain
from tests.cluster.access import Access, Document

CHART = ROOT / "charts" / "kvgate"
ELSEWHERE = "helm-python-sdk has wheels for Linux on x86-64 alone"
helm: Any = pytest.importorskip("helm_python.chart", reason=ELSEWHERE)
errors: Any = pytest.importorskip("helm_python.errors", reason=ELSEWHERE)


def rendered(**values: Any) -> list[Document]:
    """What Helm makes of the chart, CRDs included."""
    with helm.Chart.load(CHART) as chart:
        texts = [*chart.render(values=values, name="kvgate", namespace=NAMESPACE).items()]
        crds = [str(crd["data"]) for crd in chart.crds]
    files = [text for name, text in texts if name.endswith(".yaml")]
    return [d for text in (*files, *crds) for d in yaml.safe_load_all(text) if d]


def test_the_chart_renders_the_same_objects_as_kustomize_but_for_the_namespace() -> None:
    ours, helms = by_name(base()), by_name(rendered())

    assert set(ours) - set(helms) == {f"Namespace /{NAMESPACE}"}
    assert set(helms) - set(ours) == set()
    assert {name: plain(document) for name, document in helms.items()} == {
        name: plain(document) for name, document in ours.items() if name in helms
    }


def test_the_chart_is_linted_without_a_warning() -> None:
    report = helm.lint(CHART, strict=True)
    assert [message for message in report["messages"] if message["severity"] > 1] == report["errors"] == []


@pytest.mark.parametrize(
    "values",
    [
        pytest.param({"watchNamespaces": ["a*"]}, id="a pattern of namespaces"),
        pytest.param({"replicas": 9}, id="nine replicas"),
        pytest.param({"imagee": {}}, id="a value that is none"),
        pytest.param({"image": {"digest": "latest"}}, id="a digest that is none"),
    ],
)
def test_the_chart_refuses(values: dict[str, Any]) -> None:
    with helm.Chart.load(CHART) as chart, pytest.raises(errors.HelmValuesError):
        chart.validate_schema(values)


def test_with_namespaces_the_role_is_bound_in_these_alone_and_the_operator_told() -> None:
    found = rendered(watchNamespaces=["a", "b"])
    bindings = {
        (d["kind"], d["metadata"].get("namespace"), d["roleRef"]["kind"], d["roleRef"]["name"])
        for d in found
        if d["kind"].endswith("RoleBinding")
    }

    assert bindings == {
        ("RoleBinding", "a", "Role", "kvgate-operator"),
        ("RoleBinding", "b", "Role", "kvgate-operator"),
        ("RoleBinding", LEASE_NAMESPACE, "Role", "kvgate-operator-lease"),
        ("ClusterRoleBinding", None, "ClusterRole", f"kvgate-operator-nodes-{NAMESPACE}"),
    }
    named = by_name(found)
    everywhere = by_name(base())["ClusterRole /kvgate-operator"]["rules"]
    assert named["Role a/kvgate-operator"]["rules"] == named["Role b/kvgate-operator"]["rules"] == everywhere
    nodes = [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch"]}]
    assert named[f"ClusterRole /kvgate-operator-nodes-{NAMESPACE}"]["rules"] == nodes
    args = one(found, "Deployment")["spec"]["template"]["spec"]["containers"][0]["args"]
    assert args[-2:] == ["--namespace=a", "--namespace=b"]


def test_what_the_chart_is_given_reaches_the_pod() -> None:
    found = rendered(
        image={"repository": "r.example.com/k", "digest": f"sha256:{'a' * 64}"},
        settings={"probe": {"image": "r.example.com/p:1"}},
        extraVolumes=[{"name": "ca", "secret": {"secretName": "ca"}}],
        extraVolumeMounts=[{"name": "ca", "mountPath": "/etc/kvgate/ca"}],
        tolerations=[{"operator": "Exists"}],
        imagePullSecrets=[{"name": "pull"}],
        priorityClassName="high",
        podAnnotations={"a": "b"},
        peopleRoles=False,
    )
    deployment = one(found, "Deployment")
    kubernetes_validate.validate(deployment, "1.34", strict=True)
    pod = deployment["spec"]["template"]["spec"]

    assert pod["containers"][0]["image"] == f"r.example.com/k@sha256:{'a' * 64}"
    assert [volume["name"] for volume in pod["volumes"]] == ["settings", "ca"]
    assert pod["tolerations"] == [{"operator": "Exists"}]
    read = read_settings(one(found, "ConfigMap")["data"]["settings.yaml"])
    assert isinstance(read, Settings)
    assert read.probe.image == "r.example.com/p:1"
    assert not any(d["metadata"]["name"] == "kvgate-viewer" for d in found)


@pytest.mark.parametrize("version", [f"1.{minor}" for minor in range(30, 35)])
def test_whatever_is_switched_on_is_valid_for_each_kubernetes_that_the_chart_names(version: str) -> None:
    switches = {"enabled": True, "servingNamespaces": ["serving"], "metricsFrom": [{"podSelector": {}}]}
    found = [d for values in ({}, {"watchNamespaces": ["a"]}) for d in rendered(networkPolicy=switches, **values)]

    assert {"NetworkPolicy", "ValidatingAdmissionPolicy", "Role", "Deployment"} <= {d["kind"] for d in found}
    for document in found:
        if document["kind"] != "CustomResourceDefinition":
            kubernetes_validate.validate(document, version, strict=True)


def test_the_policies_name_the_operator_of_the_release() -> None:
    with helm.Chart.load(CHART) as chart:
        text = "".join(chart.render(values={}, name="kvgate", namespace="elsewhere").values())

    assert "'system:serviceaccount:elsewhere:kvgate-operator'" in text
    assert "kvgate-system" not in text


@pytest.mark.api
def test_what_the_chart_renders_is_taken_by_the_server(control_plane: Access) -> None:
    control_plane.kubectl("create", "namespace", NAMESPACE)
    documents = yaml.safe_dump_all(rendered(settings={"probe": {"image": "r.example.com/p:1"}}))

    taken = control_plane.kubectl("apply", "--dry-run=server", "--server-side", "--force-conflicts", "-f", "-",
                                  input=documents)  # fmt: skip
    assert taken.returncode == 0, taken.stderr
