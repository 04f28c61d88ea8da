"""What changes while a watch is away, and history with it, brings its pool a turn all the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.waiting import eventually
from tests.edge.cluster.yard import Yard
from tests.faults.doubtful import Doubts, doubtful
from tests.faults.service import serving

pytestmark = [pytest.mark.api, pytest.mark.timeout(120)]
SOON_SECONDS = 30.0
"""A tenth of the time after which a pool looks by itself."""


def test_a_watch_that_the_api_server_has_forgotten_is_begun_anew_with_a_list(yard: Yard, tmp_path: Path) -> None:
    """Each watch that is taken up again asks for a revision that the real API server answers with 410."""
    yard.pool(suspend=True)
    with doubtful(yard.access, Doubts({}, {})) as proxy, serving(yard, proxy.address, tmp_path) as operator:
        eventually(lambda: judged(yard), SOON_SECONDS)
        proxy.watches.drop(forget=True, hold=True)
        yard.pool(suspend=True, mode="Recommend")
        assert not judged(yard)
        proxy.watches.resume()
        eventually(lambda: judged(yard), SOON_SECONDS)
        assert "inferencepools" in proxy.watches.gone
        assert operator.faults() == []
        assert operator.said("the watches ended and are begun anew") == 0


def judged(yard: Yard) -> bool:
    """Whether the status is of the spec that stands."""
    found = yard.get("kvpool", "qwen3")
    return bool(found.get("status", {}).get("observedGeneration") == found["metadata"]["generation"])
