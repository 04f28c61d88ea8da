"""Which address of a probe's pod is the one on its worker's network: what network plugins write, as a table."""

from __future__ import annotations

import json

import pytest

from kvgate.probe.attached import Attached, attached

ASKED = {"k8s.v1.cni.cncf.io/networks": "serving/fast"}
FIRST = {"name": "cbr0", "interface": "eth0", "ips": ["10.244.0.7"], "default": True}
FAST = {"name": "serving/fast", "interface": "net1", "ips": ["192.168.7.2"], "mac": "aa:bb:cc:dd:ee:ff"}
OTHER = {"name": "serving/other", "interface": "net2", "ips": ["fd00::2", "192.168.8.2"]}
BARE = {"name": "serving/ib", "interface": "net1"}
GKE = {"networking.gke.io/interfaces": json.dumps([{"interfaceName": "eth1", "network": "rdma-0"}])}


def multus(*networks: object) -> dict[str, str]:
    return ASKED | {"k8s.v1.cni.cncf.io/network-status": json.dumps(networks)}


def gke(*addresses: object) -> dict[str, str]:
    return GKE | {"networking.gke.io/pod-ips": json.dumps(addresses)}


@pytest.mark.parametrize(
    ("annotations", "devices", "address"),
    [
        pytest.param({}, "", "", id="no second network: the pod's first address"),
        pytest.param(multus(FIRST, FAST), "", "192.168.7.2", id="the attached network's address"),
        pytest.param(multus(FIRST, FAST, OTHER), "", "192.168.7.2", id="of several the first"),
        pytest.param(multus(FIRST, FAST, OTHER), "net2", "fd00::2", id="or the one that UCX_NET_DEVICES names"),
        pytest.param(multus(FIRST, FAST), "eth0", "", id="the first interface, where UCX_NET_DEVICES names it alone"),
        pytest.param(multus(FIRST, FAST), "eth0,net1", "192.168.7.2", id="but not where it names the other too"),
        pytest.param(multus(FIRST, FAST), "mlx5_0:1", "192.168.7.2", id="a device of RDMA names no interface"),
        pytest.param(multus(FIRST, BARE, OTHER), "", "fd00::2", id="a network without addresses is passed over"),
        pytest.param(
            multus(FIRST, {**FAST, "ips": ["no address", 7]}, OTHER), "", "fd00::2", id="and one with none that is"
        ),
        pytest.param(gke({"networkName": "rdma-0", "ip": "172.16.1.2"}), "", "172.16.1.2", id="GKE's second network"),
        pytest.param(
            {"networking.gke.io/interfaces": '[{"interfaceName":"eth0","network":"default"}]'},
            "",
            "",
            id="GKE's default network is no second one",
        ),
    ],
)
def test_the_address_that_is_measured(annotations: dict[str, str], devices: str, address: str) -> None:
    assert attached(annotations, devices) == Attached(address)


@pytest.mark.parametrize(
    ("annotations", "where"),
    [
        pytest.param(ASKED, "network-status", id="no plugin answered"),
        pytest.param(multus(FIRST, BARE), "network-status", id="a network without IPAM"),
        pytest.param(ASKED | {"k8s.v1.cni.cncf.io/network-status": "{"}, "network-status", id="an answer that is none"),
        pytest.param(GKE, "pod-ips", id="GKE did not answer"),
        pytest.param(gke({"networkName": "other", "ip": "172.16.1.2"}), "pod-ips", id="GKE tells of another network"),
    ],
)
def test_a_network_without_an_address_is_said(annotations: dict[str, str], where: str) -> None:
    found = attached(annotations)
    assert found.address == ""
    assert where in found.why
