"""What the two shadow frontends of a routing A/B cost users: p99 TTFT of a live frontend without them, beside them
while they load the workers of a staging deployment, and while they load its own."""

from __future__ import annotations

import asyncio
import math
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from enum import StrEnum
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
from tests.dynamo_stage.specs import NAMESPACE, Frontend, RouterMode, Worker
from tests.dynamo_stage.stage import Running, RunningFrontend, Stage, open_stage


class Beside(StrEnum):
    """What runs beside the users' load."""

    NOTHING = "alone"
    STAGING = "A/B on staging"
    OWN_WORKERS = "A/B on the users' workers"


ROUNDS, WORKERS = 6, 3
LIVE_PER_SECOND, BLOCK_SECONDS, SETTLING_SECONDS = 8.0, 25.0, 2.0
LIVE_TOKENS, ANSWER_TOKENS, TIMEOUT_SECONDS = 1000, 16, 10.0
LIMIT = 0.10
WORKER = Worker(speedup=1.0, blocks=1 << 17)
LIVE = Frontend(RouterMode.ROUND_ROBIN, prefix=False)
NAMESPACES = {Beside.STAGING: "staging", Beside.OWN_WORKERS: NAMESPACE}
Waits = Mapping[Beside, list[float]]
"""Of one round: from the planned moment to the first token, in seconds."""


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


async def live(url: str, number: int, salt: str) -> list[float]:
    """Users' waits for the first token, in seconds: prompts that share nothing, at the same moments for each salt of a
    round, as a Poisson stream."""
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    async with aiohttp.ClientSession(connector=connector, read_bufsize=1 << 20) as http:
        due, sent, moments = time.monotonic(), [], random.Random(f"{number}/arrivals")
        for request in range(round(LIVE_PER_SECOND * BLOCK_SECONDS)):
            due += moments.expovariate(LIVE_PER_SECOND)
            rng = random.Random(f"{number}/{salt}/{request}")
            tokens = [rng.randrange(300, 2200) for _ in range(LIVE_TOKENS)]
            body = body_of(model.NAME, tokens, ANSWER_TOKENS)
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            sent.append(asyncio.create_task(ask(http, url, body, due, TIMEOUT_SECONDS)))
        answers = await asyncio.gather(*sent)
    return [TIMEOUT_SECONDS if one.first_token_seconds is None else one.first_token_seconds for one in answers]


@contextmanager
def ab_under_way(stage: Stage, number: int, namespace: str, folder: Path) -> Iterator[None]:
    """Two shadows and the load generator as its pod runs it, in the first run of its first block."""
    names = {arm: f"shadow-{number}-{namespace}-{arm}" for arm in ARMS}
    modes = {arm: RouterMode.KV if arm == KV else RouterMode.ROUND_ROBIN for arm in ARMS}
    shadows = {arm: stage.frontend(names[arm], Frontend(modes[arm], namespace, prefix=False)) for arm in ARMS}
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


def measured(stage: Stage, folder: Path) -> list[Waits]:
    """Users' waits, round by round; what comes first is another thing in each round."""
    front = stage.frontend("live", LIVE)
    users = {f"w{number}": WORKER for number in range(WORKERS)}
    staging = {f"s{number}": replace(WORKER, namespace=NAMESPACES[Beside.STAGING]) for number in range(WORKERS)}
    workers: dict[str, Running] = dict(stage.workers(**users, **staging))
    stage.until_ready(front)
    asyncio.run(live(front.door.base, ROUNDS, "warm-up"))
    found: list[Waits] = []
    for number in range(ROUNDS):
        waits: dict[Beside, list[float]] = {}
        for beside in (*list(Beside)[number % 3 :], *list(Beside)[: number % 3]):
            time.sleep(SETTLING_SECONDS)
            namespace = NAMESPACES.get(beside)
            with ab_under_way(stage, number, namespace, folder) if namespace else nullcontext():
                waits[beside] = asyncio.run(live(front.door.base, number, beside))
        assert all(worker.runs() for worker in workers.values())
        found.append(waits)
        print(*row(number, waits), sep="  ", flush=True)
    return found


def row(number: int, waits: Waits) -> tuple[str, ...]:
    cells = [f"{1000 * percentile(waits[beside]):.1f}" for percentile in (median, p99) for beside in Beside]
    return (str(number + 1), *cells)


def median(waits: Sequence[float]) -> float:
    return nearest_rank(sorted(waits), 50)


def rise(found: Sequence[Waits], beside: Beside) -> tuple[float, str]:
    """Of p99 against alone: the geometric mean over the rounds, and how the table tells of it."""
    logs = [math.log(p99(waits[beside]) / p99(waits[Beside.NOTHING])) for waits in found]
    half = t_quantile(0.975, ROUNDS - 1) * stdev(logs) / math.sqrt(ROUNDS)
    mean, low, high = (math.expm1(fmean(logs) + shift) for shift in (0.0, -half, half))
    pooled = [p99([wait for waits in found for wait in waits[one]]) for one in (Beside.NOTHING, beside)]
    told = (
        f"{beside}: **{mean:+.1%}** (95% interval {low:+.1%} to {high:+.1%}); of all rounds pooled "
        f"{1000 * pooled[0]:.1f} ms against {1000 * pooled[1]:.1f} ms, {pooled[1] / pooled[0] - 1:+.1%}"
    )
    return mean, told


def main() -> bool:
    with tempfile.TemporaryDirectory() as folder, open_stage(Path(folder) / "logs") as stage:
        found = measured(stage, Path(folder))
    frontends, told = rise(found, Beside.STAGING)
    _, shared = rise(found, Beside.OWN_WORKERS)
    publish(
        "shadow-overhead",
        "What the shadow frontends of a routing A/B cost users",
        f"Live load of {LIVE_PER_SECOND:.0f} requests/s (a Poisson stream, prompts of {LIVE_TOKENS} tokens that share "
        f"nothing, {ANSWER_TOKENS} tokens answered) through a real frontend to {WORKERS} mock workers: "
        f"{BLOCK_SECONDS:.0f} s alone, as long beside an A/B on as many workers of a staging deployment, and as long "
        "beside an A/B on the users' own workers. The A/B is two shadow frontends and the load generator as its pod "
        "runs it, at the default 4 requests/s, prompts of 1,500 tokens, all on this one machine. Waits are the "
        "client's, from the planned moment, in milliseconds; all of a round have the same moments. p99 of users' TTFT "
        f"against alone, geometric mean of {ROUNDS} rounds. {told}: this is what the frontends and the generator "
        f"themselves cost, limit {LIMIT:+.0%}. {shared}: beside that, users meet prompts of the A/B at the workers. An "
        "A/B on the target itself asks for `allowLive`, and ends once p99 has risen by over 10%.",
        ("round", *(f"{percentile} {beside}" for percentile in ("p50", "p99") for beside in Beside)),
        [row(number, waits) for number, waits in enumerate(found)],
    )
    return frontends <= LIMIT


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
