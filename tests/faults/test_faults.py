"""Whatever fails on the way, a pool comes to the same end: one patch on, one patch back, and nothing left behind.

`make faults` plays two hundred lives, `make test` thirty.
"""

from __future__ import annotations

import os
import random
import re
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from kvgate.api.status import PoolStatus
from tests.cluster.leftovers import Kind
from tests.cluster.processes import Process
from tests.cluster.waiting import eventually
from tests.edge.cluster.yard import Yard, beating
from tests.faults.doubtful import Doubts, doubtful, doubts
from tests.faults.ends import CHANGES, GONE_SECONDS, OFF, ON, assert_on, assert_proven_first, disturb, left
from tests.faults.life import AGENT, Life
from tests.install.plane import Plane, command_line

pytestmark = [pytest.mark.api, pytest.mark.timeout(240)]

SEEDS = int(os.environ.get("KVGATE_FAULT_SEEDS", "30"))
RESTARTED = 10
"""In every tenth life the API server is killed and started again."""


@pytest.mark.parametrize("seed", range(SEEDS))
def test_whatever_fails_a_life_ends_as_one_without_faults(seed: int, shaky: Plane, yard: Yard) -> None:
    yard.pool(**CHANGES)
    plan, began = doubts(seed), yard.access.audit_mark()
    with beating(yard.access, yard.nodes), doubtful(yard.access, plan, lambda path: disturb(yard, path)) as proxy:
        life = Life(yard, plan, address=proxy.address, hands=hands(seed, shaky))
        before = life.generation()
        assert life.modes() == OFF
        life.until(lambda _: life.modes() == ON)
        life.until(lambda taken: taken is not None and at_rest(taken.pool.status, taken.decision.status))
        assert life.generation() == before + 1, life.story()
        assert_on(life)
        yard.kubectl("delete", "kvpool", "qwen3", "--wait=false")
        life.until(lambda _: life.gone)
    assert life.modes() == OFF, life.story()
    assert life.generation() == before + 2, life.story()
    assert life.faults == [], life.story()
    assert_proven_first(life.writes(began), AGENT)
    eventually(lambda: left(yard) == [], GONE_SECONDS)


def at_rest(before: PoolStatus, after: PoolStatus) -> bool:
    """Nothing is measured or meant any more."""
    return after.sweep is None and after == before


def hands(seed: int, shaky: Plane) -> Callable[[int], None]:
    """At one turn of each life etcd forgets all history; at one of every tenth the API server dies."""
    draw = random.Random(seed)
    forgets, dies = draw.randrange(1, 12), draw.randrange(1, 12) if seed % RESTARTED == 0 else 0

    def act(number: int) -> None:
        if number == forgets:
            compact(shaky)
        if number == dies:
            shaky.restart_server()

    return act


def compact(shaky: Plane) -> None:
    """By etcd's own gateway: watches and lists that began before are answered 410."""
    door = next(word.partition("=")[2] for word in etcd(shaky) if word.startswith("--listen-client-urls="))
    told = _post(f"{door}/v3/kv/range", b'{"key":"AA=="}')
    revision = re.search(rb'"revision":"(\d+)"', told)
    assert revision is not None, told
    _post(f"{door}/v3/kv/compaction", b'{"revision":"%s"}' % revision[1])


def etcd(shaky: Plane) -> list[str]:
    started = (Process(int(e.name), e.start_ticks) for e in shaky.ledger.entries() if e.kind is Kind.PROCESS)
    lines = (command_line(process.pid) for process in started if process.runs())
    return next(line for line in lines if Path(line[0]).name == "etcd")


def _post(address: str, body: bytes) -> bytes:
    with urllib.request.urlopen(urllib.request.Request(address, body), timeout=10) as answer:
        return bytes(answer.read())


def test_the_plans_hold_every_fault() -> None:
    met = {fault for seed in range(30) for fault in (*doubts(seed).writes.values(), *doubts(seed).reads.values())}
    assert len(met) == 9
    assert doubts(3) == doubts(3)
    assert isinstance(doubts(3), Doubts)
