"""The tiers of tests: what each needs, what a run of one amounts to, and the table that ends `make test`."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum


class Tier(StrEnum):
    """Everything that has a row in the table, in the order of running."""

    LINT = "lint"
    UNIT = "unit"
    LOCAL = "local"
    DYNAMO = "dynamo"
    BUILD = "build"
    API = "api"
    CLUSTER = "cluster"


MARKERS: Mapping[Tier, str] = {
    Tier.UNIT: "not local and not dynamo and not api and not cluster",
    Tier.LOCAL: "local and not dynamo and not api and not cluster",
    Tier.DYNAMO: "dynamo and not cluster",
    Tier.API: "api and not dynamo and not cluster",
    Tier.CLUSTER: "cluster",
}
TOOLS: Mapping[Tier, Sequence[str]] = {
    Tier.LOCAL: ("iperf3", "prometheus"),
    Tier.DYNAMO: ("dynamo-python", "go"),
    Tier.BUILD: ("go",),
    Tier.API: ("go",),
    Tier.CLUSTER: ("go", "ip", "iperf3", "containerd", "ctr", "runc", "nft", "prometheus"),
}
BESIDE = (Tier.BUILD, Tier.API)
"""What waits more than it computes runs beside the tiers before LOCAL; what measures links runs alone, after them."""
TRIED_TWICE = frozenset({Tier.UNIT, Tier.LOCAL, Tier.DYNAMO, Tier.API, Tier.CLUSTER})
"""Real sockets, threads or clocks: the few tests that failed are tried once more, and the table names them."""
MOST_TRIED_TWICE = 4
ONLY_ON_LINUX = frozenset({Tier.DYNAMO, Tier.BUILD, Tier.API, Tier.CLUSTER})
ONLY_AS_ROOT = frozenset({Tier.CLUSTER})
NEEDS_BUILD = frozenset({Tier.DYNAMO, Tier.API, Tier.CLUSTER})


@dataclass(frozen=True)
class Machine:
    """What decides which tiers can run: the system as uname names it, root or not, the commands found."""

    system: str
    root: bool
    commands: frozenset[str]


@dataclass(frozen=True)
class Counts:
    """Numbers of tests; an error in a fixture or at collection is a failure."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(self.passed + other.passed, self.failed + other.failed, self.skipped + other.skipped)


@dataclass(frozen=True)
class Row:
    """One line of the table; `bad` fails the whole run, `seconds` is None for what did not run."""

    tier: Tier
    seconds: float | None = None
    counts: Counts | None = None
    bad: bool = False
    remark: str = ""


def truthy(value: str) -> bool:
    return value.strip().lower() not in {"", "0", "false", "no", "off"}


def wanted(only: Tier | None, machine: Machine) -> tuple[Tier, ...]:
    """The rows of a run: all, or one tier with the build that it needs if it can run here."""
    if only is None:
        return tuple(Tier)
    builds = only in NEEDS_BUILD and not refusal(only, machine)
    return (Tier.BUILD, only) if builds else (only,)


def refusal(tier: Tier, machine: Machine, failed: frozenset[Tier] = frozenset()) -> str:
    """Why the tier cannot run on this machine after the tiers in `failed`; empty when it can."""
    if tier in ONLY_ON_LINUX and machine.system != "Linux":
        return f"needs Linux, and this is {machine.system}"
    if tier in ONLY_AS_ROOT and not machine.root:
        return "needs root: sudo make test"
    missing = [command for command in TOOLS.get(tier, ()) if command not in machine.commands]
    if missing:
        return f"not installed here: {', '.join(missing)}"
    return "the build failed" if tier in NEEDS_BUILD and Tier.BUILD in failed else ""


def not_run(tier: Tier, why: str, *, strict: bool) -> Row:
    """The row of a tier that did not run; `strict` is CI's rule, by which that is a failure."""
    return Row(tier, bad=strict, remark=f"NOT RUN: {why}")


def lanes(rows: Sequence[Tier]) -> tuple[tuple[Tier, ...], tuple[Tier, ...], tuple[Tier, ...]]:
    """Two lanes side by side, and what follows both."""
    beside = tuple(tier for tier in rows if tier in BESIDE)
    alone = tuple(tier for tier in rows if tier in {Tier.LOCAL, Tier.CLUSTER})
    return tuple(tier for tier in rows if tier not in {*beside, *alone}), beside, alone


def read_report(text: str) -> Counts | None:
    """The counts of a JUnit report; None when it is not one."""
    try:
        suites = list(ET.fromstring(text).iter("testsuite"))  # noqa: S314
    except ET.ParseError:
        return None
    tests, failures, errors, skipped = (
        sum(int(suite.get(name, "0")) for suite in suites) for name in ("tests", "failures", "errors", "skipped")
    )
    failed = failures + errors
    return Counts(max(0, tests - failed - skipped), failed, skipped)


def failed_tests(text: str) -> tuple[str, ...]:
    """The names of the tests that failed by a JUnit report."""
    cases = ET.fromstring(text).iter("testcase")  # noqa: S314
    bad = [case for case in cases if case.find("failure") is not None or case.find("error") is not None]
    return tuple(dict.fromkeys(case.get("name", "?") for case in bad))


def worth_a_second_try(row: Row) -> bool:
    """Failed tests alone, and few: a tier that failed otherwise, or widely, failed."""
    counts = row.counts
    few = counts is not None and 0 < counts.failed <= MOST_TRIED_TWICE
    return row.tier in TRIED_TWICE and row.bad and not row.remark and few


def after_second_try(first: Row, second: Row, names: Sequence[str]) -> Row:
    """The row of a tier whose failed tests ran again: bad unless every one of them ran and passed."""
    before, now = first.counts or Counts(), second.counts or Counts()
    seconds = (first.seconds or 0.0) + (second.seconds or 0.0)
    if second.bad or now.passed < len(names):
        return replace(first, seconds=seconds, remark=second.remark)
    counts = Counts(before.passed + before.failed, 0, before.skipped)
    return Row(first.tier, seconds, counts, remark=f"passed at the second try alone: {', '.join(names)}")


def tested(tier: Tier, seconds: float, code: int, counts: Counts | None, *, strict: bool) -> Row:
    """The row of a pytest run that ended with `code`; `strict` is CI's rule, by which a skip is a failure."""
    row = Row(tier, seconds, counts)
    if counts is None:
        return replace(row, bad=True, remark=f"pytest ended with {code} and left no report")
    if counts.failed:
        return replace(row, bad=True)
    if not counts.passed:
        return replace(row, bad=True, remark="no test ran")
    if code:
        return replace(row, bad=True, remark=f"pytest ended with {code}")
    if counts.skipped and strict:
        return replace(row, bad=True, remark="a skipped test is a failure under CI")
    return row


def total(rows: Sequence[Row]) -> Counts:
    """The sum of the rows, where a bad row in which no test failed counts as one failure."""
    return sum((_counted(row) for row in rows), Counts())


def _counted(row: Row) -> Counts:
    counts = row.counts or Counts()
    return replace(counts, failed=1) if row.bad and not counts.failed else counts


def table(rows: Sequence[Row]) -> str:
    """The rows, aligned."""
    lines = [("tier", "passed", "failed", "skipped", "minutes", ""), *map(_cells, rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(_line(cells, widths) for cells in lines)


def _cells(row: Row) -> tuple[str, ...]:
    counts = row.counts
    numbers = (counts.passed, counts.failed, counts.skipped) if counts else ("-", "-", "-")
    minutes = "-" if row.seconds is None else f"{row.seconds / 60:.1f}"
    verdict = "  ".join(word for word in ("FAILED" if row.bad else "", row.remark) if word)
    return (row.tier.value, *map(str, numbers), minutes, verdict)


def _line(cells: tuple[str, ...], widths: Sequence[int]) -> str:
    first, *numbers, last = cells
    middle = (cell.rjust(width) for cell, width in zip(numbers, widths[1:-1], strict=True))
    return "  ".join([first.ljust(widths[0]), *middle, last]).rstrip()


def ending(rows: Sequence[Row]) -> str:
    """The last line of a run."""
    counts = total(rows)
    return f"{counts.passed} passed, {counts.failed} failed, {counts.skipped} skipped"
