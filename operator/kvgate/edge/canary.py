"""Canary requests over HTTP: one streaming request at a time, bounded in bytes and time, and the exams made of them."""

from __future__ import annotations

import hashlib
import http.client
import json
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime

from kvgate.core.serving import Exam, ExamResult, Pair, Readiness, Reply
from kvgate.dynamo.canary import Heard, Question, fits, hear, next_words, questions, request
from kvgate.dynamo.readiness import read_readiness, readiness_path
from kvgate.dynamo.watched import HTTP_PORT
from kvgate.edge.bounded_http import within

READY_SECONDS = 5.0
LARGEST_BODY_BYTES = 64 * 1024
LARGEST_LINE_BYTES = 64 * 1024
MOST_LINES = 4000
LENGTH_TRIES = 8
PAIR_TRIES = 4
MOST_FAILURES, MOST_FAILED_SHARE = 8, 0.1
"""An exam ends when more than both have failed."""
SETTLE_SECONDS = 0.5
"""Between a prompt and its repeat: the router learns of cached blocks by an event."""
CHAT = "/v1/chat/completions"


@dataclass(frozen=True)
class Frontend:
    """A frontend replica and where it answers, `host` or `host:port`."""

    name: str
    address: str

    @property
    def place(self) -> tuple[str, int]:
        host, colon, port = self.address.rpartition(":")
        return (host, int(port)) if colon and ":" not in host and port.isdigit() else (self.address, HTTP_PORT)


def readiness(frontend: Frontend, model: str) -> Readiness | str:
    """What the frontend says of the model, or in a few words why it could not be asked."""
    connection = _connection(frontend, READY_SECONDS)
    try:
        status, body = within(READY_SECONDS, lambda: _got(connection, readiness_path(model)), connection.cut)
    except (OSError, http.client.HTTPException) as error:
        return f"{readiness_path(model)} on port {frontend.place[1]}: {_word(error)}"
    read = read_readiness(status, body)
    return read if read is not None else f"{readiness_path(model)} answered {status} with no readiness in it"


def _got(connection: http.client.HTTPConnection, path: str) -> tuple[int, str]:
    connection.request("GET", path)
    answer = connection.getresponse()
    body = answer.read(LARGEST_BODY_BYTES).decode("utf-8", "replace")
    connection.close()
    return answer.status, body


class _Connection(http.client.HTTPConnection):
    """Keeps its socket in reach: http.client hands it on to an answer that ends with the connection."""

    reached: socket.socket | None = None

    def connect(self) -> None:
        super().connect()
        self.reached = self.sock

    def cut(self) -> None:
        """End what is still sent or received, from another thread."""
        if self.reached is not None:
            with suppress(OSError):
                self.reached.shutdown(socket.SHUT_RDWR)


def _connection(frontend: Frontend, seconds: float) -> _Connection:
    host, port = frontend.place
    return _Connection(host, port, timeout=seconds)


def _word(error: Exception) -> str:
    return "Timeout" if isinstance(error, TimeoutError) else type(error).__name__


@dataclass(frozen=True)
class _Told:
    """A whole answer with the time to its first piece, or the failure in one word."""

    heard: Heard = field(default_factory=Heard)
    ttft_seconds: float | None = None
    failure: str = ""


def ask(frontend: Frontend, exam: Exam, question: Question, salt: str, words: int) -> Reply:
    """One request. It may take longer than other calls, `exam.request_seconds`: what is measured is the time to the
    first token, which must be let run past the budget that it is judged by."""
    body = json.dumps(request(exam, question, salt, words)).encode()
    connection = _connection(frontend, exam.request_seconds)
    try:
        told = within(exam.request_seconds, lambda: _streamed(connection, body), connection.cut)
    except (OSError, http.client.HTTPException) as error:
        told = _Told(failure=_word(error))
    heard = told.heard
    return Reply(
        frontend=frontend.name,
        tokens=question.tokens,
        seed=question.seed,
        round=question.round,
        failure=told.failure,
        ttft_seconds=told.ttft_seconds,
        prompt_tokens=heard.prompt_tokens,
        cached_tokens=heard.cached_tokens,
        router_hit_rate=heard.router_hit_rate,
        answer=heard.answer,
        pair=heard.pair,
    )


def _streamed(connection: http.client.HTTPConnection, body: bytes) -> _Told:
    began = time.monotonic()
    connection.request("POST", CHAT, body, {"Content-Type": "application/json", "Accept": "text/event-stream"})
    answer = connection.getresponse()
    if answer.status != 200:
        connection.close()
        return _Told(failure=f"HTTP{answer.status}")
    heard, first = Heard(), None
    for line in _lines(answer):
        heard = hear(heard, line)
        if heard.parts and first is None:
            first = time.monotonic() - began
        if heard.ended or heard.error:
            break
    connection.close()
    broken = heard.error or ("" if heard.ended and first is not None else "Cut" if not heard.ended else "NoText")
    return _Told(heard, first, broken)


def _lines(answer: http.client.HTTPResponse) -> Iterator[str]:
    for _ in range(MOST_LINES):
        line = answer.readline(LARGEST_LINE_BYTES)
        if not line:
            return
        yield line.decode("utf-8", "replace")


Asker = Callable[[Frontend, Exam, Question, str, int], Reply]


@dataclass
class Sitting:
    """One exam while it is sat. `stopped` ends it early; `replies` are those so far, in no order."""

    exam: Exam
    frontends: Sequence[Frontend]
    stopped: Callable[[], bool]
    asks: Asker = ask
    run: str = field(default_factory=lambda: secrets.token_hex(6))
    deadline: float = 0.0
    failures: int = 0
    asked: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)
    met: set[Pair] = field(default_factory=set)

    def sit(self, clock: Callable[[], datetime]) -> ExamResult:
        """Ask all of it. Never raises for what a frontend does; what could not be asked is told in `problem`."""
        self.deadline = time.monotonic() + self.exam.seconds
        if not self.frontends:
            return ExamResult(self.exam.id, clock(), problem="no frontend pod has an address")
        words, refused = self._lengths()
        if refused:
            failed = bool(refused[0].failure)
            return ExamResult(self.exam.id, clock(), refused if failed else (), "" if failed else _LENGTH)
        asked = questions(self.exam, self._pairs(words), len(self.frontends))
        replies = self._all(asked, words)
        missing = len(asked) - len(replies)
        problem = f"{missing} of {len(asked)} prompts were not asked in {self.exam.seconds:.0f} s" if missing else ""
        return ExamResult(self.exam.id, clock(), replies, problem)

    def _lengths(self) -> tuple[dict[int, int], tuple[Reply, ...]]:
        """Words for each prompt size, by the tokenizer's own count; or the reply that counted nothing."""
        words: dict[int, int] = {}
        for tokens, seeds in self.exam.seeds:
            found = self._length(tokens, seeds[0] if seeds else 0)
            if isinstance(found, Reply):
                return {}, (found,)
            words[tokens] = found
        return words, ()

    def _length(self, tokens: int, seed: int) -> int | Reply:
        tried: tuple[tuple[int, int], ...] = ()
        for attempt in range(LENGTH_TRIES):
            words = next_words(tokens, tried)
            question = Question(tokens, seed, attempt % len(self.frontends), attempt)
            reply = self._ask(question, f"length/{attempt}", words)
            if reply.failure or reply.prompt_tokens is None:
                return reply
            if fits(tokens, words, reply.prompt_tokens):
                return words
            tried = (*tried, (words, reply.prompt_tokens))
        return replace(reply, failure="")

    def _pairs(self, words: dict[int, int]) -> tuple[Pair, ...]:
        """The worker pairs to pin: those that the exam names, else those of the workers that answer."""
        prefills, decodes = self.exam.prefills, self.exam.decodes
        if self.exam.pairs or not decodes:
            return self.exam.pairs
        tokens, together = min(words), max(prefills, decodes)
        with ThreadPoolExecutor(together, "canary") as pool:
            for attempt in range(PAIR_TRIES):
                if len(self._known(1)) >= decodes and len(self._known(0)) >= prefills:
                    break
                tries = range(attempt * together, (attempt + 1) * together)
                list(pool.map(lambda index: self._meet(tokens, index, words[tokens]), tries))
        if not prefills:
            return tuple((one, one) for one in self._known(1))
        return tuple((prefill, decode) for prefill in self._known(0) for decode in self._known(1))

    def _meet(self, tokens: int, index: int, words: int) -> Reply:
        """Asked together, so that a router by load spreads them."""
        return self._ask(Question(tokens, index, index % len(self.frontends), 0), f"meet/{index}", words)

    def _known(self, side: int) -> list[int]:
        """The workers that have answered as prefill (0) or as decode (1)."""
        return sorted({one for pair in self.met if (one := pair[side]) is not None})

    def _all(self, asked: Sequence[Question], words: dict[int, int]) -> tuple[Reply, ...]:
        def one(question: Question) -> Reply | None:
            if question.round and self.exam.concurrency == 1:
                time.sleep(SETTLE_SECONDS)
            return None if self._over() else self._ask(question, question.salt, words[question.tokens])

        with ThreadPoolExecutor(self.exam.concurrency, "canary") as pool:
            return tuple(reply for reply in pool.map(one, asked) if reply is not None)

    def _over(self) -> bool:
        failing = self.failures >= max(MOST_FAILURES, MOST_FAILED_SHARE * self.asked)
        return self.stopped() or failing or time.monotonic() > self.deadline

    def _ask(self, question: Question, salt: object, words: int) -> Reply:
        """The salt differs from its first letter on: what prompts share is a cache's first block."""
        mixed = hashlib.sha256(f"{self.run}/{question.tokens}/{salt}".encode()).hexdigest()[:16]
        reply = self.asks(self.frontends[question.frontend % len(self.frontends)], self.exam, question, mixed, words)
        with self.lock:
            self.asked += 1
            self.failures += bool(reply.failure)
            self.met.add(reply.pair)
        return reply


_LENGTH = "no prompt of the asked length could be made: usage.prompt_tokens does not follow the text"
