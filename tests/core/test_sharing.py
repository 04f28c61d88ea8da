"""Paths that slow each other down: found against what they carry alone, named by where they go, and judged."""

from __future__ import annotations

import dataclasses

import pytest

from kvgate.api.words import Outcome, Phase
from kvgate.core import fabric_criteria as criteria
from kvgate.core import split_criteria
from kvgate.core.evidence import NodeIdentity, Sample
from kvgate.core.judging import Case
from kvgate.core.sharing import shared_links
from kvgate.core.statuses import fabric as fabric_status
from kvgate.core.topology import Places
from tests.core.cases import PATHS, case, everywhere, evidence, identities, nodes, sample

RACK = "topology.kubernetes.io/rack"
TWO_RACKS = Places({"p1": {RACK: "a"}, "p2": {RACK: "a"}, "d1": {RACK: "b"}, "d2": {RACK: "b"}})
NOWHERE = Places({})
ALONE = 118e6


def beside(slot: int, **rates: float) -> list[Sample]:
    """The tests of one slot of the concurrent phase: `p1d1=59e6` is the path p1→d1."""
    return [sample(f"{name[:2]}→{name[2:]}", rate, phase=Phase.CONCURRENT, slot=slot) for name, rate in rates.items()]


HALVED = [*beside(1, p1d1=59e6, p2d2=59e6), *beside(2, p1d2=58e6, p2d1=60e6)]
FREE = [*beside(1, p1d1=117e6, p2d2=116e6), *beside(2, p1d2=118e6, p2d1=117e6)]


def test_a_shared_trunk_is_found_and_named_by_the_racks_that_it_joins() -> None:
    (link,) = shared_links(evidence([*everywhere(ALONE), *HALVED]), TWO_RACKS)
    assert link.name == "what traffic from rack a to rack b shares"
    assert link.paths == tuple(sorted(PATHS))
    assert (link.together, link.alone) == (118e6, 236e6)
    assert link.oversubscription == pytest.approx(2.0)


def test_without_labels_it_is_named_by_its_paths() -> None:
    (link,) = shared_links(evidence([*everywhere(ALONE), *HALVED]), NOWHERE)
    assert link.name == "what p1→d1, p1→d2, p2→d1 share"
    assert link.paths == tuple(sorted(PATHS))


def test_paths_that_share_unevenly_share_all_the_same() -> None:
    (link,) = shared_links(evidence([*everywhere(ALONE), *beside(1, p1d1=100e6, p2d2=18e6)]), TWO_RACKS)
    assert link.name == "what traffic from rack a to rack b shares"
    assert link.oversubscription == pytest.approx(2.0)


@pytest.mark.parametrize(
    "samples",
    [
        pytest.param(FREE, id="paths that do not disturb each other"),
        pytest.param([], id="no concurrent phase"),
        pytest.param(beside(1, p1d1=59e6, p2d2=118e6), id="one path alone that was slower: nothing that is shared"),
        pytest.param([dataclasses.replace(one, slot=None) for one in HALVED], id="tests that nobody says ran at once"),
    ],
)
def test_no_link_is_invented(samples: list[Sample]) -> None:
    assert shared_links(evidence([*everywhere(ALONE), *samples]), TWO_RACKS) == ()


def test_tests_of_two_sweeps_never_ran_at_once_whatever_their_slots_are_called() -> None:
    first, second = beside(1, p1d1=59e6, p2d2=59e6)
    sweeps = [*everywhere(ALONE), first, dataclasses.replace(second, run_id="run-0")]
    assert shared_links(evidence(sweeps), TWO_RACKS) == ()


def test_what_was_never_alone_cannot_be_said_to_be_squeezed() -> None:
    assert shared_links(evidence(HALVED), TWO_RACKS) == ()


def trunk(*samples: Sample, peak: str = "0.2") -> Case:
    placed = tuple(
        dataclasses.replace(node, labels=((RACK, "a" if node.name.startswith("p") else "b"),)) for node in identities()
    )
    changes = {"fabric.probe.phases": ["Isolated", "Concurrent"], "workload.peakRequestsPerSecond": peak}
    measured = evidence([*everywhere(ALONE), *samples], nodes=placed)
    return case(changes, measured=measured, on=nodes(identities=placed))


def test_the_verdict_tells_of_it_with_both_figures() -> None:
    finding = criteria.sharing_told(trunk(*HALVED))
    assert (finding.outcome, finding.reason) == (Outcome.PASS, "LinksShared")
    for part in ("from rack a to rack b", "2 paths carry 118.0 MB/s", "236.0 MB/s", "2.0 to 1"):
        assert part in finding.message
    assert criteria.sharing_told(trunk(*FREE)).reason == "NoLinkShared"


def test_the_smaller_of_the_phases_is_judged() -> None:
    assert trunk(*HALVED).judged_bytes_per_second == 58e6
    assert trunk(*FREE).judged_bytes_per_second == 116e6


def test_a_trunk_is_a_place_that_fills_up() -> None:
    """0.3 requests/s of 345 MB fill 118 MB/s to 88 %; with no skew two nodes of 58 MB/s each are at 89 %."""
    held = trunk(*HALVED, peak="0.3")
    assert [(uplink.name, uplink.traffic_share) for uplink in held.uplinks] == [
        ("what traffic from rack a to rack b shares", 1.0)
    ]
    assert 0.3 * 3008 * 114_688 / held.uplinks[0].aggregate_bytes_per_second == pytest.approx(0.877, abs=0.001)
    assert split_criteria.load_bearable(held).reason == "PathOversubscribed"


def test_the_status_holds_link_and_classes() -> None:
    status = fabric_status(trunk(*HALVED))
    assert status is not None
    (link,) = status.shared_links
    assert (link.paths, link.together_bytes_per_second, link.alone_bytes_per_second) == (4, 118_000_000, 236_000_000)
    (stratum,) = status.strata
    assert (stratum.name, stratum.paths, stratum.judged_bytes_per_second) == ("other rack", 4, 58_000_000)


def test_without_labels_there_are_no_classes() -> None:
    status = fabric_status(case())
    assert status is not None
    assert (status.strata, status.shared_links, status.suspects) == ((), (), ())
    assert NodeIdentity("x").labels == ()
