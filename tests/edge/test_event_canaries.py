"""Canaries as they are sent: a new prompt and its repeat, one at a time, bounded, and nothing without the Lease."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

import pytest

from kvgate.core.events_seen import Canary, CanaryState, EventsSeen, Routes, WorkerSeen
from kvgate.core.serving import Exam, Reply
from kvgate.dynamo.canary import Question, request
from kvgate.edge.canary import Frontend
from kvgate.edge.event_canaries import MOST_BUSY, EventCanaries
from tests.edge.test_verifier import eventually

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
FRONTS = (Frontend("f0", "10.0.0.1"), Frontend("f1", "10.0.0.2"))
W1, W2 = (Canary(f"w{n}", n, 65, state=CanaryState("s")) for n in (1, 2))
EVENTS = EventsSeen(Routes.KV, tuple(WorkerSeen(f"w{n}", "Worker", instance=n) for n in (1, 2)))


@dataclass
class Workers:
    """Frontends that answer once they are let, and a clock that is set by hand. `failure` is what the next say."""

    now: datetime = NOW
    leads: bool = True
    failure: str = ""
    raises: bool = False
    let: threading.Event = field(default_factory=threading.Event)
    asked: list[tuple[str, Question, str]] = field(default_factory=list)
    at_once: int = 0
    most_at_once: int = 0

    def sender(self) -> EventCanaries:
        return EventCanaries(lambda: self.now, lambda: self.leads, self.ask, settle_seconds=0.01)

    def ask(self, frontend: Frontend, exam: Exam, question: Question, salt: str, words: int) -> Reply:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        self.asked.append((frontend.name, question, salt))
        self.let.wait(10)
        self.at_once -= 1
        if self.raises:
            raise ValueError(exam.id)
        return Reply(frontend.name, words, 0, question.round, failure=self.failure, prompt_tokens=100, cached_tokens=5)


@pytest.fixture
def workers() -> Workers:
    held = Workers()
    held.let.set()
    return held


def known(sender: EventCanaries, events: EventsSeen = EVENTS) -> EventsSeen:
    seen = sender.known("a/p", events)
    assert seen is not None
    return seen


def done(sender: EventCanaries) -> EventsSeen:
    eventually(lambda: not known(sender).asking)
    return known(sender)


def test_each_prompt_is_new_and_comes_twice_to_one_worker_through_one_frontend(workers: Workers) -> None:
    sender = workers.sender()
    assert sender.start("a/p", "m", FRONTS, (W1, W2))
    seen = done(sender)
    assert [(name, q.round, q.pair) for name, q, _ in workers.asked] == [
        ("f0", 0, (None, 1)),
        ("f1", 0, (None, 2)),
        ("f0", 1, (None, 1)),
        ("f1", 1, (None, 2)),
    ]
    salts = [salt for *_, salt in workers.asked]
    assert salts[:2] == salts[2:]
    assert len(set(salts)) == 2
    assert workers.most_at_once == 1
    (answer,) = seen.workers[0].canaries
    assert (answer.state, answer.failure, answer.again is not None, seen.canaries_at) == (
        CanaryState("s"),
        "",
        True,
        NOW,
    )


def test_the_next_canary_of_a_worker_takes_the_next_frontend_and_another_prompt(workers: Workers) -> None:
    sender = workers.sender()
    for _ in range(2):
        assert sender.start("a/p", "m", FRONTS, (W1,))
        done(sender)
    (first, _, salt), *_, (later, _, another) = workers.asked
    assert (first, later) == ("f0", "f1")
    assert salt != another
    assert len(done(sender).workers[0].canaries) == 2


def test_one_that_is_refused_is_not_sent_again_and_told_as_failed(workers: Workers) -> None:
    workers.failure = "HTTP503"
    sender = workers.sender()
    sender.start("a/p", "m", FRONTS, (W1,))
    (answer,) = done(sender).workers[0].canaries
    assert (answer.failure, answer.again, len(workers.asked)) == ("HTTP503", None, 1)


def test_a_fault_of_ours_is_told_as_failed_too(workers: Workers) -> None:
    workers.raises = True
    sender = workers.sender()
    sender.start("a/p", "m", FRONTS, (W1,))
    (answer,) = done(sender).workers[0].canaries
    assert answer.failure == "ValueError"


def test_a_round_begins_only_when_the_last_is_over(workers: Workers) -> None:
    workers.let.clear()
    sender = workers.sender()
    assert sender.start("a/p", "m", FRONTS, (W1,))
    assert known(sender).asking
    assert not sender.start("a/p", "m", FRONTS, (W2,))
    workers.let.set()
    done(sender)
    assert sender.start("a/p", "m", FRONTS, (W2,))


def test_few_pools_are_asked_at_once(workers: Workers) -> None:
    workers.let.clear()
    sender = workers.sender()
    began = [sender.start(f"a/p{n}", "m", FRONTS, (W1,)) for n in range(MOST_BUSY + 2)]
    assert began == [True] * MOST_BUSY + [False] * 2
    workers.let.set()


def test_without_the_lease_nobody_is_asked(workers: Workers) -> None:
    workers.leads = False
    sender = workers.sender()
    sender.start("a/p", "m", FRONTS, (W1,))
    assert done(sender).workers[0].canaries == ()
    assert workers.asked == []


def test_a_lease_that_is_lost_half_way_leaves_no_half_answer(workers: Workers) -> None:
    workers.let.clear()
    sender = workers.sender()
    sender.start("a/p", "m", FRONTS, (W1, W2))
    eventually(lambda: workers.asked)
    workers.leads = False
    workers.let.set()
    assert [worker.canaries for worker in done(sender).workers] == [(), ()]
    assert len(workers.asked) == 1


def test_a_pool_that_is_gone_or_suspended_ends_its_round(workers: Workers) -> None:
    workers.let.clear()
    sender = workers.sender()
    sender.start("a/p", "m", FRONTS, (W1, W2))
    eventually(lambda: workers.asked)
    assert sender.known("a/p", None) is None
    workers.let.set()
    assert known(sender).canaries_at is None
    eventually(lambda: workers.at_once == 0)
    assert len(workers.asked) == 1


def test_answers_of_workers_that_are_gone_are_forgotten(workers: Workers) -> None:
    sender = workers.sender()
    sender.start("a/p", "m", FRONTS, (W1,))
    done(sender)
    known(sender, replace(EVENTS, workers=EVENTS.workers[1:]))
    assert known(sender).workers[0].canaries == ()


def test_without_a_frontend_nothing_is_sent(workers: Workers) -> None:
    sender = workers.sender()
    assert not sender.start("a/p", "m", (), (W1,))
    assert not known(sender).asking


def test_what_was_put_to_the_frontends_is_told_for_a_day(workers: Workers) -> None:
    sender = workers.sender()
    sender.start("a/p", "m", FRONTS, (W1, W2))
    done(sender)
    eventually(lambda: sender.own("a/p"))
    (own,) = sender.own("a/p")
    assert (own.requests, own.failed, own.prompt_tokens, own.cached_tokens) == (4, 0, 400, 20)
    workers.now += timedelta(days=2)
    assert sender.own("a/p") == ()


@pytest.mark.parametrize(
    ("prefills", "pin"),
    [
        pytest.param(False, {"backend_instance_id": 1}, id="a worker that does both"),
        pytest.param(True, {"prefill_worker_id": 1}, id="a prefill worker, with any decode worker"),
    ],
)
def test_the_request_names_its_worker(workers: Workers, prefills: bool, pin: dict[str, int]) -> None:
    sender = workers.sender()
    sender.start("a/p", "m", FRONTS, (replace(W1, prefills=prefills),))
    done(sender)
    _, question, salt = workers.asked[0]
    body = request(Exam("", "Repeats", "m", ()), question, salt, 65)  # type: ignore[arg-type]
    nvext = body["nvext"]
    assert isinstance(nvext, dict)
    assert {name: value for name, value in nvext.items() if name.endswith("_id") and name != "extra"} == pin
    assert body["max_tokens"] == 4
