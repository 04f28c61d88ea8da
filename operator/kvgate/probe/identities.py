"""Who the nodes were that measured: what their walkers saw of the interfaces that they used."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from kvgate.core.evidence import NodeIdentity, Sample
from kvgate.core.rates import LOOPBACK
from kvgate_probe.seats import is_companion
from kvgate_probe.wire import Result

_UNKNOWN: Mapping[str, str] = {}


@dataclass(frozen=True)
class Interface:
    """What a node measured through: empty, or None, where its system does not tell; `mtu` is in bytes."""

    driver: str = ""
    firmware: str = ""
    mtu: int | None = None


def interfaces(results: Iterable[Result]) -> Mapping[str, Interface]:
    """Of each node the interface that its last record names; none of loopback, nor of a companion, which may stand on
    another network."""
    own = (result for result in results if not is_companion(result.node))
    named = (result for result in own if result.interface and result.interface not in LOOPBACK)
    last = {result.node: result for result in sorted(named, key=lambda result: result.ended_at)}
    return {node: Interface(end.driver, end.firmware, end.mtu) for node, end in last.items()}


def identified(
    nodes: Iterable[NodeIdentity], seen: Mapping[str, Interface], images: Mapping[str, str] = _UNKNOWN
) -> tuple[NodeIdentity, ...]:
    """The nodes, with what was seen of their interfaces, and the digests of the images that measured there."""
    return tuple(_with(node, seen.get(node.name, Interface()), images.get(node.name, "")) for node in nodes)


def _with(node: NodeIdentity, seen: Interface, image: str) -> NodeIdentity:
    return replace(node, driver=seen.driver, firmware=seen.firmware, mtu=seen.mtu, image=image)


def tools(samples: Iterable[Sample]) -> tuple[str, ...]:
    """Each tool with the versions by which it was used, as far as it tells."""
    return tuple(sorted({f"{sample.tool}: {sample.tool_version}" for sample in samples if sample.tool_version}))
