"""Each criterion on the evidence against each thing that can be wrong with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from kvgate.api.words import Outcome, Phase
from kvgate.core import evidence_criteria as criteria
from kvgate.core.evidence import Evidence, Failure, FailureKind, NodeIdentity, Path, Sample
from kvgate.core.findings import Finding
from kvgate.core.judging import Case
from kvgate.core.workers import PodRole
from tests.core.cases import (
    MEASURED,
    NOW,
    PATHS,
    case,
    endpoint,
    everywhere,
    evidence,
    failed,
    identities,
    nodes,
    pods,
    sample,
    uplink,
)

Row = tuple[Case, Outcome, str]
ALL_BUT_ONE = everywhere(paths=PATHS[1:])
"""Numbers of every path but p1→d1."""
TCP_LIMIT = 500e6


def found(finding: Finding) -> tuple[Outcome, str]:
    return finding.outcome, finding.reason


def swept(*samples: Sample, **fields: object) -> Evidence:
    return evidence((*ALL_BUT_ONE, *samples), **fields)


def aged(age: timedelta) -> Case:
    return case(measured=evidence(measured_at=NOW - age))


def without_nodes(side: str) -> Case:
    return case(on=nodes(**{side: ()}))


@pytest.mark.parametrize(
    ("seen", "outcome", "reason"),
    [
        pytest.param(case(), Outcome.PASS, "NodesMatched", id="nodes on both sides"),
        pytest.param(without_nodes("prefill"), Outcome.ERROR, "NoNodesMatched", id="no prefill node"),
        pytest.param(without_nodes("decode"), Outcome.ERROR, "NoNodesMatched", id="no decode node"),
        pytest.param(
            case(on=nodes(problem="nodes are forbidden")),
            Outcome.ERROR,
            "NoNodesMatched",
            id="nodes that cannot be read",
        ),
    ],
)
def test_nodes_matched(seen: Case, outcome: Outcome, reason: str) -> None:
    assert found(criteria.nodes_matched(seen)) == (outcome, reason)


@pytest.mark.parametrize(
    ("seen", "outcome", "reason"),
    [
        pytest.param(case(), Outcome.PASS, "EvidenceReadable", id="reports that could be read"),
        pytest.param(
            case(evidence_problem="report x: digest differs"),
            Outcome.ERROR,
            "EvidenceUnreadable",
            id="a report that could not be read",
        ),
        pytest.param(
            case(measured=evidence(uplinks=(uplink(0.0),))),
            Outcome.ERROR,
            "EvidenceUnreadable",
            id="an uplink of 0 B/s",
        ),
        pytest.param(
            case(measured=evidence(problems=("one walker came late",))),
            Outcome.PASS,
            "EvidenceReadable",
            id="what a sweep noted on its way blocks nothing",
        ),
    ],
)
def test_evidence_readable(seen: Case, outcome: Outcome, reason: str) -> None:
    assert found(criteria.evidence_readable(seen)) == (outcome, reason)


@pytest.mark.parametrize(
    ("seen", "outcome", "reason"),
    [
        pytest.param(case(), Outcome.PASS, "EvidenceOurs", id="this pool's own run"),
        pytest.param(
            case(pool_uid="re-created"),
            Outcome.ERROR,
            "EvidenceOfAnotherPool",
            id="a pool of the same name, re-created",
        ),
        pytest.param(
            case(measured=swept(sample("p1→d1", run_id="run-0"))),
            Outcome.ERROR,
            "EvidenceOfAnotherRun",
            id="one sample of another run",
        ),
    ],
)
def test_evidence_of_this_pool(seen: Case, outcome: Outcome, reason: str) -> None:
    assert found(criteria.evidence_of_this_pool(seen)) == (outcome, reason)


def test_no_number_of_another_pool_is_used() -> None:
    assert case(pool_uid="re-created").judged_bytes_per_second is None


@pytest.mark.parametrize(
    ("seen", "outcome", "reason"),
    [
        pytest.param(case(measured=None), Outcome.UNKNOWN, "NotMeasured", id="no sweep yet"),
        pytest.param(aged(timedelta(hours=1)), Outcome.PASS, "EvidenceFresh", id="an hour old"),
        pytest.param(aged(timedelta(hours=47, minutes=59)), Outcome.PASS, "EvidenceFresh", id="just within its life"),
        pytest.param(aged(timedelta(hours=48)), Outcome.UNKNOWN, "EvidenceExpired", id="exactly at its end"),
        pytest.param(aged(timedelta(milliseconds=-60)), Outcome.PASS, "EvidenceFresh", id="60 ms ahead of this clock"),
        pytest.param(aged(timedelta(seconds=-60)), Outcome.PASS, "EvidenceFresh", id="a minute ahead, the tolerance"),
        pytest.param(aged(timedelta(seconds=-61)), Outcome.ERROR, "ClockSkew", id="a second beyond the tolerance"),
        pytest.param(
            aged(timedelta(minutes=-7)), Outcome.ERROR, "ClockSkew", id="7 minutes ahead is not fresh for ever"
        ),
        pytest.param(
            case({"fabric.evidenceTTL": "30m", "fabric.schedule.interval": "1m"}),
            Outcome.UNKNOWN,
            "EvidenceExpired",
            id="a shorter evidenceTTL counts at once",
        ),
    ],
)
def test_evidence_fresh(seen: Case, outcome: Outcome, reason: str) -> None:
    assert found(criteria.evidence_fresh(seen)) == (outcome, reason)


@pytest.mark.parametrize("year", [1, 9999], ids=["the first year", "the last year"])
def test_a_time_at_the_end_of_the_calendar_raises_nothing(year: int) -> None:
    seen = case(measured=evidence(measured_at=datetime(year, 1, 1, tzinfo=NOW.tzinfo)))
    assert criteria.evidence_fresh(seen).outcome is not Outcome.PASS


def one_node(uid: str = "uid-d1", boot_id: str = "boot-d1", kernel: str = "6.18") -> Case:
    """Node d1 as it was measured, with what it says of itself now."""
    return case(on=nodes(identities=identities(d1=NodeIdentity("d1", uid, boot_id, kernel))))


@pytest.mark.parametrize(
    ("seen", "outcome", "reason"),
    [
        pytest.param(case(), Outcome.PASS, "NodesUnchanged", id="the nodes that were measured"),
        pytest.param(one_node(uid="uid-new"), Outcome.UNKNOWN, "NodeNotCovered", id="a node replaced under its name"),
        pytest.param(one_node(boot_id="boot-2"), Outcome.UNKNOWN, "NodeNotCovered", id="a node that booted again"),
        pytest.param(one_node(kernel="6.19"), Outcome.UNKNOWN, "NodeNotCovered", id="a node with another kernel"),
        pytest.param(
            case(measured=evidence(nodes=())), Outcome.PASS, "NodesUnchanged", id="a sweep that noted no identities"
        ),
    ],
)
def test_nodes_unchanged(seen: Case, outcome: Outcome, reason: str) -> None:
    assert found(criteria.nodes_unchanged(seen)) == (outcome, reason)


def test_the_node_that_changed_is_named() -> None:
    assert "d1" in criteria.nodes_unchanged(one_node(boot_id="boot-2")).message


def path_of(samples: Sequence[Sample]) -> tuple[Path, ...]:
    return tuple(sample.path for sample in samples)


def test_a_slow_path_within_a_node_is_no_outlier_of_those_between_nodes() -> None:
    samples = [sample("a→b", 9e9), sample("b→a", 9e9), sample("a→a", 1e9), sample("b→b", 1e9)]
    seen = case(on=nodes(("a", "b"), ("a", "b")), measured=evidence(samples, planned=path_of(samples)))
    assert found(criteria.no_outlier(seen)) == (Outcome.PASS, "PathsAlike")
    assert seen.judged_bytes_per_second == 1e9


COVER = "criteria.disaggregation.minCoverage"


@pytest.mark.parametrize(
    ("seen", "outcome", "reason"),
    [
        pytest.param(case(), Outcome.PASS, "PathsCovered", id="every path gave a number"),
        pytest.param(case(measured=None), Outcome.UNKNOWN, "NotMeasured", id="no sweep yet"),
        pytest.param(case(measured=swept()), Outcome.INCONCLUSIVE, "CoverageTooLow", id="three of four at 100%"),
        pytest.param(case({COVER: "75%"}, measured=swept()), Outcome.PASS, "PathsCovered", id="three of four at 75%"),
        pytest.param(
            case({COVER: "75.01%"}, measured=swept()), Outcome.INCONCLUSIVE, "CoverageTooLow", id="just below the limit"
        ),
        pytest.param(
            case(measured=swept(failed("p1→d1", FailureKind.CONNECT_TIMEOUT))),
            Outcome.INCONCLUSIVE,
            "CoverageTooLow",
            id="a path that could not be looked at gives no answer",
        ),
        pytest.param(
            case(measured=swept(failed("p1→d1", FailureKind.NO_ROUTE))),
            Outcome.PASS,
            "PathsCovered",
            id="a dead path did answer",
        ),
        pytest.param(
            case({COVER: "0%"}, measured=evidence([])),
            Outcome.INCONCLUSIVE,
            "CoverageTooLow",
            id="zero samples never cover, even at 0%",
        ),
        pytest.param(
            case(on=nodes(decode=("d1", "d2", "d3"))), Outcome.UNKNOWN, "NodeNotCovered", id="a node that came since"
        ),
        pytest.param(
            case({COVER: "50%"}, on=nodes(decode=("d1", "d2", "d3"))),
            Outcome.UNKNOWN,
            "NodeNotCovered",
            id="no minCoverage excuses a node that no sweep planned",
        ),
        pytest.param(case(on=nodes(decode=("d1",))), Outcome.PASS, "PathsCovered", id="a node that left is not missed"),
    ],
)
def test_paths_covered(seen: Case, outcome: Outcome, reason: str) -> None:
    assert found(criteria.paths_covered(seen)) == (outcome, reason)


def test_a_gap_says_the_path_the_reason_the_numbers_and_who_must_look() -> None:
    message = criteria.paths_covered(case(measured=swept(failed("p1→d1", FailureKind.CONNECT_TIMEOUT)))).message
    for part in ("3 of 4", "75%", "100%", "p1→d1 (ConnectTimeout)", "NetworkPolicy"):
        assert part in message


def test_paths_that_the_operators_limit_on_bytes_left_out_name_it_with_numbers_and_the_administrator() -> None:
    spent = Failure(FailureKind.BYTE_BUDGET_SPENT, "p1: 90 of the 100 bytes of this sender are sent")
    left_out = replace(failed("p1→d1", spent.kind), failure=spent)
    message = criteria.paths_covered(case(measured=swept(left_out))).message
    for part in ("p1→d1 (ByteBudgetSpent)", "90 of the 100 bytes", "1 of them", "administrator", "maxBytesPerSweep"):
        assert part in message
    assert "administrator" not in criteria.paths_covered(case(measured=swept())).message


def test_paths_that_were_measured_on_another_network_are_unmeasured_with_the_reason_and_who_must_act() -> None:
    away = Failure(FailureKind.OTHER_NETWORK, "d1: the worker is on the host network: the administrator must act")
    found = criteria.paths_covered(case(measured=swept(replace(failed("p1→d1", away.kind), failure=away))))
    assert (found.outcome, found.reason) == (Outcome.INCONCLUSIVE, "Unmeasured")
    for part in ("p1→d1 (OtherNetwork)", "1 of them", "workers' own network", away.message):
        assert part in found.message


def test_a_node_without_evidence_is_named() -> None:
    assert "d3" in criteria.paths_covered(case(on=nodes(decode=("d1", "d2", "d3")))).message


@pytest.mark.parametrize(
    ("seen", "outcome", "reason"),
    [
        pytest.param(case(), Outcome.PASS, "PathsReachable", id="every path carries something"),
        pytest.param(case(measured=None), Outcome.UNKNOWN, "NotMeasured", id="no sweep yet"),
        pytest.param(
            case(measured=swept(failed("p1→d1", FailureKind.NO_ROUTE))),
            Outcome.FAIL,
            "Unreachable",
            id="one of four dead",
        ),
        pytest.param(
            case({COVER: "50%"}, measured=swept(failed("p1→d1", FailureKind.PARTNER_SILENT))),
            Outcome.FAIL,
            "Unreachable",
            id="no minCoverage excuses a dead path",
        ),
        pytest.param(
            case(measured=swept(failed("p1→d1", FailureKind.SERVER_BUSY))),
            Outcome.PASS,
            "PathsReachable",
            id="a busy server is not a dead path",
        ),
        pytest.param(
            case(measured=evidence([*everywhere(), failed("x→y", FailureKind.NO_ROUTE)])),
            Outcome.PASS,
            "PathsReachable",
            id="a dead path that is not in use",
        ),
    ],
)
def test_paths_reachable(seen: Case, outcome: Outcome, reason: str) -> None:
    assert found(criteria.paths_reachable(seen)) == (outcome, reason)


def outlier(worst: float) -> Case:
    """p1→d1 carries `worst`, the others 200 MB/s; half of the paths may be slower than the judged one."""
    slow = {"criteria.disaggregation.slowestPercentOfPaths": 50}
    return case(slow, measured=evidence([*everywhere(200e6, PATHS[1:]), sample("p1→d1", worst)]))


@pytest.mark.parametrize(
    ("seen", "outcome", "reason"),
    [
        pytest.param(outlier(200e6), Outcome.PASS, "PathsAlike", id="all alike"),
        pytest.param(outlier(100e6), Outcome.PASS, "PathsAlike", id="the worst at exactly half of the judged"),
        pytest.param(outlier(99.999e6), Outcome.INCONCLUSIVE, "PathOutlier", id="the worst just below half"),
        pytest.param(case(measured=None), Outcome.UNKNOWN, "NotMeasured", id="no sweep yet"),
    ],
)
def test_no_outlier(seen: Case, outcome: Outcome, reason: str) -> None:
    assert found(criteria.no_outlier(seen)) == (outcome, reason)


ASKED = {"fabric.probe.endpoint.tool": "ucx_get"}
ENDPOINTS = tuple(endpoint(one) for one in PATHS)
OWN = tuple(sample(f"{name}→{name}", 2 * TCP_LIMIT) for name in "ab")
BETWEEN = tuple(sample(one) for one in ("a→b", "b→a"))


def own_nodes(
    samples: Sequence[Sample], asked: Mapping[str, object] | None = None, pairs: tuple[str, ...] = ()
) -> Case:
    """Nodes that have both roles, with nothing measured but this, and pairs of worker pods on these nodes."""
    names = tuple(sorted({one.path.source for one in samples}))
    workers = (*pods(PodRole.PREFILL, *pairs), *pods(PodRole.DECODE, *pairs))
    return case(asked, on=nodes(names, names), measured=evidence(samples, planned=path_of(samples)), workers=workers)


@pytest.mark.parametrize(
    ("seen", "outcome", "reason"),
    [
        pytest.param(case(), Outcome.PASS, "LinkBound", id="a slow TCP link binds by itself"),
        pytest.param(
            case(measured=evidence(everywhere(TCP_LIMIT))), Outcome.PASS, "LinkBound", id="exactly 4 Gbit/s over TCP"
        ),
        pytest.param(
            case(measured=evidence(everywhere(TCP_LIMIT + 1))),
            Outcome.INCONCLUSIVE,
            "EndpointUnmeasured",
            id="above 4 Gbit/s over TCP",
        ),
        pytest.param(
            case(measured=evidence(everywhere(transport="rdma"))),
            Outcome.INCONCLUSIVE,
            "EndpointUnmeasured",
            id="a slow link that is not TCP",
        ),
        pytest.param(
            case(ASKED), Outcome.INCONCLUSIVE, "EndpointUnmeasured", id="an endpoint asked for, and none came"
        ),
        pytest.param(
            case(ASKED, measured=evidence([*everywhere(), *ENDPOINTS])),
            Outcome.PASS,
            "EndpointMeasured",
            id="an endpoint asked for, and measured",
        ),
        pytest.param(
            case(ASKED, measured=evidence([*everywhere(), *ENDPOINTS[1:]])),
            Outcome.INCONCLUSIVE,
            "EndpointUnmeasured",
            id="an endpoint missing on one path",
        ),
        pytest.param(
            case(measured=evidence([*everywhere(2e9), *(endpoint(one, 2e9) for one in PATHS)])),
            Outcome.PASS,
            "EndpointMeasured",
            id="a fast link with its endpoint measured",
        ),
        pytest.param(
            own_nodes((*OWN, *BETWEEN)),
            Outcome.PASS,
            "LinkBound",
            id="a fast pair of pods on one node beside slow links",
        ),
        pytest.param(
            own_nodes(OWN),
            Outcome.INCONCLUSIVE,
            "EndpointUnmeasured",
            id="a fast pair of pods on one node, and no more",
        ),
        pytest.param(
            own_nodes([sample("a→a", TCP_LIMIT + 1), *(sample(one, TCP_LIMIT) for one in path_of(BETWEEN))]),
            Outcome.INCONCLUSIVE,
            "EndpointUnmeasured",
            id="a pair of pods on one node that half its link would have bind",
        ),
        pytest.param(
            own_nodes([sample("a→a", TCP_LIMIT)]), Outcome.PASS, "LinkBound", id="a slow pair of pods on one node"
        ),
        pytest.param(
            own_nodes((*OWN, *BETWEEN), pairs=("a",)),
            Outcome.INCONCLUSIVE,
            "EndpointUnmeasured",
            id="a fast pair of pods on one node, on which the verdict rests",
        ),
        pytest.param(
            own_nodes((*OWN, *BETWEEN, *map(endpoint, path_of(BETWEEN))), ASKED),
            Outcome.INCONCLUSIVE,
            "EndpointUnmeasured",
            id="an endpoint asked for, and missing within a node",
        ),
        pytest.param(case(measured=None), Outcome.UNKNOWN, "NotMeasured", id="no sweep yet"),
    ],
)
def test_layers_measured(seen: Case, outcome: Outcome, reason: str) -> None:
    assert found(criteria.layers_measured(seen)) == (outcome, reason)


@pytest.mark.parametrize(
    ("share", "transport", "advised"),
    [
        pytest.param(0.57, "tcp", True, id="READ over TCP at 57 % of its link, as NIXL was seen at 10 Gbit/s"),
        pytest.param(0.96, "tcp", False, id="a transport that keeps up"),
        pytest.param(0.57, "rdma", False, id="RDMA has no such segments"),
    ],
)
def test_where_the_transport_holds_paths_back_the_segment_size_is_advised(
    share: float, transport: str, *, advised: bool
) -> None:
    reads = [replace(endpoint(one, share * 1e9), transport=transport) for one in PATHS]
    message = criteria.layers_measured(case(measured=evidence([*everywhere(1e9), *reads]))).message
    assert ("UCX_TCP_TX_SEG_SIZE" in message) is advised


BOTH = {"fabric.probe.phases": ["Isolated", "Concurrent"]}
CROWDED = everywhere(phase=Phase.CONCURRENT)


@pytest.mark.parametrize(
    ("seen", "outcome", "reason"),
    [
        pytest.param(case(), Outcome.PASS, "PhasesMeasured", id="the one phase that was asked for"),
        pytest.param(case(BOTH), Outcome.INCONCLUSIVE, "PhaseUnmeasured", id="Concurrent asked for, and none came"),
        pytest.param(
            case(BOTH, measured=evidence(CROWDED)), Outcome.INCONCLUSIVE, "PhaseUnmeasured", id="Isolated never sampled"
        ),
        pytest.param(
            case(BOTH, measured=evidence([*CROWDED, *everywhere(paths=PATHS[:1])])),
            Outcome.PASS,
            "PhasesMeasured",
            id="Isolated beside Concurrent is sampled: one path is enough",
        ),
        pytest.param(
            case(BOTH, measured=evidence([*everywhere(), *CROWDED[1:]])),
            Outcome.INCONCLUSIVE,
            "PhaseUnmeasured",
            id="Concurrent missing on one path",
        ),
        pytest.param(case(measured=None), Outcome.UNKNOWN, "NotMeasured", id="no sweep yet"),
    ],
)
def test_phases_measured(seen: Case, outcome: Outcome, reason: str) -> None:
    assert found(criteria.phases_measured(seen)) == (outcome, reason)


EVERY: tuple[Callable[[Case], Finding], ...] = (
    criteria.evidence_fresh,
    criteria.paths_covered,
    criteria.paths_reachable,
    criteria.no_outlier,
    criteria.layers_measured,
    criteria.phases_measured,
    criteria.same_thing_measured,
)


@pytest.mark.parametrize("criterion", EVERY, ids=lambda criterion: criterion.__name__)
@pytest.mark.parametrize(
    "measured",
    [
        pytest.param(None, id="without a sweep"),
        pytest.param(evidence([], measured_at=MEASURED - timedelta(days=9)), id="after an empty sweep, long ago"),
    ],
)
def test_nothing_measured_passes_no_criterion(criterion: Callable[[Case], Finding], measured: Evidence | None) -> None:
    assert criterion(case(measured=measured)).outcome is not Outcome.PASS
