"""A pool of a real API server that waits for an approval, for the tests of this folder."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

import pytest

from kvgate.api.words import ApprovalState
from kvgate.core.decide import decide
from kvgate.core.world import World
from kvgate.edge.cluster.reading import ReadPool
from tests.cluster.access import Access, write_kubeconfig
from tests.core import cases
from tests.core.worlds import entry
from tests.edge.cluster.conftest import load_kinds
from tests.edge.cluster.yard import Yard, make_yard

SLOW, FAST = 60e6, 250e6
VIEWER = Path(__file__).parents[3] / "manifests" / "rbac" / "viewer.yaml"
_USER = "jsonpath={.status.userInfo.username}"


@dataclass
class Bench:
    """A yard, and kvgate's turns in it: all that is looked at is real but for the sweep's rates, which are made up, and
    nothing is patched."""

    yard: Yard

    def observe(self, rate: float = FAST) -> tuple[ReadPool, World]:
        pool, world = self.yard.observe()
        now = self.yard.clock() - timedelta(minutes=1)
        paths, nodes = world.nodes.paths, world.nodes.identities
        samples = cases.everywhere(rate, paths, run_id="made-up", measured_at=now)
        swept = cases.evidence(
            samples, run_id="made-up", pool_uid=pool.uid, planned=paths, nodes=nodes, measured_at=now, report="qwen3-x"
        )
        return pool, replace(world, evidence=(swept,), pods=(), serving=None)

    def turn(self, rate: float = FAST) -> ApprovalState:
        pool, world = self.observe(rate)
        status = decide(pool, world, self.yard.clock()).status
        self.yard.ground.write_status(pool, status)
        return entry(status).approval.state

    def kvgate(self, *words: str) -> tuple[str, ...]:
        return (*words, "--kubeconfig", str(self.yard.access.kubeconfig), "-n", self.yard.namespace)

    def me(self) -> str:
        """The user of the kubeconfig, as kubectl has it."""
        return str(self.yard.access.kubectl("auth", "whoami", "-o", _USER, check=True).stdout)

    def as_viewer(self) -> Path:
        """A kubeconfig of somebody who may only read this namespace's pools, by the role that is shipped."""
        access, namespace = self.yard.access, self.yard.namespace
        access.kubectl("apply", "-f", str(VIEWER), check=True)
        access.kubectl("create", "serviceaccount", "viewer", "-n", namespace)
        bound = ("--clusterrole=kvgate-viewer", f"--serviceaccount={namespace}:viewer")
        access.kubectl("create", "rolebinding", "viewer", *bound, "-n", namespace)
        return access.as_user(f"viewer-{namespace}", access.mint_token(namespace, "viewer")).kubeconfig

    def dead_end(self) -> Path:
        """A kubeconfig whose server is a port that nobody listens on."""
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            server = f"https://127.0.0.1:{taken.getsockname()[1]}"
        access = self.yard.access
        path = access.directory / f"dead-{self.yard.namespace}.kubeconfig"
        write_kubeconfig(path, server, access.authority, "none")
        return path


@pytest.fixture(scope="module")
def bench(control_plane: Access) -> Iterator[Bench]:
    load_kinds(control_plane)
    yard = make_yard(control_plane)
    yield Bench(yard)
    control_plane.kubectl("delete", "namespace", yard.namespace, "--wait=false")
    control_plane.kubectl("delete", "node", *yard.nodes, "--wait=false")
