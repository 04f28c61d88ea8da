"""The part of a target that an approval binds: its workload containers without the gated variables."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from kvgate.dynamo.component import Component
from kvgate.dynamo.container import Container, EnvEntry
from kvgate.dynamo.shape import Target
from kvgate.dynamo.words import GATED_ENV

_GATED = frozenset(GATED_ENV.values())


@dataclass(frozen=True)
class ProjectedEnv:
    name: str
    value: str
    source: str


@dataclass(frozen=True)
class ProjectedResource:
    section: str
    name: str
    quantity: str


@dataclass(frozen=True)
class ProjectedContainer:
    """`main` of one component; lists that Kubernetes reads as maps are sorted by name."""

    component: str
    image: str
    command: tuple[str, ...]
    args: tuple[str, ...]
    env: tuple[ProjectedEnv, ...]
    resources: tuple[ProjectedResource, ...]


def target_projection(target: Target) -> tuple[ProjectedContainer, ...]:
    """What of the target a plan's hash covers; equal for both API versions and after any of our own patches."""
    parts = sorted(target.components, key=lambda part: part.name)
    return tuple(_projected(part, part.container) for part in parts if part.container is not None)


def projection_json(projection: tuple[ProjectedContainer, ...]) -> str:
    """Canonical JSON: sorted keys, no white space."""
    return json.dumps([asdict(container) for container in projection], sort_keys=True, separators=(",", ":"))


def _projected(part: Component, container: Container) -> ProjectedContainer:
    seen: dict[str, EnvEntry] = {entry.name: entry for entry in part.env if entry.name not in _GATED}
    return ProjectedContainer(
        component=part.name,
        image=container.image,
        command=container.command,
        args=container.args,
        env=tuple(ProjectedEnv(name, seen[name].value, seen[name].source) for name in sorted(seen)),
        resources=tuple(ProjectedResource(held.section, held.name, held.quantity) for held in container.resources),
    )
