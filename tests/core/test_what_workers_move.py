"""What was measured against what the workers move: RDMA, TCP, and the memory that bytes come from."""

from __future__ import annotations

import pytest

from kvgate.api.words import Memory, Outcome
from kvgate.core import evidence_criteria as criteria
from kvgate.core.evidence import Sample
from kvgate.core.findings import Finding
from kvgate.core.judging import Case
from kvgate.core.target import FabricClass, TargetProblem
from tests.core.cases import PATHS, case, endpoint, everywhere, evidence, sample, target

ENDPOINTS = tuple(endpoint(one) for one in PATHS)


def found(finding: Finding) -> tuple[Outcome, str]:
    return finding.outcome, finding.reason


def worker(fabric_class: FabricClass, *samples: Sample) -> Case:
    return case(measured=evidence(samples), deployment=target(fabric_class))


def over_rdma(memory: Memory) -> tuple[Sample, ...]:
    return everywhere(transport="rdma", memory=memory, tool="ib_read_bw", operation="read")


@pytest.mark.parametrize(
    "fabric_class", [kind for kind in FabricClass if kind.rdma], ids=lambda kind: f"workers over {kind}"
)
@pytest.mark.parametrize(
    ("samples", "outcome", "reason"),
    [
        pytest.param(everywhere(), Outcome.INCONCLUSIVE, "Unmeasured", id="TCP says nothing about RDMA"),
        pytest.param(
            (*over_rdma(Memory.GPU)[1:], sample("p1→d1")),
            Outcome.INCONCLUSIVE,
            "Unmeasured",
            id="one path only over TCP",
        ),
        pytest.param(
            over_rdma(Memory.HOST), Outcome.INCONCLUSIVE, "MemoryKindUnmeasured", id="host memory is not GPU memory"
        ),
        pytest.param(over_rdma(Memory.GPU), Outcome.PASS, "SameThingMeasured", id="GPU memory over RDMA"),
        pytest.param(
            (*everywhere(), *(endpoint(one, transport="rdma", memory=Memory.GPU) for one in PATHS)),
            Outcome.PASS,
            "SameThingMeasured",
            id="a TCP link beside an RDMA endpoint",
        ),
        pytest.param(
            (*over_rdma(Memory.GPU), *ENDPOINTS),
            Outcome.INCONCLUSIVE,
            "Unmeasured",
            id="an endpoint that fell back to TCP on an RDMA link",
        ),
    ],
)
def test_rdma_workers_need_rdma_numbers(
    fabric_class: FabricClass, samples: tuple[Sample, ...], outcome: Outcome, reason: str
) -> None:
    assert found(criteria.same_thing_measured(worker(fabric_class, *samples))) == (outcome, reason)


@pytest.mark.parametrize(
    ("seen", "outcome", "reason"),
    [
        pytest.param(worker(FabricClass.TCP, *everywhere()), Outcome.PASS, "SameThingMeasured", id="TCP for TCP"),
        pytest.param(
            worker(FabricClass.TCP, *over_rdma(Memory.GPU)), Outcome.INCONCLUSIVE, "Unmeasured", id="RDMA is not TCP"
        ),
        pytest.param(case(measured=None), Outcome.UNKNOWN, "NotMeasured", id="no sweep yet"),
        pytest.param(
            case(deployment=TargetProblem("TargetNotFound", "no such deployment")),
            Outcome.UNKNOWN,
            "NotMeasured",
            id="no deployment to compare with",
        ),
    ],
)
def test_same_thing_measured(seen: Case, outcome: Outcome, reason: str) -> None:
    assert found(criteria.same_thing_measured(seen)) == (outcome, reason)
