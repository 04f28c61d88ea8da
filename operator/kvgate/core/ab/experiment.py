"""What a routing A/B recorded: each request of each run of both arms, and what must be known to trust them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from statistics import fmean

DISCARDED_SHARE = 5
"""The first fifth of each run warms the caches up and is not counted."""


class Arm(StrEnum):
    ROUND_ROBIN = "RoundRobin"
    KV = "KV"


class Workload(StrEnum):
    """Where the prompts come from: a trace that the site recorded, or the one that kvgate makes up."""

    TRACE = "Trace"
    BUILT_IN = "BuiltIn"


class Fault(StrEnum):
    """Why a request has no first token, or no whole answer."""

    TIMEOUT = "Timeout"
    NOT_CONNECTED = "NotConnected"
    UNAVAILABLE = "Unavailable"
    OVERLOADED = "Overloaded"
    REJECTED = "Rejected"
    SERVER_ERROR = "ServerError"
    BROKEN_STREAM = "BrokenStream"
    EMPTY = "Empty"


@dataclass(frozen=True, slots=True)
class Request:
    """One request: exactly one of `first_token_seconds` and `fault`.

    `arrival_seconds` is the planned offset in the run and `first_token_seconds` the wait from then on, so that a
    generator that falls behind hides nothing. `repeated_tokens` are the prompt tokens that an earlier request of the
    same run had sent too; `cached_tokens` what the engine says it found, `overlap_tokens` what the router expected.
    """

    family: int
    arrival_seconds: float
    prompt_tokens: int
    repeated_tokens: int = 0
    first_token_seconds: float | None = None
    token_gap_seconds: float | None = None
    cached_tokens: int | None = None
    overlap_tokens: int | None = None
    worker: str = ""
    fault: Fault | None = None
    answer_tokens: int = 0

    def __post_init__(self) -> None:
        if (self.first_token_seconds is None) == (self.fault is None):
            raise ValueError("a request needs a first token or a fault, and not both")


@dataclass(frozen=True)
class Run:
    """One arm in one block. `offered` requests were planned; `kv_families` are the metrics of KV routing that the
    arm's own frontend showed. It ran from `began_at` to `ended_at`, in seconds since 1970 by its pod's clock; 0 where
    that was not told."""

    block: int
    arm: Arm
    offered: int
    requests: tuple[Request, ...]
    kv_families: tuple[str, ...] = ()
    began_at: float = 0.0
    ended_at: float = 0.0

    @cached_property
    def counted(self) -> tuple[Request, ...]:
        """In the order of arrival, without those planned for the first fifth."""
        ordered = sorted(self.requests, key=lambda request: request.arrival_seconds)
        return tuple(ordered[-(-self.offered // DISCARDED_SHARE) :])

    def mean_wait_seconds(self, timeout_seconds: float) -> float:
        """Mean time to first token of the counted requests; one without an answer counts as the timeout."""
        return fmean(wait_seconds(request, timeout_seconds) for request in self.counted)


def wait_seconds(request: Request, timeout_seconds: float) -> float:
    found = request.first_token_seconds
    return timeout_seconds if found is None else min(found, timeout_seconds)


@dataclass(frozen=True)
class Calibration:
    """One worker, asked directly while nothing else ran: mean time to first token of fresh and of repeated prompts."""

    worker: str
    miss_seconds: float
    hit_seconds: float


@dataclass(frozen=True)
class Identity:
    """Who served: the deployment's generation, the workers, and the digest of their model cards."""

    generation: int
    workers: tuple[str, ...]
    cards: str


@dataclass(frozen=True)
class Experiment:
    """A whole A/B. `blocks` is how many were planned; `template_tokens` how many tokens the chat template puts before
    every prompt; `aborted` says why it ended early, or is empty."""

    workload: Workload
    blocks: int
    runs: tuple[Run, ...]
    timeout_seconds: float
    block_tokens: int
    template_tokens: int
    before: Identity
    after: Identity
    calibration: tuple[Calibration, ...] = ()
    aborted: str = ""

    def of(self, arm: Arm) -> tuple[Run, ...]:
        return tuple(run for run in self.runs if run.arm is arm)

    def counted(self, arm: Arm) -> tuple[Request, ...]:
        return tuple(request for run in self.of(arm) for request in run.counted)

    def answered(self, arm: Arm) -> tuple[Request, ...]:
        return tuple(request for request in self.counted(arm) if request.fault is None)

    @cached_property
    def reports_cache(self) -> bool:
        """Whether the workers tell cached tokens at all; where they do, an answer without the number is a zero."""
        return any(request.cached_tokens is not None for run in self.runs for request in run.requests)

    @property
    def pairs(self) -> tuple[tuple[Run, Run], ...]:
        """Round-robin and KV run of each block that has both."""
        round_robin = {run.block: run for run in self.of(Arm.ROUND_ROBIN)}
        kv = {run.block: run for run in self.of(Arm.KV)}
        return tuple((round_robin[block], kv[block]) for block in sorted(round_robin.keys() & kv.keys()))


@dataclass(frozen=True)
class Limits:
    """What the pool asks: least gain and most added errors, both as fractions; `enforce` where kvgate would switch."""

    least_improvement: float
    most_added_errors: float
    enforce: bool = True


def cached_ratio(requests: Iterable[Request]) -> float:
    """Cached prompt tokens over all prompt tokens of the answered requests; 0 where there are none."""
    answered = [request for request in requests if request.fault is None]
    asked = sum(request.prompt_tokens for request in answered)
    return sum(request.cached_tokens or 0 for request in answered) / asked if asked else 0.0
