"""The paths of the pods that really run: measured, passing, and what counts beyond maxPaths."""

from __future__ import annotations

from datetime import timedelta

import pytest

from kvgate.core.evidence import Evidence, FailureKind, NodeIdentity
from kvgate.core.links import Link, Progress
from kvgate.core.pairs_link import worker_paths
from kvgate.core.workers import PodRole, WorkerPod
from kvgate.core.world import Nodes
from tests.core import cases, views
from tests.core.views import passed

ON_P1_D1 = (*cases.pods(PodRole.PREFILL, "p1"), *cases.pods(PodRole.DECODE, "d1"))
ON_NEW = (*cases.pods(PodRole.PREFILL, "p3"), *cases.pods(PodRole.DECODE, "d1"))
WITHOUT_NODE = (*cases.pods(PodRole.PREFILL, "p1", ""), *cases.pods(PodRole.DECODE, "d1"))
LEAVING = (*ON_P1_D1, *cases.pods(PodRole.PREFILL, "p3", leaving=True))
ONE_NODE = (*cases.pods(PodRole.PREFILL, "p1"), *cases.pods(PodRole.DECODE, "p1", "d1"))
ONE_SLOW = tuple(cases.sample(path, 60e6 if str(path) == "p1→d2" else 250e6) for path in cases.PATHS)
ONE_DEAD = (
    *cases.everywhere(paths=cases.PATHS[1:]),
    cases.failed(cases.PATHS[0], FailureKind.NO_ROUTE),
)
FRESH = cases.evidence()

LOOKS: dict[str, tuple[tuple[WorkerPod, ...], tuple[Evidence, ...], Progress, str]] = {
    "every pair has a path that passes": ((), (FRESH,), Progress.PASSED, "4 paths"),
    "only the paths in use count": (ON_P1_D1, (cases.evidence(ONE_SLOW),), Progress.PASSED, "1 paths"),
    "one pair's path would break the budget": (
        (),
        (cases.evidence(ONE_SLOW),),
        Progress.FAILED,
        "1 of 4 paths between worker pods do not pass: p1→d2 would add 5.75 s at 3000 tokens, ttftBudget is 2s",
    ),
    "one pair's path is dead": ((), (cases.evidence(ONE_DEAD),), Progress.FAILED, "p1→d1 carries nothing"),
    "a pod that moved to a node without evidence": (ON_NEW, (FRESH,), Progress.WAITING, "not measured: p3→d1"),
    "a pod that is leaving does not count": (LEAVING, (FRESH,), Progress.PASSED, ""),
    "a pod without a node": (WITHOUT_NODE, (FRESH,), Progress.UNSEEN, "no node yet"),
    "no worker pods were seen": (
        cases.pods(PodRole.FRONTEND, "f1"),
        (FRESH,),
        Progress.UNSEEN,
        "no prefill and decode",
    ),
    "the same node twice is a class of its own": (ONE_NODE, (FRESH,), Progress.PASSED, "1 from a node to itself"),
    "no evidence": ((), (), Progress.WAITING, "no fresh evidence"),
    "evidence that has expired": (
        (),
        (cases.evidence(measured_at=cases.NOW - timedelta(hours=49)),),
        Progress.WAITING,
        "no fresh evidence",
    ),
}


@pytest.mark.parametrize(("workers", "evidence", "progress", "word"), LOOKS.values(), ids=LOOKS)
def test_every_pair_of_worker_pods_needs_a_measured_path_that_passes(
    workers: tuple[WorkerPod, ...], evidence: tuple[Evidence, ...], progress: Progress, word: str
) -> None:
    look = worker_paths(views.view(workers=workers, evidence=evidence))
    assert (look.progress, word in look.message) == (progress, True), look.message


LATER = cases.NOW - timedelta(minutes=5)
OF_P2 = cases.evidence(
    cases.everywhere(paths=cases.PATHS[2:], run_id="run-2", measured_at=LATER),
    run_id="run-2",
    measured_at=LATER,
    planned=cases.PATHS[2:],
)
REBOOTED = cases.nodes(identities=cases.identities(d1=NodeIdentity("d1", "uid-d1", "another-boot", "6.18")))


def test_what_an_older_sweep_tells_of_the_paths_that_the_newest_left_out_counts() -> None:
    look = worker_paths(views.view(evidence=(OF_P2, FRESH)))
    assert (look.progress, look.sweep) == (Progress.PASSED, "")


def test_what_was_measured_of_a_node_before_it_rebooted_does_not_count() -> None:
    look = worker_paths(views.view(evidence=(FRESH,), nodes=REBOOTED))
    assert look.progress is Progress.WAITING
    assert "2 of 4 paths between worker pods are not measured: p1→d1, p2→d1" in look.message


NEW_NODE = cases.nodes(prefill=("p1", "p2", "p3"))
ASKS: dict[str, tuple[tuple[WorkerPod, ...], Nodes, timedelta, timedelta, bool]] = {
    "evidence from before the pods ran": (ON_NEW, NEW_NODE, timedelta(hours=1), timedelta(), True),
    "evidence of just now, which lacks the path": (ON_NEW, NEW_NODE, timedelta(minutes=9), timedelta(hours=1), False),
    "evidence of a while ago, which lacks the path": (
        ON_NEW,
        NEW_NODE,
        timedelta(minutes=11),
        timedelta(hours=1),
        True,
    ),
    "a node that the pool does not name": (ON_NEW, cases.nodes(), timedelta(hours=1), timedelta(), False),
    "every path measured": ((), NEW_NODE, timedelta(hours=1), timedelta(), False),
}


@pytest.mark.parametrize(("workers", "nodes", "age", "before", "asks"), ASKS.values(), ids=ASKS)
def test_a_path_that_is_not_measured_asks_for_the_sweep_that_would(
    workers: tuple[WorkerPod, ...], nodes: Nodes, age: timedelta, before: timedelta, asks: bool
) -> None:
    """`before` is how long ago the link before this one was passed."""
    remembered = views.memory(passed=passed(Link.READINESS, at=-before))
    evidence = (cases.evidence(measured_at=cases.NOW - age),)
    look = worker_paths(views.view(workers=workers, nodes=nodes, evidence=evidence, remembered=remembered))
    assert bool(look.sweep) is asks, look


def test_a_path_below_the_asked_for_throughput_fails() -> None:
    seen = views.view(
        changes={"criteria.disaggregation.minThroughput": "240MB/s"}, evidence=(cases.evidence(ONE_SLOW),)
    )
    assert "p1→d2 carries 60.0 MB/s (480 Mbit/s), minThroughput is 240MB/s" in worker_paths(seen).message


BOTH_WAYS = (
    *cases.everywhere(paths=cases.PATHS[:1]),
    cases.sample("d2→p2"),
    cases.sample("p2→d1"),
    cases.sample("d1→p1"),
)
SAMPLED = {
    "both nodes sent and received": ((*BOTH_WAYS, cases.sample("p1→d2"), cases.sample("d2→p1")), Progress.PASSED),
    "both only to themselves": (
        (cases.sample("p2→p2"), cases.sample("d2→d2"), cases.sample("p1→d1"), cases.sample("d1→p1")),
        Progress.WAITING,
    ),
    "one node never sent": ((cases.sample("p1→d1"), cases.sample("d1→p1"), cases.sample("p1→d2")), Progress.WAITING),
}


@pytest.mark.parametrize(("samples", "progress"), SAMPLED.values(), ids=SAMPLED)
def test_beyond_max_paths_both_nodes_must_be_measured_in_both_directions(samples: object, progress: Progress) -> None:
    pods = (*cases.pods(PodRole.PREFILL, "p2"), *cases.pods(PodRole.DECODE, "d2"))
    evidence = (cases.evidence(samples),)  # type: ignore[arg-type]
    few = views.view(changes={"fabric.schedule.maxPaths": 3}, workers=pods, evidence=evidence)
    every = views.view(workers=pods, evidence=evidence)
    assert worker_paths(few).progress is progress
    assert worker_paths(every).progress is Progress.WAITING, "where every path is planned, each needs its own number"
