"""A node that prefill and decode may share: what two pods on it carry to each other, measured by two pods there."""

from __future__ import annotations

import pytest

from kvgate.api.objects import FabricReport, read_report
from kvgate.api.status import PoolStatus
from kvgate.core.evidence import Path, Sample
from kvgate.probe.reports import read_reports
from tests.cluster.waiting import eventually
from tests.e2e.documents import NAMESPACE, Document
from tests.e2e.stage import REPORT, SWEEP_SECONDS, Scene, condition, is_settled, split_of

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

LINK_BYTES_PER_SECOND = 1e9 / 8
"""Of each node's link, which what stays on a node never meets."""
MOST_BYTES_PER_SECOND = 1e12 / 8
COMPANION = "kvgate.dev/companion"


def pods(scene: Scene) -> list[tuple[str, bool]]:
    """Of each probe pod of this pool the node that it was bound to, and whether its Job is a companion."""
    jobs = {job["metadata"]["name"]: job for job in ours(scene, "jobs")}
    items = scene.access.get("pods", "-n", NAMESPACE)["items"]
    owned = [(pod, jobs.get(owner(pod))) for pod in items]
    return sorted((pod["spec"].get("nodeName", ""), is_companion(job)) for pod, job in owned if job)


def ours(scene: Scene, kind: str) -> list[Document]:
    return [item for item in scene.access.get(kind, "-n", NAMESPACE)["items"] if owner(item) == scene.name]


def owner(item: Document) -> str:
    references = item["metadata"].get("ownerReferences", [{}])
    return str(references[0].get("name", ""))


def is_companion(job: Document) -> bool:
    return bool(job["metadata"]["annotations"].get(COMPANION) == "true")


def walkers(status: PoolStatus) -> list[tuple[str, bool]]:
    return [(job.node, job.companion) for job in status.sweep.jobs] if status.sweep else []


def samples(scene: Scene, uid: str) -> dict[Path, Sample]:
    """By path, of the pool's only sweep, as its FabricReport keeps them."""
    stored = map(read_report, scene.access.get(REPORT, "-n", NAMESPACE)["items"])
    (evidence,), bad = read_reports((one for one in stored if isinstance(one, FabricReport)), uid)
    assert bad == ()
    return {sample.path: sample for sample in evidence.samples}


def test_a_node_with_both_roles_is_measured_between_two_pods_on_it(scene: Scene) -> None:
    shared, other = scene.stage.nodes
    either = [{"key": "kubernetes.io/hostname", "operator": "In", "values": [shared, other]}]
    scene.gate("2s", decodeNodes={"matchExpressions": either})
    expected = [(shared, False), (shared, True), (other, False)]
    scene.wait_for("three Jobs", lambda status: walkers(status) == expected)
    eventually(lambda: pods(scene) == sorted(expected), SWEEP_SECONDS)

    seen = scene.wait_for("a verdict", is_settled)
    found = samples(scene, seen.uid)
    assert found.keys() == {Path(shared, shared), Path(shared, other)}
    own, far = found[Path(shared, shared)], found[Path(shared, other)]
    assert (own.failure, own.interface) == (None, "eth0")
    assert LINK_BYTES_PER_SECOND < (own.bytes_per_second or 0) < MOST_BYTES_PER_SECOND
    assert 0 < (far.bytes_per_second or 0) < LINK_BYTES_PER_SECOND
    said = condition(seen.status, "FabricMeasured")
    assert (said.status.value, said.reason) == ("True", "Measured")
    assert "1 path between two pods of one node measured" in said.message
    assert "SameNodeUnmeasured" not in split_of(seen.status).inconclusive
    eventually(lambda: not scene.jobs())
