"""In which version this cluster serves Dynamo's deployments."""

from __future__ import annotations

from kvgate.dynamo.document import mappings
from kvgate.edge.cluster.client import ALPHA_TARGETS, TARGETS, Client
from kvgate.edge.cluster.refusals import ClusterError, NotFound


def target_version(client: Client) -> str:
    """`v1beta1`, and `v1alpha1` only where the API server serves that and says that it serves nothing newer."""
    try:
        old = not _serves(client, TARGETS.api_version) and _serves(client, ALPHA_TARGETS.api_version)
    except ClusterError:
        old = False
    return (ALPHA_TARGETS if old else TARGETS).api_version.rpartition("/")[2]


def _serves(client: Client, api_version: str) -> bool:
    try:
        kinds = mappings(client.discover(api_version).get("resources"))
    except NotFound:
        return False
    return any(kind.get("name") == TARGETS.plural for kind in kinds)
