"""What worker pods weigh: the paths they use, the nodes their load falls on, and pods that run beyond all sweeps."""

from __future__ import annotations

import dataclasses

import pytest

from kvgate.api.words import Outcome
from kvgate.core import evidence_criteria as criteria
from kvgate.core import split_criteria
from kvgate.core.evidence import Path
from kvgate.core.judging import Case
from kvgate.core.own_nodes import own_nodes
from kvgate.core.statuses import fabric
from kvgate.core.workers import PodRole, WorkerPod, path_weights
from tests.core.cases import case, everywhere, evidence, nodes, path, pods, sample, target
from tests.core.worlds import Scene

PREFILL, DECODE = PodRole.PREFILL, PodRole.DECODE
ONE_EACH = (*pods(PREFILL, "p1"), *pods(DECODE, "d1"))
SLOW, FAST = 50e6, 250e6


@pytest.mark.parametrize(
    ("workers", "weights"),
    [
        pytest.param((), {}, id="no pods, no weights"),
        pytest.param(ONE_EACH, {"p1→d1": 1}, id="one pod on each side"),
        pytest.param(
            (*pods(PREFILL, "p1", "p1", "p2"), *pods(DECODE, "d1", "d1")),
            {"p1→d1": 4, "p2→d1": 2},
            id="pods on the source times pods on the destination",
        ),
        pytest.param((*ONE_EACH, *pods(DECODE, "")), {"p1→d1": 1}, id="a pod that waits for a node weighs nothing"),
        pytest.param((*ONE_EACH, *pods(DECODE, "d2", leaving=True)), {"p1→d1": 1}, id="nor does one that is leaving"),
        pytest.param((*ONE_EACH, *pods(PodRole.FRONTEND, "d2")), {"p1→d1": 1}, id="nor does a frontend"),
        pytest.param((*ONE_EACH, *pods(PodRole.WORKER, "d2")), {"p1→d1": 1}, id="nor does one of no said role"),
        pytest.param(pods(PREFILL, "p1"), {}, id="pods of one side alone use no path"),
        pytest.param((*pods(PREFILL, "n1"), *pods(DECODE, "n1")), {"n1→n1": 1}, id="two pods on one node"),
        pytest.param(
            (*pods(PREFILL, "p1", ready=False), *pods(DECODE, "d1")), {"p1→d1": 1}, id="one that loads counts"
        ),
    ],
)
def test_a_path_weighs(workers: tuple[WorkerPod, ...], weights: dict[str, float]) -> None:
    assert path_weights(workers) == {path(name): weight for name, weight in weights.items()}


def swept(*slow: str) -> Case:
    """All paths at 250 MB/s but those that are named, at 50 MB/s."""
    samples = [s if str(s.path) not in slow else sample(s.path, SLOW) for s in everywhere(FAST)]
    return case(measured=evidence(samples))


@pytest.mark.parametrize(
    ("workers", "judged"),
    [
        pytest.param((), SLOW, id="without pods every path counts alike"),
        pytest.param(
            (*pods(PREFILL, "p1"), *pods(DECODE, "d2")), FAST, id="a slow path that no pod uses is not judged"
        ),
        pytest.param(ONE_EACH, SLOW, id="a slow path that pods use is"),
        pytest.param(
            (*pods(PREFILL, *["p2"] * 19, "p1"), *pods(DECODE, "d1")), FAST, id="nor one that a twentieth of them use"
        ),
        pytest.param((*pods(PREFILL, *["p2"] * 9, "p1"), *pods(DECODE, "d1")), SLOW, id="one that a tenth use is"),
    ],
)
def test_the_judged_throughput_weighs_paths_by_worker_pods(workers: tuple[WorkerPod, ...], judged: float) -> None:
    seen = swept("p1→d1")
    weighed = dataclasses.replace(seen, world=dataclasses.replace(seen.world, pods=workers))
    told = fabric(weighed)
    assert told is not None
    assert told.link is not None
    assert (weighed.judged_bytes_per_second, told.link.judged_bytes_per_second) == (judged, judged)
    assert weighed.worst_bytes_per_second == SLOW


def test_where_pods_use_only_what_was_not_measured_nothing_is_judged() -> None:
    seen = case(measured=evidence(everywhere(paths=[path("p2→d2")])), workers=ONE_EACH)
    assert (seen.judged_bytes_per_second, seen.transfer) == (None, None)


@pytest.mark.parametrize(
    ("workers", "asked", "shared"),
    [
        pytest.param((), (None, None), (2, 2), id="all nodes while nothing is known of pods"),
        pytest.param((), (1, 5), (1, 2), id="no more nodes than the deployment asks for pods"),
        pytest.param((), (0, 0), (2, 2), id="all nodes while it asks for none"),
        pytest.param(ONE_EACH, (4, 4), (1, 1), id="the nodes where pods run"),
        pytest.param((*pods(PREFILL, "p1", "p2"), *pods(DECODE, "d1")), (2, 1), (2, 1), id="one pod on each of two"),
        pytest.param(
            (*pods(PREFILL, "p1", "p1", "p1", "p2"), *pods(DECODE, "d1")),
            (4, 1),
            (4 / 3, 1),
            id="three quarters on one node weigh as much as on one and a third",
        ),
    ],
)
def test_the_load_falls_on(
    workers: tuple[WorkerPod, ...], asked: tuple[int | None, int | None], shared: tuple[float, float]
) -> None:
    deployment = dataclasses.replace(target(), prefill_pods=asked[0], decode_pods=asked[1])
    seen = case({"workload.peakRequestsPerSecond": "0.1"}, deployment=deployment, workers=workers)
    assert seen.load is not None
    one_node = case({"workload.peakRequestsPerSecond": "0.1"}, on=nodes(("p1",), ("d1",))).load
    assert one_node is not None
    assert seen.load.utilization == pytest.approx(one_node.utilization / min(shared))


AWAY = (*pods(PREFILL, "p1"), *pods(DECODE, "d9"))


@pytest.mark.parametrize(
    ("seen", "outcome"),
    [
        pytest.param(case(), Outcome.PASS, id="no pods"),
        pytest.param(case(workers=ONE_EACH), Outcome.PASS, id="pods on the pool's nodes"),
        pytest.param(case(workers=AWAY), Outcome.UNKNOWN, id="a pod beyond them"),
        pytest.param(case(workers=AWAY, measured=None), Outcome.PASS, id="a pod beyond them before the first sweep"),
        pytest.param(
            case(workers=AWAY, measured=evidence([*everywhere(), sample("p1→d9")])),
            Outcome.PASS,
            id="a pod on a node that left the pool and was measured before",
        ),
        pytest.param(
            case(workers=ONE_EACH, on=nodes(decode=("d1", "d2", "d3"))), Outcome.PASS, id="a node that came since"
        ),
    ],
)
def test_pods_run_where_the_evidence_speaks_of(seen: Case, outcome: Outcome) -> None:
    assert criteria.pods_covered(seen).outcome is outcome


def test_a_pod_beyond_the_pools_nodes_is_told_by_its_node_with_who_must_act() -> None:
    said = criteria.pods_covered(case(workers=AWAY))
    assert said.reason == "NodeNotCovered"
    assert said.message.startswith("decode pods run on node d9, which no evidence covers")
    assert "the pool's owner must" in said.message
    assert "prefill pods" not in said.message


def test_a_pod_beyond_the_pools_nodes_asks_for_no_sweep_and_a_moved_one_does() -> None:
    """No sweep would help the first, and one after another would begin."""
    beyond = Scene(workers=AWAY)
    moved = beyond.but(workers=ONE_EACH, nodes=nodes(decode=("d1", "d2", "d3")))
    assert beyond.decide().status.sweep is None
    assert moved.decide().status.sweep is not None


def test_the_message_of_a_pod_beyond_stands_in_the_conditions() -> None:
    said = {held.type: held for held in Scene(workers=AWAY).decide().status.conditions}
    for kind in ("FabricMeasured", "DisaggregationAccepted"):
        assert said[kind].reason == "NodeNotCovered", kind
        assert "node d9" in said[kind].message


def test_two_pods_on_one_node_are_a_path_of_their_own_that_is_not_measured() -> None:
    seen = case(workers=(*pods(PREFILL, "p1"), *pods(DECODE, "p1")))
    assert Path("p1", "p1") in seen.paths
    assert own_nodes(seen).outcome is Outcome.INCONCLUSIVE


def test_the_busier_node_binds() -> None:
    crowded = (*pods(PREFILL, "p1", "p1"), *pods(DECODE, "d1", "d2"))
    apart = (*pods(PREFILL, "p1", "p2"), *pods(DECODE, "d1", "d2"))
    busy = {"workload.peakRequestsPerSecond": "0.6", "criteria.disaggregation.ttftBudget": "30s"}
    told = [split_criteria.load_bearable(case(busy, workers=workers)).reason for workers in (crowded, apart)]
    assert told == ["PathOversubscribed", "LoadBearable"]
