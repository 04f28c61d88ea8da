"""Ten pools whose sweeps are due at once: how many run, who is called next, and who holds nobody up."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from kvgate.api.status import PoolStatus, SweepStatus
from kvgate.app.operator.grounds import GuardedGround
from kvgate.app.operator.line import WaitingLine
from kvgate.app.operator.queue import DelayQueue
from kvgate.app.operator.workers import Office, Workers
from kvgate.app.ring import Turn
from kvgate.core.steps import Decision, Line
from kvgate.core.world import Pool, World
from tests.app.operator.memory_ground import pool, until
from tests.app.operator.sweeping_ground import SweepingGround, clock
from tests.core import cases

KEYS = tuple(f"team-{number}/pool" for number in range(10))
NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
FENCE = SweepStatus(run_id="run-1", started_at=NOW, reason="no evidence yet")
WORLD = World(target=cases.target(), kv=cases.kv(), nodes=cases.nodes())


def pools(**changes: object) -> dict[str, Pool]:
    spec = cases.spec({"mode": "Enforce", **changes})
    return {key: replace(pool(key), uid=f"uid-of-{key}", spec=spec) for key in KEYS}


@contextmanager
def at_work(ground: SweepingGround, workers: int = 6, *, hurried: bool = True) -> Iterator[DelayQueue]:
    """The operator's workers over the ground; a hurried one looks at a pool with a sweep ten times as often."""
    queue, stop = DelayQueue(time.monotonic), threading.Event()
    office = Office(queue, GuardedGround(ground, lambda: None), clock, lambda: True, lambda _: None, lambda: 0.5)
    crew = Workers(office)
    threads = [threading.Thread(target=crew.run, args=[stop, lambda: None]) for _ in range(workers)]
    if hurried:
        threads.append(threading.Thread(target=_hurry, args=[ground, queue, stop]))
    for thread in threads:
        thread.start()
    try:
        yield queue
    finally:
        stop.set()
        queue.close()
        for thread in threads:
            thread.join(10)


def _hurry(ground: SweepingGround, queue: DelayQueue, stop: threading.Event) -> None:
    """Job events bring turns to the pools that sweep, as they do in a cluster."""
    while not stop.wait(0.05):
        for key, kept in list(ground.pools.items()):
            if kept.status.sweep is not None:
                queue.add(key)


@pytest.mark.parametrize("most", [1, 3])
def test_ten_pools_never_sweep_more_than_the_limit_at_a_time_and_all_get_their_sweep(most: int) -> None:
    ground = SweepingGround(pools(), most=most)
    with at_work(ground) as queue:
        for key in KEYS:
            queue.add(key)
        until(lambda: len(ground.swept()) == len(KEYS), 60)

    assert ground.most_at_once == most
    assert sorted(ground.began) == sorted(KEYS)


def test_pools_that_were_looked_at_at_the_same_moment_do_not_both_begin() -> None:
    """All ten have read that nobody sweeps before the first of them writes that it does."""
    together = threading.Barrier(len(KEYS))

    class Together(SweepingGround):
        def observe(self, key: str) -> tuple[Pool, World]:
            seen = super().observe(key)
            if self.count("observe", key) == 1:
                together.wait(30)
            return seen

    ground = Together(pools(), most=1, sweep_seconds=60)
    with at_work(ground, workers=len(KEYS), hurried=False) as queue:
        for key in KEYS:
            queue.add(key)
        until(lambda: all(ground.count("observe", key) >= 2 for key in KEYS), 30)
        until(lambda: sum(_waits(kept) for kept in ground.pools.values()) == len(KEYS) - 1, 30)

    assert (ground.most_at_once, len(ground.began)) == (1, 1)


def _waits(kept: Pool) -> bool:
    return any(held.reason == "WaitingForTurn" for held in kept.status.conditions if held.type == "FabricMeasured")


def test_after_a_restart_what_was_meant_goes_on_and_nothing_else_begins() -> None:
    kept = pools()
    meant = PoolStatus(sweep=FENCE.model_copy(update={"started_at": clock()}))
    kept[KEYS[0]] = replace(kept[KEYS[0]], status=meant)
    ground = SweepingGround(kept, most=1)
    with at_work(ground) as queue:
        for key in reversed(KEYS):
            queue.add(key)
        until(lambda: len(ground.swept()) == len(KEYS), 60)

    assert ground.most_at_once == 1
    assert sorted(ground.began) == sorted(KEYS[1:])


@pytest.mark.parametrize("how", ["suspended before its Jobs were made", "deleted in the middle of its sweep"])
def test_a_pool_that_rests_or_goes_holds_nobody_up(how: str) -> None:
    kept = pools()
    meant = PoolStatus(sweep=FENCE.model_copy(update={"started_at": clock()}))
    spec = cases.spec({"suspend": True}) if how.startswith("suspended") else kept[KEYS[0]].spec
    kept[KEYS[0]] = replace(kept[KEYS[0]], status=meant, spec=spec)
    ground = SweepingGround(kept, most=1, sweep_seconds=0.05 if how.startswith("suspended") else 60)
    with at_work(ground) as queue:
        for key in KEYS[1:4]:
            queue.add(key)
        until(lambda: sum(_waits(one) for one in ground.pools.values()) == 3, 30)
        if not how.startswith("suspended"):
            with ground.lock:
                del ground.pools[KEYS[0]]
            ground.sweep_seconds = 0.05
        queue.add(KEYS[0])
        until(lambda: len(ground.swept()) == 3, 30)

    assert ground.most_at_once == 1


# --- who is called ------------------------------------------------------------------------------------------------


def had(before: SweepStatus | None, after: SweepStatus | None, line: Line = Line.NOWHERE) -> Turn:
    decision = Decision((), PoolStatus(sweep=after), 60, line)
    return Turn(replace(pool("a/b"), status=PoolStatus(sweep=before)), WORLD, decision, NOW)


WAITS, FIRST, IDLE, ENDED, BEGAN = (
    had(None, None, Line.BACK),
    had(None, None, Line.FRONT),
    had(None, None),
    had(FENCE, None),
    had(None, FENCE),
)
CALLS: dict[str, tuple[list[tuple[str, Turn | None]], list[str]]] = {
    "nobody waits": ([("a", ENDED)], []),
    "the longest waiting": ([("b", WAITS), ("c", WAITS), ("b", WAITS), ("a", ENDED)], ["b"]),
    "a confirming sweep before it": ([("b", WAITS), ("c", FIRST), ("a", ENDED)], ["c"]),
    "the next, once the first begins, for the limit may be higher": (
        [("b", WAITS), ("c", WAITS), ("a", ENDED), ("b", BEGAN)],
        ["b", "c"],
    ),
    "nobody more, when whoever was called must wait": ([("b", WAITS), ("a", ENDED), ("b", WAITS)], ["b"]),
    "the next, when the first wants none any more": (
        [("b", WAITS), ("c", WAITS), ("a", ENDED), ("b", IDLE)],
        ["b", "c"],
    ),
    "the next, when a pool is gone": ([("b", WAITS), ("c", WAITS), ("b", None)], ["c"]),
    "nobody, when a pool that never waited begins": ([("b", WAITS), ("a", BEGAN), ("a", IDLE)], []),
}


@pytest.mark.parametrize(("events", "called"), CALLS.values(), ids=CALLS)
def test_who_is_called_when_a_sweep_ends(events: list[tuple[str, Turn | None]], called: list[str]) -> None:
    found: list[str] = []
    line = WaitingLine(found.append)
    for key, turn in events:
        if turn is None:
            line.gone(key)
        else:
            line.after(key, turn, line.calls)
    assert found == called


@pytest.mark.parametrize(("turn", "called"), [(WAITS, ["b"]), (IDLE, []), (BEGAN, [])])
def test_who_looked_before_a_sweep_ended_and_stands_in_line_after_it_is_called(turn: Turn, called: list[str]) -> None:
    found: list[str] = []
    line = WaitingLine(found.append)
    seen = line.calls
    line.after("a", ENDED, seen)
    line.after("b", turn, seen)
    line.after("b", turn, line.calls)
    assert found == called
