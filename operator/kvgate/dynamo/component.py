"""One component of a deployment, read from either version of the API into the same frozen facts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from kvgate.core.shoes import BAREFOOT, Shoes
from kvgate.dynamo.argv import CommandLine, read_command_line
from kvgate.dynamo.container import (
    Container,
    EnvEntry,
    Resource,
    alpha_container,
    beta_container,
    merged_env,
)
from kvgate.dynamo.document import Document, at, mapping, pairs, text, whole
from kvgate.dynamo.engine import EngineSettings, read_engine
from kvgate.dynamo.fabric import claims, fabric_class, fabric_resources, gpus_per_pod
from kvgate.dynamo.roles import advertised_mode, frontend_mode, migration_limit, role_of
from kvgate.dynamo.shoes import read_shoes
from kvgate.dynamo.words import FabricClass, ReplicasOwner, Role, RouterMode, Source

_VERSION = re.compile(r":v?(\d{1,4})\.(\d{1,4})\.(\d{1,4})(?![0-9.])")
_OVERRIDE = re.compile(r"(\d{1,4})\.(\d{1,4})\.(\d{1,4})")
_EMPTY = Container("", (), (), (), ())


@dataclass(frozen=True)
class Parts:
    """What differs between the two versions of the API, brought to one shape."""

    name: str
    type: str
    container: Container | None
    replicas: int | None
    adapter: bool
    nodes: int
    runtime_override: str
    pod: Document


@dataclass(frozen=True)
class Component:
    name: str
    type: str
    container: Container | None
    env: tuple[EnvEntry, ...]
    line: CommandLine
    role: Role
    role_source: Source
    engine: EngineSettings
    router_mode: RouterMode
    router_source: Source
    advertised_mode: str
    migration_limit: int | None
    replicas: int | None
    replicas_owner: ReplicasOwner
    nodes: int
    gpus_per_pod: int | None
    runtime: tuple[int, int, int] | None
    fabric: FabricClass
    fabric_resources: tuple[Resource, ...]
    node_selector: tuple[tuple[str, str], ...]
    annotations: tuple[tuple[str, str], ...]
    shoes: Shoes = BAREFOOT

    @property
    def determinable(self) -> bool:
        """False when a launcher, an expansion or the image's own entrypoint hides the flags."""
        started = bool(self.line.words) or self.role is Role.FRONTEND
        return self.container is not None and started and not self.line.opaque

    @property
    def worker(self) -> bool:
        return self.role not in (Role.FRONTEND, Role.OTHER)

    @property
    def gpus(self) -> int | None:
        """GPUs of all its pods on all its nodes."""
        if self.gpus_per_pod is None or self.replicas is None:
            return None
        return self.gpus_per_pod * self.nodes * self.replicas

    def effective(self, env: str) -> EnvEntry | None:
        """The variable as the process sees it: the component's own entry hides the graph's."""
        found = [entry for entry in self.env if entry.name == env]
        return found[-1] if found else None

    def annotation(self, key: str) -> str:
        return dict(self.annotations).get(key, "")


def beta_parts(component: Document) -> Parts:
    return Parts(
        name=text(component.get("name")),
        type=text(component.get("type")),
        container=beta_container(component),
        replicas=_replicas(component),
        adapter=isinstance(component.get("scalingAdapter"), Mapping),
        nodes=_nodes(component),
        runtime_override=text(component.get("runtimeVersionOverride")),
        pod=mapping(component.get("podTemplate")),
    )


def alpha_parts(name: str, service: Document) -> Parts:
    role = text(service.get("subComponentType"))
    return Parts(
        name=name,
        type=role or text(service.get("componentType")),
        container=alpha_container(service),
        replicas=_replicas(service),
        adapter=at(service, "scalingAdapter", "enabled") is True,
        nodes=_nodes(service),
        runtime_override=text(service.get("runtimeVersionOverride")),
        pod={"spec": service.get("extraPodSpec"), "metadata": service.get("extraPodMetadata")},
    )


def describe(parts: Parts, graph_env: tuple[EnvEntry, ...], framework: str, *, planned: bool) -> Component:
    """`planned`: a planner in the graph scales the workers that no adapter owns."""
    container = parts.container or _EMPTY
    line = read_command_line(container.command, container.args)
    env = merged_env(graph_env, container.env)
    engine = read_engine(line, framework)
    role, role_source = role_of(parts.type, line, env, engine.engine)
    router_mode, router_source = frontend_mode(line, env)
    return Component(
        name=parts.name,
        type=parts.type,
        container=parts.container,
        env=env,
        line=line,
        role=role,
        role_source=role_source,
        engine=engine,
        router_mode=router_mode,
        router_source=router_source,
        advertised_mode="" if role in (Role.FRONTEND, Role.OTHER) else advertised_mode(line, env),
        migration_limit=migration_limit(line, env),
        replicas=parts.replicas,
        replicas_owner=_replicas_owner(parts, planned=planned and role not in (Role.FRONTEND, Role.OTHER)),
        nodes=parts.nodes,
        gpus_per_pod=gpus_per_pod(container, parts.pod),
        runtime=_runtime(parts.runtime_override, container.image),
        fabric=fabric_class(container, parts.pod),
        fabric_resources=fabric_resources(container),
        node_selector=pairs(at(parts.pod, "spec", "nodeSelector")),
        annotations=pairs(at(parts.pod, "metadata", "annotations")),
        shoes=read_shoes(parts.pod, env, (*fabric_resources(container), *claims(container))),
    )


def _replicas(component: Document) -> int | None:
    """Dynamo's own default for an absent count is 1."""
    stated = component.get("replicas")
    return 1 if stated is None else whole(stated)


def _nodes(component: Document) -> int:
    return whole(at(component, "multinode", "nodeCount")) or 1


def _replicas_owner(parts: Parts, *, planned: bool) -> ReplicasOwner:
    if parts.adapter:
        return ReplicasOwner.SCALING_ADAPTER
    return ReplicasOwner.PLANNER if planned else ReplicasOwner.MANIFEST


def _runtime(override: str, image: str) -> tuple[int, int, int] | None:
    """The Dynamo version that runs, as admission reads it: the override, else the image's tag."""
    found = _OVERRIDE.fullmatch(override) if override else _VERSION.search(image.partition("@")[0])
    return (int(found[1]), int(found[2]), int(found[3])) if found else None
