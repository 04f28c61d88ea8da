"""Who is at fault: tables of tests between nodes, the smallest explanation of the bad ones, and what is asked next."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvgate.api.words import Phase
from kvgate.core.evidence import FailureKind, Path, Sample
from kvgate.core.faults import Part, Suspect, Trials, further_tests, suspects, trials_of
from kvgate.core.faults_told import blame
from kvgate.core.topology import Places
from tests.core.cases import evidence, failed, path, sample

RACK = "topology.kubernetes.io/rack"
NOWHERE = Places({})
SLOW, FAST = 10e6, 250e6


def between(sources: Iterable[str], destinations: Iterable[str]) -> tuple[Path, ...]:
    ends = tuple(destinations)
    return tuple(Path(source, end) for source in sources for end in ends if source != end)


def trials(paths: Iterable[Path], bad: Iterable[str] = (), dead: Iterable[str] = ()) -> Trials:
    slow, silent = {path(name) for name in bad}, {path(name) for name in dead}
    samples = [
        failed(one, FailureKind.STALLED_FLOW) if one in silent else sample(one, SLOW if one in slow else FAST)
        for one in paths
    ]
    return trials_of(evidence(samples), 0.0)


def told(found: Iterable[Suspect]) -> list[tuple[Part, str, bool]]:
    return [(suspect.part, suspect.name, suspect.settled) for suspect in found]


THREE = between(("p1", "p2", "p3"), ("d1", "d2", "d3"))


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        pytest.param(trials(THREE), [], id="nothing bad, nobody suspected"),
        pytest.param(
            trials(THREE, ["p1→d1"]), [(Part.PATH, "p1→d1", True)], id="one bad test between good ends is its path"
        ),
        pytest.param(
            trials(THREE, ["p1→d1", "p1→d2", "p1→d3"]),
            [(Part.SENDER, "p1", True)],
            id="all that one node sends is bad: its sending",
        ),
        pytest.param(
            trials(THREE, dead=["p1→d2", "p2→d2", "p3→d2"]),
            [(Part.RECEIVER, "d2", True)],
            id="nothing arrives at one node: its receiving",
        ),
        pytest.param(
            trials(THREE, ["p1→d1", "p2→d2"]),
            [(Part.PATH, "p1→d1", True), (Part.PATH, "p2→d2", True)],
            id="two bad tests that share no end are two paths",
        ),
        pytest.param(
            trials(THREE, ["p1→d1", "p1→d2"]),
            [(Part.PATH, "p1→d1", True), (Part.PATH, "p1→d2", True)],
            id="a node with one good test is not at fault as a whole",
        ),
        pytest.param(
            trials(between("abc", "abc"), ["a→b", "a→c", "b→a", "c→a"]),
            [(Part.NODE, "a", True)],
            id="bad both ways is the node, not its two directions",
        ),
        pytest.param(
            trials(between(("p1",), ("d1", "d2", "d3")), ["p1→d1"]),
            [(Part.PATH, "p1→d1", False)],
            id="with one sender the path and its receiver are not told apart",
        ),
        pytest.param(
            trials([path("p→d")], dead=["p→d"]), [(Part.PATH, "p→d", False)], id="two nodes tell nothing apart"
        ),
        pytest.param(
            trials(THREE, dead=[str(one) for one in THREE]),
            [(Part.FABRIC, "all paths", True)],
            id="where nothing is good, no part stands out",
        ),
    ],
)
def test_the_smallest_explanation_is_named(seen: Trials, expected: list[tuple[Part, str, bool]]) -> None:
    assert told(suspects(seen, NOWHERE)) == expected


RACKS = Places({name: {RACK: name[0]} for name in ("a1", "a2", "a3", "b1", "b2", "c1", "c2")})
ACROSS = between(("a1", "a2"), ("a3", "b1", "b2", "c1"))
INTO_B = ["a1→b1", "a1→b2", "a2→b1", "a2→b2"]


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        pytest.param(
            trials(ACROSS, INTO_B), [(Part.UPLINK, "from rack a to rack b", False)], id="all from one rack to another"
        ),
        pytest.param(
            trials((*ACROSS, path("b2→b1"), path("b1→b2")), INTO_B),
            [(Part.UPLINK, "from rack a to rack b", True)],
            id="nodes that receive well within their rack are cleared",
        ),
        pytest.param(
            trials((*ACROSS, path("b2→b1"), path("b1→b2")), [*INTO_B, "a1→c1", "a2→c1"]),
            [(Part.UPLINK, "out of rack a", True)],
            id="all out of one rack",
        ),
    ],
)
def test_a_link_that_racks_share_is_told_from_its_nodes(seen: Trials, expected: list[tuple[Part, str, bool]]) -> None:
    assert told(suspects(seen, RACKS)) == expected


def test_a_test_beside_others_accuses_nobody_that_did_well_alone() -> None:
    samples = [sample("p1→d1", SLOW, phase=Phase.CONCURRENT), *(sample(one, FAST) for one in THREE)]
    assert suspects(trials_of(evidence(samples), 0.0), NOWHERE) == ()


def test_a_path_below_what_is_asked_for_is_bad_however_alike_all_are() -> None:
    seen = trials_of(evidence([sample(one, FAST) for one in THREE]), 2 * FAST)
    assert told(suspects(seen, NOWHERE)) == [(Part.FABRIC, "all paths", True)]


def test_what_could_not_be_looked_at_accuses_nobody() -> None:
    samples = [failed("p1→d1", FailureKind.SERVER_BUSY), *(sample(one, FAST) for one in THREE[1:])]
    assert suspects(trials_of(evidence(samples), 0.0), NOWHERE) == ()


def test_the_verdict_names_the_part_and_the_tests_for_and_against() -> None:
    seen = trials(THREE, ["p1→d1", "p2→d1", "p3→d1"])
    said = blame(suspects(seen, NOWHERE), seen)
    for part in ("node d1, receiving", "p1→d1 10.0 MB/s", "p2→d1", "good: p1→d2 250.0 MB/s", "p2→d2"):
        assert part in said
    assert blame((), seen) == ""


def test_a_suspicion_that_no_test_bears_out_says_so() -> None:
    seen = trials([path("p→d")], dead=["p→d"])
    assert "path p→d alone, as far as was tested (bad: p→d nothing" in blame(suspects(seen, NOWHERE), seen)


def asked(seen: Trials, where: Places = NOWHERE) -> list[str]:
    return [str(one) for one in further_tests(seen, suspects(seen, where))]


@pytest.mark.parametrize(
    ("seen", "where", "expected"),
    [
        pytest.param(trials(THREE), NOWHERE, [], id="nothing where nothing is bad"),
        pytest.param(trials(THREE, ["p1→d1"]), NOWHERE, ["p1→d1"], id="a bad path once more"),
        pytest.param(
            trials(THREE, ["p1→d1", "p2→d1", "p3→d1"]),
            NOWHERE,
            ["p1→d1", "p2→d1"],
            id="two of a bad receiver's paths once more",
        ),
        pytest.param(
            trials(between(("p1",), ("d1", "d2", "d3")), ["p1→d1"]),
            NOWHERE,
            ["p1→d1", "d2→d1"],
            id="a bad receiver that has but one sender, with another",
        ),
        pytest.param(trials([path("p→d")], dead=["p→d"]), NOWHERE, ["p→d"], id="between two nodes the test again"),
        pytest.param(
            trials(ACROSS, INTO_B),
            RACKS,
            ["a1→b1", "b2→b1", "a1→b2", "b1→b2"],
            id="the ends of a bad shared link within their own rack",
        ),
        pytest.param(
            trials(THREE, dead=[str(one) for one in THREE]), NOWHERE, [], id="nothing where no part stands out"
        ),
    ],
)
def test_what_is_asked_for_next(seen: Trials, where: Places, expected: list[str]) -> None:
    assert asked(seen, where) == expected


def answered(samples: list[Sample], truth: Mapping[str, set[str]]) -> list[Sample]:
    """Ask until nothing more is asked for: each test of a faulty sender, receiver or path is slow, all others fast."""

    def test(one: Path) -> Sample:
        hit = one.source in truth["senders"] or one.destination in truth["receivers"] or str(one) in truth["paths"]
        return sample(one, SLOW if hit else FAST)

    for _ in range(20):
        seen = trials_of(evidence(samples), 0.0)
        more = further_tests(seen, suspects(seen, NOWHERE))
        if not more:
            return samples
        samples = [*samples, *map(test, more)]
    raise AssertionError(f"still asks for {more}")


NODES = ("n1", "n2", "n3", "n4", "n5", "n6")


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("kind", [Part.SENDER, Part.RECEIVER, Part.PATH], ids=lambda kind: kind.name.lower())
def test_one_planted_fault_is_found_from_one_test_per_node(kind: Part, seed: int) -> None:
    """Each node is first tested once or twice only, as of a sample; the second pass must find the one culprit."""
    dice = Random(seed)
    ring = [Path(one, NODES[(number + 1) % len(NODES)]) for number, one in enumerate(NODES)]
    culprit = dice.choice(ring)
    name = {Part.SENDER: culprit.source, Part.RECEIVER: culprit.destination, Part.PATH: str(culprit)}[kind]
    truth: dict[str, set[str]] = {"senders": set(), "receivers": set(), "paths": set()}
    truth[{Part.SENDER: "senders", Part.RECEIVER: "receivers", Part.PATH: "paths"}[kind]].add(name)
    faulty = culprit.source in truth["senders"] or culprit.destination in truth["receivers"] or kind is Part.PATH
    assert faulty
    samples = answered([sample(one, SLOW if one == culprit else FAST) for one in ring], truth)
    found = suspects(trials_of(evidence(samples), 0.0), NOWHERE)
    assert told(found) == [(kind, name, True)]
    assert len(samples) <= len(ring) + 6


@settings(max_examples=150, deadline=None)
@given(st.sets(st.sampled_from(between(NODES, NODES)), min_size=1), st.randoms(use_true_random=False))
def test_every_bad_test_is_explained_no_good_one_accused_and_asking_ends(tested: set[Path], dice: Random) -> None:
    bad = {one for one in sorted(tested) if dice.random() < 0.4}
    samples = [sample(one, SLOW if one in bad else FAST) for one in sorted(tested)]
    seen = trials_of(evidence(samples), 0.0)
    found = suspects(seen, NOWHERE)
    assert {one for suspect in found for one in suspect.bad} == seen.bad
    assert all(path not in seen.good for suspect in found for path in suspect.bad)
    slow_nodes = {"senders": set[str](), "receivers": set[str](), "paths": {str(one) for one in bad}}
    assert len(answered(samples, slow_nodes)) >= len(samples)
