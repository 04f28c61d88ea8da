"""BenchmarkReport: the whole evidence of a routing A/B, in shards that an index names and sums up."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from kvgate.api.report import PoolRef, Sha256, ShardRef
from kvgate.api.wire import ListMap, Text, Time, Wire, Word

_Count = Annotated[int, Field(ge=0, le=100_000_000)]
_Milliseconds = Annotated[int, Field(ge=0, le=1 << 53)]
_Decimal = Annotated[str, Field(max_length=24, pattern=r"^-?[0-9]+(\.[0-9]+)?$")]


class FaultCount(Wire):
    """How many requests failed in one way."""

    fault: Word
    """Timeout, NotConnected, Unavailable, Overloaded, Rejected, ServerError, BrokenStream or Empty."""
    requests: _Count
    """How many."""


class WorkerCount(Wire):
    """How many requests one worker answered."""

    worker: Word
    """Its instance ID, as the frontend tells it."""
    requests: _Count
    """How many."""


class ArmResult(Wire):
    """One arm: the requests that count, without the first fifth of each run."""

    arm: Word
    """RoundRobin or KV."""
    requests: _Count
    """How many were counted."""
    mean_milliseconds: _Milliseconds
    """Mean time to first token; a request without an answer counts as the timeout, here and below."""
    p50_milliseconds: _Milliseconds
    """Median time to first token."""
    p90_milliseconds: _Milliseconds
    """Time to first token that 90% did not exceed."""
    p99_milliseconds: _Milliseconds
    """Time to first token that 99% did not exceed."""
    inter_token_milliseconds: _Decimal | None = None
    """Mean time between two tokens of an answer."""
    cached_token_ratio: _Decimal | None = None
    """Cached prompt tokens over all prompt tokens, from 0 to 1."""
    errors: Annotated[tuple[FaultCount, ...], Field(max_length=16)] = ()
    """Failed requests by class."""
    workers: Annotated[tuple[WorkerCount, ...], Field(max_length=256)] = ()
    """Who answered how many."""
    tokens_per_joule: _Decimal | None = None
    """Prompt and answer tokens served per joule of the workers' GPUs, where Prometheus has their power: for
    information, never a criterion."""


class FamilyResult(Wire):
    """Prompts that share their first block."""

    family: Annotated[int, Field(ge=0, le=1 << 53)]
    """Place of its first request in the workload."""
    requests: _Count
    """How many were counted, of both arms."""
    cached_token_ratio: _Decimal
    """With KV routing, from 0 to 1."""
    cached_token_ratio_round_robin: _Decimal
    """With round-robin, from 0 to 1."""


class BenchmarkReportSpec(Wire):
    """Either a shard (index, encoding, data, sha256) or the index, which names the shards and is written last.

    What the index sums up is for people; verdicts come from the requests in the shards.
    """

    run_id: Annotated[str, Field(alias="runID", min_length=1, max_length=64)]
    """The A/B that this is evidence of."""
    pool_ref: PoolRef
    index: Annotated[int, Field(ge=0, le=10_000)] | None = None
    """Place of this shard, from 0."""
    encoding: Word | None = None
    """How data is packed."""
    data: Annotated[str, Field(max_length=900_000)] | None = None
    """The requests."""
    sha256: Sha256 | None = None
    """SHA-256 of data, in hex."""
    shards: Annotated[tuple[ShardRef, ...], Field(max_length=1000)] = ()
    """The shards that count; others are ignored."""
    measured_at: Time | None = None
    """When the A/B ended."""
    workload: Word | None = None
    """Trace or BuiltIn."""
    blocks: Annotated[int, Field(ge=0, le=1000)] | None = None
    """Pairs of runs that were planned."""
    improvement_percent: _Decimal | None = None
    """By how much the mean time to first token fell with KV routing; negative where it rose."""
    aborted: Text | None = None
    """Why it was ended early."""
    arms: Annotated[tuple[ArmResult, ...], Field(max_length=2), ListMap(("arm",))] = ()
    """Both arms, side by side."""
    families: Annotated[tuple[FamilyResult, ...], Field(max_length=32)] = ()
    """The largest prompt families, largest first: which templates earn the reuse."""
    seed: Annotated[int, Field(ge=0, le=(1 << 53) - 1)] | None = None
    """Prompts, arrivals and the order of the arms follow from it."""
    ran_on: Annotated[str, Field(max_length=253)] | None = None
    """The DynamoGraphDeployment that served it."""
    requests_per_second: _Decimal | None = None
    """Offered load of each arm."""
    live_requests_per_second: _Decimal | None = None
    """What the deployment served beside it: a shadow router does not see it."""
    versions: Annotated[tuple[Word, ...], Field(max_length=16)] = ()
    """Images of the frontend, the workers and the load generator."""
    no_power: Text | None = None
    """Why no arm has tokensPerJoule; absent where no Prometheus was to be asked."""
