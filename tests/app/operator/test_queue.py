"""The queue under threads: waits end when something is due, and no key is ever with two workers."""

import threading
import time
from collections import Counter

import pytest

from kvgate.app.operator.backoff import backoff_seconds
from kvgate.app.operator.queue import DelayQueue


def test_a_waiting_worker_gets_what_is_added_at_once() -> None:
    queue = DelayQueue(time.monotonic)
    threading.Timer(0.05, queue.add, ["ns/a"]).start()
    began = time.monotonic()

    assert queue.take(10) == "ns/a"
    assert time.monotonic() - began < 5


def test_a_waiting_worker_is_woken_when_the_key_is_due_and_not_before() -> None:
    queue = DelayQueue(time.monotonic)
    began = time.monotonic()
    queue.add("ns/a", 0.2)

    assert queue.take(10) == "ns/a"
    assert 0.2 <= time.monotonic() - began < 5


def test_a_wait_for_nothing_ends() -> None:
    queue = DelayQueue(time.monotonic)
    queue.add("ns/a", 3600)

    assert queue.take(0.05) is None


def test_closing_sends_those_who_wait_away_and_gives_out_nothing_more() -> None:
    queue = DelayQueue(time.monotonic)
    threading.Timer(0.05, queue.close).start()
    began = time.monotonic()

    assert queue.take(30) is None
    assert time.monotonic() - began < 10
    queue.add("ns/a")
    assert queue.take(0) is None


def test_four_workers_and_four_callers_never_meet_on_a_key_and_lose_none() -> None:
    queue = DelayQueue(time.monotonic)
    working: Counter[str] = Counter()
    met: list[str] = []
    served: Counter[str] = Counter()
    lock = threading.Lock()
    last_wish: dict[str, float] = {}
    last_turn: dict[str, float] = {}

    def call(name: int) -> None:
        for index in range(200):
            key = f"ns/{(index + name) % 5}"
            with lock:
                last_wish[key] = time.monotonic()
            queue.add(key)

    def work() -> None:
        while (key := queue.take(0.3)) is not None:
            with lock:
                working[key] += 1
                met.extend([key] if working[key] > 1 else [])
                last_turn[key] = time.monotonic()
            time.sleep(0.0005)
            with lock:
                working[key] -= 1
                served[key] += 1
            queue.done(key)

    threads = [threading.Thread(target=call, args=[n]) for n in range(4)]
    threads += [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    assert met == []
    assert set(served) == {f"ns/{n}" for n in range(5)}
    assert all(last_turn[key] >= last_wish[key] for key in last_wish)
    assert len(queue) == 0


@pytest.mark.parametrize(
    ("failures", "fraction", "seconds"),
    [
        pytest.param(1, 0.0, 1.0, id="the first failure costs a second"),
        pytest.param(2, 0.0, 2.0, id="the next twice as much"),
        pytest.param(6, 0.0, 32.0, id="and so on"),
        pytest.param(7, 0.0, 60.0, id="up to a minute"),
        pytest.param(10**9, 0.0, 60.0, id="and never more, however often it failed"),
        pytest.param(3, 1.0, 2.0, id="chance takes away half at most"),
        pytest.param(3, 0.5, 3.0, id="and a quarter on average"),
        pytest.param(0, 0.0, 1.0, id="no failure counts as one"),
    ],
)
def test_back_off(failures: int, fraction: float, seconds: float) -> None:
    assert backoff_seconds(failures, fraction) == seconds
