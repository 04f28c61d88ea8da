"""Which of a probe's addresses is the one on its worker's own network, as the network plugins wrote it on the pod."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Mapping
from dataclasses import dataclass

NETWORKS, NETWORK_STATUS = "k8s.v1.cni.cncf.io/networks", "k8s.v1.cni.cncf.io/network-status"
INTERFACES, POD_IPS = "networking.gke.io/interfaces", "networking.gke.io/pod-ips"
PRIMARY = "eth0"
"""What the pod's first interface is called where the plugin does not say."""


@dataclass(frozen=True)
class Attached:
    """The address on an attached network, "" where the pod's first one is meant, or where there is none; `why` says why
    there is none."""

    address: str = ""
    why: str = ""


@dataclass(frozen=True)
class _Network:
    interface: str
    addresses: tuple[str, ...]


def attached(annotations: Mapping[str, str], devices: str = "") -> Attached:
    """From the annotations of a running pod. `devices` is the worker's UCX_NET_DEVICES: an attached interface that it
    names comes first, and where it names the first interface alone, that is the worker's own."""
    if NETWORKS in annotations:
        return _chosen(_of_multus(annotations.get(NETWORK_STATUS, "")), NETWORK_STATUS, devices)
    if _attaches(annotations.get(INTERFACES, "")):
        return _chosen(_of_gke(annotations), POD_IPS, devices)
    return Attached()


def _chosen(networks: tuple[_Network, ...], told_by: str, devices: str) -> Attached:
    named = {word.strip().partition(":")[0] for word in devices.split(",")} - {"", "all"}
    if PRIMARY in named and not any(network.interface in named for network in networks):
        return Attached()
    usable = [network for network in networks if network.addresses]
    first = sorted(usable, key=lambda network: network.interface not in named)
    if first:
        return Attached(first[0].addresses[0])
    return Attached(why=f"its annotation {told_by} tells no address on the network that the worker attaches")


def _of_multus(status: str) -> tuple[_Network, ...]:
    others = (one for one in _entries(status) if one.get("default") is not True)
    return tuple(_Network(str(one.get("interface", "")), _addresses(one.get("ips"))) for one in others)


def _of_gke(annotations: Mapping[str, str]) -> tuple[_Network, ...]:
    interfaces = {str(one.get("network")): str(one.get("interfaceName")) for one in _entries(annotations[INTERFACES])}
    told = ((str(one.get("networkName")), one.get("ip")) for one in _entries(annotations.get(POD_IPS, "")))
    return tuple(
        _Network(interfaces[name], _addresses([ip])) for name, ip in told if name in interfaces and name != _OWN
    )


_OWN = "default"


def _attaches(interfaces: str) -> bool:
    return any(one.get("network") != _OWN for one in _entries(interfaces))


def _entries(annotation: str) -> tuple[Mapping[str, object], ...]:
    try:
        told = json.loads(annotation or "[]")
    except (ValueError, RecursionError):
        return ()
    return tuple(one for one in told if isinstance(one, dict)) if isinstance(told, list) else ()


def _addresses(told: object) -> tuple[str, ...]:
    """Those that are addresses: what stands there is another's word."""
    return tuple(one for one in told if isinstance(one, str) and _is_address(one)) if isinstance(told, list) else ()


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
