"""What a worker makes of a turn: when the next one is due, what is logged, what is told, and what is survived."""

import json
import logging
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import pytest

from kvgate.app.operator import workers
from kvgate.app.operator.grounds import GuardedGround, described
from kvgate.app.operator.leadership import NotLeadingError
from kvgate.app.operator.logs import JSONLines
from kvgate.app.operator.meters import Meters
from kvgate.app.operator.queue import DelayQueue
from kvgate.app.operator.workers import REST_AFTER_FAILURE_SECONDS, Office, Workers
from kvgate.core.steps import Introduce, Measure
from kvgate.edge.errors import EdgeError, WriteConflictError
from tests.app.operator.memory_ground import MemoryGround, pool, until
from tests.core import cases

KEY = "serving/qwen3"
NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)


@dataclass
class Bench:
    """One worker's surroundings on a clock that the test turns; chance takes nothing away."""

    ground: MemoryGround = field(default_factory=lambda: MemoryGround({KEY: pool(KEY)}))
    seconds: float = 100.0
    leads: bool = True
    gone: list[str] = field(default_factory=list)
    meters: Meters = field(default_factory=Meters)
    pools: int = 1

    def __post_init__(self) -> None:
        self.queue = DelayQueue(lambda: self.seconds)
        guarded = GuardedGround(self.ground, self._require, self.meters)
        self.workers = Workers(
            Office(
                self.queue,
                guarded,
                lambda: NOW,
                lambda: self.leads,
                self.gone.append,
                lambda: 0.0,
                self.meters,
                pools=lambda: self.pools,
            )
        )

    def _require(self) -> None:
        if not self.leads:
            raise NotLeadingError

    def turn(self) -> None:
        self.queue.add(KEY)
        key = self.queue.take(0)
        assert key == KEY
        self.workers.serve(key)

    def next_in(self, within: float = 7200.0) -> float | None:
        """Seconds until the key is given out again; None when it is not within so many."""
        began = self.seconds
        while self.seconds < began + within:
            if self.queue.take(0):
                self.queue.done(KEY)
                return round(self.seconds - began, 1)
            self.seconds += 0.1
        return None


@pytest.fixture
def lines() -> Iterator[list[dict[str, str]]]:
    """Each line of the log, as it would be printed."""
    found: list[dict[str, str]] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            found.append(json.loads(JSONLines().format(record)))

    logger, handler = logging.getLogger("kvgate"), Keep()
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    yield found
    logger.removeHandler(handler)


def test_a_turn_is_followed_by_another_when_the_ring_asks_for_it() -> None:
    bench = Bench()
    bench.turn()

    assert bench.ground.count("write_status", KEY) == 1
    assert bench.next_in() is not None


def test_an_event_that_comes_right_after_a_turn_waits_for_the_rest_and_is_not_lost() -> None:
    bench = Bench()
    bench.turn()
    bench.queue.add(KEY)

    assert bench.next_in() == pytest.approx(0.2, abs=0.11)


def test_a_failing_turn_comes_back_later_each_time_and_a_good_one_forgives() -> None:
    bench = Bench()

    def fail(call: str, key: str) -> None:
        raise EdgeError("the API server gave no answer")

    bench.ground.before = fail
    waits = []
    for _ in range(9):
        bench.turn()
        waits.append(bench.next_in())
        bench.seconds += REST_AFTER_FAILURE_SECONDS
    bench.ground.before = lambda _call, _key: None
    bench.turn()
    assert bench.next_in() is not None
    bench.seconds += 1
    bench.ground.before = fail
    bench.turn()

    assert waits == pytest.approx([1, 2, 4, 8, 16, 32, 60, 60, 60], abs=0.11)
    assert bench.next_in() == pytest.approx(1, abs=0.11)


def test_what_is_watched_is_looked_at_in_time_however_often_a_step_failed() -> None:
    bench = Bench()

    def refuse(call: str, key: str) -> None:
        error = EdgeError("the webhook answered: no")
        error.within_seconds = 15.0
        raise error

    bench.ground.before = refuse
    waits = []
    for _ in range(6):
        bench.turn()
        waits.append(bench.next_in())
        bench.seconds += REST_AFTER_FAILURE_SECONDS
    assert waits == pytest.approx([1, 2, 4, 8, 15, 15], abs=0.11)


def test_events_do_not_hurry_a_failing_pool_into_a_hot_loop() -> None:
    bench = Bench()

    def fail_and_stir(call: str, key: str) -> None:
        bench.queue.add(KEY)
        raise EdgeError("refused")

    bench.ground.before = fail_and_stir
    bench.turn()
    bench.queue.add(KEY)

    assert bench.next_in() == pytest.approx(REST_AFTER_FAILURE_SECONDS, abs=0.11)


def test_a_conflict_is_no_noise_until_it_repeats(lines: list[dict[str, str]]) -> None:
    bench = Bench()

    def conflict(call: str, key: str) -> None:
        raise WriteConflictError("it was changed since it was read")

    bench.ground.before = conflict
    levels = []
    for _ in range(4):
        bench.turn()
        levels.append(lines[-1]["level"])
        bench.seconds += 100
        bench.queue.take(0)
        bench.queue.done(KEY)

    assert levels == ["debug", "debug", "debug", "warning"]


def test_a_pool_that_is_gone_is_let_go() -> None:
    bench = Bench(ground=MemoryGround())
    bench.turn()

    assert bench.gone == [KEY]
    assert bench.next_in() is None


def test_a_fault_of_ours_in_one_pool_is_logged_with_its_place_and_survived(lines: list[dict[str, str]]) -> None:
    bench = Bench()

    def break_down(call: str, key: str) -> None:
        raise ZeroDivisionError("a secret in the message")

    bench.ground.before = break_down
    bench.turn()

    assert (lines[-1]["level"], lines[-1]["pool"]) == ("error", KEY)
    assert "break_down" in lines[-1]["traceback"]
    assert bench.next_in() == pytest.approx(1, abs=0.11)


def test_a_fault_of_ours_in_how_long_one_pool_may_rest_is_survived_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """The moments that it looks ahead to are judged by nobody else."""

    def break_down(*_: object) -> float:
        raise ZeroDivisionError

    monkeypatch.setattr(workers, "rest_seconds", break_down)
    bench = Bench(MemoryGround({KEY: replace(pool(KEY), spec=cases.spec({"suspend": True}))}))
    bench.turn()

    assert bench.next_in() == pytest.approx(1, abs=0.11)


def test_who_loses_the_lease_in_the_middle_of_a_turn_writes_nothing_more_and_keeps_the_key() -> None:
    bench = Bench()

    def lose(call: str, key: str) -> None:
        bench.leads = False

    bench.ground.before = lose
    bench.turn()

    assert bench.ground.calls == [("observe", KEY)]
    assert bench.next_in() is not None


def test_the_status_is_told_as_events_after_it_was_written_and_an_unchanged_one_is_not(
    lines: list[dict[str, str]],
) -> None:
    bench = Bench()
    bench.turn()
    calls = [call for call, _ in bench.ground.calls]
    told = len(bench.ground.told)
    bench.seconds += 10
    bench.turn()

    assert calls[:3] == ["observe", "write_status", "tell"]
    assert told > 0
    assert len(bench.ground.told) == told
    assert [line["pool"] for line in lines if line["message"] == "status written"] == [KEY]


def test_an_event_that_cannot_be_posted_ends_no_turn(lines: list[dict[str, str]]) -> None:
    bench = Bench()

    def mute(call: str, key: str) -> None:
        if call == "tell":
            raise EdgeError("events: the API server answers with status 403")

    bench.ground.before = mute
    bench.turn()

    assert "events could not be posted" in [line["message"] for line in lines]
    assert "the turn failed" not in [line["message"] for line in lines]


def test_each_step_that_was_taken_is_one_line_and_one_that_failed_is_none(lines: list[dict[str, str]]) -> None:
    bench = Bench()
    bench.turn()
    steps = [line for line in lines if line["message"] == "step taken"]

    assert len(steps) == bench.ground.count("carry_out", KEY) == 1
    assert steps[0]["step"] == "Measure"


def test_a_step_is_described_by_names_alone() -> None:
    assert described(Measure("run-1", (), "FirstSweep")) == {"run_id": "run-1", "reason": "FirstSweep"}
    assert described(Introduce("run-1")) == {"run_id": "run-1"}


def test_workers_that_do_not_lead_take_nothing_and_begin_when_they_do() -> None:
    bench = Bench(leads=False)
    bench.queue.add(KEY)
    stop = threading.Event()
    thread = threading.Thread(target=bench.workers.run, args=[stop, lambda: None])
    thread.start()
    try:
        stop.wait(0.2)
        assert bench.ground.calls == []
        bench.leads = True
        until(lambda: bench.ground.count("observe", KEY) > 0)
    finally:
        stop.set()
        bench.queue.close()
        thread.join(10)
    assert not thread.is_alive()


def test_the_more_pools_there_are_the_longer_one_at_rest_is_left_alone() -> None:
    """All together they ask less than one thing a second of the API server: each look asks nine."""
    waits = []
    for count in (1, 20, 100, 1000):
        suspended = replace(pool(KEY), spec=cases.spec({"suspend": True}))
        bench = Bench(MemoryGround({KEY: suspended}), pools=count)
        for _ in range(3):
            bench.turn()
            bench.seconds += 1
        waits.append(bench.next_in(30_000))
    assert waits == pytest.approx([300, 300, 1500, 15000], abs=2)
