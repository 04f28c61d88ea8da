"""The links that ask: who served, what was cached, and whether answers are what they were."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from kvgate.core import exams
from kvgate.core.canary_links import answers_agree, cache_hits, remote_prefill, watched
from kvgate.core.links import Look, Progress, View
from kvgate.core.serving import ExamResult, Pair, Reply
from tests.core import plays, views
from tests.core.views import PAIR, reply

PAIRS: tuple[Pair, ...] = ((11, 21), (11, 22), (12, 21), (12, 22))


def asked(*replies: Reply, **fields: object) -> Look:
    seen = views.view()
    return remote_prefill(views.answered(seen, exams.requests(seen.case, seen.memory), *replies, **fields))


REQUESTS = {
    "every request was prefilled elsewhere": ((reply(), reply(1, pair=(12, 22))), Progress.PASSED, "RemotePrefill"),
    "one was not": ((reply(), reply(1, pair=(21, 21))), Progress.WAITING, "NoRemotePrefill"),
    "one does not say": ((reply(), reply(1, pair=(None, None))), Progress.WAITING, "RemotePrefillUnproven"),
    "one names the prefill worker alone": ((reply(pair=(11, None)),), Progress.WAITING, "RemotePrefillUnproven"),
    "some failed": ((reply(), reply(1, failure="HTTP503")), Progress.WAITING, "CanaryFailed"),
    "none was asked": ((), Progress.UNSEEN, "CanaryUnanswered"),
}


@pytest.mark.parametrize(("replies", "progress", "reason"), REQUESTS.values(), ids=REQUESTS)
def test_a_request_canary_proves_a_remote_prefill(replies: tuple[Reply, ...], progress: Progress, reason: str) -> None:
    look = asked(*replies)
    assert (look.progress, look.reason) == (progress, reason)


def test_failures_are_counted_by_kind_and_a_problem_is_told() -> None:
    look = asked(reply(), reply(1, failure="HTTP503"), reply(2, failure="HTTP503"), reply(3, failure="Timeout"))
    assert look.message == "3 of 4 canary requests failed: 2 × HTTP503, 1 × Timeout"
    assert asked(problem="no frontend pod has an address").message == "no frontend pod has an address"


def test_the_exam_is_put_first_and_again_after_a_rest_but_not_while_it_runs() -> None:
    seen = views.view()
    exam = exams.requests(seen.case, seen.memory)
    assert remote_prefill(seen).exam == exam
    running = replace(seen, serving=replace(seen.serving, running=frozenset({exam.id})))
    assert remote_prefill(running).exam is None
    failed = views.answered(seen, exam, reply(failure="HTTP503"))
    assert remote_prefill(failed).exam is None
    a_while_ago, ahead_of_a_clock_set_back = seen.case.now - exams.RETRY, seen.case.now + exams.RETRY
    for ended_at in (a_while_ago, ahead_of_a_clock_set_back):
        result = ExamResult(exam.id, ended_at, (reply(failure="HTTP503"),))
        rested = replace(seen, serving=replace(seen.serving, results={exam.id: result}))
        assert remote_prefill(rested).exam == exam


def repeat(front: str, cached: int, rate: float | None = 0.9, number: int = 1) -> Reply:
    return reply(frontend=front, round=number, cached_tokens=cached, router_hit_rate=rate)


FIRST = repeat("f1", 0, 0.0, 0)
REPEATS = {
    "repeats are cached": ((FIRST, repeat("f1", 2992)), Progress.PASSED, "CacheHit"),
    "half of a repeat is enough": ((FIRST, repeat("f1", 1500)), Progress.PASSED, "CacheHit"),
    "a shared first block is not": ((FIRST, repeat("f1", 16)), Progress.WAITING, "NoCacheHit"),
    "most repeats are enough": ((repeat("f1", 2992), repeat("f1", 2992), repeat("f1", 0)), Progress.PASSED, "CacheHit"),
    "half of the repeats are not": ((repeat("f1", 2992), repeat("f1", 0)), Progress.WAITING, "NoCacheHit"),
    "each frontend must": ((repeat("f1", 2992), repeat("f2", 0)), Progress.WAITING, "NoCacheHit"),
    "no repeat at all": ((FIRST,), Progress.WAITING, "NoCacheHit"),
    "a frontend without a KV router": (
        (repeat("f1", 9), repeat("f2", 2992, None)),
        Progress.WAITING,
        "RouterModeWrong",
    ),
}


@pytest.mark.parametrize(("replies", "progress", "reason"), REPEATS.values(), ids=REPEATS)
def test_routing_is_proved_by_who_chose_and_by_cached_repeats(
    replies: tuple[Reply, ...], progress: Progress, reason: str
) -> None:
    seen = views.view()
    look = cache_hits(views.answered(seen, exams.repeats(seen.case, seen.memory), *replies))
    assert (look.progress, look.reason) == (progress, reason)


def answers(wrong: int = 0, pairs: tuple[Pair, ...] = PAIRS, of: Pair = (12, 22), each: int = 20) -> tuple[Reply, ...]:
    """`each` answers of each pair, `wrong` of them of the pair `of` differ."""
    return tuple(
        reply(seed, pair=pair, answer="other" if pair == of and seed < wrong else f"digest-{seed}")
        for pair in pairs
        for seed in range(each)
    )


def compared(seen: View, *replies: Reply) -> Look:
    return answers_agree(views.answered(seen, exams.after_answers(seen.case, seen.memory), *replies))


ANSWERS = {
    "all agree": (answers(), Progress.PASSED, "80 of 80 answers of 4 worker pairs"),
    "19 of 20 of one pair are 95 %": (answers(1), Progress.PASSED, "79 of 80"),
    "18 of 20 of one pair are not": (answers(2), Progress.FAILED, "18 of 20 answers of workers c → 16"),
    "a pair was met too seldom": (answers(pairs=PAIRS[:3]), Progress.INCONCLUSIVE, "3 of 4 worker pairs"),
    "every pair was asked too little": (answers(each=9), Progress.INCONCLUSIVE, "0 of 4"),
    "an empty answer is another one": (
        (*answers(), *(reply(seed, answer="") for seed in range(3))),
        Progress.FAILED,
        "workers b → 15",
    ),
    "answers to prompts that did not agree before do not count": (
        (*answers(), *(reply(seed, answer="other") for seed in range(100, 120))),
        Progress.PASSED,
        "80 of 80",
    ),
}


@pytest.mark.parametrize(("replies", "progress", "word"), ANSWERS.values(), ids=ANSWERS)
def test_every_worker_pair_must_answer_as_before(replies: tuple[Reply, ...], progress: Progress, word: str) -> None:
    look = compared(views.view(), *replies)
    assert (look.progress, word in look.message) == (progress, True), look.message


@pytest.mark.parametrize(("failed", "reason"), [(4, "AnswersAgree"), (5, "CanaryFailed")])
def test_one_request_in_twenty_may_fail_and_counts_neither_way(failed: int, reason: str) -> None:
    failures = tuple(reply(seed, failure="HTTP529", answer="", pair=(None, None)) for seed in range(failed))
    assert compared(views.view(), *answers(), *failures).reason == reason


def test_an_exam_that_ran_out_of_time_counts_with_what_it_has() -> None:
    seen = views.view()
    exam = exams.after_answers(seen.case, seen.memory)
    late = views.answered(seen, exam, *answers(pairs=PAIRS[:2]), problem="40 of 80 prompts were not asked in 1800 s")
    assert answers_agree(late).reason == "AnswersInconclusive"


@pytest.mark.parametrize(("count", "progress"), [(10, Progress.PASSED), (9, Progress.INCONCLUSIVE)])
def test_ten_agreed_prompts_of_each_size_are_needed(count: int, progress: Progress) -> None:
    seen = views.view(remembered=views.memory(before=views.agreed(count)))
    look = compared(seen, *answers(each=count))
    assert look.progress is progress
    assert progress is Progress.PASSED or "9 at 3000 tokens" in look.message


def test_without_answers_from_before_nothing_is_asked() -> None:
    look = answers_agree(views.view(remembered=views.memory(before=())))
    assert (look.progress, look.reason, look.exam) == (Progress.INCONCLUSIVE, "AnswersInconclusive", None)


def looked(*replies: Reply, later: timedelta = timedelta()) -> Look:
    seen = views.view()
    exam = exams.watch(seen.case, seen.memory, 0)
    result = ExamResult(exam.id, seen.case.now - later, replies)
    return watched(replace(seen, serving=replace(seen.serving, results={exam.id: result})))


WATCHED = {
    "all right": (answers(pairs=(PAIR,)), Progress.PASSED),
    "one wrong answer is not held against it": (answers(1, (PAIR,), PAIR, 4), Progress.PASSED),
    "two of four": (answers(2, (PAIR,), PAIR, 4), Progress.FAILED),
    "two of forty are 95 %": ((*answers(2, (PAIR,), PAIR), *answers(0, (PAIR,))), Progress.PASSED),
    "three of forty": ((*answers(3, (PAIR,), PAIR), *answers(0, (PAIR,))), Progress.FAILED),
    "failed requests say nothing": (tuple(reply(n, answer="", failure="HTTP529") for n in range(4)), Progress.PASSED),
}


@pytest.mark.parametrize(("replies", "progress"), WATCHED.values(), ids=WATCHED)
def test_the_watch_fails_by_two_wrong_answers_and_less_than_95_percent(
    replies: tuple[Reply, ...], progress: Progress
) -> None:
    assert looked(*replies).progress is progress


def test_the_watch_asks_again_after_the_monitor_interval_other_prompts_each_time() -> None:
    assert looked(reply(), later=timedelta(seconds=14)).exam is None
    assert looked(reply(), later=timedelta(seconds=15)).exam is not None
    seen = views.view()
    runs = [exams.watch(seen.case, seen.memory, run) for run in range(5)]
    assert len({exam.id for exam in runs}) == 1
    assert len({seed for exam in runs for _, seeds in exam.seeds for seed in seeds}) == 20


def test_pairs_are_named_where_the_workers_publish_their_ids_and_counted_elsewhere() -> None:
    unnamed = views.view()
    exam = exams.after_answers(unnamed.case, unnamed.memory)
    assert (exam.pairs, exam.prefills, exam.decodes) == ((), 2, 2)
    kinds = {"prefill": "prefill", "decode": "decode"}
    pods = tuple(
        replace(pod, instance=index, serves_as=kinds.get(pod.role, ""))
        for index, pod in enumerate(unnamed.case.world.pods)
    )
    named = views.view(workers=pods)
    assert exams.after_answers(named.case, named.memory).pairs == ((2, 4), (2, 5), (3, 4), (3, 5))


@pytest.mark.parametrize("last", [None, 2**53 + 1], ids=["one worker publishes none", "one came rounded"])
def test_ids_that_are_not_all_known_are_learned_from_answers(last: int | None) -> None:
    kinds = {"prefill": "prefill", "decode": "decode"}
    pods = tuple(
        replace(pod, instance=index, serves_as=kinds.get(pod.role, "")) for index, pod in enumerate(plays.pods())
    )
    seen = views.view(workers=(*pods[:-1], replace(pods[-1], instance=last)))
    assert exams.after_answers(seen.case, seen.memory).pairs == ()
