"""A sweep of a pool one of whose nodes has both roles, before a real API server, Job controller and scheduler."""

from __future__ import annotations

import json
from itertools import count
from typing import Any

import pytest

from kvgate.app.ring import turn
from kvgate.core.evidence import Path
from kvgate.edge.cluster.ground import ClusterGround
from kvgate.edge.errors import WriteConflictError
from tests.cluster.waiting import eventually
from tests.edge.cluster.sweeping import GIGABIT, schedule_of, wait_for_pods
from tests.edge.cluster.yard import Document, Dying, KubeletLogs, Yard, configuration, printed

pytestmark = pytest.mark.api

COMPANION = "kvgate.dev/companion"
TURNS = 12


@pytest.fixture
def shared(yard: Yard) -> Yard:
    """The first node is a prefill node, and it and the second are the decode nodes."""
    either = [{"key": "kubernetes.io/hostname", "operator": "In", "values": list(yard.nodes[:2])}]
    selector = {"op": "replace", "path": "/spec/fabric/decodeNodes", "value": {"matchExpressions": either}}
    yard.kubectl("patch", "kvpool", "qwen3", "--type=json", "-p", json.dumps([selector]))
    return yard


def seat(item: Document) -> tuple[str, bool]:
    """Of a Job or its pod the node, and whether it is the second there."""
    notes = item["metadata"]["annotations"]
    return notes["kvgate.dev/node"], notes.get(COMPANION) == "true"


def seats(yard: Yard) -> list[tuple[str, bool]]:
    return sorted(seat(job) for job in yard.get("jobs")["items"])


def recorded(yard: Yard) -> list[tuple[str, bool]]:
    fence = yard.observe()[0].status.sweep
    return sorted((job.node, job.companion) for job in fence.jobs) if fence else []


def a_turn(yard: Yard, ground: ClusterGround | None = None) -> None:
    turn(ground or yard.ground, yard.key, yard.clock)


def wanted(yard: Yard) -> list[tuple[str, bool]]:
    first, second, _ = yard.nodes
    return [(first, False), (first, True), (second, False)]


class DyingAmongJobs(KubeletLogs):
    """Plays an operator that is killed right after its `lives`-th Job was made."""

    def __init__(self, configuration: Any, lives: int) -> None:
        super().__init__(configuration)
        self._lives = lives

    def _ask(self, method: str, path: str, what: str, **rest: Any) -> str:
        told = super()._ask(method, path, what, **rest)
        self._lives -= method == "POST" and path.endswith("/jobs")
        if self._lives <= 0:
            raise Dying
        return told


def mortal(yard: Yard, lives: int) -> ClusterGround:
    client = DyingAmongJobs(configuration(yard.access), lives)
    return ClusterGround(client, lambda: yard.policy, yard.clock, namespaces=[yard.namespace])


def until_dead(yard: Yard, ground: ClusterGround) -> None:
    for _ in range(TURNS):
        try:
            a_turn(yard, ground)
        except Dying:
            return
    pytest.fail("it made too few Jobs to die of them")


def until_recorded(yard: Yard) -> None:
    for _ in range(TURNS):
        if recorded(yard):
            return
        try:
            a_turn(yard)
        except WriteConflictError:
            continue
    pytest.fail(f"no Jobs in the status: {yard.names('jobs')}")


def walked(yard: Yard) -> None:
    """The pods run where they were bound, print what they measured, and end."""
    names = {seat_name(pod): str(pod["metadata"]["name"]) for pod in bound(yard)}
    addresses = {walker: f"10.9.1.{number}" for walker, number in zip(sorted(names), count(1), strict=False)}
    schedule = schedule_of(yard, run_of(yard))
    for walker, name in names.items():
        yard.set_pod_status(name, "Running", addresses[walker])
        yard.client.prints[name] = printed(schedule, walker, addresses, GIGABIT)
    a_turn(yard)
    for walker, name in names.items():
        yard.set_pod_status(name, "Succeeded", addresses[walker])
    eventually(lambda: all(job["status"].get("succeeded") for job in yard.get("jobs")["items"]), 20)


def run_of(yard: Yard) -> str:
    fence = yard.observe()[0].status.sweep
    assert fence is not None
    return fence.run_id


def bound(yard: Yard) -> list[Document]:
    """The sweep's pods, once the scheduler has bound them all."""
    wait_for_pods(yard)
    eventually(lambda: all(pod["spec"].get("nodeName") for pod in yard.pods_of_jobs()), 20)
    return yard.pods_of_jobs()


def seat_name(pod: Document) -> str:
    """The walker's name, as its pod is told it."""
    arguments = pod["spec"]["containers"][0]["args"]
    return str(arguments[arguments.index("--node") + 1])


def test_a_node_with_both_roles_has_two_jobs_on_it_one_of_them_the_companion_and_the_status_names_both(
    shared: Yard,
) -> None:
    until_recorded(shared)
    first, second, _ = shared.nodes

    assert seats(shared) == recorded(shared) == wanted(shared)
    assert sorted(pod["spec"]["nodeName"] for pod in bound(shared)) == [first, first, second]
    assert {seat_name(pod) for pod in bound(shared)} == {first, f"{first}/2", second}


def test_both_jobs_are_removed_with_the_sweep_and_what_they_measured_is_of_the_node_to_itself(shared: Yard) -> None:
    until_recorded(shared)
    walked(shared)
    run, (first, second, _) = run_of(shared), shared.nodes
    for _ in range(TURNS):
        a_turn(shared)
        if not shared.names("jobs"):
            break

    assert shared.names("jobs") == []
    assert run not in "".join(shared.names("configmaps"))
    evidence = next(one for one in shared.observe()[1].evidence if one.run_id == run)
    assert set(evidence.planned) == {Path(first, first), Path(first, second)}
    assert {sample.path: sample.failure for sample in evidence.samples} == dict.fromkeys(evidence.planned)
    assert evidence.problems == ()


@pytest.mark.parametrize("lives", [1, 2, 3], ids=["before the others", "before the companion", "with both made"])
def test_an_operator_that_dies_between_the_two_jobs_of_a_node_makes_no_third(shared: Yard, lives: int) -> None:
    until_dead(shared, mortal(shared, lives))
    made = {job["metadata"]["uid"] for job in shared.get("jobs")["items"]}
    assert len(made) == lives
    until_recorded(shared)

    assert seats(shared) == recorded(shared) == wanted(shared)
    assert made <= {job["metadata"]["uid"] for job in shared.get("jobs")["items"]}
