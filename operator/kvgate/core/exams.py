"""Which prompts are put to a deployment, how many, and for how long: before a switch, after it, and while it is on."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from datetime import datetime, timedelta

from kvgate.api.status import PromptBefore, Verification
from kvgate.api.words import Capability
from kvgate.core.judging import Case
from kvgate.core.moments import lately
from kvgate.core.serving import Exam, ExamKind, ExamResult, Pair, ServingSeen, WorkerType

NEEDLES = 20
"""Prompts per size whose answers are compared: one of them may differ, for 19 of 20 are 95 %."""
FEWEST_AGREED = 10
BEFORE_ROUNDS = 3
TTFT_PROMPTS = 30
WARM_UP = 3
MOST_TOKENS = 1 << 18
"""The longest canary prompt: about 2 MB of text. Longer sizes are verified at this one."""
MOST_PAIRS = 16
"""Worker pairs that are pinned one by one; of more, as many as the prompts happen to meet."""
REQUESTS = 8
REPEATS = 4
WATCHED = 4
"""Prompts of one look while it is on: they are load on the live deployment."""
WATCH_WINDOW = 40
RETRY = timedelta(seconds=10)
SHORTEST_REST, LONGEST_REST = timedelta(minutes=10), timedelta(hours=6)
LONGEST_REQUEST_SECONDS = 60.0
SHORT_REQUEST_SECONDS = 30.0
MANY_PROMPTS_SECONDS, FEW_PROMPTS_SECONDS, WATCH_SECONDS = 1800.0, 240.0, 120.0
"""How long a whole exam may take; the links that wait for one have some minutes more."""
EXACT = 1 << 53
LONGEST_TTFT_SECONDS = 86_400.0


def model_path(case: Case) -> str:
    return case.pool.spec.model.name


def sizes(case: Case) -> tuple[int, ...]:
    """The prompt sizes of the pool, in tokens, smallest first."""
    return tuple(sorted({min(prompt.tokens, MOST_TOKENS) for prompt in case.pool.spec.workload.prompts}))


def numbered(*parts: object) -> str:
    """A short name that the same parts always give."""
    return hashlib.sha256("/".join(map(str, parts)).encode()).hexdigest()[:12]


def seeds(count: int, *parts: object) -> tuple[int, ...]:
    """So many whole numbers below 2³¹, the same ones for the same parts."""
    digests = (hashlib.sha256(f"{numbered(*parts)}/{index}".encode()).digest() for index in range(count))
    return tuple(int.from_bytes(digest[:4], "big") >> 1 for digest in digests)


def _each(case: Case, count: int, *parts: object) -> tuple[tuple[int, tuple[int, ...]], ...]:
    return tuple((tokens, seeds(count, *parts, tokens)) for tokens in sizes(case))


def before_ttft(case: Case, capability: Capability, plan_hash: str) -> Exam:
    name = numbered(case.pool.uid, capability, plan_hash, "before", "ttft")
    return _ttft(case, name, workers(case.world.serving, WorkerType.AGGREGATED), pairs=_alone(case))


def after_ttft(case: Case, memory: Verification) -> Exam:
    return _ttft(case, _name(case, memory, "ttft"), *_pool(case), pairs=_named_pairs(case))


def _ttft(case: Case, name: str, decodes: int, prefills: int = 0, *, pairs: tuple[Pair, ...]) -> Exam:
    """One at a time, so that the prompts do not queue behind one another."""
    return Exam(
        name,
        ExamKind.TTFT,
        model_path(case),
        _each(case, TTFT_PROMPTS, name),
        prefills=prefills,
        decodes=decodes,
        pairs=pairs,
        warm_up=WARM_UP,
        request_seconds=LONGEST_REQUEST_SECONDS,
        seconds=MANY_PROMPTS_SECONDS,
    )


def before_answers(case: Case, capability: Capability, plan_hash: str) -> Exam:
    """Each prompt three times under another salt: an answer that is not stable by itself proves nothing."""
    name = numbered(case.pool.uid, capability, plan_hash, "before", "answers")
    return Exam(
        name,
        ExamKind.ANSWERS,
        model_path(case),
        _each(case, NEEDLES, case.pool.uid, "needles"),
        rounds=BEFORE_ROUNDS,
        concurrency=4,
        request_seconds=LONGEST_REQUEST_SECONDS,
        seconds=MANY_PROMPTS_SECONDS,
    )


def after_answers(case: Case, memory: Verification) -> Exam:
    decodes, prefills = _pool(case)
    return Exam(
        _name(case, memory, "answers"),
        ExamKind.ANSWERS,
        model_path(case),
        tuple((before.prompt_tokens, tuple(a.seed for a in before.agreed)) for before in memory.before),
        prefills=prefills,
        decodes=decodes,
        pairs=_named_pairs(case),
        concurrency=4,
        request_seconds=LONGEST_REQUEST_SECONDS,
        seconds=MANY_PROMPTS_SECONDS,
    )


def watch(case: Case, memory: Verification, run: int) -> Exam:
    """A few of the agreed prompts, others in each run."""
    asked = [(before.prompt_tokens, answer.seed) for before in memory.before for answer in before.agreed]
    chosen = [asked[(run * WATCHED + index) % len(asked)] for index in range(min(WATCHED, len(asked)))]
    return Exam(
        _name(case, memory, "watch"),
        ExamKind.ANSWERS,
        model_path(case),
        tuple((tokens, (seed,)) for tokens, seed in chosen),
        concurrency=WATCHED,
        window=WATCH_WINDOW,
        request_seconds=LONGEST_REQUEST_SECONDS,
        seconds=WATCH_SECONDS,
    )


def requests(case: Case, memory: Verification) -> Exam:
    """Some of the largest prompts, through every frontend."""
    name = _name(case, memory, "requests")
    largest = sizes(case)[-1]
    return Exam(
        name,
        ExamKind.REQUESTS,
        model_path(case),
        ((largest, seeds(REQUESTS, name)),),
        concurrency=2,
        request_seconds=SHORT_REQUEST_SECONDS,
        seconds=FEW_PROMPTS_SECONDS,
    )


def repeats(case: Case, memory: Verification) -> Exam:
    """Prompts that are asked twice through each frontend."""
    name = _name(case, memory, "repeats")
    return Exam(
        name,
        ExamKind.REPEATS,
        model_path(case),
        ((sizes(case)[-1], seeds(REPEATS, name)),),
        rounds=2,
        request_seconds=SHORT_REQUEST_SECONDS,
        seconds=FEW_PROMPTS_SECONDS,
    )


def _name(case: Case, memory: Verification, what: str) -> str:
    return numbered(case.pool.uid, memory.capability, memory.started_at, what)


def workers(serving: ServingSeen | None, kind: WorkerType) -> int:
    """The most live workers of this type that any frontend knows."""
    seen = (front.readiness for front in serving.frontends) if serving else ()
    return max((readiness.count(kind) for readiness in seen if readiness is not None), default=0)


def _pool(case: Case) -> tuple[int, int]:
    """Decode workers and prefill workers, where there are not too many pairs to pin each."""
    decodes = workers(case.world.serving, WorkerType.DECODE)
    prefills = workers(case.world.serving, WorkerType.PREFILL)
    return (decodes, prefills) if decodes * prefills <= MOST_PAIRS else (0, 0)


def _alone(case: Case) -> tuple[Pair, ...]:
    return tuple((one, one) for one in _instances(case, WorkerType.AGGREGATED)[:MOST_PAIRS])


def _named_pairs(case: Case) -> tuple[Pair, ...]:
    """The pairs by the ids that the workers publish; none where they publish none, or are too many."""
    prefills, decodes = (_instances(case, kind) for kind in (WorkerType.PREFILL, WorkerType.DECODE))
    pairs = tuple((prefill, decode) for prefill in prefills for decode in decodes)
    return pairs if len(pairs) <= MOST_PAIRS else ()


def _instances(case: Case, kind: WorkerType) -> tuple[int, ...]:
    """The ids of all live workers of this type; none unless each is known and came whole through the API server, whose
    numbers are exact to 2⁵³."""
    pods = (pod for pod in case.world.pods if pod.serves_as == kind and pod.ready and not pod.leaving)
    known = {pod.instance for pod in pods if pod.instance is not None and pod.instance <= EXACT}
    return tuple(sorted(known)) if len(known) == workers(case.world.serving, kind) else ()


def due(serving: ServingSeen, exam: Exam, now: datetime, rest: timedelta = RETRY) -> bool:
    """Whether the exam should be put now: it is not under way, and it was not answered within `rest`."""
    last = serving.results.get(exam.id)
    return exam.id not in serving.running and (last is None or not lately(last.ended_at, now, rest))


def due_again(serving: ServingSeen, exam: Exam, now: datetime, since: datetime | None) -> bool:
    """Whether an exam that was answered and could not say should be put again: ten minutes after the chain came to its
    end, and each time after twice as long since then, up to six hours. Prompts are load on the live deployment."""
    last = serving.results.get(exam.id)
    if since is None or last is None:
        return False
    return due(serving, exam, now, min(LONGEST_REST, max(SHORTEST_REST, last.ended_at - since)))


def settled_ttft(replies: Iterable[ExamResult | None], tokens: int, most: int = 256) -> tuple[int, ...]:
    """Times to first token at this prompt size in microseconds, without the first of each worker pair."""
    met: dict[object, int] = {}
    kept: list[int] = []
    for reply in (reply for result in replies if result for reply in result.replies):
        if reply.tokens != tokens or reply.failure or reply.ttft_seconds is None:
            continue
        met[reply.pair] = met.get(reply.pair, 0) + 1
        if met[reply.pair] > WARM_UP:
            kept.append(round(min(reply.ttft_seconds, LONGEST_TTFT_SECONDS) * 1e6))
    return tuple(kept[:most])


def before_of(memory: Verification, tokens: int) -> PromptBefore | None:
    return next((before for before in memory.before if before.prompt_tokens == tokens), None)
