"""pytest fixtures: a real control plane (tier api) and a real three-node cluster (tier cluster), once per run."""

import secrets
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.cluster import images, leftovers, operator_image
from tests.cluster.access import Access
from tests.cluster.binaries import binary
from tests.cluster.cache import CannotRunError
from tests.cluster.controlplane import LOOPBACK, start_control_plane
from tests.cluster.harness import Cluster, start_cluster
from tests.cluster.leftovers import Ledger, states
from tests.cluster.policies import enforcing

CONTROL_PLANE = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build what the selected tests need before the first of them starts, outside any test's timeout."""
    asked = {name for item in session.items for name in getattr(item, "fixturenames", ())}
    if session.config.option.collectonly or not asked & {"control_plane", "plane", "cluster", "helm"}:
        return
    with suppress(CannotRunError):  # the fixture says it again, to the tests that it concerns
        for name in CONTROL_PLANE:
            binary(name)
        if "helm" in asked:
            binary("helm")
        if "cluster" in asked:
            binary("kubelet")
            images.debian_layer()
        if "enforced" in asked:
            binary("netpol")
        if "operator_archive" in asked:
            operator_image.build_layers()


@pytest.fixture(scope="session")
def control_plane() -> Iterator[Access]:
    """etcd, kube-apiserver, kube-controller-manager and kube-scheduler on loopback; no node, no root needed."""
    with fresh_state() as ledger:
        yield start_control_plane(ledger, LOOPBACK)


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A control plane of its own and three nodes, n1 and n2 on links of 1000 Mbit/s and n3 on one of 200."""
    with fresh_state() as ledger:
        yield start_cluster(ledger)


@pytest.fixture(scope="module")
def enforced(cluster: Cluster) -> Iterator[Cluster]:
    """The cluster, its NetworkPolicies enforced for the tests of one module."""
    with enforcing(cluster):
        yield cluster


@pytest.fixture(scope="session")
def operator_archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The operator's image, of this checkout."""
    return operator_image.operator_image(tmp_path_factory.mktemp("image"))


@contextmanager
def fresh_state() -> Iterator[Ledger]:
    """A fresh state directory, cleared at the end of the run, at Ctrl-C and at SIGTERM, or by the next run."""
    leftovers.clear_abandoned()
    ledger = Ledger.open(states() / f"t{secrets.token_hex(3)}")
    previous = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield ledger
    finally:
        signal.signal(signal.SIGTERM, previous)
        leftovers.clear(ledger.state)
