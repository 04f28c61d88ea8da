"""Open-loop load through a frontend: a fixed number of requests per second, whatever becomes of them.

Dynamo 1.6.1 loses a request now and then in any change of a generation, however it is ordered: for some milliseconds a
decode worker is listed whose prefill router "is still activating", and a request that was bound to the last worker of a
generation is retried in that generation alone. Both answer 503 with RACE; an outage answers otherwise.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from tests.dynamo_stage import model
from tests.dynamo_stage.beside import Beside
from tests.dynamo_stage.client import Answer, UserDoor

RACE = "Service temporarily unavailable"
WORDS = "the quick brown fox jumps over the lazy dog "


@dataclass(frozen=True)
class Sent:
    """One request: when it began (seconds since the load did), what the test was doing then, and how it ended."""

    began_seconds: float
    phase: str
    answer: Answer


def salted(number: int) -> str:
    """A prompt of some 200 tokens that shares no prefix with another."""
    return f"{number:06d} {WORDS * 5}"


@dataclass
class SteadyLoad(Beside):
    """`with SteadyLoad(door, 8) as load:` sends until the block ends, then waits for the answers that are due."""

    title = "steady load"
    door: UserDoor
    requests_per_second: float = 8.0
    max_tokens: int = 24
    prompt: Callable[[int], str] = salted
    phase: str = "before"
    model_name: str = model.NAME
    sent: list[Sent] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def so_far(self) -> list[Sent]:
        with self._lock:
            return list(self.sent)

    def failed(self) -> list[Sent]:
        """Everything but an answer with status 200."""
        return [one for one in self.so_far() if not one.answer.good]

    def raced(self) -> list[Sent]:
        """What was lost in the milliseconds in which the frontend goes from one generation to another."""
        return [one for one in self.failed() if one.answer.status == 503 and RACE in one.answer.error]

    def outages(self) -> list[Sent]:
        """Every other failure: no model, not ready, not reachable, too late."""
        return [one for one in self.failed() if one not in self.raced()]

    def told(self) -> dict[tuple[str, int, str], int]:
        """(phase, status, path taken) → requests: what an assertion shows when it fails."""
        return dict(Counter((one.phase, one.answer.status, path_taken(one.answer)) for one in self.so_far()))

    def wait_for(self, answers: int, seconds: float = 60.0) -> None:
        """Return when so many more requests have ended; raises AssertionError after `seconds`."""
        goal, deadline = len(self.so_far()) + answers, time.monotonic() + seconds
        while len(self.so_far()) < goal:
            assert time.monotonic() < deadline, f"{len(self.so_far())} of {goal} requests ended in {seconds:.0f} s"
            time.sleep(0.05)

    def run(self) -> None:
        began = time.monotonic()
        with ThreadPoolExecutor(64, "load") as pool:
            number = 0
            while not self.stop.wait(max(0.0, began + number / self.requests_per_second - time.monotonic())):
                pool.submit(self._one, number, began)
                number += 1

    def _one(self, number: int, began: float) -> None:
        phase, at = self.phase, time.monotonic() - began
        answer = self.door.chat(self.prompt(number), max_tokens=self.max_tokens, name=self.model_name)
        with self._lock:
            self.sent.append(Sent(at, phase, answer))


def path_taken(answer: Answer) -> str:
    if not answer.good:
        return answer.error[:120]
    return "split" if answer.split else "aggregated"
