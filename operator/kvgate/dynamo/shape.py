"""Reads a DynamoGraphDeployment of either version into frozen facts, or says why it is none; never raises."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from kvgate.dynamo.component import Component, Parts, alpha_parts, beta_parts, describe
from kvgate.dynamo.container import EnvEntry, read_env
from kvgate.dynamo.document import Document, at, mapping, mappings, pairs, shown, text, whole
from kvgate.dynamo.owners import (
    FieldOwner,
    Writer,
    client_side_applied,
    gitops_of,
    managers_of,
    read_owners,
    read_writers,
)
from kvgate.dynamo.words import (
    KIND,
    V1ALPHA1,
    V1BETA1,
    GitOps,
    Provider,
    Role,
    RouterMode,
    Source,
)

_PROVIDER_ANNOTATION = "nvidia.com/workload-provider"
_GROVE_ANNOTATION = "nvidia.com/enable-grove"
_IN_PLACE_KINDS = frozenset({"PodClique", "PodCliqueScalingGroup", "LeaderWorkerSet"})


class ProblemReason(StrEnum):
    TARGET_INVALID = "TargetInvalid"
    TARGET_VERSION_UNKNOWN = "TargetVersionUnknown"


@dataclass(frozen=True)
class TargetProblem:
    """Why a document is no target; the user who wrote it must act."""

    reason: ProblemReason
    message: str
    remedy: str


@dataclass(frozen=True)
class Target:
    api_version: str
    name: str
    namespace: str
    uid: str
    resource_version: str
    generation: int | None
    observed_generation: int | None
    components: tuple[Component, ...]
    graph_env: tuple[EnvEntry, ...]
    provider: Provider
    owners: tuple[FieldOwner, ...]
    writers: tuple[Writer, ...]
    managers: tuple[str, ...]
    gitops: GitOps
    client_side_applied: bool
    leaving: bool = False

    @property
    def frontends(self) -> tuple[Component, ...]:
        return tuple(part for part in self.components if part.role is Role.FRONTEND)

    @property
    def workers(self) -> tuple[Component, ...]:
        return tuple(part for part in self.components if part.worker)

    @property
    def model(self) -> str:
        """The one model that its workers serve; empty when they don't say or don't agree."""
        named = {worker.engine.model for worker in self.workers}
        return named.pop() if len(named) == 1 else ""

    @property
    def router(self) -> tuple[RouterMode, Source]:
        """How requests are routed, and what decides it: a worker's advertisement beats every frontend."""
        advertised = {worker.advertised_mode for worker in self.workers} - {""}
        if advertised:
            return _advertised(advertised, every=all(worker.advertised_mode for worker in self.workers))
        modes = {(part.router_mode, part.router_source) for part in self.frontends}
        if len({mode for mode, _ in modes}) > 1:
            return RouterMode.MIXED, Source.ENV
        return min(modes) if modes else (RouterMode.UNKNOWN, Source.DEFAULT)

    def component(self, name: str) -> Component | None:
        return next((part for part in self.components if part.name == name), None)

    def owners_of(self, component: str, env: str) -> tuple[FieldOwner, ...]:
        return tuple(owner for owner in self.owners if (owner.component, owner.env) == (component, env))


def read_target(document: object) -> Target | TargetProblem:
    """The facts of a deployment. Errors: a document of another kind, version or shape is a TargetProblem."""
    problem = _identity_problem(document)
    if problem is not None:
        return problem
    parts = _parts(mapping(document))
    problem = _parts_problem(parts, mapping(document))
    return problem if problem is not None else _target(mapping(document), parts)


def _identity_problem(document: object) -> TargetProblem | None:
    body = mapping(document)
    if body is not document:
        kind = "a list" if isinstance(document, list | tuple) else "no mapping"
        return _invalid(f"The target is {kind}, not one {KIND} object", "name one object, not a list of them")
    if body.get("kind") != KIND:
        return _invalid(f"The target's kind is {_said(body.get('kind'))}, not {KIND}", f"point at a {KIND}")
    if body.get("apiVersion") not in (V1BETA1, V1ALPHA1):
        return TargetProblem(
            ProblemReason.TARGET_VERSION_UNKNOWN,
            f"The target's apiVersion is {_said(body.get('apiVersion'))}; known are {V1BETA1} and {V1ALPHA1}",
            f"write the {KIND} as {V1BETA1}",
        )
    if not text(at(body, "metadata", "name")):
        return _invalid(f"The {KIND} has no metadata.name", "give it a name")
    return None


def _parts(document: Document) -> tuple[Parts, ...]:
    spec = mapping(document.get("spec"))
    if document.get("apiVersion") == V1BETA1:
        return tuple(beta_parts(component) for component in mappings(spec.get("components")))
    services = mapping(spec.get("services"))
    return tuple(alpha_parts(text(name), mapping(service)) for name, service in services.items())


def _parts_problem(parts: tuple[Parts, ...], document: Document) -> TargetProblem | None:
    where = "spec.components" if document.get("apiVersion") == V1BETA1 else "spec.services"
    named = f"{KIND} {shown(text(at(document, 'metadata', 'name')))}"
    if not parts:
        return _invalid(f"{named} has no {where}", f"list its frontend and workers under {where}")
    names = [part.name.lower() for part in parts]
    if "" in names:
        return _invalid(f"{named}: {where}[{names.index('')}] has no name", "name each component")
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        return _invalid(f"{named}: {where} names {shown(twice)} more than once", "give each its own name")
    return None


def _target(document: Document, parts: tuple[Parts, ...]) -> Target:
    metadata = mapping(document.get("metadata"))
    alpha = document.get("apiVersion") == V1ALPHA1
    graph_env = read_env(at(document, "spec", "envs" if alpha else "env"))
    framework = text(at(document, "spec", "backendFramework"))
    planned = any(part.type == "planner" for part in parts)
    return Target(
        api_version=text(document.get("apiVersion")),
        name=text(metadata.get("name")),
        namespace=text(metadata.get("namespace")),
        uid=text(metadata.get("uid")),
        resource_version=text(metadata.get("resourceVersion")),
        generation=whole(metadata.get("generation")),
        observed_generation=whole(at(document, "status", "observedGeneration")),
        components=tuple(describe(part, graph_env, framework, planned=planned) for part in parts),
        graph_env=graph_env,
        provider=_provider(document),
        owners=read_owners(metadata),
        writers=read_writers(metadata),
        managers=managers_of(metadata),
        gitops=gitops_of(metadata),
        client_side_applied=client_side_applied(metadata),
        leaving=bool(metadata.get("deletionTimestamp")),
    )


def _provider(document: Document) -> Provider:
    """Seen in the status, else as chosen at creation; Grove runs it where the operator has Grove, unless refused."""
    states = mapping(at(document, "status", "components"))
    kinds = {text(at(state, "componentKind")) for state in states.values()} - {""}
    if kinds:
        return Provider.IN_PLACE if kinds & _IN_PLACE_KINDS else Provider.DEPLOYMENT
    annotations = dict(pairs(at(document, "metadata", "annotations")))
    chosen = annotations.get(_PROVIDER_ANNOTATION, "")
    if chosen in (Provider.DEPLOYMENT.value, Provider.IN_PLACE.value):
        return Provider(chosen)
    return Provider.DEPLOYMENT if annotations.get(_GROVE_ANNOTATION) == "false" else Provider.UNKNOWN


def _advertised(modes: set[str], *, every: bool) -> tuple[RouterMode, Source]:
    if len(modes) > 1 or not every:
        return RouterMode.MIXED, Source.WORKER
    mode = modes.pop()
    return RouterMode(mode) if mode in tuple(RouterMode) else RouterMode.UNKNOWN, Source.WORKER


def _invalid(message: str, remedy: str) -> TargetProblem:
    return TargetProblem(ProblemReason.TARGET_INVALID, message, remedy)


def _said(value: object) -> str:
    return shown(value) if isinstance(value, str) and value else "missing"
