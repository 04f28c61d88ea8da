"""Makes an API server one that Dynamo's operator serves: the real CRDs, the rules of its webhook, its account."""

from __future__ import annotations

from pathlib import Path

import yaml

from tests.cluster.access import Access
from tests.cluster.waiting import eventually
from tests.dynamo_stage.standin.graph import Document
from tests.dynamo_stage.standin.samples import deployment

CRDS = Path(__file__).parents[2] / "data" / "dynamo-crds"
ADMISSION = Path(__file__).with_name("admission.yaml")
SYSTEM, ACCOUNT = "dynamo-system", "dynamo-operator-controller-manager"
METADATA_CRD: Document = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "dynamoworkermetadatas.nvidia.com"},
    "spec": {
        "group": "nvidia.com",
        "scope": "Namespaced",
        "names": {
            "kind": "DynamoWorkerMetadata",
            "plural": "dynamoworkermetadatas",
            "singular": "dynamoworkermetadata",
            "shortNames": ["dwm"],
        },
        "versions": [
            {
                "name": "v1alpha1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
                    }
                },
            }
        ],
    },
}
"""Its schema is left open: the wheels hold none."""


def install(access: Access) -> Access:
    """Returns the same server as the operator's own account sees it. Safe to call again."""
    access.load_crds(sorted(CRDS.glob("*.yaml")))
    access.apply(METADATA_CRD, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM}})
    access.wait_established(str(METADATA_CRD["metadata"]["name"]))
    access.apply(*yaml.safe_load_all(ADMISSION.read_text("utf-8")), *_account())
    eventually(lambda: _refuses_a_new_topology(access), 30)
    return access.as_user(ACCOUNT, access.mint_token(SYSTEM, ACCOUNT))


def uninstall_rules(access: Access) -> None:
    """Let others change deployments again as they please."""
    access.kubectl("delete", "--ignore-not-found", "-f", ADMISSION, check=True)


def _account() -> tuple[Document, Document]:
    subject = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": SYSTEM}
    return (
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT, "namespace": SYSTEM}},
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": ACCOUNT},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [subject],
        },
    )


def _refuses_a_new_topology(access: Access) -> bool:
    """A policy is enforced a moment after it was written."""
    whole = deployment("standin-check", namespace=SYSTEM)
    access.apply(whole)
    less = {**whole, "spec": {**whole["spec"], "components": whole["spec"]["components"][:2]}}
    done = access.kubectl("replace", "--dry-run=server", "-f", "-", input=yaml.safe_dump(less))
    refused = "topology is immutable" in done.stderr
    if refused:
        access.kubectl("delete", "dynamographdeployments.v1beta1.nvidia.com", "standin-check", "-n", SYSTEM, check=True)
    return refused
