"""Canary requests and exams over real HTTP: bounded in time, told in one word when they fail, and salted."""

from __future__ import annotations

import threading
import time
from collections import Counter
from datetime import UTC, datetime

import pytest

from kvgate.core.serving import Exam, ExamKind, ExamResult, Pair, Readiness, Reply
from kvgate.dynamo.canary import Question
from kvgate.edge.canary import Frontend, Sitting, ask, readiness
from tests.cluster.waiting import eventually
from tests.edge.frontend_double import Manners, frontend

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


def exam(kind: ExamKind = ExamKind.ANSWERS, **fields: object) -> Exam:
    plain: dict[str, object] = {"seeds": ((400, (1, 2, 3)),), "request_seconds": 2.0, "seconds": 20.0}
    return Exam("exam", kind, "tiny", **{**plain, **fields})  # type: ignore[arg-type]


def sit(manners: Manners, asked: Exam, fronts: int = 1, stopped: bool = False) -> ExamResult:
    with frontend(manners) as address:
        held = [Frontend(f"f{number}", address) for number in range(fronts)]
        return Sitting(asked, held, lambda: stopped).sit(lambda: NOW)


def one(manners: Manners, seconds: float = 2.0) -> Reply:
    with frontend(manners) as address:
        return ask(Frontend("f0", address), exam(request_seconds=seconds), Question(400, 1, 0, 0), "salt", 10)


def test_an_answer_comes_with_its_time_its_workers_and_its_digest() -> None:
    reply = one(Manners(first_token_seconds=0.3))
    assert (reply.failure, reply.pair, reply.frontend) == ("", (1, 2), "f0")
    assert reply.ttft_seconds == pytest.approx(0.3, abs=0.25)
    assert len(reply.answer) == 12
    assert reply.prompt_tokens is not None


FAILURES = {
    "refused with 503": (Manners(status=503), "HTTP503"),
    "too busy with 529": (Manners(status=529), "HTTP529"),
    "longer than the request may take": (Manners(first_token_seconds=5.0), "Timeout"),
    "a byte now and then, for ever": (Manners(drips=True), "Timeout"),
    "cut before its end": (Manners(cut_after=2), "Cut"),
}


@pytest.mark.parametrize(("manners", "word"), FAILURES.values(), ids=FAILURES)
def test_a_failure_is_one_word_and_never_takes_longer_than_it_may(manners: Manners, word: str) -> None:
    began = time.monotonic()
    assert one(manners, 1.0).failure == word
    assert time.monotonic() - began < 4.0
    eventually(lambda: not any(thread.name == "bounded-http" for thread in threading.enumerate()), 3)


def test_nobody_there_is_a_failure_too() -> None:
    reply = ask(Frontend("f0", "127.0.0.1:9"), exam(), Question(400, 1, 0, 0), "salt", 10)
    assert reply.failure == "ConnectionRefusedError"


def test_readiness_is_asked_and_what_stands_in_the_way_is_told() -> None:
    with frontend(Manners()) as address:
        assert readiness(Frontend("f0", address), "tiny") == Readiness(True)
    with frontend(Manners(status=404)) as address:
        assert (
            readiness(Frontend("f0", address), "tiny") == "/v1/models/tiny/ready answered 404 with no readiness in it"
        )
    assert "ConnectionRefusedError" in str(readiness(Frontend("f0", "127.0.0.1:9"), "tiny"))


PLACES = {"10.0.0.7": ("10.0.0.7", 8000), "127.0.0.1:1234": ("127.0.0.1", 1234), "fd00::7": ("fd00::7", 8000)}


@pytest.mark.parametrize(("address", "place"), PLACES.items())
def test_a_frontend_answers_at_8000_unless_its_address_says_otherwise(address: str, place: tuple[str, int]) -> None:
    assert Frontend("f0", address).place == place


def test_prompts_have_the_asked_length_and_each_its_own_salt() -> None:
    manners = Manners()
    result = sit(manners, exam(rounds=3))
    assert (result.problem, result.failures, len(result.replies)) == ("", (), 9)
    assert all(abs((reply.prompt_tokens or 0) - 400) <= 20 for reply in result.replies)
    texts = [body["messages"][0]["content"] for body in manners.asked]  # type: ignore[index]
    assert len({text.splitlines()[0] for text in texts}) == len(texts)
    assert len({text[:6] for text in texts}) > len(texts) / 4, "salts differ from their first letter on"
    assert len({text.split("\n", 1)[1] for text in texts[-9:]}) == 3, "three needles, whatever the salt"


def test_every_pair_is_pinned_once_all_workers_were_met() -> None:
    result = sit(Manners(pairs=((1, 3), (2, 4))), exam(prefills=2, decodes=2))
    pairs: set[Pair] = {(1, 3), (1, 4), (2, 3), (2, 4)}
    assert Counter(reply.pair for reply in result.replies) == dict.fromkeys(pairs, 3)


def test_pairs_that_the_exam_names_need_not_be_met() -> None:
    result = sit(Manners(), exam(pairs=((7, 8), (9, 9))))
    assert Counter(reply.pair for reply in result.replies) == {(7, 8): 3, (9, 9): 3}


def test_repeats_share_their_whole_prompt() -> None:
    manners = Manners()
    result = sit(manners, exam(ExamKind.REPEATS, rounds=2, seeds=((400, (1, 2)),)), fronts=2)
    texts = Counter(body["messages"][0]["content"] for body in manners.asked)  # type: ignore[index]
    assert sorted(texts.values())[-4:] == [2, 2, 2, 2]
    assert Counter(reply.frontend for reply in result.replies) == {"f0": 4, "f1": 4}


def test_a_frontend_that_refuses_is_not_asked_on_and_on() -> None:
    manners = Manners(status=503)
    result = sit(manners, exam())
    assert result.failures == ("HTTP503",)
    assert len(manners.asked) == 1


def test_many_failures_end_the_exam() -> None:
    class Failing:
        count = 0

        def __call__(self, front: Frontend, asked: Exam, question: Question, salt: str, words: int) -> Reply:
            self.count += 1
            good = self.count <= 2
            return Reply(front.name, question.tokens, question.seed, failure="" if good else "HTTP500",
                         prompt_tokens=400 if good else None)  # fmt: skip

    asks = Failing()
    asked = exam(seeds=((400, tuple(range(100))),))
    result = Sitting(asked, [Frontend("f0", "x")], lambda: False, asks).sit(lambda: NOW)
    assert len(result.failures) == 8
    assert asks.count < 20
    assert "prompts were not asked" in result.problem


def test_a_frontend_that_counts_no_tokens_is_told() -> None:
    result = sit(Manners(counts=False), exam())
    assert "usage.prompt_tokens" in result.problem


def test_a_stopped_exam_asks_no_more() -> None:
    manners = Manners()
    result = sit(manners, exam(), stopped=True)
    assert result.replies == ()
    assert "3 of 3 prompts were not asked" in result.problem


def test_no_frontend_is_a_problem() -> None:
    assert Sitting(exam(), [], lambda: False).sit(lambda: NOW).problem == "no frontend pod has an address"
