"""The background: nothing waits, results arrive, exams end with their pool, and readiness ages."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest

from kvgate.core.serving import Exam, ExamKind, ExamResult, NamespaceReadiness, Readiness, Reply, Rollout
from kvgate.edge.canary import Frontend, Sitting
from kvgate.edge.verifier import Verifier

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
FRONTS = (Frontend("f0", "10.0.0.1"),)
READY = Readiness(True, (NamespaceReadiness("demo", True, {"aggregated": 1}),))
UNREADY = Readiness(False, (NamespaceReadiness("demo", False, {"decode": 1}, ("prefill",)),))


def eventually(holds: Callable[[], object], seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@dataclass
class Hall:
    """Sittings that end when they are let, and a clock that is set by hand."""

    now: datetime = NOW
    said: Readiness | str = READY
    let: threading.Event = field(default_factory=threading.Event)
    sat: list[Sitting] = field(default_factory=list)
    polls: int = 0

    def verifier(self) -> Verifier:
        return Verifier(lambda: self.now, self.ready, self.sit)

    def ready(self, front: Frontend, model: str) -> Readiness | str:
        self.polls += 1
        return self.said

    def sit(self, sitting: Sitting, clock: Callable[[], datetime]) -> ExamResult:
        self.sat.append(sitting)
        while not self.let.wait(0.01):
            if sitting.stopped():
                break
        replies = (Reply("f0", 100, len(self.sat)),)
        return ExamResult(sitting.exam.id, clock(), replies)


@pytest.fixture
def hall() -> Hall:
    return Hall()


def exam(name: str = "exam", **fields: object) -> Exam:
    return Exam(name, ExamKind.ANSWERS, "tiny", ((100, (1,)),), **fields)  # type: ignore[arg-type]


def test_a_look_never_waits_and_tells_what_has_arrived(hall: Hall) -> None:
    verifier = hall.verifier()
    first = verifier.seen("pool", "tiny", FRONTS, Rollout(1))
    assert first.frontends[0].readiness is None
    assert first.frontends[0].problem == "it has not answered yet"
    eventually(lambda: verifier.seen("pool", "tiny", FRONTS, Rollout(1)).frontends[0].readiness == READY)


def test_looks_within_a_second_ask_once(hall: Hall) -> None:
    verifier = hall.verifier()
    eventually(lambda: verifier.seen("pool", "tiny", FRONTS, Rollout(1)).frontends[0].readiness)
    for _ in range(20):
        verifier.seen("pool", "tiny", FRONTS, Rollout(1))
    assert hall.polls == 1
    hall.now += timedelta(seconds=1)
    verifier.seen("pool", "tiny", FRONTS, Rollout(1))
    eventually(lambda: hall.polls == 2)


def test_an_old_answer_is_none(hall: Hall) -> None:
    verifier = hall.verifier()
    eventually(lambda: verifier.seen("pool", "tiny", FRONTS, Rollout(1)).frontends[0].readiness)
    hall.now += timedelta(seconds=21)
    front = verifier.seen("pool", "tiny", FRONTS, Rollout(1)).frontends[0]
    assert (front.readiness, front.problem) == (None, "it has not been asked of late")


def test_a_clock_that_is_set_back_has_the_frontends_asked_anew(hall: Hall) -> None:
    verifier = hall.verifier()
    eventually(lambda: verifier.seen("pool", "tiny", FRONTS, Rollout(1)).frontends[0].readiness)
    hall.now, hall.said = hall.now - timedelta(hours=1), UNREADY
    front = verifier.seen("pool", "tiny", FRONTS, Rollout(1)).frontends[0]
    assert (front.readiness, front.problem) == (None, "it has not been asked of late")
    eventually(lambda: verifier.seen("pool", "tiny", FRONTS, Rollout(1)).frontends[0].readiness == UNREADY)


def test_unready_since_outlives_looks_that_fail_and_ends_with_a_ready_one(hall: Hall) -> None:
    verifier = hall.verifier()

    def since(said: Readiness | str) -> datetime | None:
        hall.said, before = said, hall.polls
        hall.now += timedelta(seconds=2)
        verifier.seen("pool", "tiny", FRONTS, Rollout(1))
        eventually(lambda: hall.polls > before)
        eventually(lambda: verifier.seen("pool", "tiny", (), Rollout(1)) and not _polling(verifier))
        return verifier.seen("pool", "tiny", FRONTS, Rollout(1)).frontends[0].unready_since

    began = NOW + timedelta(seconds=2)
    assert [since(UNREADY), since(UNREADY), since("Timeout"), since(READY)] == [began, began, began, None]


def _polling(verifier: Verifier) -> bool:
    return any(held.polling for held in verifier._held.values())


def results(verifier: Verifier) -> dict[str, ExamResult]:
    return dict(verifier.seen("pool", "tiny", (), Rollout(1)).results)


def test_an_exam_runs_once_and_its_result_arrives(hall: Hall) -> None:
    verifier = hall.verifier()
    for _ in range(3):
        assert verifier.start("pool", "Disaggregation", exam(), FRONTS)
    assert verifier.seen("pool", "tiny", (), Rollout(1)).running == {"exam"}
    hall.let.set()
    eventually(lambda: results(verifier))
    assert len(hall.sat) == 1
    assert verifier.seen("pool", "tiny", (), Rollout(1)).running == frozenset()


def test_another_exam_for_the_same_purpose_ends_the_first_and_its_result_is_none(hall: Hall) -> None:
    verifier = hall.verifier()
    verifier.start("pool", "Disaggregation", exam("old"), FRONTS)
    verifier.start("pool", "Routing", exam("other"), FRONTS)
    eventually(lambda: len(hall.sat) == 2)
    verifier.start("pool", "Disaggregation", exam("new"), FRONTS)
    eventually(lambda: verifier.seen("pool", "tiny", (), Rollout(1)).running == {"other", "new"})
    hall.let.set()
    eventually(lambda: set(results(verifier)) == {"other", "new"})


def test_a_window_keeps_the_replies_of_earlier_runs(hall: Hall) -> None:
    verifier = hall.verifier()
    hall.let.set()
    for run in range(1, 5):
        verifier.start("pool", "Disaggregation", exam(window=3), FRONTS)
        eventually(lambda: len(hall.sat) == run and not verifier.seen("pool", "tiny", (), Rollout(1)).running)  # noqa: B023
    assert [reply.seed for reply in results(verifier)["exam"].replies] == [2, 3, 4]


def test_a_pool_that_is_gone_is_asked_nothing_more(hall: Hall) -> None:
    verifier = hall.verifier()
    verifier.start("pool", "Disaggregation", exam(), FRONTS)
    eventually(lambda: hall.sat)
    verifier.forget("pool")
    assert hall.sat[0].stopped()
    assert results(verifier) == {}


def test_a_closed_verifier_begins_nothing_and_stops_what_runs(hall: Hall) -> None:
    verifier = hall.verifier()
    verifier.start("pool", "Disaggregation", exam(), FRONTS)
    eventually(lambda: hall.sat)
    verifier.close()
    assert hall.sat[0].stopped()
    assert not verifier.start("pool", "Disaggregation", exam("later"), FRONTS)


def test_one_that_no_longer_leads_asks_no_more(hall: Hall) -> None:
    leads = True
    verifier = Verifier(lambda: hall.now, hall.ready, hall.sit, lambda: leads)
    verifier.start("pool", "Disaggregation", exam(), FRONTS)
    eventually(lambda: hall.sat)
    assert not hall.sat[0].stopped()
    leads = False
    eventually(lambda: not verifier.seen("pool", "tiny", (), Rollout(1)).running)
    assert results(verifier) == {}


def test_only_so_many_exams_are_sat_at_once(hall: Hall) -> None:
    verifier = hall.verifier()
    begun = [verifier.start(f"pool-{number}", "Disaggregation", exam(), FRONTS) for number in range(10)]
    assert begun == [True] * 8 + [False] * 2


def test_a_fault_in_an_exam_is_told_as_its_problem() -> None:
    def broken(sitting: Sitting, clock: Callable[[], datetime]) -> ExamResult:
        raise RuntimeError("x")

    verifier = Verifier(lambda: NOW, lambda *_: "Timeout", broken)
    verifier.start("pool", "Disaggregation", exam(), FRONTS)
    eventually(lambda: results(verifier))
    assert results(verifier)["exam"].problem == "the prompts could not be asked: RuntimeError"
