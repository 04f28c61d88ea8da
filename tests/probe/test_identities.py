"""What walkers tell of the interfaces that they measured through becomes part of who their nodes were."""

from __future__ import annotations

import dataclasses

from kvgate.core.evidence import NodeIdentity
from kvgate.probe.identities import Interface, identified, interfaces
from tests.probe.test_slots import FIRST, SECOND, result


def test_the_last_record_of_a_node_tells_its_interface() -> None:
    told = interfaces(
        [
            result(FIRST, 10, 20, interface="eth1", driver="mlx5_core", firmware="22.43", mtu=9000),
            result(FIRST, 0, 10, interface="eth0", driver="veth", mtu=1500),
            result(SECOND, 0, 10, interface="lo", driver="loopback"),
            result(SECOND, 10, 20),
            dataclasses.replace(result(FIRST, 20, 30, interface="net1", driver="veth", mtu=1400), node="p1/2"),
        ]
    )
    assert told == {"p1": Interface("mlx5_core", "22.43", 9000)}


def test_a_node_keeps_who_it_is_and_gains_what_was_seen() -> None:
    nodes = (NodeIdentity("p1", "uid", "boot", "6.18", labels=(("zone", "a"),)), NodeIdentity("p2", "uid-2"))
    seen = {"p1": Interface("mlx5_core", "22.43", 9000)}
    assert identified(nodes, seen, {"p1": "probe@sha256:a"}) == (
        NodeIdentity("p1", "uid", "boot", "6.18", "mlx5_core", "22.43", 9000, (("zone", "a"),), "probe@sha256:a"),
        nodes[1],
    )
