"""Canaries for KV events: few prompts pinned to single workers, sent twice in the background, and what came of them."""

from __future__ import annotations

import hashlib
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from kvgate.core.events_seen import Canary, CanaryAnswer, EventsSeen, WorkerSeen
from kvgate.core.serving import Exam, ExamKind, ExamResult, OwnRequests, Reply, own_requests
from kvgate.dynamo.canary import Question
from kvgate.edge.canary import Asker, Frontend, ask
from kvgate.edge.verifier import OWN_FOR

REQUEST_SECONDS = 30.0
ROUND_SECONDS = 120.0
"""After that nobody else is asked in this round."""
SETTLE_SECONDS = 2.0
"""Between the last new prompt and the first repeat: an event must reach the router first."""
MOST_KEPT, MOST_OWN = 8, 512
MOST_BUSY = 4
"""Pools whose workers are asked at once; others wait for a later turn."""
Who = tuple[str, int | None]


@dataclass
class _Held:
    """What is known of one pool. The lock of the canaries guards all of it."""

    answers: dict[Who, tuple[CanaryAnswer, ...]] = field(default_factory=dict)
    began_at: datetime | None = None
    stop: threading.Event | None = None
    own: tuple[OwnRequests, ...] = ()


class EventCanaries:
    """Canaries of many pools, in memory alone; a round is one thread, which sends one request at a time."""

    def __init__(
        self,
        clock: Callable[[], datetime],
        leads: Callable[[], bool] = lambda: True,
        asks: Asker = ask,
        settle_seconds: float = SETTLE_SECONDS,
    ) -> None:
        """`leads` is asked before every prompt: one that no longer acts puts no load on anybody."""
        self._clock, self._leads, self._asks, self._settle = clock, leads, asks, settle_seconds
        self._lock = threading.Lock()
        self._held: dict[str, _Held] = {}

    def known(self, pool: str, events: EventsSeen | None) -> EventsSeen | None:
        """The looks with the answers that have arrived; a pool that asks for no events is forgotten."""
        if events is None:
            self.forget(pool)
            return None
        with self._lock:
            held = self._held.setdefault(pool, _Held())
            there = {_who(worker) for worker in events.workers}
            held.answers = {who: answers for who, answers in held.answers.items() if who in there}
            workers = tuple(replace(one, canaries=held.answers.get(_who(one), ())) for one in events.workers)
            return replace(events, workers=workers, canaries_at=held.began_at, asking=held.stop is not None)

    def own(self, pool: str) -> tuple[OwnRequests, ...]:
        """What was put to the pool's frontends of late."""
        since = self._clock() - OWN_FOR
        with self._lock:
            held = self._held.get(pool, _Held())
            return tuple(one for one in held.own if one.requests and one.ended_at >= since)

    def start(self, pool: str, model: str, frontends: Sequence[Frontend], canaries: Iterable[Canary]) -> bool:
        """Send them, unless others of this pool are under way; False where none was sent."""
        asked = tuple(canaries)
        with self._lock:
            held = self._held.setdefault(pool, _Held())
            busy = sum(other.stop is not None for other in self._held.values())
            if held.stop is not None or busy >= MOST_BUSY or not frontends or not asked:
                return False
            held.began_at, held.stop = self._clock(), threading.Event()
            turns = {canary: len(held.answers.get((canary.pod, canary.instance), ())) for canary in asked}
        round_ = _Round(self, model, tuple(frontends), held.stop, turns)
        threading.Thread(target=lambda: self._run(held, round_), name="event-canaries", daemon=True).start()
        return True

    def forget(self, pool: str) -> None:
        """The pool is gone, or asks for no events: end what is sent for it."""
        with self._lock:
            if (held := self._held.pop(pool, None)) is not None and held.stop is not None:
                held.stop.set()

    def _run(self, held: _Held, round_: _Round) -> None:
        answers: dict[Canary, CanaryAnswer] = {}
        try:
            answers = round_.asked()
        finally:
            sent = tuple(reply for answer in answers.values() for reply in (answer.first, answer.again) if reply)
            with self._lock:
                held.stop = None
                held.own = (*held.own, own_requests(ExamResult("", self._clock(), sent)))[-MOST_OWN:]
                for canary, answer in answers.items():
                    who = (canary.pod, canary.instance)
                    held.answers[who] = (*held.answers.get(who, ()), answer)[-MOST_KEPT:]

    def may(self, stop: threading.Event) -> bool:
        return not stop.is_set() and self._leads()

    def pause(self, stop: threading.Event) -> None:
        stop.wait(self._settle)

    def put(self, frontend: Frontend, model: str, question: Question, salt: str) -> tuple[datetime, Reply, datetime]:
        """One request, and when it began and ended. A prompt of so many words has at least so many tokens."""
        exam = Exam("", ExamKind.REPEATS, model, (), request_seconds=REQUEST_SECONDS)
        began = self._clock()
        try:
            reply = self._asks(frontend, exam, question, salt, question.tokens)
        except Exception as error:  # noqa: BLE001  told as a failure: a round that ends without one would be asked again
            reply = Reply(frontend.name, question.tokens, 0, failure=type(error).__name__)
        return began, reply, self._clock()


@dataclass
class _Round:
    """One round: every new prompt first, then the repeats, each through the frontend that its prompt took.

    `turns` are the canaries with the number of answers that each worker gave before.
    """

    sender: EventCanaries
    model: str
    frontends: tuple[Frontend, ...]
    stop: threading.Event
    turns: dict[Canary, int]
    salt: str = field(default_factory=lambda: secrets.token_hex(8))
    deadline: float = field(default_factory=lambda: time.monotonic() + ROUND_SECONDS)

    def asked(self) -> dict[Canary, CanaryAnswer]:
        """The answers; what was not asked, or is left half-way because we no longer lead, is not among them."""
        first: dict[Canary, CanaryAnswer] = {}
        for canary in self.turns:
            if not self._late and self.sender.may(self.stop):
                began, reply, ended = self._put(canary)
                first[canary] = CanaryAnswer(canary.state, began, ended, reply)
        if any(not answer.failure for answer in first.values()):
            self.sender.pause(self.stop)
        return {canary: again for canary, answer in first.items() if (again := self._again(canary, answer)) is not None}

    def _again(self, canary: Canary, answer: CanaryAnswer) -> CanaryAnswer | None:
        if answer.failure:
            return answer
        if not self.sender.may(self.stop):
            return None
        if self._late:
            return replace(answer, again=replace(answer.first, failure="Late"), ended_at=answer.ended_at)
        _, reply, ended = self._put(canary, round_=1)
        return replace(answer, again=reply, ended_at=ended)

    @property
    def _late(self) -> bool:
        return time.monotonic() > self.deadline

    def _put(self, canary: Canary, round_: int = 0) -> tuple[datetime, Reply, datetime]:
        place = list(self.turns).index(canary) + self.turns[canary]
        pair = (canary.instance, None) if canary.prefills else (None, canary.instance)
        salt = hashlib.sha256(f"{self.salt}/{canary.pod}/{canary.instance}".encode()).hexdigest()[:16]
        question = Question(canary.tokens, 0, 0, 0, round_, pair)
        return self.sender.put(self.frontends[place % len(self.frontends)], self.model, question, salt)


def _who(worker: WorkerSeen) -> Who:
    return worker.pod, worker.instance
