"""Which reports go when a newer sweep was kept: none that may still tell of a path."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from kvgate.api.meta import Meta
from kvgate.api.objects import FabricReport
from kvgate.api.report import PoolRef, ReportSpec, ShardRef
from kvgate.probe.reports import superseded

NOW = datetime(2027, 1, 31, 12, tzinfo=UTC)
TTL = timedelta(hours=48)


def index(run: int, hours_ago: float, paths: int | None = 100, in_use: int | None = 100) -> FabricReport:
    spec = ReportSpec(
        run_id=f"run-{run}",
        pool_ref=PoolRef(name="qwen3", uid="uid"),
        shards=(ShardRef(name=f"run-{run}-0", sha256="0" * 64),),
        measured_at=NOW - timedelta(hours=hours_ago),
        paths=paths,
        in_use=in_use,
    )
    return FabricReport(metadata=Meta(name=f"run-{run}"), spec=spec)


CASES: dict[str, tuple[list[FabricReport], int, list[str]]] = {
    "whole sweeps go by number alone": ([index(n, n) for n in range(4)], 2, ["run-2", "run-3"]),
    "reports of earlier versions are whole": ([index(n, n, in_use=None) for n in range(4)], 2, ["run-2", "run-3"]),
    "a whole sweep stays beneath parts": ([*(index(n, n, paths=5) for n in range(5)), index(5, 20)], 2, []),
    "what lies beneath the newest whole one goes": (
        [index(0, 0, paths=5), index(1, 1), index(2, 2, paths=5), index(3, 3)],
        2,
        ["run-2", "run-3"],
    ),
    "samples stay while they are alive": ([index(n, 10 * n, paths=5) for n in range(7)], 2, ["run-5", "run-6"]),
    "what was asked to be kept is kept longer": ([index(n, 30 * n) for n in range(4)], 3, ["run-3"]),
    "two are always kept, for one confirms the other": ([index(n, 30 * n) for n in range(3)], 1, ["run-2"]),
}


@pytest.mark.parametrize(("reports", "keep", "gone"), CASES.values(), ids=CASES)
def test_superseded(reports: list[FabricReport], keep: int, gone: list[str]) -> None:
    assert [report.metadata.name for report in superseded(reports, keep, TTL)] == gone


def test_parts_are_kept_no_more_than_a_hundred() -> None:
    many = [index(n, n / 10, paths=1) for n in range(150)]
    assert len(superseded(many, 2, TTL)) == 50


def test_a_sweep_that_says_it_ended_after_the_one_stored_last_goes_however_new_it_looks() -> None:
    ahead = [index(0, -0.2), index(1, -0.01), index(2, 0), index(3, 24)]
    gone = superseded(ahead, 3, TTL, NOW)
    assert [report.metadata.name for report in gone] == ["run-0"]
    assert superseded(ahead, 4, TTL) == ()
