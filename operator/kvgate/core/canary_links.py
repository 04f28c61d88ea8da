"""The links that ask: do requests take the way that was switched on, and are their answers what they were before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from kvgate.core import exams, text
from kvgate.core.links import Look, Progress, View
from kvgate.core.serving import Exam, ExamResult, Pair, Reply

LEAST_AGREEMENT = 0.95
TOLERATED_FAILURES = 0.05
"""Of many prompts beside live traffic some may be refused; they count neither way."""


def asked(view: View, exam: Exam, tolerated: float = 0.0) -> ExamResult | Look:
    """The exam's result once no more than this share of the requests failed; before that, the look that asks for it.

    An exam that ran out of time counts with the answers that it has: too few are a doubt, and no reason to go back.
    """
    result = view.result(exam)
    again = exam if exams.due(view.serving, exam, view.case.now) else None
    if result is None:
        return Look(Progress.UNSEEN, "CanaryUnanswered", "prompts are being asked", again)
    failures = Counter(result.failures)
    if failures.total() > tolerated * len(result.replies):
        told = text.listed(tuple(f"{count} × {word}" for word, count in failures.most_common()))
        what = f"{failures.total()} of {len(result.replies)} canary requests failed: {told}"
        return Look(Progress.WAITING, "CanaryFailed", what, again)
    if not result.replies:
        return Look(Progress.UNSEEN, "CanaryUnanswered", result.problem or "no request was asked", again)
    return result


def asked_again(view: View, exam: Exam) -> Exam | None:
    """The exam of a link that could not say, once it is to be put again."""
    again = exams.due_again(view.serving, exam, view.case.now, view.memory.inconclusive_since)
    return exam if again else None


def remote_prefill(view: View) -> Look:
    """Every request's prefill must have run on another worker than its decode, by the frontend's own word."""
    exam = exams.requests(view.case, view.memory)
    result = asked(view, exam)
    if isinstance(result, Look):
        return result
    again = exam if exams.due(view.serving, exam, view.case.now) else None
    unnamed = sum(1 for reply in result.replies if None in reply.pair)
    if unnamed:
        what = f"{unnamed} of {len(result.replies)} answers name no prefill and decode worker in nvext.worker_id"
        return Look(Progress.WAITING, "RemotePrefillUnproven", what, again)
    local = sum(1 for reply in result.replies if reply.pair[0] == reply.pair[1])
    if local:
        what = f"{local} of {len(result.replies)} requests were prefilled and decoded by the same worker"
        return Look(Progress.WAITING, "NoRemotePrefill", what, again)
    what = f"{len(result.replies)} requests were prefilled by one worker and decoded by another"
    return Look(Progress.PASSED, "RemotePrefill", what)


def cache_hits(view: View) -> Look:
    """Through every frontend the KV router chose the worker, and more than half of the repeats found at least half of
    their prompt cached."""
    exam = exams.repeats(view.case, view.memory)
    result = asked(view, exam)
    if isinstance(result, Look):
        return result
    again = exam if exams.due(view.serving, exam, view.case.now) else None
    fronts = sorted({reply.frontend for reply in result.replies})
    other = tuple(front for front in fronts if not _kv_routed(result.replies, front))
    if other:
        what = f"no KV router chose the worker behind frontend {text.listed(other)}"
        return Look(Progress.WAITING, "RouterModeWrong", what, again)
    cold = tuple(told for front in fronts if (told := _cold(result.replies, front)))
    if cold:
        return Look(Progress.WAITING, "NoCacheHit", text.listed(cold), again)
    return Look(
        Progress.PASSED,
        "CacheHit",
        f"repeated prompts were found cached behind {text.counted(len(fronts), 'frontend')}",
    )


def _kv_routed(replies: Iterable[Reply], front: str) -> bool:
    return all(reply.router_hit_rate is not None for reply in replies if reply.frontend == front)


def _cold(replies: Iterable[Reply], front: str) -> str:
    repeats = [reply for reply in replies if reply.frontend == front and reply.round > 0]
    warm = sum(1 for reply in repeats if 2 * (reply.cached_tokens or 0) >= max(reply.prompt_tokens or 0, 1))
    return "" if warm * 2 > len(repeats) else f"{warm} of {len(repeats)} repeats were cached behind frontend {front}"


def answers_agree(view: View) -> Look:
    """Of the prompts that agreed with themselves before, at least 95 % must be answered so by every worker pair."""
    few = too_few_agreed(view)
    if few:
        return Look(Progress.INCONCLUSIVE, "AnswersInconclusive", few)
    exam = exams.after_answers(view.case, view.memory)
    result = asked(view, exam, TOLERATED_FAILURES)
    return result if isinstance(result, Look) else _agreement(view, result, exam)


def too_few_agreed(view: View) -> str:
    memory = view.memory
    counts = [(b.prompt_tokens, len(b.agreed)) for b in memory.before]
    bad = tuple(f"{count} at {tokens} tokens" for tokens, count in counts if count < exams.FEWEST_AGREED)
    if not counts:
        return "nothing was measured before the switch, so no answers can be compared; a person must say"
    what = f"of {exams.NEEDLES} prompts agreed with themselves before the switch: {text.listed(bad)}"
    return f"{what}; at least {exams.FEWEST_AGREED} are needed" if bad else ""


def _agreement(view: View, result: ExamResult, exam: Exam) -> Look:
    scores = _scores(view, result.replies)
    for pair, (agreed, asked_count) in scores.items():
        if agreed < LEAST_AGREEMENT * asked_count:
            what = f"{agreed} of {asked_count} answers of {named(pair)} are what they were before; at least 95% must be"
            return Look(Progress.FAILED, "AnswersDiffer", what)
    wanted = exam.prefills * exam.decodes
    full = sum(1 for _, count in scores.values() if count >= exams.FEWEST_AGREED)
    if full < max(wanted, 1):
        what = f"{full} of {max(wanted, 1)} worker pairs answered at least {exams.FEWEST_AGREED} prompts"
        return Look(Progress.INCONCLUSIVE, "AnswersInconclusive", what, asked_again(view, exam))
    total = sum(count for _, count in scores.values())
    agreed = sum(agreed for agreed, _ in scores.values())
    return Look(
        Progress.PASSED, "AnswersAgree", f"{agreed} of {total} answers of {full} worker pairs are what they were before"
    )


def _scores(view: View, replies: Iterable[Reply]) -> dict[Pair, tuple[int, int]]:
    """Agreed and asked answers of each worker pair."""
    known = {(b.prompt_tokens, a.seed): a.digest for b in view.memory.before for a in b.agreed}
    scores: dict[Pair, tuple[int, int]] = {}
    for reply in replies:
        wanted = known.get((reply.tokens, reply.seed))
        if wanted is not None and not reply.failure:
            agreed, count = scores.get(reply.pair, (0, 0))
            scores[reply.pair] = (agreed + (reply.answer == wanted), count + 1)
    return dict(sorted(scores.items(), key=lambda pair: str(pair[0])))


def named(pair: Pair) -> str:
    prefill, decode = (f"{one:x}" if one is not None else "unknown" for one in pair)
    return f"workers {prefill} → {decode}"


def watched(view: View) -> Look:
    """While it is on: some agreed prompts at each interval, over all pairs together; a failed request says nothing."""
    if not any(before.agreed for before in view.memory.before):
        return Look(Progress.PASSED, "NothingToWatch", "there are no answers to compare")
    rest = view.case.pool.spec.monitor.interval.delta
    exam = exams.watch(view.case, view.memory, int(view.case.now.timestamp() // max(rest.total_seconds(), 1.0)))
    again = exam if exams.due(view.serving, exam, view.case.now, rest) else None
    result = view.result(exam)
    scores = _scores(view, result.replies if result else ())
    agreed, count = (sum(score[index] for score in scores.values()) for index in (0, 1))
    if count - agreed > 1 and agreed < LEAST_AGREEMENT * count:
        what = f"{agreed} of the last {count} watched answers are what they were before; at least 95% must be"
        return Look(Progress.FAILED, "AnswersDiffer", what)
    return Look(Progress.PASSED, "AnswersAgree", "watched answers are what they were before", again)
