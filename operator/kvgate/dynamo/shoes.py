"""Reads from a worker's pod template what a probe needs to use the network as the worker does, and nothing secret."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from kvgate.core.shoes import Ask, Shoes
from kvgate.dynamo.container import EnvEntry, Resource
from kvgate.dynamo.document import Document, at, mapping, mappings, pairs, scalar, sequence, whole
from kvgate.dynamo.words import MAIN

NETWORKS = (
    "k8s.v1.cni.cncf.io/networks",
    "networking.gke.io/interfaces",
    "networking.gke.io/default-interface",
)
PREFIXES = ("UCX_", "NCCL_")
LEFT_TO_THE_PROBE = frozenset({"UCX_LOG_LEVEL", "UCX_LOG_FILE", "NCCL_DEBUG", "NCCL_DEBUG_FILE"})
_SECRET = ("SECRET", "TOKEN", "PASSW", "PASSPHRASE", "CREDENTIAL", "APIKEY", "API_KEY", "PRIVATE", "AUTH", "CERT")
"""Not KEY alone: UCX_IB_PKEY and NCCL_IB_PKEY name a partition of the fabric."""
_MOST_CHARACTERS = 4096


def read_shoes(pod: Document, env: Iterable[EnvEntry], devices: Iterable[Resource]) -> Shoes:
    """From a pod template (`metadata` and `spec`), the worker's variables and the fabric's devices that it asks for."""
    security = _security(pod)
    user, group = _id(security, "runAsUser"), _id(security, "runAsGroup")
    effective = {entry.name: entry for entry in env}
    return Shoes(
        annotations=tuple((key, _without_addresses(value)) for key, value in _networks(pod)),
        resources=tuple(Ask(one.section, one.name, one.quantity) for one in devices if one.section != "claims"),
        environment=tuple((name, effective[name].value) for name in sorted(effective) if _copied(effective[name])),
        user=user or None,
        group=group or None,
        capabilities=tuple(sorted({scalar(name) for name in sequence(at(_container(pod), *_ADDED))} - {""})),
        host_network=at(pod, "spec", "hostNetwork") is True,
        left_out=tuple(_left_out(pod, effective.values(), user, devices)),
    )


_OF_ONE_POD = frozenset({"ips", "mac", "infiniband-guid", "portMappings"})
"""What no two pods may have, in the networks that an annotation attaches."""


def _networks(pod: Document) -> tuple[tuple[str, str], ...]:
    return tuple((key, value) for key, value in pairs(at(pod, "metadata", "annotations")) if key in NETWORKS)


def _without_addresses(annotation: str) -> str:
    """The same networks, without the addresses that the worker itself has on them."""
    try:
        told = json.loads(annotation)
    except (ValueError, RecursionError):
        return annotation
    if not isinstance(told, list) or not any(_OF_ONE_POD & mapping(one).keys() for one in told):
        return annotation
    free = [{key: mapping(one)[key] for key in mapping(one) if key not in _OF_ONE_POD} for one in told]
    return json.dumps(free, sort_keys=True)


_ADDED = ("securityContext", "capabilities", "add")


def _copied(entry: EnvEntry) -> bool:
    wanted = entry.name.startswith(PREFIXES) and entry.name not in LEFT_TO_THE_PROBE
    return wanted and entry.readable and not _secret(entry.name) and len(entry.value) <= _MOST_CHARACTERS


def _secret(name: str) -> bool:
    return any(word in name.upper() for word in _SECRET)


def _left_out(pod: Document, env: Iterable[EnvEntry], user: int | None, devices: Iterable[Resource]) -> Iterator[str]:
    for entry in env:
        if entry.name.startswith(PREFIXES) and entry.name not in LEFT_TO_THE_PROBE and not _copied(entry):
            yield f"env {entry.name}, for {_why_not(entry)}"
    for key, value in _networks(pod):
        if _without_addresses(value) != value:
            yield f"addresses in annotation {key}, which are the worker's own"
    if user == 0:
        yield "user 0, for a probe never runs as root"
    if at(pod, "spec", "resourceClaims") or any(one.section == "claims" for one in devices):
        yield "resource claims, which a probe cannot share"


def _why_not(entry: EnvEntry) -> str:
    if _secret(entry.name):
        return "its name is a secret's"
    return "its value is too long" if entry.readable else "its value is not written in the spec"


def _container(pod: Document) -> Document:
    """`main` of a template, or the main container of the older version."""
    named = (one for one in mappings(at(pod, "spec", "containers")) if one.get("name") == MAIN)
    return next(named, None) or {"securityContext": at(pod, "spec", "mainContainer", "securityContext")}


def _security(pod: Document) -> tuple[object, object]:
    """The container's own settings come before its pod's."""
    return at(_container(pod), "securityContext"), at(pod, "spec", "securityContext")


def _id(security: tuple[object, object], key: str) -> int | None:
    found = (whole(at(level, key)) for level in security if at(level, key) is not None)
    return next(found, None)
