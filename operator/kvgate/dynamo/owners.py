"""Who else writes to a deployment: field managers of the gated variables, and GitOps controllers."""

from __future__ import annotations

from dataclasses import dataclass

from kvgate.dynamo.document import Document, at, mapping, mappings, parsed_json, text
from kvgate.dynamo.words import FIELD_MANAGER, GATED_ENV, MAIN, V1ALPHA1, GitOps

CLIENT_SIDE_MANAGER = "kubectl-client-side-apply"
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_VALUE_FIELDS = frozenset({"f:value", "f:valueFrom"})
_ALPHA_HOMES = frozenset({"f:envs", "f:extraPodSpec"})
_ARGO_KEYS = frozenset({"argocd.argoproj.io/instance", "argocd.argoproj.io/tracking-id"})
_FLUX_KEYS = frozenset({"kustomize.toolkit.fluxcd.io/name", "helm.toolkit.fluxcd.io/name"})
ARGO_MANAGERS = frozenset({"argocd-controller", "argocd-application-controller", "argocd"})
HELM_MANAGERS = frozenset({"helm", "helm-controller"})
"""They replace a list as soon as the chart's own has changed."""
FLUX_MANAGERS = frozenset({"kustomize-controller", "helm-controller", "flux"})


@dataclass(frozen=True, order=True)
class FieldOwner:
    """A manager that holds one gated variable of one component."""

    component: str
    env: str
    manager: str
    operation: str


@dataclass(frozen=True)
class Writer:
    """A manager that may have written a component's whole template: it holds fields of it, or applies client-side.

    `components` are those of which it holds fields beside the replicas; `at` is when it last took a field, RFC 3339.
    """

    manager: str
    operation: str
    at: str
    components: frozenset[str]


def read_owners(metadata: Document) -> tuple[FieldOwner, ...]:
    found = {owner for entry in mappings(metadata.get("managedFields")) for owner in _owned_by(entry)}
    return tuple(sorted(found))


def read_writers(metadata: Document) -> tuple[Writer, ...]:
    """Managers other than ours that hold templates, or the annotation of a client-side apply; statuses aside."""
    found = (_writer(entry) for entry in mappings(metadata.get("managedFields")) if not entry.get("subresource"))
    return tuple(writer for writer in found if writer is not None)


def _writer(entry: Document) -> Writer | None:
    manager, fields = text(entry.get("manager")), mapping(entry.get("fieldsV1"))
    spec = mapping(fields.get("f:spec"))
    held = {_keyed_name(key) for key, kept in mapping(spec.get("f:components")).items() if at(kept, "f:podTemplate")}
    alpha = mapping(spec.get("f:services")).items()
    held |= {
        key.removeprefix("f:") for key, kept in alpha if isinstance(key, str) and _ALPHA_HOMES & set(mapping(kept))
    }
    annotates = f"f:{_LAST_APPLIED}" in mapping(at(fields, "f:metadata", "f:annotations"))
    if not manager or manager in FIELD_MANAGER.values() or not (held or annotates):
        return None
    return Writer(manager, text(entry.get("operation")), text(entry.get("time")), frozenset(held - {""}))


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
    if marks & _ARGO_KEYS or managers & ARGO_MANAGERS:
        return GitOps.ARGO_CD
    return GitOps.FLUX if marks & _FLUX_KEYS or managers & FLUX_MANAGERS else GitOps.NONE


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
    """In v1alpha1 a service's list is one field: whoever holds it holds every entry. The container's own is none."""
    found: list[tuple[str, str]] = []
    for key, fields in mapping(at(spec, "f:services")).items():
        entries = mapping(at(fields, "f:extraPodSpec", "f:mainContainer", "f:env"))
        names = {_keyed_name(entry) for entry, held in entries.items() if _VALUE_FIELDS & set(mapping(held))}
        whole = "f:envs" in mapping(fields)
        name = text(key).removeprefix("f:")
        found += [(name, env) for env in GATED_ENV.values() if whole or env in names]
    return found


def _keyed_name(key: object) -> str:
    """The name in a list-map key such as k:{"name":"main"}; empty for any other key."""
    written = text(key)
    return text(mapping(parsed_json(written[2:])).get("name")) if written.startswith("k:") else ""
