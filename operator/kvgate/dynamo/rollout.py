"""How far a deployment's rollout is, from its own status, in either version of the API; total over any content."""

from __future__ import annotations

from kvgate.core.serving import ComponentRollout, Rollout
from kvgate.dynamo.document import Document, at, mapping, mappings, text, whole
from kvgate.dynamo.shape import Target, TargetProblem

READY = "Ready"
PHASES = frozenset({"Pending", "InProgress", "Completed", "Failed", "None"})


def read_rollout(document: object, target: Target | TargetProblem | None) -> Rollout:
    """The rollout of a DynamoGraphDeployment. Wanted counts come from the spec as it was read, where it was."""
    status = mapping(at(document, "status"))
    return Rollout(
        generation=whole(at(document, "metadata", "generation")) or 0,
        observed_generation=whole(status.get("observedGeneration")),
        phase=_phase(status),
        ready=_ready(status),
        components=_components(status, target),
    )


def _phase(status: Document) -> str:
    phase = text(at(status, "rollingUpdate", "phase"))
    return phase if phase in PHASES else ""


def _ready(status: Document) -> bool | None:
    for condition in mappings(status.get("conditions")):
        if condition.get("type") == READY:
            return condition.get("status") == "True"
    return None


def _components(status: Document, target: Target | TargetProblem | None) -> tuple[ComponentRollout, ...]:
    """`components` in v1beta1, `services` in v1alpha1; both are maps by name. A component that the spec has and the
    status lacks is not rolled out."""
    told = mapping(status.get("components")) or mapping(status.get("services"))
    wanted = {c.name: c.replicas for c in target.components} if isinstance(target, Target) else {}
    names = sorted({*wanted, *(name for name in told if isinstance(name, str))}) if told else []
    return tuple(_component(name, mapping(told.get(name)), wanted.get(name)) for name in names)


def _component(name: str, told: Document, wanted: int | None) -> ComponentRollout:
    ready = told.get("readyReplicas", told.get("availableReplicas"))
    return ComponentRollout(name, wanted, whole(told.get("replicas")), whole(told.get("updatedReplicas")), whole(ready))
