"""What `make test` makes of a machine, of a pytest run, and of all rows together."""

from __future__ import annotations

import pytest

import tiers
from tiers import Counts, Machine, Row, Tier

EVERYTHING = frozenset(command for commands in tiers.TOOLS.values() for command in commands)
LINUX_ROOT = Machine("Linux", root=True, commands=EVERYTHING)
LINUX_USER = Machine("Linux", root=False, commands=EVERYTHING)
MAC = Machine("Darwin", root=False, commands=EVERYTHING)
MAC_ROOT = Machine("Darwin", root=True, commands=EVERYTHING)
GOOD = Row(Tier.UNIT, 60.0, Counts(10))


def _without(*commands: str) -> Machine:
    return Machine("Linux", root=True, commands=EVERYTHING - set(commands))


@pytest.mark.parametrize(
    ("machine", "runs"),
    [
        pytest.param(LINUX_ROOT, set(Tier), id="root on Linux runs all"),
        pytest.param(LINUX_USER, set(Tier) - {Tier.CLUSTER}, id="a user on Linux runs all but the cluster"),
        pytest.param(MAC, {Tier.LINT, Tier.UNIT, Tier.LOCAL}, id="macOS runs lint, unit and local"),
        pytest.param(MAC_ROOT, {Tier.LINT, Tier.UNIT, Tier.LOCAL}, id="root on macOS runs no more"),
        pytest.param(_without("go"), {Tier.LINT, Tier.UNIT, Tier.LOCAL}, id="without Go nothing that is built runs"),
        pytest.param(_without("dynamo-python"), set(Tier) - {Tier.DYNAMO}, id="without Dynamo all but its tier"),
        pytest.param(_without("containerd"), set(Tier) - {Tier.CLUSTER}, id="without containerd no cluster"),
        pytest.param(
            _without("iperf3"), set(Tier) - {Tier.LOCAL, Tier.CLUSTER}, id="without iperf3 no local and no cluster"
        ),
    ],
)
def test_a_machine_runs(machine: Machine, runs: set[Tier]) -> None:
    assert {tier for tier in Tier if not tiers.refusal(tier, machine)} == runs


@pytest.mark.parametrize(
    ("tier", "machine", "words"),
    [
        pytest.param(Tier.API, MAC, "needs Linux, and this is Darwin", id="the wrong system is named"),
        pytest.param(Tier.CLUSTER, LINUX_USER, "needs root: sudo make test", id="the way to root is shown"),
        pytest.param(Tier.CLUSTER, _without("runc", "ctr"), "not installed here: ctr, runc", id="each lack is named"),
    ],
)
def test_a_refusal_says_why(tier: Tier, machine: Machine, words: str) -> None:
    assert tiers.refusal(tier, machine) == words


def test_a_failed_build_refuses_what_needs_it_and_nothing_else() -> None:
    refused = {tier for tier in Tier if tiers.refusal(tier, LINUX_ROOT, frozenset({Tier.BUILD}))}
    assert refused == {Tier.DYNAMO, Tier.API, Tier.CLUSTER}


@pytest.mark.parametrize(
    ("only", "machine", "rows"),
    [
        pytest.param(None, MAC, tuple(Tier), id="nothing asked for is everything, on any machine"),
        pytest.param(Tier.UNIT, LINUX_ROOT, (Tier.UNIT,), id="unit needs no build"),
        pytest.param(Tier.API, LINUX_USER, (Tier.BUILD, Tier.API), id="api brings the build"),
        pytest.param(Tier.CLUSTER, LINUX_ROOT, (Tier.BUILD, Tier.CLUSTER), id="cluster brings the build"),
        pytest.param(Tier.CLUSTER, LINUX_USER, (Tier.CLUSTER,), id="nothing is built for a tier that cannot run"),
    ],
)
def test_wanted_rows(only: Tier | None, machine: Machine, rows: tuple[Tier, ...]) -> None:
    assert tiers.wanted(only, machine) == rows


@pytest.mark.parametrize(
    ("code", "counts", "strict", "bad"),
    [
        pytest.param(0, Counts(3), True, False, id="all passed is good"),
        pytest.param(0, Counts(3, 0, 1), False, False, id="a skip is good at a desk"),
        pytest.param(0, Counts(3, 0, 1), True, True, id="a skip is a failure under CI"),
        pytest.param(1, Counts(3, 1), False, True, id="a failed test is a failure"),
        pytest.param(0, Counts(3, 1), False, True, id="a failed test is a failure whatever the exit code"),
        pytest.param(5, Counts(), False, True, id="no test is a failure"),
        pytest.param(0, Counts(0, 0, 4), False, True, id="all skipped is no test"),
        pytest.param(0, None, False, True, id="no report is a failure"),
        pytest.param(3, Counts(3), False, True, id="a bad exit with passed tests is a failure"),
    ],
)
def test_a_run_of_a_tier(code: int, counts: Counts | None, strict: bool, bad: bool) -> None:
    row = tiers.tested(Tier.UNIT, 1.0, code, counts, strict=strict)
    assert row.bad is bad


@pytest.mark.parametrize(
    ("xml", "counts"),
    [
        pytest.param(
            '<testsuites><testsuite tests="9" failures="2" errors="1" skipped="3"/></testsuites>',
            Counts(3, 3, 3),
            id="errors count as failed",
        ),
        pytest.param('<testsuite tests="2"/>', Counts(2), id="a lone suite"),
        pytest.param('<testsuites><testsuite tests="0"/></testsuites>', Counts(), id="no test"),
        pytest.param('<testsuites><testsuite tests="9"', None, id="a report cut short is no report"),
        pytest.param("", None, id="an empty file is no report"),
    ],
)
def test_reading_a_report(xml: str, counts: Counts | None) -> None:
    assert tiers.read_report(xml) == counts


FAILED_ONCE = Row(Tier.API, 600.0, Counts(5, 2, 1), bad=True)


@pytest.mark.parametrize(
    ("row", "worth"),
    [
        pytest.param(FAILED_ONCE, True, id="two failed of a tier with real clocks"),
        pytest.param(Row(Tier.UNIT, 1.0, Counts(5, 2), bad=True), True, id="two failed of a tier with threads"),
        pytest.param(Row(Tier.LINT, 1.0, Counts(5, 2), bad=True), False, id="a linter complains for good"),
        pytest.param(Row(Tier.API, 1.0, Counts(5, 5), bad=True), False, id="many failed"),
        pytest.param(Row(Tier.API, 1.0, Counts(5)), False, id="none failed"),
        pytest.param(Row(Tier.API, 1.0, None, bad=True, remark="no report"), False, id="there is no report"),
        pytest.param(Row(Tier.API, 1.0, Counts(5, 0, 2), bad=True, remark="skips"), False, id="a skip under CI"),
    ],
)
def test_what_is_tried_twice(row: Row, worth: bool) -> None:
    assert tiers.worth_a_second_try(row) is worth


@pytest.mark.parametrize(
    ("second", "after"),
    [
        pytest.param(
            Row(Tier.API, 60.0, Counts(2)),
            Row(Tier.API, 660.0, Counts(7, 0, 1), remark="passed at the second try alone: a, b"),
            id="both pass: good, and named",
        ),
        pytest.param(
            Row(Tier.API, 60.0, Counts(1, 1), bad=True),
            Row(Tier.API, 660.0, Counts(5, 2, 1), bad=True),
            id="one fails again",
        ),
        pytest.param(Row(Tier.API, 60.0, Counts(1)), Row(Tier.API, 660.0, Counts(5, 2, 1), bad=True), id="one ran"),
        pytest.param(
            Row(Tier.API, 60.0, None, bad=True, remark="no test ran"),
            Row(Tier.API, 660.0, Counts(5, 2, 1), bad=True, remark="no test ran"),
            id="none ran",
        ),
    ],
)
def test_after_a_second_try(second: Row, after: Row) -> None:
    assert tiers.after_second_try(FAILED_ONCE, second, ("a", "b")) == after


def test_the_names_of_what_failed() -> None:
    cases = (
        '<testcase name="good"/><testcase name="a"><failure/></testcase>'
        '<testcase name="b"><error/></testcase><testcase name="b"><error/></testcase>'
    )
    assert tiers.failed_tests(f"<testsuites><testsuite>{cases}</testsuite></testsuites>") == ("a", "b")


def test_links_are_measured_when_nothing_runs_beside() -> None:
    assert tiers.lanes(tuple(Tier)) == (
        (Tier.LINT, Tier.UNIT, Tier.DYNAMO),
        (Tier.BUILD, Tier.API),
        (Tier.LOCAL, Tier.CLUSTER),
    )


@pytest.mark.parametrize(
    ("rows", "line"),
    [
        pytest.param([GOOD, GOOD], "20 passed, 0 failed, 0 skipped", id="rows add up"),
        pytest.param([GOOD, Row(Tier.LINT, 1.0)], "10 passed, 0 failed, 0 skipped", id="linters are no tests"),
        pytest.param([GOOD, Row(Tier.LINT, 1.0, bad=True)], "10 passed, 1 failed, 0 skipped", id="a linter fails"),
        pytest.param(
            [GOOD, Row(Tier.API, 1.0, Counts(1, 2, 3), bad=True)],
            "11 passed, 2 failed, 3 skipped",
            id="failed tests stand for their tier",
        ),
        pytest.param(
            [GOOD, tiers.not_run(Tier.API, "no", strict=True)],
            "10 passed, 1 failed, 0 skipped",
            id="not run is a failure under CI",
        ),
        pytest.param(
            [GOOD, tiers.not_run(Tier.API, "no", strict=False)],
            "10 passed, 0 failed, 0 skipped",
            id="not run is no failure at a desk",
        ),
    ],
)
def test_the_last_line(rows: list[Row], line: str) -> None:
    assert tiers.ending(rows) == line


def test_the_table_is_aligned_and_says_what_did_not_run() -> None:
    rows = [
        Row(Tier.LINT, 30.0),
        Row(Tier.UNIT, 90.0, Counts(1200, 1, 0), bad=True),
        tiers.not_run(Tier.CLUSTER, "needs root: sudo make test", strict=False),
    ]
    assert tiers.table(rows).splitlines() == [
        "tier     passed  failed  skipped  minutes",
        "lint          -       -        -      0.5",
        "unit       1200       1        0      1.5  FAILED",
        "cluster       -       -        -        -  NOT RUN: needs root: sudo make test",
    ]


@pytest.mark.parametrize(
    ("value", "strict"),
    [("true", True), ("1", True), ("yes", True), ("", False), ("0", False), ("false", False), ("False", False)],
)
def test_what_counts_as_ci(value: str, strict: bool) -> None:
    assert tiers.truthy(value) is strict
