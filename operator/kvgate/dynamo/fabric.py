"""Which fabric a worker's pod asks for: by its resources, its annotations and its resource claims."""

from __future__ import annotations

from kvgate.dynamo.container import Container, Resource
from kvgate.dynamo.document import Document, at, mappings, text, whole
from kvgate.dynamo.words import FabricClass

_EFA = "vpc.amazonaws.com/efa"
_GKE_NETWORK = "networking.gke.io.networks/rdma"
_GKE_INTERFACES = "networking.gke.io/interfaces"
_DEVICE = "rdma/"


def fabric_resources(container: Container) -> tuple[Resource, ...]:
    """What a probe pod must request too, or it would measure the ordinary network."""
    return tuple(resource for resource in container.resources if _fabric_of(resource.name) is not None)


def claims(container: Container) -> tuple[Resource, ...]:
    """Devices that the container has by a resource claim: no probe can have them beside it."""
    return tuple(resource for resource in container.resources if resource.section == "claims")


def fabric_class(container: Container, pod: Document) -> FabricClass:
    asked = {_fabric_of(resource.name) for resource in container.resources}
    if "rdma" in text(at(pod, "metadata", "annotations", _GKE_INTERFACES)) or _claims_roce(pod):
        asked.add(FabricClass.ROCE)
    for fabric in (FabricClass.EFA, FabricClass.ROCE, FabricClass.IB):
        if fabric in asked:
            return fabric
    return FabricClass.NONE


def gpus_per_pod(container: Container, pod: Document) -> int | None:
    """GPUs that one pod occupies; None when they are claimed or written in a way that can't be counted."""
    asked = [resource for resource in container.resources if _is_gpu(resource.name)]
    limits = [resource for resource in asked if resource.section == "limits"] or asked
    if not limits:
        return None if at(pod, "spec", "resourceClaims") else 0
    counts = [whole(resource.quantity) for resource in limits]
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def _is_gpu(name: str) -> bool:
    return name == "gpu" or name.startswith(("nvidia.com/gpu", "nvidia.com/mig-")) or name.endswith("/gpu")


def _fabric_of(name: str) -> FabricClass | None:
    if name == _EFA:
        return FabricClass.EFA
    if name.startswith(_GKE_NETWORK) or (name.startswith(_DEVICE) and "roce" in name):
        return FabricClass.ROCE
    return FabricClass.IB if name.startswith(_DEVICE) else None


def _claims_roce(pod: Document) -> bool:
    """A network claim of dynamic resource allocation, as the GKE overlays name it."""
    claims = mappings(at(pod, "spec", "resourceClaims"))
    named = (text(claim.get("resourceClaimTemplateName")) + text(claim.get("name")) for claim in claims)
    return any("rdma" in name or "mrdma" in name or "roce" in name for name in named)
