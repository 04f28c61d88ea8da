"""Nodes as a turn sees them: who they are, what they are labelled, and how this host reaches them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kvgate.api.quantities import Throughput
from kvgate.api.selectors import LabelSelector, Requirement, SelectorOperator
from kvgate.core.evidence import NodeIdentity
from kvgate.core.topology import located
from kvgate.core.vetoes import Told

NETWORK_NAMESPACE = "local.kvgate.dev/network-namespace"
COMPANION = "local.kvgate.dev/companion-namespace"
"""What plays the second pod on the node, with the second InternalIP."""
LOOPBACK = "local.kvgate.dev/loopback"
PACED = "local.kvgate.dev/paced"
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_NAMESPACE = re.compile(r"[A-Za-z0-9][-A-Za-z0-9._]{0,254}")


@dataclass(frozen=True)
class NodeView:
    """A node; of what comes after its addresses, all but the last three only matters where this host plays it.

    `told` is what stands on it that its cluster's health tools may have set.

    `namespace` is the network namespace that stands for it, `companion` the one for a second pod there, `loopback` that
    it is this host itself, `paced` the rate in bytes per second at which loopback traffic is to be sent.
    """

    identity: NodeIdentity
    labels: Mapping[str, str]
    addresses: tuple[str, ...] = ()
    namespace: str = ""
    companion: str = ""
    loopback: bool = False
    paced_bytes_per_second: float | None = None
    schedulable: bool = True
    ready: bool = True
    """Whether its kubelet reports; True where there is none."""
    told: Told = field(default_factory=Told)


def read_node(body: Mapping[str, Any]) -> NodeView | str:
    """A Node, or what is wrong with it."""
    metadata = _mapping(body.get("metadata"))
    if not isinstance(metadata.get("name"), str) or not _NAME.fullmatch(metadata["name"]):
        return "a Node needs a metadata.name of at most 253 lower case letters, digits, inner hyphens and dots"
    annotations, info = _texts(metadata.get("annotations")), _mapping(_mapping(body.get("status")).get("nodeInfo"))
    namespace, companion = annotations.get(NETWORK_NAMESPACE, ""), annotations.get(COMPANION, "")
    for key, name in ((NETWORK_NAMESPACE, namespace), (COMPANION, companion)):
        if name and not _NAMESPACE.fullmatch(name):
            return f"metadata.annotations[{key}]: must be a name that ip netns list shows"
    try:
        paced = Throughput.parse(annotations[PACED]).bytes_per_second if PACED in annotations else None
    except ValueError as error:
        return f"metadata.annotations[{PACED}]: {error}"
    labels = _texts(metadata.get("labels"))
    identity = NodeIdentity(
        name=metadata["name"],
        uid=str(metadata.get("uid", "")),
        boot_id=str(info.get("bootID", "")),
        kernel=str(info.get("kernelVersion", "")),
        labels=located(labels),
    )
    return NodeView(
        identity=identity,
        labels=labels,
        addresses=_addresses(body),
        namespace=namespace,
        companion=companion,
        loopback=annotations.get(LOOPBACK, "") == "true",
        paced_bytes_per_second=paced,
        schedulable=_mapping(body.get("spec")).get("unschedulable") is not True,
        told=_told(body, labels),
    )


def unpaired(node: NodeView) -> str:
    """Why this host cannot play a second pod on the node; empty where it can, or where another host is the node."""
    if node.loopback:
        return f"node {node.identity.name} is this host's loopback, where two pods would have one address"
    if node.namespace and not (node.companion and len(node.addresses) > 1):
        what = f"node {node.identity.name} has no second namespace: annotate its manifest with {COMPANION}"
        return f"{what} and give it a second InternalIP"
    return ""


def _told(body: Mapping[str, Any], labels: Mapping[str, str]) -> Told:
    conditions = _entries(_mapping(body.get("status")).get("conditions"))
    taints: dict[str, tuple[str, ...]] = {}
    for taint in _entries(_mapping(body.get("spec")).get("taints")):
        key = str(taint.get("key", ""))
        taints[key] = (*taints.get(key, ()), str(taint.get("value", "")))
    return Told({str(entry.get("type")): str(entry.get("status")) for entry in conditions}, taints, labels)


def _entries(listed: object) -> list[Mapping[str, Any]]:
    return [_mapping(entry) for entry in listed] if isinstance(listed, list) else []


def _addresses(body: Mapping[str, Any]) -> tuple[str, ...]:
    entries = _entries(_mapping(body.get("status")).get("addresses"))
    return tuple(str(entry["address"]) for entry in entries if entry.get("type") == "InternalIP" and "address" in entry)


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _texts(value: object) -> dict[str, str]:
    return {str(key): entry for key, entry in _mapping(value).items() if isinstance(entry, str)}


def selected(nodes: Iterable[NodeView], selector: LabelSelector) -> tuple[NodeView, ...]:
    """The nodes that the selector matches, by name, whether they take pods now or not."""
    return tuple(sorted((n for n in nodes if _matches(n.labels, selector)), key=lambda n: n.identity.name))


def _matches(labels: Mapping[str, str], selector: LabelSelector) -> bool:
    exact = all(labels.get(key) == value for key, value in (selector.match_labels or {}).items())
    return exact and all(_meets(labels, requirement) for requirement in selector.match_expressions)


def _meets(labels: Mapping[str, str], asked: Requirement) -> bool:
    match asked.operator:
        case SelectorOperator.EXISTS:
            return asked.key in labels
        case SelectorOperator.DOES_NOT_EXIST:
            return asked.key not in labels
        case SelectorOperator.IN:
            return labels.get(asked.key) in asked.values
        case SelectorOperator.NOT_IN:
            return labels.get(asked.key) not in asked.values
