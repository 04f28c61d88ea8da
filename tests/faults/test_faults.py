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
from kvgate.api.words import Capability, ConditionType
from tests.cluster.access import AuditEvent
from tests.cluster.leftovers import Kind
from tests.cluster.processes import Process
from tests.cluster.waiting import eventually
from tests.core.worlds import told
from tests.edge.cluster.yard import Yard, beating
from tests.faults.doubtful import Doubts, doubtful, doubts
from tests.faults.life import AGENT, Life
from tests.install.plane import Plane, command_line

pytestmark = [pytest.mark.api, pytest.mark.timeout(240)]

SEEDS = int(os.environ.get("KVGATE_FAULT_SEEDS", "30"))
ON, OFF = ["prefill", "decode"], ["agg", "agg"]
GONE_SECONDS = 60.0
RESTARTED = 10
"""In every tenth life the API server is killed and started again."""


@pytest.mark.parametrize("seed", range(SEEDS))
def test_whatever_fails_a_life_ends_as_one_without_faults(seed: int, shaky: Plane, yard: Yard) -> None:
    yard.pool(
        mode="Enforce", enforcement={"onConflict": "TakeOver"}, rollback={"onDelete": {"disaggregation": "Revert"}}
    )
    plan, began = doubts(seed), yard.access.audit_mark()
    with beating(yard.access, yard.nodes), doubtful(yard.access, plan, lambda path: disturb(yard, path)) as proxy:
        life = Life(yard, proxy.address, plan, hands(seed, shaky))
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
    assert_proven_first(life.writes(began))
    eventually(lambda: left(yard) == [], GONE_SECONDS)


def at_rest(before: PoolStatus, after: PoolStatus) -> bool:
    """Nothing is measured or meant any more."""
    return after.sweep is None and after == before


def assert_on(life: Life) -> None:
    """The same end whatever came before it: what is on and why, one entry of history, and evidence that is whole."""
    status = life.status
    assert status is not None
    assert [(entry.action, entry.capability) for entry in status.history] == [("Enabled", Capability.DISAGGREGATION)], (
        life.story()
    )
    assert told(status, ConditionType.FABRIC_MEASURED) == ("True", "Measured"), life.story()
    assert told(status, ConditionType.DISAGGREGATION_ACCEPTED)[0] == "True", life.story()
    assert told(status, ConditionType.DRIFTED) == ("False", "NoDrift"), life.story()
    assert told(status, ConditionType.ROLLED_BACK) == ("False", "NotRolledBack"), life.story()
    managers = [held["manager"] for held in life.yard.deployment()["metadata"]["managedFields"]]
    assert "kvgate" in " ".join(managers), managers


def assert_proven_first(writes: list[AuditEvent]) -> None:
    """By the API server's own record: evidence and a person's word came before kvgate's first write to the target."""
    first = next(n for n, e in enumerate(writes) if e.resource == "dynamographdeployments" and e.user_agent == AGENT)
    came_before = {e.resource for e in writes[:first]}
    assert {"fabricreports", "gateapprovals"} <= came_before, came_before


def left(yard: Yard) -> list[str]:
    """What a pool's work leaves behind; the garbage collector takes what the pool owned."""
    found = [*yard.names("jobs"), *yard.names("pods"), *yard.names("fabrep")]
    return [*found, *(name for name in yard.names("configmaps") if re.search(r"sweep|schedule|walk", name))]


def disturb(yard: Yard, path: str) -> None:
    """Somebody else writes the object that this request names, where there is one."""
    kinds = {"inferencepools": "kvpool", "dynamographdeployments": "dgd.v1beta1.nvidia.com"}
    match = re.search(r"/(inferencepools|dynamographdeployments)/([^/?]+)", path)
    if match:
        word = f"touched={random.randrange(10**9)}"
        yard.access.kubectl("annotate", kinds[match[1]], match[2], "-n", yard.namespace, "--overwrite", word)


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
