"""The pods of the deployment as the judgement sees them: which runs where, in which role, and since when."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from kvgate.core.evidence import Path


class PodRole(StrEnum):
    """What a pod does when the deployment is split, whether it is now or not; `worker` where that is not said."""

    FRONTEND = "frontend"
    PREFILL = "prefill"
    DECODE = "decode"
    WORKER = "worker"
    OTHER = "other"


@dataclass(frozen=True)
class WorkerPod:
    """One pod of the deployment that has not ended.

    `node` is empty while it waits for one, `address` until it has one. `ready_since` is set while it is Ready.
    `component` is the deployment's component; `generation` Dynamo's worker hash. `instance` is Dynamo's own id of the
    worker and `serves_as` its card's worker type (`aggregated`, `prefill`, `decode`), where it publishes them.
    `restarts` counts how often its main container began anew.
    """

    pod: str
    uid: str
    component: str
    role: PodRole
    node: str = ""
    address: str = ""
    ready: bool = False
    ready_since: datetime | None = None
    leaving: bool = False
    generation: str = ""
    instance: int | None = None
    serves_as: str = ""
    restarts: int = 0


def pods_on_nodes(pods: Iterable[WorkerPod], role: PodRole) -> Mapping[str, int]:
    """How many pods of a role each node carries, those that are leaving left out."""
    return Counter(pod.node for pod in pods if pod.role is role and pod.node and not pod.leaving)


def path_weights(pods: Iterable[WorkerPod]) -> Mapping[Path, float]:
    """Each path that worker pods use, by prefill pods at its source times decode pods at its destination."""
    known = tuple(pods)
    sources, destinations = (pods_on_nodes(known, role) for role in (PodRole.PREFILL, PodRole.DECODE))
    return {Path(s, d): float(sources[s] * destinations[d]) for s in sorted(sources) for d in sorted(destinations)}
