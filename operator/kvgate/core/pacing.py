"""How fast a path of nodes that serve is tested: so much that the verdict can pass, and no more."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from kvgate.api.words import Capability
from kvgate.core.estimate import Transfer
from kvgate.core.judging import Case
from kvgate.core.target import Switch, TargetView
from kvgate.core.world import KVKnown

MARGIN = 1.2
"""A path is asked for so many times what it must carry, so that one that only just does is told from one that does."""
LEAST_BYTES_PER_SECOND = 1e6
"""Slower tests move too little in their time to be believed."""
_SLOWEST, _FASTEST = 1e3, 1e13
_STEPS = 64


def pace(case: Case) -> float | None:
    """Bytes per second that each path is asked for in the next sweep; None for as much as it carries: while the split
    does not serve, before anything was measured, and where nothing says how much must be carried."""
    if not serves(case) or not case.numbers:
        return None
    least = required(case)
    return None if least is None else max(LEAST_BYTES_PER_SECOND, MARGIN * least)


def serves(case: Case) -> bool:
    """Whether KV bytes of users cross these paths now: the split is on, and its pods have nodes."""
    target = case.world.target
    toggle = target.toggles.get(Capability.DISAGGREGATION) if isinstance(target, TargetView) else None
    return toggle is not None and toggle.switch is Switch.ON and bool(case.weights)


def required(case: Case) -> float | None:
    """The least that each path must carry, bytes per second, for the criteria that a rate can pass; None where none
    says, or where no rate passes them."""
    asked = list(_asked(case))
    if isinstance(case.world.kv, KVKnown):
        if not _passes(case, case.world.kv, _FASTEST):
            return None
        asked.append(_least(case, case.world.kv))
    return max(asked, default=None)


def _asked(case: Case) -> Iterator[float]:
    if case.criteria.min_throughput is not None:
        yield case.criteria.min_throughput.bytes_per_second
    share = case.criteria.min_share_of_line_rate
    lines = [s.line_rate_bytes_per_second for s in case.numbers if s.line_rate_bytes_per_second]
    if share is not None and lines:
        yield share.fraction * max(lines)


def _least(case: Case, kv: KVKnown) -> float:
    low, high = math.log(_SLOWEST), math.log(_FASTEST)
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (low, middle) if _passes(case, kv, math.exp(middle)) else (middle, high)
    return math.exp(high)


def _passes(case: Case, kv: KVKnown, bytes_per_second: float) -> bool:
    """Budget and utilization of the nodes at this rate; shared links are no question of one path's rate."""
    derating = case.pool.spec.fabric.probe.load_derating.number
    transfer = Transfer(kv.size, kv.block_tokens, case.decode_ranks, bytes_per_second * derating)
    demand = case.demand
    load = None if demand is None else case.load_of(transfer, replace(demand, uplinks=()))
    if load is not None and load.utilization > case.criteria.max_utilization.fraction:
        return False
    longest = max(prompt.tokens for prompt in case.pool.spec.workload.prompts)
    wait = load.wait_seconds if load is not None else 0.0
    added = case.pool.spec.workload.fixed_overhead.seconds + transfer.seconds(longest) + wait
    return added <= case.criteria.ttft_budget.seconds
