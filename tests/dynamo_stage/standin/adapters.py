"""Scaling adapters: one per component that asks for it, whose replicas the operator writes into the deployment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kubernetes import client
from kubernetes.client.exceptions import ApiException

from tests.dynamo_stage.standin.graph import GROUP, VERSION, Component, Document, Graph

ADAPTERS = "dynamographdeploymentscalingadapters"


@dataclass
class Adapters:
    """Played against a real API server alone: an autoscaler or a user scales the adapter, never the component."""

    api: client.ApiClient

    def scaled(self, graph: Graph) -> Document | None:
        """The deployment with the replicas that its adapters ask for; None where it has them already."""
        wanted = {c.name: self._replicas(graph, c) for c in graph.components if c.scaled_by_adapter}
        if all(wanted.get(component.name, component.replicas) == component.replicas for component in graph.components):
            return None
        spec = graph.document["spec"]
        components = [
            {**entry, "replicas": wanted.get(entry["name"], entry.get("replicas", 1))} for entry in spec["components"]
        ]
        return {**graph.document, "spec": {**spec, "components": components}}

    def _replicas(self, graph: Graph, component: Component) -> int:
        name = f"{graph.name}-{component.name.lower()}"
        place = (GROUP, VERSION, graph.namespace, ADAPTERS)
        try:
            held = self._custom.get_namespaced_custom_object(*place, name)
        except ApiException as error:
            if error.status != 404:
                raise
            held = self._custom.create_namespaced_custom_object(*place, _adapter(graph, component, name))
        return int(held["spec"]["replicas"])

    @property
    def _custom(self) -> Any:
        return client.CustomObjectsApi(self.api)


def _adapter(graph: Graph, component: Component, name: str) -> Document:
    owner = {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "DynamoGraphDeployment",
        "name": graph.name,
        "uid": graph.uid,
        "controller": True,
    }
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "DynamoGraphDeploymentScalingAdapter",
        "metadata": {"name": name, "namespace": graph.namespace, "ownerReferences": [owner]},
        "spec": {
            "replicas": component.replicas,
            "dgdRef": {"name": graph.name, "componentName": component.name},
        },
    }
