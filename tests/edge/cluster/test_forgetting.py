"""What the operator keeps in memory of a pool goes with it: an operator that runs for months sees many come and go."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from datetime import timedelta

import pytest

from kvgate.api.words import Capability
from kvgate.core.steps import Enable, Listen, Measure, StartBenchmark
from kvgate.core.target import ToggleStep
from kvgate.edge.cluster.client import Client
from kvgate.edge.cluster.sweeps import ProbePolicy
from kvgate.edge.errors import EdgeError, PoolGoneError
from tests.cluster.waiting import eventually
from tests.edge.cluster.yard import Yard

pytestmark = pytest.mark.api
ROUTING = {"kvEvents": "Required", "benchmark": {"allowLive": True}}
DENIED = Enable(Capability.DISAGGREGATION, (ToggleStep("Ghost", "DYN_VLLM_DISAGGREGATION_MODE", "decode"),), "op-1")


def strings(thing: object, seen: set[int]) -> Iterator[str]:
    """Every string that an object of ours keeps alive, but for what its client keeps."""
    if id(thing) in seen or isinstance(thing, Client | threading.Event | type):
        return
    seen.add(id(thing))
    if isinstance(thing, str):
        yield thing
    elif isinstance(thing, Mapping):
        yield from (found for pair in thing.items() for part in pair for found in strings(part, seen))
    elif isinstance(thing, list | tuple | set | frozenset):
        yield from (found for part in thing for found in strings(part, seen))
    elif type(thing).__module__.startswith("kvgate."):
        yield from strings(vars(thing), seen)


def remembers(yard: Yard, *needles: str) -> list[str]:
    kept = list(strings(yard.ground, set()))
    return [needle for needle in needles if any(needle in found for found in kept)]


def filled(yard: Yard) -> str:
    """Leave a trace of the pool wherever one is kept: what was refused, looked at, and would serve an A/B. Its UID."""
    yard.policy = ProbePolicy()
    yard.pool(criteria={"routing": ROUTING}, monitor={"interval": "1s"})
    pool, world = yard.observe()
    for step in (Measure("run", yard.paths(), "a test"), DENIED, Listen("run"), StartBenchmark("run")):
        with pytest.raises(EdgeError):
            yard.ground.carry_out(pool, world, step)
    yard.observe()
    return pool.uid


def test_nothing_of_a_pool_that_is_gone_is_kept(yard: Yard) -> None:
    uid = filled(yard)
    assert remembers(yard, uid, yard.key) == [uid, yard.key]

    yard.kubectl("delete", "kvpool", "qwen3")
    with pytest.raises(PoolGoneError):
        yard.observe()
    assert remembers(yard, uid, yard.key) == []


def test_a_pool_of_the_same_name_begins_without_the_past_of_the_one_before(yard: Yard) -> None:
    uid = filled(yard)
    assert yard.observe()[1].sweep_problem
    yard.kubectl("delete", "kvpool", "qwen3")
    yard.pool()
    yard.observe()
    assert remembers(yard, uid) == []


def test_pools_that_come_and_go_leave_no_thread(yard: Yard) -> None:
    filled(yard)
    before = threading.active_count()
    for _ in range(20):
        yard.kubectl("delete", "kvpool", "qwen3")
        yard.ahead += timedelta(seconds=5)
        filled(yard)
    eventually(lambda: threading.active_count() <= before + 1)
