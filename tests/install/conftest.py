"""A control plane of its own, whose API server can be started anew: what is installed here binds no other test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.binaries import binary
from tests.cluster.controlplane import LOOPBACK, start_control_plane
from tests.cluster.fixtures import fresh_state
from tests.install.plane import Plane
from tests.install.policed import police


@pytest.fixture(scope="session")
def plane() -> Iterator[Plane]:
    with fresh_state() as ledger:
        yield Plane(start_control_plane(ledger, LOOPBACK), ledger)


@pytest.fixture(scope="session")
def policed(plane: Plane) -> Plane:
    police(plane)
    return plane


@pytest.fixture(scope="session")
def helm() -> Path:
    """The real program, built once like Kubernetes."""
    return binary("helm")
