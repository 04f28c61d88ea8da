"""What the two shadow frontends of a routing A/B cost users: p99 TTFT of a live frontend, without them and beside."""

from __future__ import annotations

import asyncio
import math
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean, stdev

import aiohttp

from benchmarks.tables import publish
from kvgate.core.ab.student import t_quantile
from kvgate.core.ab.summary import nearest_rank
from kvgate_bench import workload
from kvgate_bench.client import ask, body_of
from kvgate_bench.session import CALIBRATED_PROMPTS
from kvgate_bench.wire import ARMS, KV, Plan, encode_plan
from tests.dynamo_stage import model
from tests.dynamo_stage.specs import Frontend, RouterMode, Worker
from tests.dynamo_stage.stage import Running, RunningFrontend, Stage, open_stage

PAIRS, WORKERS = 5, 3
LIVE_PER_SECOND, BLOCK_SECONDS, SETTLING_SECONDS = 8.0, 25.0, 2.0
LIVE_TOKENS, ANSWER_TOKENS, TIMEOUT_SECONDS = 1000, 16, 10.0
LIMIT = 0.10
WORKER = Worker(speedup=1.0, blocks=1 << 17)
LIVE = Frontend(RouterMode.ROUND_ROBIN, prefix=False)
SHADOWS = {arm: Frontend(RouterMode.KV if arm == KV else RouterMode.ROUND_ROBIN, prefix=False) for arm in ARMS}


def plan(number: int, arms: dict[str, RunningFrontend]) -> Plan:
    """At the default rate; the arm that `number` chooses goes first."""
    plain = Plan(
        run_id=f"so{number}",
        pool_uid="pool",
        model=model.NAME,
        seed=number,
        blocks=8,
        requests_per_run=125,
        requests_per_second=4.0,
        timeout_seconds=TIMEOUT_SECONDS,
        washout_seconds=5.0,
        block_tokens=model.BLOCK_SIZE_TOKENS,
        cache_blocks=WORKER.blocks,
        first_token=300,
        last_token=2200,
        output_tokens=ANSWER_TOKENS,
        round_robin=arms[ARMS[0]].door.base,
        kv=arms[ARMS[1]].door.base,
        prompts=(1500,),
        family_size=4 * WORKERS,
        workers=WORKERS,
    )
    seeds = (seed for seed in range(1000 * number, 1000 * number + 999))
    made = (Plan(**{**plain.__dict__, "seed": seed}) for seed in seeds)
    return next(one for one in made if workload.order(one, 0)[0] == ARMS[number % 2])


async def live(url: str, pair: int, salt: str) -> list[float]:
    """Users' waits for the first token, in seconds: prompts that share nothing, at the same moments for each salt of a
    pair, as a Poisson stream."""
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    async with aiohttp.ClientSession(connector=connector, read_bufsize=1 << 20) as http:
        due, sent, moments = time.monotonic(), [], random.Random(f"{pair}/arrivals")
        for number in range(round(LIVE_PER_SECOND * BLOCK_SECONDS)):
            due += moments.expovariate(LIVE_PER_SECOND)
            rng = random.Random(f"{pair}/{salt}/{number}")
            tokens = [rng.randrange(300, 2200) for _ in range(LIVE_TOKENS)]
            body = body_of(model.NAME, tokens, ANSWER_TOKENS)
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            sent.append(asyncio.create_task(ask(http, url, body, due, TIMEOUT_SECONDS)))
        answers = await asyncio.gather(*sent)
    return [TIMEOUT_SECONDS if one.first_token_seconds is None else one.first_token_seconds for one in answers]


@contextmanager
def ab_under_way(stage: Stage, number: int, folder: Path) -> Iterator[None]:
    """Two shadows and the load generator as its pod runs it, in the first run of its first block."""
    names = {arm: f"shadow-{number}-{arm}" for arm in ARMS}
    shadows = {arm: stage.frontend(names[arm], SHADOWS[arm]) for arm in ARMS}
    for shadow in shadows.values():
        stage.until_ready(shadow)
    (folder / "plan.json").write_text(encode_plan(plan(number, shadows)))
    words = (sys.executable, "-m", "kvgate_bench", "run", "--plan", str(folder / "plan.json"))
    load = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    first = ARMS[number % 2]
    alone = 1 + 2 * CALIBRATED_PROMPTS * WORKERS if first == ARMS[0] else 0
    try:
        stage.until(lambda: answered(shadows[first]) > alone, f"the run of {first} to begin", shadows[first])
        yield
        assert load.poll() is None, "the load ended before it was told to"
    finally:
        load.send_signal(signal.SIGTERM)
        load.wait(30)
        stage.stop(*names.values())


def answered(frontend: RunningFrontend) -> float:
    return frontend.door.scrape().total("dynamo_frontend_requests_total")


def p99(waits: list[float]) -> float:
    return nearest_rank(sorted(waits), 99)


def measured(stage: Stage, folder: Path) -> list[tuple[list[float], list[float]]]:
    """Users' waits alone and beside the A/B, pair by pair; which of the two comes first alternates."""
    front = stage.frontend("live", LIVE)
    workers: dict[str, Running] = dict(stage.workers(**{f"w{number}": WORKER for number in range(WORKERS)}))
    stage.until_ready(front)
    asyncio.run(live(front.door.base, PAIRS, "warm-up"))
    found = []
    for number in range(PAIRS):
        waits: dict[bool, list[float]] = {}
        for beside in (number % 2 == 1, number % 2 == 0):
            time.sleep(SETTLING_SECONDS)
            if beside:
                with ab_under_way(stage, number, folder):
                    waits[beside] = asyncio.run(live(front.door.base, number, "beside"))
            else:
                waits[beside] = asyncio.run(live(front.door.base, number, "alone"))
        assert all(worker.runs() for worker in workers.values())
        found.append((waits[False], waits[True]))
        print(*row(number, *found[-1]), sep="  ", flush=True)
    return found


def row(number: int, alone: list[float], beside: list[float]) -> tuple[str, ...]:
    cells = [f"{1000 * value:.1f}" for value in (median(alone), median(beside), p99(alone), p99(beside))]
    return (str(number + 1), *cells, f"{p99(beside) / p99(alone) - 1:+.1%}")


def median(waits: list[float]) -> float:
    return nearest_rank(sorted(waits), 50)


def main() -> bool:
    with tempfile.TemporaryDirectory() as folder, open_stage(Path(folder) / "logs") as stage:
        found = measured(stage, Path(folder))
    logs = [math.log(p99(beside) / p99(alone)) for alone, beside in found]
    half = t_quantile(0.975, PAIRS - 1) * stdev(logs) / math.sqrt(PAIRS)
    mean, low, high = (math.expm1(fmean(logs) + shift) for shift in (0.0, -half, half))
    pooled = [p99([wait for pair in found for wait in pair[beside]]) for beside in (0, 1)]
    rise = pooled[1] / pooled[0] - 1
    publish(
        "shadow-overhead",
        "What the shadow frontends of a routing A/B cost users",
        f"Live load of {LIVE_PER_SECOND:.0f} requests/s (a Poisson stream, prompts of {LIVE_TOKENS} tokens that share "
        f"nothing, {ANSWER_TOKENS} tokens answered) through a real frontend to {WORKERS} mock workers, "
        f"{BLOCK_SECONDS:.0f} s alone and as long beside an A/B: two shadow frontends and the load generator as its "
        "pod runs it, at the default 4 requests/s, prompts of 1,500 tokens. Waits are the client's, from the planned "
        "moment, in milliseconds; both halves of a pair have the same moments. "
        f"p99 of users' TTFT beside the A/B against alone: **{mean:+.1%}** (geometric mean of {PAIRS} pairs, 95% "
        f"interval {low:+.1%} to {high:+.1%}; limit {LIMIT:+.0%}); of all {PAIRS} blocks pooled {1000 * pooled[0]:.1f} "
        f"ms against {1000 * pooled[1]:.1f} ms, {rise:+.1%}. The median hardly moves, so the frontends themselves cost "
        "little; what p99 shows are users who met a prompt of the A/B at the worker that both use, or other processes "
        "on this machine's cores (mock workers spend a GPU's time by waiting). The two are not told apart here. On a "
        "staging deployment no worker is shared, and an A/B on the target itself ends once p99 has risen by over 10%.",
        ("pair", "p50 alone", "p50 beside", "p99 alone", "p99 beside", "p99 rise"),
        [row(number, *pair) for number, pair in enumerate(found)],
    )
    return mean <= LIMIT


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
