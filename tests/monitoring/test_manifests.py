"""What ships for Prometheus and Grafana: chart and kustomize say the same, and each object fits what it points to."""

from __future__ import annotations

import json

import kubernetes_validate
import pytest
import yaml

from kvgate.app.operator import health, main
from tests.app.operator.shipped import NAMESPACE, base, by_name, one
from tests.monitoring.rendered import CHART, FILES, MANIFESTS, rendered, without_helm


def test_kustomize_has_what_the_chart_renders() -> None:
    """Else run `python -m tests.monitoring.rendered`."""
    helms = {name: without_helm(document) for name, document in by_name(rendered()).items()}

    assert by_name(base(MANIFESTS)) == helms
    assert {document["kind"] for document in base(MANIFESTS)} == set(FILES)


def test_nothing_of_it_is_installed_unasked() -> None:
    assert rendered(serviceMonitor=False, rules=False, dashboard=False) == []


@pytest.mark.parametrize(
    ("switch", "kinds"),
    [("serviceMonitor", {"Service", "ServiceMonitor"}), ("rules", {"PrometheusRule"}), ("dashboard", {"ConfigMap"})],
)
def test_each_switch_brings_its_own(switch: str, kinds: set[str]) -> None:
    others = {name: False for name in ("serviceMonitor", "rules", "dashboard") if name != switch}

    assert {document["kind"] for document in rendered(**others)} == kinds


def test_the_rules_are_the_rule_file_with_the_runbook_where_it_is_served() -> None:
    plain = one(rendered(), "PrometheusRule")["spec"]
    moved = one(rendered(runbookURL="https://docs.example.com/runbook/"), "PrometheusRule")["spec"]
    links = [rule["annotations"]["runbook_url"] for group in moved["groups"] for rule in group["rules"]]

    assert plain == yaml.safe_load((CHART / "alerts.yaml").read_text())
    assert all(link.startswith("https://docs.example.com/runbook/#") for link in links)


def test_labels_that_a_prometheus_selects_by_stand_on_monitor_and_rules() -> None:
    found = rendered(labels={"release": "stack"})

    assert {d["kind"] for d in found if d["metadata"]["labels"].get("release") == "stack"} == {
        "ServiceMonitor",
        "PrometheusRule",
    }


def test_the_monitor_leads_through_the_service_to_the_port_that_serves_metrics() -> None:
    found = rendered()
    service, monitor, pod = one(found, "Service"), one(found, "ServiceMonitor"), one(base(), "Deployment")["spec"]
    (port,), (endpoint,) = service["spec"]["ports"], monitor["spec"]["endpoints"]
    container = pod["template"]["spec"]["containers"][0]["ports"][0]

    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert service["spec"]["selector"].items() <= pod["template"]["metadata"]["labels"].items()
    assert (endpoint["port"], endpoint["path"]) == (port["name"], health.METRICS_PATH)
    assert (port["targetPort"], container["containerPort"]) == (container["name"], main.HEALTH_PORT)
    assert endpoint["honorLabels"] is True, "the label namespace is the pool's"


def test_the_dashboard_arrives_as_it_is() -> None:
    (text,) = one(rendered(), "ConfigMap")["data"].values()

    assert json.loads(text) == json.loads((CHART / "dashboards" / "kvgate.json").read_text())


def test_the_objects_of_kubernetes_own_kinds_are_valid_and_lie_with_the_operator() -> None:
    for document in rendered():
        assert document["metadata"]["namespace"] == NAMESPACE
        if document["apiVersion"] == "v1":
            kubernetes_validate.validate(document, "1.34", strict=True)
