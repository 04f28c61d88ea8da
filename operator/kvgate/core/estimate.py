"""The estimate: what moving the KV cache adds to the time to first token, and how full the links get."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from kvgate.core.evidence import Uplink

_LONGEST_PROMPT = 1 << 24


class KVSize(Protocol):
    """How many bytes of KV cache a prompt of so many tokens needs."""

    def bytes_for(self, tokens: int, block_tokens: int, /) -> int: ...

    def replication(self, decode_tensor_parallel: int, /) -> float: ...


@dataclass(frozen=True)
class Transfer:
    """How one prompt's KV cache crosses the fabric.

    `bytes_per_second` is the judged capacity of a path with the load derating already applied.
    """

    size: KVSize
    block_tokens: int
    decode_tensor_parallel: int
    bytes_per_second: float

    def kv_bytes(self, tokens: int) -> int:
        """Bytes on the wire: the cache in whole blocks, times the copies that decode ranks pull."""
        factor = self.size.replication(self.decode_tensor_parallel)
        return math.ceil(self.size.bytes_for(tokens, self.block_tokens) * factor)

    def seconds(self, tokens: int) -> float:
        """S = bytes / throughput: added TTFT of a pull after prefill, alone on the path."""
        return self.kv_bytes(tokens) / self.bytes_per_second


@dataclass(frozen=True)
class Share:
    """A prompt size and the fraction of requests that have it; the fractions sum to one."""

    tokens: int
    fraction: float


@dataclass(frozen=True)
class Demand:
    """The load that is judged: requests per second over the whole pool, and how unevenly they fall on its workers.

    A side's nodes are those over which its load falls evenly; a fraction where one of them carries more than its share.
    """

    requests_per_second: float
    skew: float
    prefill_nodes: float
    decode_nodes: float
    uplinks: tuple[Uplink, ...] = ()


@dataclass(frozen=True)
class Load:
    """How busy the busiest place is (1.0 = full), where that is, and the mean wait there in seconds."""

    utilization: float
    where: str
    wait_seconds: float


def load(transfer: Transfer, prompts: Sequence[Share], demand: Demand) -> Load:
    """The busiest place on the way, and the mean wait for it.

    Utilization of a side is λ·E[bytes]·skew/(N·B); of an uplink λ·E[bytes]·share/aggregate. The wait is that of an
    M/G/1 queue, λ_node·E[S²]/(2(1−ρ)) (Pollaczek-Khinchine), and without end when the place is full.
    """
    mean_bytes = sum(share.fraction * transfer.kv_bytes(share.tokens) for share in prompts)
    utilization, where = max(_places(transfer, mean_bytes, demand))
    if utilization >= 1:
        return Load(utilization, where, math.inf)
    second_moment = sum(share.fraction * transfer.seconds(share.tokens) ** 2 for share in prompts)
    arrivals = demand.requests_per_second * demand.skew / min(demand.prefill_nodes, demand.decode_nodes)
    return Load(utilization, where, arrivals * second_moment / (2 * (1 - utilization)))


def _places(transfer: Transfer, mean_bytes: float, demand: Demand) -> Iterable[tuple[float, str]]:
    offered = demand.requests_per_second * mean_bytes
    for nodes, side in ((demand.prefill_nodes, "prefill nodes"), (demand.decode_nodes, "decode nodes")):
        yield offered * demand.skew / (nodes * transfer.bytes_per_second), side
    for uplink in demand.uplinks:
        yield _filled(uplink, offered), f"uplink {uplink.name}"


def _filled(uplink: Uplink, offered_bytes_per_second: float) -> float:
    """The uplink's utilization; one whose numbers cannot be true counts as full, never as free."""
    offered = offered_bytes_per_second * uplink.traffic_share
    return offered / uplink.aggregate_bytes_per_second if uplink.readable else math.inf


def recompute_seconds(tokens: int, prefill_tokens_per_second: float) -> float:
    """T / R: what a prefill worker takes for the prompt when it has nothing cached, and nobody before it."""
    return tokens / prefill_tokens_per_second


def break_even(kv_bytes: float, tokens: int, prefill_tokens_per_second: float) -> float:
    """B* = bytes·R/T in bytes per second: below it, computing the prompt anew is faster than moving its KV cache."""
    return kv_bytes * prefill_tokens_per_second / tokens


def longest_prompt(transfer: Transfer, budget_seconds: float) -> int:
    """The longest prompt in tokens, whole blocks, whose transfer alone fits the budget; 0 when none does."""
    block = max(1, transfer.block_tokens)
    low, high = 0, _LONGEST_PROMPT // block
    while low < high:
        middle = (low + high + 1) // 2
        fits = transfer.seconds(middle * block) <= budget_seconds
        low, high = (middle, high) if fits else (low, middle - 1)
    return low * block
