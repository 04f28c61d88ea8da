"""An API server that does not answer for longer than a Lease stands: nothing is lost, and nothing is done twice."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cluster.leftovers import Kind, Ledger
from tests.cluster.processes import Process
from tests.cluster.waiting import eventually
from tests.e2e.running import Operator
from tests.e2e.stage import SPLIT, Scene, Stage, is_split, leave, waits_for_approval

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

OUTAGE_SECONDS = 30.0
"""Twice as long as the Lease is held."""
LEADS, LOST = "leading: this process acts", "not leading"


@contextmanager
def away(stage: Stage) -> Iterator[None]:
    """The API server keeps its connections and answers nothing; what was asked meanwhile it does once it is back."""
    (api_server,) = [pid for pid in processes_of(stage) if "kube-apiserver" in command_of(pid)]
    os.kill(api_server, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(api_server, signal.SIGCONT)


def processes_of(stage: Stage) -> list[int]:
    """Those that the tests' cluster has noted as its own."""
    entries = Ledger(stage.access.directory).entries()
    noted = (Process(int(entry.name), entry.start_ticks) for entry in entries if entry.kind is Kind.PROCESS)
    return [process.pid for process in noted if process.runs()]


def command_of(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text().partition("\0")[0]


def test_while_the_api_server_is_away_nothing_is_lost_and_nothing_is_done_twice(
    shaped: Stage, scene: Scene, operator: Operator, request: pytest.FixtureRequest
) -> None:
    """One pool's sweep has just begun, and another's plan was approved a moment ago."""
    shaped.shape("2500mbit")
    scene.gate("2s")
    seen = scene.wait_for("a plan to approve", waits_for_approval)
    other, mark = Scene(shaped, operator, f"{scene.name}-b"), shaped.mark()
    request.addfinalizer(lambda: leave(shaped.access, other.name))
    other.deploy()
    other.gate("2s")
    other.wait_for("its Jobs", lambda status: status.sweep is not None)
    scene.approve(seen, "ReducedCapacity")
    led, lost = operator.said(LEADS), operator.said(LOST)
    with away(shaped):
        time.sleep(OUTAGE_SECONDS)
        assert (operator.said(LEADS), operator.said(LOST)) == (led, lost + 1)

    eventually(lambda: operator.said(LEADS) == led + 1)
    seen = scene.wait_for("split", is_split)
    assert (scene.modes(), scene.patches(mark)) == (SPLIT, 1)
    assert [entry.action for entry in seen.status.history] == ["Enabled"]
    seen = other.wait_for("a plan to approve", waits_for_approval)
    assert (other.jobs_made(mark), other.jobs(), other.reports()) == (2, [], 1)
