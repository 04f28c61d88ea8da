"""An API server of the faults' own: it is killed and started again, and its etcd forgets."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.controlplane import LOOPBACK, start_control_plane
from tests.cluster.fixtures import fresh_state
from tests.edge.cluster.conftest import load_kinds
from tests.edge.cluster.yard import Yard, make_yard
from tests.install.plane import Plane


@pytest.fixture(scope="session")
def shaky() -> Iterator[Plane]:
    with fresh_state() as ledger:
        made = Plane(start_control_plane(ledger, LOOPBACK), ledger)
        load_kinds(made.access)
        yield made


@pytest.fixture
def yard(shaky: Plane) -> Iterator[Yard]:
    made = make_yard(shaky.access)
    yield made
    shaky.access.kubectl("delete", "namespace", made.namespace, "--wait=false")
    shaky.access.kubectl("delete", "node", *made.nodes, "--wait=false")
