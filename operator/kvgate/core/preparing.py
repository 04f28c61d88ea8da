"""Before the split is switched on: the answers and times that those after it will be compared with."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta

from kvgate.api.status import AgreedAnswer, PromptBefore, Verification
from kvgate.api.words import Capability
from kvgate.core import exams
from kvgate.core.canary_links import TOLERATED_FAILURES, asked, too_few_agreed
from kvgate.core.judging import Case
from kvgate.core.links import Look, View
from kvgate.core.medians import median_rise
from kvgate.core.serving import Exam, ExamResult, Reply
from kvgate.core.verification import acts, remembered, resting
from kvgate.core.workers import PodRole

STANDS_FOR = timedelta(hours=1)
"""How long measurements before the switch count: load and caches change."""
ASK_AGAIN = timedelta(minutes=10)
"""Before prompts that gave no usable baseline are put again: they are load on the live deployment."""


@dataclass(frozen=True)
class Preparation:
    """Whether enough was measured to be compared with later; if not, why, and what to ask next."""

    memory: Verification
    ready: bool
    message: str = ""
    exam: Exam | None = None


def prepare(case: Case, capability: Capability, plan_hash: str, accepted: frozenset[str]) -> Preparation | None:
    """None where nothing need be measured first: only the split is compared, and only where frontends serve.

    `accepted` are the Inconclusive reasons that an approval names: with them a poor baseline is enough.
    """
    fronts = any(pod.role is PodRole.FRONTEND and not pod.leaving for pod in case.world.pods)
    serving = case.world.serving
    if capability is not Capability.DISAGGREGATION or serving is None or not fronts or not acts(case):
        return None
    memory = resting(remembered(case.pool.status, capability))
    stands = memory.before_at is not None and case.now - memory.before_at < STANDS_FOR
    if stands and memory.plan_hash == plan_hash:
        return Preparation(memory, ready=True)
    view = View(case, memory, serving)
    times = asked(view, exams.before_ttft(case, capability, plan_hash), TOLERATED_FAILURES)
    if isinstance(times, Look):
        return Preparation(memory, ready=False, message=_waiting("times", times), exam=times.exam)
    answers = asked(view, exams.before_answers(case, capability, plan_hash), TOLERATED_FAILURES)
    if isinstance(answers, Look):
        return Preparation(memory, ready=False, message=_waiting("answers", answers), exam=answers.exam)
    return _judged(view, plan_hash, accepted, times, answers)


def _waiting(what: str, look: Look) -> str:
    return f"{what} before the switch are not measured yet: {look.message}"


def _judged(
    view: View, plan_hash: str, accepted: frozenset[str], times: ExamResult, answers: ExamResult
) -> Preparation:
    case = view.case
    found = tuple(_before(tokens, times, answers) for tokens in exams.sizes(case))
    since = min(times.ended_at, answers.ended_at).replace(microsecond=0)
    memory = view.memory.model_copy(update={"plan_hash": plan_hash, "before_at": since, "before": found})
    doubts = {
        "AnswersInconclusive": too_few_agreed(View(case, memory, view.serving)),
        "TTFTInconclusive": _too_few_times(found),
    }
    for reason, doubt in doubts.items():
        if doubt and reason not in accepted:
            advice = f"an approval that accepts {reason} by name would go on without it"
            return Preparation(view.memory, ready=False, message=f"{doubt}; {advice}", exam=_again(view, plan_hash))
    if case.now - (memory.before_at or case.now) >= STANDS_FOR:
        what = "what was measured before the switch no longer counts, and is measured anew"
        return Preparation(view.memory, ready=False, message=what, exam=_again(view, plan_hash))
    return Preparation(memory, ready=True)


def _again(view: View, plan_hash: str) -> Exam | None:
    for make in (exams.before_ttft, exams.before_answers):
        exam = make(view.case, view.memory.capability, plan_hash)
        if exams.due(view.serving, exam, view.case.now, ASK_AGAIN):
            return exam
    return None


def _before(tokens: int, times: ExamResult, answers: ExamResult) -> PromptBefore:
    agreed = _agreed(reply for reply in answers.replies if reply.tokens == tokens)
    return PromptBefore(
        prompt_tokens=tokens, ttft_microseconds=exams.settled_ttft((times,), tokens, 64), agreed=agreed[:64]
    )


def _agreed(replies: Iterable[Reply]) -> tuple[AgreedAnswer, ...]:
    """Prompts that gave one answer in every round."""
    given: dict[int, list[str]] = {}
    for reply in replies:
        given.setdefault(reply.seed, []).append(reply.answer)
    stable = {seed: set(found) for seed, found in given.items() if len(found) >= exams.BEFORE_ROUNDS}
    one = {seed: found.pop() for seed, found in sorted(stable.items()) if len(found) == 1}
    return tuple(AgreedAnswer(seed=seed, digest=digest) for seed, digest in one.items() if digest)


def _too_few_times(found: Iterable[PromptBefore]) -> str:
    for before in found:
        times = before.ttft_microseconds
        if median_rise(times, times) is None:
            return f"{len(times)} times at {before.prompt_tokens} tokens before the switch are too few to compare with"
    return ""
