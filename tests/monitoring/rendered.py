"""What the chart renders for Prometheus and Grafana; run as a program, it writes manifests/monitoring from that."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from tests.app.operator.shipped import HELMS_LABELS, NAMESPACE, ROOT
from tests.cluster.access import Document

CHART, MANIFESTS = ROOT / "charts" / "kvgate", ROOT / "manifests" / "monitoring"
FILES = {
    "Service": "service.yaml",
    "ServiceMonitor": "servicemonitor.yaml",
    "PrometheusRule": "rules.yaml",
    "ConfigMap": "dashboard.yaml",
}
HEAD = "# Rendered from the chart by `python -m tests.monitoring.rendered`.\n"


def rendered(**monitoring: Any) -> list[Document]:
    """The objects of the chart's monitoring templates, all switches on unless told otherwise."""
    helm: Any = pytest.importorskip("helm_python.chart", reason="helm-python-sdk has wheels for Linux on x86-64 alone")
    switches = {"serviceMonitor": True, "rules": True, "dashboard": True, **monitoring}
    with helm.Chart.load(CHART) as chart:
        texts = [*chart.render(values={"monitoring": switches}, name="kvgate", namespace=NAMESPACE).items()]
    ours = [text for name, text in texts if "/monitoring-" in name]
    return [document for text in ours for document in yaml.safe_load_all(text) if document]


def without_helm(document: Document) -> Document:
    labels = {k: v for k, v in document["metadata"]["labels"].items() if k not in HELMS_LABELS}
    return {**document, "metadata": {**document["metadata"], "labels": labels}}


class _Dumper(yaml.SafeDumper):
    """Texts of more than a line as blocks."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def main() -> None:
    for document in rendered():
        text = yaml.dump(without_helm(document), Dumper=_Dumper, sort_keys=False, width=118, allow_unicode=True)
        (MANIFESTS / FILES[document["kind"]]).write_text(HEAD + text, encoding="utf-8")


if __name__ == "__main__":
    main()
