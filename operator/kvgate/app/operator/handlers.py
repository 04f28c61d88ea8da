"""kopf's event handlers: each reads a few fields of one body and says which pools it concerns. They write nothing."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable
from functools import wraps
from typing import Any

import kopf

from kvgate.api.wire import GROUP, VERSION
from kvgate.app.operator.intake import Intake, Known
from kvgate.dynamo.document import Document, at, mappings, text

DYNAMO = "nvidia.com"
POOL_KIND = "InferencePool"


def register(registry: kopf.OperatorRegistry, intake: Intake, target_version: str = "v1beta1") -> None:
    """Group, version and plural are always said: other groups have kinds of the same names."""
    for group, version, plural, handler in _watched(target_version):
        told = handler if handler in {pool, job} else listing(plural, handler)
        kopf.on.event(group=group, version=version, plural=plural, registry=registry, param=intake)(told)


def listing(kind: str, handler: Callable[..., None]) -> Callable[..., None]:
    """The handler, which tells too that an object came by a list: kopf gives such an event no type. It needs no telling
    of pools, for each one that is listed is looked at, nor of Jobs, for a sweep looks after its own."""

    @wraps(handler)
    def told(event: Document, param: Intake, **rest: Any) -> None:
        if event.get("type") is None:
            param.listed(kind)
        handler(event=event, param=param, **rest)

    return told


def log_in(registry: kopf.OperatorRegistry, kubeconfig: str) -> None:
    """As the operator's own calls do: by the kubeconfig, else by the ServiceAccount, whose token is read again when it
    has expired."""
    if kubeconfig:
        os.environ["KUBECONFIG"] = kubeconfig
    kopf.on.login(registry=registry)(kopf.login_with_kubeconfig if kubeconfig else kopf.login_via_client)


def _watched(target_version: str) -> tuple[tuple[str, str, str, Callable[..., None]], ...]:
    return (
        (GROUP, VERSION, "inferencepools", pool),
        (GROUP, VERSION, "gateapprovals", approval),
        ("batch", "v1", "jobs", job),
        ("", "v1", "nodes", node),
        (DYNAMO, target_version, "dynamographdeployments", target),
        (DYNAMO, "v1alpha1", "dynamoworkermetadatas", worker),
    )


def pool(event: Document, namespace: str, name: str, param: Intake, **_: Any) -> None:
    body = at(event, "object")
    uid = text(at(body, "metadata", "uid"))
    if _is_gone(event):
        param.pool_gone(f"{namespace}/{name}", uid)
    else:
        version = text(at(body, "metadata", "resourceVersion")) if event.get("type") == "MODIFIED" else ""
        staging = text(at(body, "spec", "criteria", "routing", "benchmark", "targetRef", "name"))
        param.pool(namespace, name, Known(text(at(body, "spec", "targetRef", "name")), uid, staging), version)


def approval(event: Document, namespace: str, param: Intake, **_: Any) -> None:
    _name(param, namespace, at(event, "object", "spec", "poolRef", "name"))


def job(event: Document, namespace: str, param: Intake, **_: Any) -> None:
    for owner in mappings(at(event, "object", "metadata", "ownerReferences")):
        group = text(owner.get("apiVersion")).partition("/")[0]
        if group == GROUP and owner.get("kind") == POOL_KIND:
            _name(param, namespace, owner.get("name"))


def node(event: Document, name: str, param: Intake, **_: Any) -> None:
    if _is_gone(event):
        param.node_gone(name)
    else:
        param.node(name, node_facts(event))


def target(namespace: str, name: str, param: Intake, **_: Any) -> None:
    param.target(namespace, name)


def worker(namespace: str, param: Intake, **_: Any) -> None:
    param.namespace(namespace)


def node_facts(event: Document) -> Hashable:
    """What of a node can change a plan or the age of evidence: who it is, where pods may run, whether it is ready, and
    what health tools say of it, by whichever conditions the operator's settings name."""
    body = at(event, "object")
    conditions = sorted(
        (text(c.get("type")), text(c.get("status"))) for c in mappings(at(body, "status", "conditions"))
    )
    return repr(
        (
            at(body, "metadata", "uid"),
            at(body, "metadata", "deletionTimestamp"),
            at(body, "metadata", "labels"),
            at(body, "spec", "unschedulable"),
            at(body, "spec", "taints"),
            at(body, "status", "nodeInfo", "bootID"),
            at(body, "status", "nodeInfo", "kernelVersion"),
            conditions,
        )
    )


def _is_gone(event: Document) -> bool:
    return event.get("type") == "DELETED"


def _name(intake: Intake, namespace: str, pool_name: object) -> None:
    if text(pool_name):
        intake.named(namespace, text(pool_name))
