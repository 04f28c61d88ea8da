"""What ships puts the Lease before every write of its ground, and leaves the Lease's own writes free."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kvgate.app.operator import cluster
from kvgate.app.operator.calls import Calls
from kvgate.app.operator.leadership import NotLeadingError
from kvgate.app.operator.main import GroundMaker, OperatorOptions
from kvgate.app.operator.meters import Meters
from kvgate.app.settings import Settings
from kvgate.edge.cluster.client import Client
from kvgate.edge.cluster.reading import ReadPool
from kvgate.edge.errors import EdgeError
from kvgate.edge.leases import LeaseRecord, Leases
from tests.app.operator.memory_ground import pool
from tests.app.operator.test_command import KUBECONFIG
from tests.app.operator.test_leadership import NOW


def refuse() -> None:
    raise NotLeadingError


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Client, GroundMaker]:
    """What `serve` hands to the operator, whose API server refuses every connection."""
    path = tmp_path / "kubeconfig"
    path.write_text(KUBECONFIG)
    handed: list[tuple[Client, GroundMaker]] = []

    def noted(options: OperatorOptions, client: Client, make_ground: GroundMaker, meters: Meters, calls: Calls) -> int:
        del options, meters, calls
        handed.append((client, make_ground))
        return 0

    monkeypatch.setattr(cluster, "run_operator", noted)
    cluster.serve(OperatorOptions(kubeconfig=str(path)))
    return handed[0]


def written_by(make_ground: GroundMaker, require: Callable[[], None]) -> None:
    read = ReadPool(**vars(pool("serving/qwen3")))
    make_ground(Settings, "me", require).write_status(read, read.status)


def test_no_write_of_the_ground_leaves_after_the_lease_is_lost(served: tuple[Client, GroundMaker]) -> None:
    _, make_ground = served
    with pytest.raises(NotLeadingError):
        written_by(make_ground, refuse)
    with pytest.raises(EdgeError, match="no answer"):
        written_by(make_ground, lambda: None)


def test_the_lease_is_renewed_whoever_holds_it(served: tuple[Client, GroundMaker]) -> None:
    client, _ = served
    with pytest.raises(EdgeError, match="no answer"):
        Leases(client, "kube-system", "kvgate-operator").replace(LeaseRecord("me", 15, 0), NOW)
