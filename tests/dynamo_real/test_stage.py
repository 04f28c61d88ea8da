"""The stage itself: real processes that come up, answer with text, can be made deterministic, and are all ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.cluster.processes import marked
from tests.cluster.waiting import eventually
from tests.dynamo_stage import model, replay
from tests.dynamo_stage.specs import Role, Worker
from tests.dynamo_stage.stage import Stage, open_stage

pytestmark = pytest.mark.dynamo
ROOT = Path(__file__).parents[2]


def test_an_answer_has_text_and_names_the_worker(stage: Stage) -> None:
    frontend = stage.frontend()
    stage.worker("w1")
    stage.until_ready(frontend)
    answer = frontend.door.chat("hello", max_tokens=5)
    words = [answer.text[place : place + 4] for place in range(0, len(answer.text), 4)]
    assert (answer.status, answer.completion_tokens, len(words), set(words) <= set(model.WORDS)) == (200, 5, 5, True)
    assert answer.decode_worker is not None


def test_a_replayed_answer_is_the_same_from_each_worker_and_wrong_where_a_trace_is_wrong(
    stage: Stage, tmp_path: Path
) -> None:
    right = replay.write_trace(tmp_path / "right.jsonl", {"needle": ["baba", "kobo"]})
    wrong = replay.write_trace(tmp_path / "wrong.jsonl", {"needle": ["baba", "kobu"]})
    frontend = stage.frontend()
    stage.workers(sound=Worker(replay=right), corrupt=Worker(replay=wrong))
    stage.until_ready(frontend)

    def texts() -> set[str]:
        return {frontend.door.chat("what?", annotations=[replay.annotation("needle")]).text for _ in range(4)}

    stage.until(lambda: len(texts()) == 2, "both workers to answer", frontend)
    assert texts() == {"babakobo", "babakobu"}


def test_a_split_answer_replays_from_the_decode_worker(stage: Stage, tmp_path: Path) -> None:
    trace = replay.write_trace(tmp_path / "trace.jsonl", {"needle": ["baba", "kobo", "dudu"]})
    frontend = stage.frontend()
    stage.workers(p1=Worker(Role.PREFILL, replay=trace), d1=Worker(Role.DECODE, replay=trace))
    stage.until_ready(frontend)
    answer = frontend.door.chat("what?", annotations=[replay.annotation("needle")])
    assert (answer.text, answer.split) == ("babakobodudu", True)


INTERRUPTED = """
    import sys, time
    from pathlib import Path
    from tests.dynamo_stage.stage import open_stage
    with open_stage(Path(sys.argv[1])) as stage:
        stage.worker("w1")
        Path(sys.argv[1], "state").write_text(str(stage.ledger.state))
        time.sleep(600)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_outlives_a_run_that_is_stopped(number: signal.Signals, tmp_path: Path) -> None:
    told = tmp_path / "state"
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(INTERRUPTED), str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stderr=subprocess.DEVNULL,
    )
    eventually(lambda: told.exists() and told.read_text(), 60)
    state = told.read_text()
    assert marked("KVGATE_TEST_STATE", state)
    child.send_signal(number)
    child.wait(30)
    if number == signal.SIGKILL:
        with open_stage(tmp_path / "next"):
            pass
    assert (marked("KVGATE_TEST_STATE", state), Path(state).exists()) == ([], False)
