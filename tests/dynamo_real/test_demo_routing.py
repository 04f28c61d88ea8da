"""`kvgate demo routing` with Dynamo's own frontends and mock workers: as promised, and stopped on its way."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kvgate.app.demo_routing import DEPLOYMENTS
from tests.dynamo_stage.stage import require_dynamo

pytestmark = [pytest.mark.dynamo, pytest.mark.timeout(240)]
COMMAND = [sys.executable, "-m", "kvgate.app", "demo", "routing", "-o", "json"]
PROCESSES = 6


@contextmanager
def demo(temporary: Path, *arguments: str | Path) -> Iterator[subprocess.Popen[str]]:
    """The demo, whose temporary files go into a folder of their own."""
    require_dynamo()
    temporary.mkdir()
    command = [*COMMAND, *map(str, arguments)]
    environment = {**os.environ, "TMPDIR": str(temporary)}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def at_work_in(folder: Path) -> list[int]:
    """The processes that work in this folder, or below it."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            inside = (entry / "cwd").resolve().is_relative_to(folder)
        except OSError:
            continue
        found += [int(entry.name)] if inside else []
    return found


def until_at_work(folder: Path, process: subprocess.Popen[str]) -> None:
    ends = time.monotonic() + 60
    while len(at_work_in(folder)) < PROCESSES:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < ends, f"{len(at_work_in(folder))} of {PROCESSES} processes run"
        time.sleep(0.1)


def until_nobody_works_in(folder: Path) -> None:
    """The kernel ends with kvgate what it had started and not yet noted."""
    ends = time.monotonic() + 20
    while at_work_in(folder):
        assert time.monotonic() < ends, at_work_in(folder)
        time.sleep(0.1)


def condition(pool: dict[str, Any], kind: str) -> tuple[str, str, str]:
    held = next(one for one in pool["status"]["conditions"] if one["type"] == kind)
    return held["status"], held["reason"], held["message"]


def publishing(pool: dict[str, Any]) -> tuple[int, int]:
    events = pool["status"]["routing"]["events"]
    return events["publishingWorkers"], events["expectedWorkers"]


def test_events_that_come_are_healthy_and_without_them_the_gate_stays_shut(tmp_path: Path) -> None:
    with demo(tmp_path / "temporary", "--keep", tmp_path / "kept") as process:
        out, err = process.communicate(timeout=220)
    assert (process.returncode, err) == (0, "")
    pools = {pool["name"]: pool for pool in json.loads(out)["pools"]}
    on, off = (pools[one.name] for one in DEPLOYMENTS)
    assert condition(on, "KVEventsHealthy")[:2] == ("True", "KVEventsPublished")
    assert publishing(on) == (2, 2)
    assert condition(off, "KVEventsHealthy")[:2] == ("False", "KVEventsDisabled")
    assert "--no-enable-prefix-caching" in condition(off, "KVEventsHealthy")[2]
    assert publishing(off) == (0, 2)
    assert [pool["status"]["capabilities"][0]["enabled"] for pool in (on, off)] == [False, False]
    assert [pool["done"] for pool in (on, off)] == [[], []]
    assert at_work_in(tmp_path) == []
    assert list((tmp_path / "temporary").iterdir()) == []


@pytest.mark.parametrize(
    ("number", "code", "said"),
    [(signal.SIGINT, 130, "kvgate: error: stopped"), (signal.SIGTERM, 143, "")],
    ids=["Ctrl-C", "SIGTERM"],
)
def test_stopped_on_its_way_it_ends_every_process(number: signal.Signals, code: int, said: str, tmp_path: Path) -> None:
    with demo(tmp_path / "temporary") as process:
        until_at_work(tmp_path, process)
        process.send_signal(number)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err.strip()) == (code, "", said)
    until_nobody_works_in(tmp_path)
    assert list((tmp_path / "temporary").iterdir()) == []


def test_killed_it_leaves_no_process(tmp_path: Path) -> None:
    with demo(tmp_path / "temporary") as process:
        until_at_work(tmp_path, process)
        process.kill()
        process.communicate(timeout=30)
        until_nobody_works_in(tmp_path)


def test_a_python_without_dynamo_is_told_of(tmp_path: Path) -> None:
    with demo(tmp_path / "temporary", "--dynamo-python", sys.executable) as process:
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (2, "")
    assert "No module named 'dynamo'" in err
    assert err.count("\n") == 1
