"""The generator as a process: it refuses what it cannot run, and tells why it ended."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kvgate_bench.wire import TRACE, Plan, decode_log, encode_plan
from tests.bench.plans import plan


def started(folder: Path, asked: Plan, *words: str) -> subprocess.Popen[str]:
    (folder / "plan.json").write_text(encode_plan(asked))
    command = (sys.executable, "-m", "kvgate_bench", "run", "--plan", str(folder / "plan.json"))
    last_word = ("--termination-log", str(folder / "last"))
    return subprocess.Popen((*command, *last_word, *words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize(
    ("asked", "words", "said"),
    [
        pytest.param(plan(workload=TRACE), (), "the plan asks for a trace", id="no trace"),
        pytest.param(plan(workload=TRACE), ("--trace", "/nowhere"), "No such file", id="a trace that is not there"),
        pytest.param(
            plan(workload=TRACE, trace_digest="0" * 64),
            ("--trace", __file__),
            "its ConfigMap was changed meanwhile",
            id="another trace than was planned for",
        ),
        pytest.param(plan(cache_blocks=50), (), "more than 20%", id="a workload that does not fit"),
    ],
)
def test_a_workload_that_cannot_be_sent_is_told_as_an_ab_that_was_aborted(
    tmp_path: Path, asked: Plan, words: tuple[str, ...], said: str
) -> None:
    process = started(tmp_path, asked, *words)
    out, err = process.communicate(timeout=60)
    ending = decode_log(out, "ab1").ending
    assert process.returncode == 2
    assert ending is not None
    assert said in ending.aborted
    assert said in err
    assert said in (tmp_path / "last").read_text()


def test_a_plan_that_cannot_be_kept_is_refused_with_a_reason(tmp_path: Path) -> None:
    process = started(tmp_path, plan(blocks=1))
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (2, "")
    assert "blocks must be" in err
    assert "blocks must be" in (tmp_path / "last").read_text()


def test_frontends_that_never_serve_end_it_and_it_says_so(tmp_path: Path) -> None:
    process = started(tmp_path, plan(ready_seconds=0.2))
    out, _ = process.communicate(timeout=60)
    ending = decode_log(out, "ab1").ending
    assert process.returncode == 0
    assert ending is not None
    assert "frontend of RoundRobin and KV does not serve tiny" in ending.aborted


def test_told_to_end_it_says_so_and_ends(tmp_path: Path) -> None:
    process = started(tmp_path, plan(ready_seconds=600.0))
    time.sleep(1.5)
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=60)
    ending = decode_log(out, "ab1").ending
    assert process.returncode == 143
    assert ending is not None
    assert ending.aborted == "the load generator was told to end"
