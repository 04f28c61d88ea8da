"""From what a pool asks and what its workers are to the plan of an A/B."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass

from kvgate.api.pool import Benchmark, Prompt
from kvgate.core.ab.errors import FEWEST_COUNTED
from kvgate.core.ab.exercise import REQUESTS_PER_WORKER
from kvgate.core.ab.experiment import DISCARDED_SHARE
from kvgate.probe.benchmark_job import KV_PORT, ROUND_ROBIN_PORT
from kvgate_bench.wire import ACTIVE_FAMILIES, BUILT_IN, MOST_CACHE_SHARE, SALT_BLOCKS, TRACE, Plan

TIMEOUT_SECONDS = 60.0
WASHOUT_SECONDS = 5.0
OUTPUT_TOKENS = 16
MOST_REQUESTS_PER_RUN = 20_000
LEAST_PROMPT_BLOCKS = 4
VOCABULARY = (1000, 31_999)
"""Token IDs that the tokenizer of every model has whose size is not known."""


@dataclass(frozen=True)
class Served:
    """What is known of the deployment that serves the A/B. `live` are the frontends that users reach; `trace_digest` is
    the SHA-256 of the trace that the pool names."""

    model: str
    workers: int
    block_tokens: int
    cache_blocks: int
    vocabulary_size: int | None = None
    live: tuple[str, ...] = ()
    on_live: bool = False
    trace_digest: str = ""


def plan_ab(run_id: str, pool_uid: str, asked: Benchmark, prompts: tuple[Prompt, ...], served: Served) -> Plan:
    """Raises ValueError where one worker's cache is too small for any workload."""
    per_run = requests_per_run(asked.blocks, served.workers)
    built_in = asked.trace is None
    family_size = (REQUESTS_PER_WORKER + 1) * max(1, served.workers)
    first, last = _vocabulary(served.vocabulary_size)
    return Plan(
        run_id=run_id,
        pool_uid=pool_uid,
        model=served.model,
        seed=int(hashlib.sha256(run_id.encode()).hexdigest()[:12], 16),
        blocks=asked.blocks,
        requests_per_run=per_run,
        requests_per_second=float(asked.requests_per_second),
        timeout_seconds=TIMEOUT_SECONDS,
        washout_seconds=WASHOUT_SECONDS,
        block_tokens=served.block_tokens,
        cache_blocks=served.cache_blocks,
        first_token=first,
        last_token=last,
        output_tokens=OUTPUT_TOKENS,
        round_robin=f"http://127.0.0.1:{ROUND_ROBIN_PORT}",
        kv=f"http://127.0.0.1:{KV_PORT}",
        workload=BUILT_IN if built_in else TRACE,
        prompts=_sizes(prompts, per_run, family_size, served) if built_in else (),
        family_size=family_size if built_in else 0,
        live=served.live,
        most_live_utilization=asked.max_live_utilization.fraction,
        on_live=served.on_live,
        workers=served.workers,
        trace_digest=served.trace_digest,
    )


def requests_per_run(blocks: int, workers: int) -> int:
    """Enough for the bound on errors, the discarded fifth not counted, and for three rounds of families."""
    counted = math.ceil(FEWEST_COUNTED / blocks)
    offered = next(n for n in range(counted, 2 * counted + DISCARDED_SHARE) if n - -(-n // DISCARDED_SHARE) >= counted)
    rounds = 3 * (REQUESTS_PER_WORKER + 1) * max(1, workers)
    return min(MOST_REQUESTS_PER_RUN, max(offered, rounds))


def _vocabulary(size: int | None) -> tuple[int, int]:
    """Without the first and last IDs of a small tokenizer, where special tokens stand."""
    if size is None or size > VOCABULARY[1]:
        return VOCABULARY
    edge = size // 16
    return edge, size - edge - 1


def _sizes(prompts: tuple[Prompt, ...], per_run: int, family_size: int, served: Served) -> tuple[int, ...]:
    """The pool's prompt sizes by their shares, shortened so that a run fills no more of a cache than it may."""
    most = _longest(per_run, family_size, served)
    shares = [1 if prompt.share is None else max(1, round(prompt.share.fraction * 20)) for prompt in prompts]
    kept = [max(p.tokens for p in prompts)] if all(p.share is None for p in prompts) else [p.tokens for p in prompts]
    spread = [tokens for tokens, share in zip(kept, shares, strict=False) for _ in range(share)]
    least = LEAST_PROMPT_BLOCKS * served.block_tokens
    return tuple(max(least, min(tokens, most)) for tokens in spread)


def _longest(per_run: int, family_size: int, served: Served) -> int:
    """Tokens of a prompt, if all had this length: families keep nine tenths once, and each request its own tenth. Of
    families a run sees those that it uses up, and at each end as many as are asked at a time."""
    families = per_run / family_size + 2 * ACTIVE_FAMILIES
    answers = per_run * -(-OUTPUT_TOKENS // served.block_tokens)
    room = MOST_CACHE_SHARE * served.cache_blocks - answers - SALT_BLOCKS * families - 2 * per_run
    blocks = math.floor(room / (0.9 * families + 0.1 * per_run))
    if blocks < LEAST_PROMPT_BLOCKS:
        what = f"one worker's cache holds {served.cache_blocks} KV blocks, and 20% of them are too few for any workload"
        raise ValueError(f"{what}: give a short trace in benchmark.trace")
    return blocks * served.block_tokens
