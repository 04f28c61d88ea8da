"""A small plan for the tests of this folder; each test says only what differs."""

from __future__ import annotations

from dataclasses import replace

from kvgate_bench.wire import Plan

PLAN = Plan(
    run_id="ab1",
    pool_uid="pool-uid",
    model="tiny",
    seed=7,
    blocks=2,
    requests_per_run=60,
    requests_per_second=100.0,
    timeout_seconds=0.5,
    washout_seconds=0.0,
    block_tokens=16,
    cache_blocks=100_000,
    first_token=100,
    last_token=2000,
    output_tokens=4,
    round_robin="http://127.0.0.1:1",
    kv="http://127.0.0.1:2",
    prompts=(320, 640),
    family_size=6,
)


def plan(**changes: object) -> Plan:
    return replace(PLAN, **changes)  # type: ignore[arg-type]
