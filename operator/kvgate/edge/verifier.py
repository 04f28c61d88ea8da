"""What is asked of running deployments in the background, and what has arrived: the ring never waits for an answer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from kvgate.core.moments import lately
from kvgate.core.serving import (
    Exam,
    ExamResult,
    FrontendSeen,
    OwnRequests,
    Readiness,
    Rollout,
    ServingSeen,
    own_requests,
)
from kvgate.edge.canary import Frontend, Sitting, readiness

FRESH = timedelta(seconds=20)
"""Older answers about readiness count as none."""
POLL = timedelta(seconds=1)
MOST_KEPT = 32
OWN_FOR = timedelta(hours=24)
"""How long it is known what we asked: the longest time over which others judge what users asked."""
MOST_POOLS_BUSY = 8
"""Exams that are sat at once, over all pools; others wait for the turn that finds room."""


@dataclass
class _Held:
    """What is known of one pool's deployment. The lock of the verifier guards all of it."""

    seen: dict[str, FrontendSeen] = field(default_factory=dict)
    looked_at: datetime | None = None
    polling: bool = False
    results: dict[str, ExamResult] = field(default_factory=dict)
    running: dict[str, tuple[str, threading.Event]] = field(default_factory=dict)
    """By exam: what it is for, and what ends it."""
    own: tuple[OwnRequests, ...] = ()


class Verifier:
    """Exams and readiness of many pools, each exam in a thread of its own that ends when the exam does."""

    def __init__(
        self,
        clock: Callable[[], datetime],
        ready: Callable[[Frontend, str], Readiness | str] = readiness,
        sit: Callable[[Sitting, Callable[[], datetime]], ExamResult] = Sitting.sit,
        leads: Callable[[], bool] = lambda: True,
    ) -> None:
        """`leads` is asked before every prompt: one that no longer acts puts no load on anybody."""
        self._clock, self._ready, self._sit, self._leads = clock, ready, sit, leads
        self._lock = threading.Lock()
        self._held: dict[str, _Held] = {}
        self._closed = threading.Event()

    def seen(self, pool: str, model: str, frontends: Sequence[Frontend], rollout: Rollout) -> ServingSeen:
        """All that has arrived; asks every frontend for its readiness anew, unless that was done within a second."""
        now = self._clock()
        with self._lock:
            held = self._held.setdefault(pool, _Held())
            if frontends and not held.polling and not _within(held.looked_at, now, POLL):
                held.polling = not self._closed.is_set()
                if held.polling:
                    self._thread("readiness", lambda: self._poll(held, model, tuple(frontends)))
            fresh = _within(held.looked_at, now, FRESH)
            fronts = tuple(self._front(held, front, fresh=fresh) for front in frontends)
            return ServingSeen(rollout, fronts, dict(held.results), frozenset(held.running), held.own)

    def _front(self, held: _Held, front: Frontend, *, fresh: bool) -> FrontendSeen:
        known = held.seen.get(front.name)
        if known is None:
            return FrontendSeen(front.name, problem="it has not answered yet")
        return known if fresh else replace(known, readiness=None, problem="it has not been asked of late")

    def _poll(self, held: _Held, model: str, frontends: tuple[Frontend, ...]) -> None:
        try:
            answers = [(front.name, self._ready(front, model)) for front in frontends]
        except Exception as error:  # noqa: BLE001  a fault here must not stop all later looks
            answers = [(front.name, type(error).__name__) for front in frontends]
        now = self._clock()
        with self._lock:
            held.seen = {name: _after(held.seen.get(name), name, answer, now) for name, answer in answers}
            held.looked_at, held.polling = now, False

    def start(self, pool: str, purpose: str, exam: Exam, frontends: Sequence[Frontend]) -> bool:
        """Begin the exam unless it is under way; one for the same purpose is ended first. False without room."""
        with self._lock:
            held = self._held.setdefault(pool, _Held())
            busy = sum(len(other.running) for other in self._held.values())
            if exam.id in held.running or self._closed.is_set() or busy >= MOST_POOLS_BUSY:
                return exam.id in held.running
            for other, earlier in held.running.values():
                if other == purpose:
                    earlier.set()
            stop = threading.Event()
            held.running[exam.id] = (purpose, stop)
        sitting = Sitting(exam, tuple(frontends), lambda: self._ends(stop))
        self._thread("exam", lambda: self._sat(held, sitting))
        return True

    def _ends(self, stop: threading.Event) -> bool:
        return stop.is_set() or not self.leads()

    def _sat(self, held: _Held, sitting: Sitting) -> None:
        exam = sitting.exam
        try:
            result = self._sit(sitting, self._clock)
        except Exception as error:  # noqa: BLE001  told as a result: a link that waits for one would wait for ever
            result = ExamResult(
                exam.id, self._clock(), problem=f"the prompts could not be asked: {type(error).__name__}"
            )
        with self._lock:
            held.running.pop(exam.id, None)
            held.own = _recent((*held.own, own_requests(result)))
            if not sitting.stopped():
                earlier = held.results.pop(exam.id, None)
                held.results[exam.id] = _joined(exam, earlier, result)
                for oldest in list(held.results)[:-MOST_KEPT]:
                    held.results.pop(oldest)

    def forget(self, pool: str) -> None:
        """The pool is gone: end what is asked for it."""
        with self._lock:
            held = self._held.pop(pool, _Held())
            for _, stop in held.running.values():
                stop.set()

    def leads(self) -> bool:
        """Whether prompts may be put to anybody at this moment."""
        return not self._closed.is_set() and self._leads()

    def close(self) -> None:
        """Ask nothing any more; what is under way ends after the request that it waits for."""
        self._closed.set()

    def _thread(self, name: str, work: Callable[[], None]) -> None:
        threading.Thread(target=work, name=f"verifier-{name}", daemon=True).start()


def _within(at: datetime | None, now: datetime, span: timedelta) -> bool:
    return at is not None and lately(at, now, span)


def _after(before: FrontendSeen | None, name: str, answer: Readiness | str, now: datetime) -> FrontendSeen:
    """`unready_since` outlives looks that failed: it ends with a ready one."""
    since = before.unready_since if before else None
    if isinstance(answer, str):
        return FrontendSeen(name, problem=answer, unready_since=since)
    return FrontendSeen(name, answer, unready_since=None if answer.ready else since or now)


def _recent(own: tuple[OwnRequests, ...]) -> tuple[OwnRequests, ...]:
    """What was asked within OWN_FOR; runs without a request tell nothing."""
    newest = max(one.ended_at for one in own)
    return tuple(one for one in own if one.requests and newest - one.ended_at <= OWN_FOR)


def _joined(exam: Exam, earlier: ExamResult | None, result: ExamResult) -> ExamResult:
    if not exam.window or earlier is None:
        return result
    return replace(result, replies=(*earlier.replies, *result.replies)[-exam.window :])
