"""pytest fixture `stage`: an empty stage for one test; a failed test shows the end of each process's log."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from tests.dynamo_stage.stage import Stage, open_stage

_STAGE = pytest.StashKey[Stage]()


@pytest.fixture
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stage]:
    with open_stage(tmp_path / "logs") as opened:
        request.node.stash[_STAGE] = opened
        yield opened


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.when == "call" and report.failed and _STAGE in item.stash:
        tails = item.stash[_STAGE].tails()
        report.sections += [(f"end of the log of {name}", tail) for name, tail in tails.items()]
    return report
