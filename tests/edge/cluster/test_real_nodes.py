"""The ring on three real nodes: Jobs that really run, logs that a kubelet serves, a verdict from what was measured."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from kvgate.api.status import PoolStatus
from kvgate.app.ring import Turn, turn
from kvgate.core.evidence import Path
from kvgate.core.steps import Collect, Introduce, Measure
from kvgate.edge.cluster.client import Client
from kvgate.edge.cluster.ground import ClusterGround
from kvgate.edge.cluster.sweeps import ProbePolicy
from kvgate.edge.errors import WriteConflictError
from tests.cluster.harness import Cluster
from tests.cluster.images import PROBE_REFERENCE
from tests.edge.cluster.conftest import load_kinds
from tests.edge.cluster.yard import Document, configuration, in_namespace, sample

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

NAMESPACE = "measured"
KEY = f"{NAMESPACE}/qwen3"
SECONDS_ALLOWED = 120.0
PAYLOAD_BYTES_PER_SECOND = 1e9 / 8 * 1448 / 1514
"""What TCP carries on a link of 1000 Mbit/s."""


@pytest.fixture
def ground(cluster: Cluster) -> Iterator[ClusterGround]:
    access = cluster.access
    load_kinds(access)
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    access.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels}})
    access.apply(*(in_namespace(sample(name), NAMESPACE) for name in ("config.yaml", "deployment.yaml")), pool())
    client = Client(configuration(access))
    yield ClusterGround(client, lambda: ProbePolicy(PROBE_REFERENCE), lambda: datetime.now(UTC))
    access.kubectl("delete", "namespace", NAMESPACE, "--wait=false")


def pool() -> Document:
    """The sample pool from n1 to n2, with a budget that 1 Gbit/s does not meet."""
    document = in_namespace(sample("pool.yaml"), NAMESPACE)
    nodes = {"prefillNodes": {"matchLabels": {"pool": "prefill"}}, "decodeNodes": {"matchLabels": on("n2")}}
    document["spec"]["fabric"] |= nodes
    document["spec"]["fabric"]["probe"]["link"]["duration"] = "3s"
    document["spec"]["criteria"] = {"disaggregation": {"ttftBudget": "200ms"}}
    return document


def on(node: str) -> dict[str, str]:
    return {"kubernetes.io/hostname": node}


def turns_until_quiet(ground: ClusterGround) -> list[Turn]:
    """The operator's work for one pool: a turn, a rest as long as it asks for, and again, until a turn does nothing."""
    began, done = time.monotonic(), list[Turn]()
    while time.monotonic() - began < SECONDS_ALLOWED:
        try:
            latest = turn(ground, KEY, lambda: datetime.now(UTC))
        except WriteConflictError:
            continue
        done.append(latest)
        status = latest.decision.status
        if status.sweep is None and status == latest.pool.status:
            return done
        time.sleep(min(latest.decision.requeue_after_seconds, 2))
    pytest.fail(f"still at work after {SECONDS_ALLOWED:.0f} s: {done[-1].world.sweep}")


def reason(status: PoolStatus, kind: str) -> tuple[str, str, str]:
    return next((c.status.value, c.reason, c.message) for c in status.conditions if c.type == kind)


def test_two_nodes_are_measured_by_jobs_and_a_link_that_is_too_slow_is_held(
    cluster: Cluster, ground: ClusterGround, capsys: pytest.CaptureFixture[str]
) -> None:
    began = time.monotonic()
    turns = turns_until_quiet(ground)
    took = time.monotonic() - began

    steps = [type(step) for done in turns for step in done.decision.steps]
    last = turns[-1]
    newest = last.world.evidence[0]
    (found,) = newest.samples
    with capsys.disabled():
        runs = len(last.world.evidence)
        print(f"\n{runs} sweep(s) of n1→n2 in {took:.1f} s: {found.bytes_per_second} B/s", end=" ")
    assert steps.count(Introduce) >= 1
    assert steps.count(Measure) == steps.count(Collect) == len(last.world.evidence)
    assert (found.path, found.failure) == (Path("n1", "n2"), None)
    assert found.bytes_per_second == pytest.approx(PAYLOAD_BYTES_PER_SECOND, rel=0.05)
    assert newest.problems == ()
    accepted = reason(last.decision.status, "DisaggregationAccepted")
    assert accepted[0] == "False"
    assert "ttftBudget is 200ms" in accepted[2]
    assert reason(last.decision.status, "Ready")[0] == "True"
    left = cluster.access.get("jobs,pods", "-n", NAMESPACE)["items"]
    assert [item for item in left if not item["metadata"].get("deletionTimestamp")] == []
    assert newest.measured_at > datetime.now(UTC) - timedelta(seconds=SECONDS_ALLOWED)
