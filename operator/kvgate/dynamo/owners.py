"""Who else writes to a deployment: field managers of the gated variables, and GitOps controllers."""

from __future__ import annotations

from dataclasses import dataclass

from kvgate.dynamo.document import Document, at, mapping, mappings, parsed_json, text
from kvgate.dynamo.words import GATED_ENV, MAIN, V1ALPHA1, GitOps

CLIENT_SIDE_MANAGER = "kubectl-client-side-apply"
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_VALUE_FIELDS = frozenset({"f:value", "f:valueFrom"})
_ARGO_KEYS = frozenset({"argocd.argoproj.io/instance", "argocd.argoproj.io/tracking-id"})
_FLUX_KEYS = frozenset({"kustomize.toolkit.fluxcd.io/name", "helm.toolkit.fluxcd.io/name"})
_ARGO_MANAGERS = frozenset({"argocd-controller", "argocd-application-controller", "argocd"})
_FLUX_MANAGERS = frozenset({"kustomize-controller", "helm-controller", "flux"})


@dataclass(frozen=True, order=True)
class FieldOwner:
    """A manager that holds one gated variable of one component."""

    component: str
    env: str
    manager: str
    operation: str


def read_owners(metadata: Document) -> tuple[FieldOwner, ...]:
    found = {owner for entry in mappings(metadata.get("managedFields")) for owner in _owned_by(entry)}
    return tuple(sorted(found))


def managers_of(metadata: Document) -> tuple[str, ...]:
    entries = mappings(metadata.get("managedFields"))
    return tuple(sorted({text(entry.get("manager")) for entry in entries} - {""}))


def client_side_applied(metadata: Document) -> bool:
    """True when a change of the manifest replaces the whole component list, our entry with it."""
    annotated = bool(at(metadata, "annotations", _LAST_APPLIED))
    return annotated or CLIENT_SIDE_MANAGER in managers_of(metadata)


def gitops_of(metadata: Document) -> GitOps:
    marks = {key for part in ("labels", "annotations") for key in mapping(metadata.get(part))}
    managers = set(managers_of(metadata))
    if marks & _ARGO_KEYS or managers & _ARGO_MANAGERS:
        return GitOps.ARGO_CD
    return GitOps.FLUX if marks & _FLUX_KEYS or managers & _FLUX_MANAGERS else GitOps.NONE


def _owned_by(entry: Document) -> tuple[FieldOwner, ...]:
    spec = at(entry, "fieldsV1", "f:spec")
    alpha = entry.get("apiVersion") == V1ALPHA1
    held = _alpha_fields(spec) if alpha else _beta_fields(spec)
    manager, operation = text(entry.get("manager")), text(entry.get("operation"))
    return tuple(FieldOwner(component, env, manager, operation) for component, env in held)


def _beta_fields(spec: object) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for key, fields in mapping(at(spec, "f:components")).items():
        envs = at(fields, "f:podTemplate", "f:spec", "f:containers", f'k:{{"name":"{MAIN}"}}', "f:env")
        names = {_keyed_name(env) for env, held in mapping(envs).items() if _VALUE_FIELDS & set(mapping(held))}
        found += [(_keyed_name(key), env) for env in GATED_ENV.values() if env in names and _keyed_name(key)]
    return found


def _alpha_fields(spec: object) -> list[tuple[str, str]]:
    """In v1alpha1 the list of variables is one field: whoever holds it holds every entry."""
    return [
        (key.removeprefix("f:"), env)
        for key, fields in mapping(at(spec, "f:services")).items()
        if isinstance(key, str) and "f:envs" in mapping(fields)
        for env in GATED_ENV.values()
    ]


def _keyed_name(key: object) -> str:
    """The name in a list-map key such as k:{"name":"main"}; empty for any other key."""
    written = text(key)
    return text(mapping(parsed_json(written[2:])).get("name")) if written.startswith("k:") else ""
