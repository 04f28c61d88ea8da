"""What of several sweeps counts: the newest, older ones where it left paths out, and nothing of a node that changed."""

from __future__ import annotations

import dataclasses
from datetime import timedelta

import pytest

from kvgate.api.words import Capability, Outcome
from kvgate.core import evidence_criteria as criteria
from kvgate.core.evidence import Evidence, FailureKind, NodeIdentity, Path, Sample
from kvgate.core.judging import Case
from kvgate.core.standing import changes
from kvgate.core.verdicts import judge
from tests.core.cases import (
    GOOD,
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
    path,
)

WHO = NodeIdentity("d1", "uid", "boot", "6.18", "mlx5_core 24.10", "22.43", 9000, (("zone", "a"),), "probe@sha256:old")


@pytest.mark.parametrize(
    ("field", "value", "what"),
    [
        pytest.param("uid", "uid-2", "replaced", id="another node under its name"),
        pytest.param("boot_id", "boot-2", "rebooted", id="another boot"),
        pytest.param("kernel", "6.19", "has another kernel", id="another kernel"),
        pytest.param("driver", "mlx5_core 25.01", "has another driver on its interface", id="another driver"),
        pytest.param("firmware", "22.44", "has another firmware on its interface", id="another firmware"),
        pytest.param("mtu", 1500, "has another MTU on its interface", id="another MTU"),
        pytest.param("labels", (("zone", "b"),), "stands elsewhere by its labels", id="moved to another zone"),
        pytest.param("image", "probe@sha256:new", "was measured by another probe image", id="another probe image"),
        pytest.param("image", "", "", id="an image that nobody tells now"),
        pytest.param("driver", "", "", id="a driver that nobody tells now"),
        pytest.param("mtu", None, "", id="an MTU that nobody tells now"),
        pytest.param("labels", (), "", id="labels that nobody tells now"),
        pytest.param("labels", (("rack", "r"), ("zone", "a")), "", id="a key more that the pool looks at"),
        pytest.param("labels", (("rack", "r"), ("zone", "b")), "stands elsewhere by its labels", id="and another zone"),
        pytest.param("uid", "", "", id="a UID that nobody tells now"),
    ],
)
def test_what_makes_a_node_another(field: str, value: object, what: str) -> None:
    now = dataclasses.replace(WHO, **{field: value})  # type: ignore[arg-type]
    assert changes((WHO,), (now,)) == ({"d1": what} if what else {})


def test_what_was_not_told_then_changes_nothing_but_for_who_the_node_is() -> None:
    bare = NodeIdentity("d1", "uid", "boot", "6.18")
    assert changes((bare,), (WHO,)) == {}
    assert changes((NodeIdentity("d1"),), (WHO,)) == {"d1": "replaced"}


def test_a_node_that_left_or_joined_has_not_changed() -> None:
    assert changes((WHO,), ()) == {}
    assert changes((), (WHO,)) == {}


REBOOTED = nodes(identities=identities(d1=NodeIdentity("d1", "uid-d1", "boot-2", "6.18")))


def test_a_reboot_takes_the_numbers_of_its_own_paths_alone() -> None:
    seen = case(on=REBOOTED)
    assert [str(one.path) for one in seen.fabric.measured] == ["p1→d2", "p2→d2"]
    assert seen.unanswered == (path("p1→d1"), path("p2→d1"))
    finding = criteria.nodes_unchanged(seen)
    assert (finding.outcome, finding.reason) == (Outcome.UNKNOWN, "NodeNotCovered")
    assert "node d1 rebooted" in finding.message


def test_the_other_paths_are_still_judged_and_can_fail() -> None:
    dead = evidence([*everywhere(paths=PATHS[:3]), failed("p2→d2", FailureKind.STALLED_FLOW)])
    assert judge(case(on=REBOOTED), Capability.DISAGGREGATION).outcome is Outcome.UNKNOWN
    assert judge(case(on=REBOOTED, measured=dead), Capability.DISAGGREGATION).decisive.reason == "Unreachable"


def test_dead_paths_of_a_node_as_it_was_before_close_nothing() -> None:
    dead = [failed(one, FailureKind.NO_ROUTE) for one in PATHS if one.destination == "d1"]
    seen = case(on=REBOOTED, measured=evidence([*dead, *everywhere(paths=[p for p in PATHS if p.destination == "d2"])]))
    assert judge(seen, Capability.DISAGGREGATION).outcome is Outcome.UNKNOWN


def test_no_min_coverage_excuses_a_changed_node() -> None:
    low = {"criteria.disaggregation.minCoverage": "10%"}
    assert criteria.paths_covered(case(low, on=REBOOTED)).reason == "NodeNotCovered"
    assert judge(case(low, on=REBOOTED), Capability.DISAGGREGATION).outcome is Outcome.UNKNOWN


def swept(run: str, hours_ago: float, samples: tuple[Sample, ...], **fields: object) -> Evidence:
    own = tuple(dataclasses.replace(one, run_id=run) for one in samples)
    planned = tuple(dict.fromkeys(one.path for one in own))
    plain = evidence(own, run_id=run, measured_at=NOW - timedelta(hours=hours_ago))
    return dataclasses.replace(plain, **{"planned": planned, **fields})  # type: ignore[arg-type]


def over(*sweeps: Evidence, on: object = None) -> Case:
    """The case before the newest of these sweeps, newest first."""
    plain = case(measured=sweeps[0], on=on or nodes())  # type: ignore[arg-type]
    return dataclasses.replace(plain, world=dataclasses.replace(plain.world, evidence=sweeps))


WHOLE = swept("r1", 20, everywhere(GOOD))
PART = swept("r2", 1, everywhere(2 * GOOD, PATHS[:1]))


def test_a_sweep_of_some_paths_leaves_the_others_as_they_were() -> None:
    seen = over(PART, WHOLE)
    assert {str(one.path): one.bytes_per_second for one in seen.fabric.measured} == {
        "p1→d1": 2 * GOOD,
        "p1→d2": GOOD,
        "p2→d1": GOOD,
        "p2→d2": GOOD,
    }
    assert judge(seen, Capability.DISAGGREGATION).outcome is Outcome.PASS


def test_it_holds_until_the_oldest_of_them_dies() -> None:
    assert over(PART, WHOLE).expires_at == WHOLE.measured_at + timedelta(hours=48)
    assert over(PART, swept("r1", 47.99, everywhere(GOOD))).unanswered == ()
    assert over(PART, swept("r1", 48, everywhere(GOOD))).unanswered == PATHS[1:]


def test_a_path_that_the_newest_meant_to_measure_counts_by_it_alone() -> None:
    silent = swept("r2", 1, (failed(PATHS[0], FailureKind.SERVER_BUSY),))
    assert over(silent, WHOLE).unanswered == PATHS[:1]
    slow = over(swept("r2", 1, everywhere(1e6, PATHS[:1])), WHOLE)
    assert slow.worst_bytes_per_second == 1e6


def test_the_newer_of_the_older_ones_counts() -> None:
    middle = swept("r1b", 5, everywhere(3 * GOOD, PATHS[1:2]))
    rates = {str(one.path): one.bytes_per_second for one in over(PART, middle, WHOLE).fabric.measured}
    assert (rates["p1→d2"], rates["p2→d1"]) == (3 * GOOD, GOOD)


@pytest.mark.parametrize(
    "void",
    [
        pytest.param({"image": "probe@sha256:another"}, id="by another image"),
        pytest.param({"nodes": (NodeIdentity("p1", "old"),)}, id="of a node that was replaced"),
    ],
)
def test_no_number_comes_back_that_a_sweep_between_had_taken_the_place_of(void: dict[str, object]) -> None:
    between = swept("r1b", 5, (failed(PATHS[1], FailureKind.NO_ROUTE),), **void)
    part, whole = (dataclasses.replace(one, image="probe@sha256:new") for one in (PART, WHOLE))
    assert over(part, between, whole).unanswered == PATHS[1:2]
    assert over(part, whole).unanswered == ()


@pytest.mark.parametrize(
    "older",
    [
        pytest.param(dataclasses.replace(WHOLE, pool_uid="another"), id="of another pool"),
        pytest.param(dataclasses.replace(WHOLE, image="probe@sha256:old"), id="of another probe image"),
        pytest.param(dataclasses.replace(WHOLE, samples=everywhere(run_id="r0")), id="with samples of another run"),
        pytest.param(
            dataclasses.replace(WHOLE, nodes=(NodeIdentity("d2", "old"), NodeIdentity("p2", "old"))),
            id="of replaced nodes",
        ),
    ],
)
def test_what_is_not_ours_or_no_longer_true_fills_nothing_in(older: Evidence) -> None:
    part = dataclasses.replace(PART, image="probe@sha256:new")
    assert over(part, older).unanswered == PATHS[1:]
    assert over(part, WHOLE).unanswered == ()


@pytest.mark.parametrize(
    ("newer", "older", "counts"),
    [
        pytest.param(everywhere(), everywhere(streams=1), False, id="more streams than then"),
        pytest.param((*everywhere(), *map(endpoint, PATHS)), everywhere(), False, id="the KV transport besides"),
        pytest.param(
            (*everywhere(), *(endpoint(one, piece_bytes=16_384) for one in PATHS)),
            (*everywhere(), *(endpoint(one, piece_bytes=32_768) for one in PATHS)),
            False,
            id="smaller pieces, as of another model",
        ),
        pytest.param(everywhere(), (*everywhere(), *map(endpoint, PATHS)), True, id="the KV transport no longer"),
    ],
)
def test_what_was_tested_in_another_way_than_now_fills_nothing_in(
    newer: tuple[Sample, ...], older: tuple[Sample, ...], counts: bool
) -> None:
    first = tuple(one for one in newer if one.path == PATHS[0])
    seen = over(swept("r2", 1, first), swept("r1", 20, older))
    assert seen.unanswered == (() if counts else PATHS[1:])


def test_a_driver_that_the_newer_sweep_found_voids_the_older_numbers_of_that_node() -> None:
    def with_driver(driver: str) -> tuple[NodeIdentity, ...]:
        return identities(p1=NodeIdentity("p1", "uid-p1", "boot-p1", "6.18", driver))

    then = dataclasses.replace(WHOLE, nodes=with_driver("mlx5_core 24.10"))
    now = dataclasses.replace(PART, nodes=with_driver("mlx5_core 25.01"))
    assert over(now, then).unanswered == (path("p1→d2"),)


@pytest.mark.parametrize(
    ("version", "now", "left"),
    [
        pytest.param("iperf 3.12", "iperf 3.12", (), id="the same version"),
        pytest.param("iperf 3.12", "iperf 3.17", PATHS[1:3], id="another version, of the paths that it measured"),
        pytest.param("iperf 3.12", "", (), id="a version that nobody tells now"),
        pytest.param("", "iperf 3.17", (), id="a version that was not told then"),
    ],
)
def test_another_version_of_a_tool_takes_the_numbers_of_the_paths_that_the_old_one_measured(
    version: str, now: str, left: tuple[Path, ...]
) -> None:
    then = tuple(
        dataclasses.replace(one, tool_version=version if one.path in PATHS[1:3] else now) for one in WHOLE.samples
    )
    part = dataclasses.replace(PART, samples=tuple(dataclasses.replace(one, tool_version=now) for one in PART.samples))
    assert over(part, dataclasses.replace(WHOLE, samples=then)).unanswered == left


def test_beyond_max_paths_a_sample_covers_and_the_verdict_says_so() -> None:
    diagonal = (PATHS[0], PATHS[3])
    seen = case({"fabric.schedule.maxPaths": 2}, measured=evidence(everywhere(paths=diagonal), planned=diagonal))
    finding = criteria.paths_covered(seen)
    assert finding.outcome is Outcome.PASS
    assert "2 of 2 sampled paths" in finding.message
    assert "a sample of 4 paths in use, for schedule.maxPaths is 2" in finding.message
    one = case({"fabric.schedule.maxPaths": 2}, measured=evidence(everywhere(paths=PATHS[:1]), planned=PATHS[:1]))
    assert criteria.paths_covered(one).reason == "NodeNotCovered"


def test_the_measured_moment_is_that_of_the_newest() -> None:
    assert over(evidence(), WHOLE).evidence == evidence()
    assert evidence().measured_at == MEASURED
