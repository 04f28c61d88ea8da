"""A live frontend's container as a shadow of it: the same image, args and environment, its own router and port.

A shadow serves exactly one Dynamo namespace, shares nothing with the live router, and is reached from its pod alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from kvgate.dynamo.document import Document, at, mapping, mappings, sequence, text
from kvgate.dynamo.words import MAIN, RouterMode

_OWN_FLAGS = frozenset({"--router-mode", "--namespace", "--namespace-prefix", "--http-host", "--http-port"})
_SYNC_FLAGS = frozenset({"--router-replica-sync", "--no-router-replica-sync"})
_OWN_ENV = frozenset(
    {
        "DYN_ROUTER_MODE",
        "DYN_NAMESPACE",
        "DYN_NAMESPACE_PREFIX",
        "DYN_NAMESPACE_WORKER_SUFFIX",
        "DYN_HTTP_HOST",
        "DYN_HTTP_PORT",
        "DYN_ROUTER_REPLICA_SYNC",
        "DYN_SYSTEM_PORT",
    }
)
_KEPT = ("image", "imagePullPolicy", "command", "workingDir", "envFrom", "resources")
_PROGRAM = "dynamo.frontend"
LOOPBACK = "127.0.0.1"


class ShadowReason(StrEnum):
    FRONTEND_UNREADABLE = "FrontendUnreadable"


@dataclass(frozen=True)
class NoShadow:
    """Why a pod can have no shadow; the deployer must act."""

    reason: ShadowReason
    message: str


@dataclass(frozen=True)
class Shadow:
    """What a pod with shadows takes from the live frontend's: a container per router mode, and what those need."""

    service_account: str
    containers: tuple[Document, ...]
    volumes: tuple[Document, ...]
    pull_secrets: tuple[Document, ...]
    user: int | None
    placement: Document
    """Fields of a pod's spec that choose its node: those of the frontend, whose image its nodes can pull."""


def shadows(pod: Document, namespace: str, ports: dict[RouterMode, int]) -> Shadow | NoShadow:
    """The shadows of a running frontend pod. Errors: one whose command line cannot be read cannot be changed either."""
    name = text(at(pod, "metadata", "name"))
    main = next((c for c in mappings(at(pod, "spec", "containers")) if c.get("name") == MAIN), None)
    if main is None:
        return _none(f"pod {name} has no container {MAIN}")
    words = [*sequence(main.get("command")), *sequence(main.get("args"))]
    if not all(isinstance(word, str) for word in words) or _PROGRAM not in words:
        what = f"pod {name}: the command line of {MAIN} is not `python3 -m {_PROGRAM}` with its flags as single args"
        return _none(f"{what}: write it so, without a shell")
    volumes, mounts, refused = _volumes(pod, main)
    if refused:
        return _none(f"pod {name}: volume {refused} is on the host's disk, which the benchmark's pod may not mount")
    return Shadow(
        service_account=text(at(pod, "spec", "serviceAccountName")) or "default",
        containers=tuple(_container(main, mounts, namespace, mode, port) for mode, port in ports.items()),
        volumes=volumes,
        pull_secrets=mappings(at(pod, "spec", "imagePullSecrets")),
        user=_user(pod, main),
        placement=_placement(mapping(pod.get("spec"))),
    )


def _placement(spec: Document) -> Document:
    """Without affinity to other pods, whose labels are the deployment's own."""
    nodes = at(spec, "affinity", "nodeAffinity")
    kept = {key: spec[key] for key in ("nodeSelector", "tolerations", "schedulerName") if key in spec}
    return kept | ({"affinity": {"nodeAffinity": nodes}} if nodes else {})


def _none(message: str) -> NoShadow:
    return NoShadow(ShadowReason.FRONTEND_UNREADABLE, message)


def _container(main: Document, mounts: list[Document], namespace: str, mode: RouterMode, port: int) -> Document:
    own = ("--router-mode", mode.value, "--namespace", namespace, "--http-host", LOOPBACK, "--http-port", str(port))
    kept = {key: main[key] for key in _KEPT if key in main}
    command, args = (_without_own(sequence(main.get(key))) for key in ("command", "args"))
    return kept | {
        "name": f"shadow-{mode.value}",
        "command": command,
        "args": [*args, *own],
        "env": [entry for entry in mappings(main.get("env")) if entry.get("name") not in _OWN_ENV],
        "volumeMounts": mounts,
    }


def _without_own(words: object) -> list[str]:
    """The words without the flags that a shadow sets itself, in both their forms."""
    kept: list[str] = []
    skip = False
    for word in map(text, sequence(words)):
        if skip:
            skip = False
        elif word in _OWN_FLAGS:
            skip = True
        elif word.partition("=")[0] not in _OWN_FLAGS and word not in _SYNC_FLAGS:
            kept.append(word)
    return kept


def _volumes(pod: Document, main: Document) -> tuple[tuple[Document, ...], list[Document], str]:
    """Volumes that the container mounts, but for the ServiceAccount's token, which its own pod brings; and the name of
    one that cannot be taken over."""
    known = {text(volume.get("name")): volume for volume in mappings(at(pod, "spec", "volumes"))}
    tokens = {name for name, volume in known.items() if _is_token(volume)}
    mounts = [mount for mount in mappings(main.get("volumeMounts")) if mount.get("name") not in tokens]
    used = {text(mount.get("name")) for mount in mounts}
    taken = tuple(volume for name, volume in known.items() if name in used)
    refused = next((text(volume.get("name")) for volume in taken if "hostPath" in volume), "")
    return taken, mounts, refused


def _is_token(volume: Document) -> bool:
    sources = mappings(at(volume, "projected", "sources"))
    return any("serviceAccountToken" in source for source in sources)


def _user(pod: Document, main: Document) -> int | None:
    named = (mapping(main.get("securityContext")).get("runAsUser"), at(pod, "spec", "securityContext", "runAsUser"))
    return next((user for user in named if isinstance(user, int) and not isinstance(user, bool)), None)
