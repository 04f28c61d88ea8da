"""A cluster in which nothing happens: what the operator writes then, counted by the API server."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.e2e import documents
from tests.e2e.running import Operator
from tests.e2e.stage import SWEEP_SECONDS, Scene, Stage, deploy, is_settled, leave

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

POOLS = 10
WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})
QUIET_SECONDS = 60.0
LEASE_RENEWALS = (25, 31)
"""One every two seconds."""


@pytest.fixture
def pools(audited: Stage, operator: Operator) -> Iterator[list[Scene]]:
    """Pools that were measured and hold. Their sweeps share one link, and this is no matter here."""
    scenes = [Scene(audited, operator, f"idle-{number}") for number in range(POOLS)]
    names = [scene.name for scene in scenes]
    deploy(audited.access, *map(documents.deployment, names))
    audited.access.apply(*(documents.pool(name, audited.nodes, "2s") for name in names))
    for scene in scenes:
        scene.wait_for("a verdict", is_settled, 3 * SWEEP_SECONDS)
    yield scenes
    leave(audited.access, *names)
    audited.check()


def test_in_an_idle_minute_nothing_is_written_but_the_lease(audited: Stage, pools: list[Scene]) -> None:
    audited.wait_until_idle()
    mark, before = audited.mark(), audited.watch.pools()
    time.sleep(QUIET_SECONDS)
    written = Counter(call.resource for call in audited.calls_since(mark) if call.verb in WRITES)

    assert len(before) == len(pools) == POOLS
    assert written.keys() == {"leases"}, written
    assert LEASE_RENEWALS[0] <= written["leases"] <= LEASE_RENEWALS[1]
    assert audited.watch.pools() == before
