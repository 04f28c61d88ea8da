"""Whether the routing A/B finds a gain where there is none: real runs, through two KV frontends that are alike."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

import aiohttp

from benchmarks.tables import publish
from kvgate.api.words import Outcome
from kvgate.core.ab.experiment import Experiment, Limits
from kvgate.core.ab.gain import gain, gain_enough
from kvgate.core.ab.judgement import judge
from kvgate.core.findings import worst
from kvgate.probe.benchmark_results import Seen, read_experiment
from kvgate_bench import workload
from kvgate_bench.session import Door, Session
from kvgate_bench.wire import Plan, encode_ending, encode_run
from tests.dynamo_stage import model
from tests.dynamo_stage.specs import Frontend, RouterMode, Worker
from tests.dynamo_stage.stage import RunningFrontend, Stage, open_stage

RUNS, WORKERS = 20, 2
LIMITS = Limits(least_improvement=0.2, most_added_errors=0.005)
NO_GAIN = Limits(least_improvement=0.0, most_added_errors=0.005)
ROOMY = Worker(speedup=2.0, blocks=1 << 17)
ARM = Frontend(RouterMode.KV, prefix=False)
SAME = Seen(generation=1, cards="cards")
MOST_SHORTER = 2
"""Of 20 intervals of 95%, 0.5 are expected to lie wholly on the side of a gain; 3 or more in 1 of 77 benchmarks."""


def plan(number: int, arms: tuple[RunningFrontend, RunningFrontend]) -> Plan:
    return Plan(
        run_id=f"aa{number}",
        pool_uid="pool",
        model=model.NAME,
        seed=20_261_130 + number,
        blocks=8,
        requests_per_run=20,
        requests_per_second=30.0,
        timeout_seconds=10.0,
        washout_seconds=0.1,
        block_tokens=model.BLOCK_SIZE_TOKENS,
        cache_blocks=ROOMY.blocks,
        first_token=300,
        last_token=2200,
        output_tokens=2,
        round_robin=arms[0].door.base,
        kv=arms[1].door.base,
        prompts=(2000,),
        family_size=4 * WORKERS,
        workers=WORKERS,
    )


async def ran(asked: Plan) -> Experiment:
    lines: list[str] = []
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    async with aiohttp.ClientSession(connector=connector, read_bufsize=1 << 20) as http:
        door = Door(http, lambda result: lines.extend(encode_run(asked.run_id, result)))
        ending = await Session(asked, workload.requests_of(asked, None), door).run()
    lines.append(encode_ending(asked.run_id, ending))
    return read_experiment(asked, "\n".join(lines), SAME, SAME)


def row(number: int, experiment: Experiment) -> tuple[tuple[str, ...], bool, bool]:
    """Its line; whether anything of it passed; whether its whole interval lies on the side of a gain."""
    findings, found = judge(experiment, LIMITS), gain(experiment)
    verdict, alone = worst(finding.outcome for finding in findings), gain_enough(experiment, LIMITS)
    if found is None:
        return (str(number), "–", "–", str(alone.outcome), f"{verdict}: {findings[-1].reason}"), False, False
    shorter = gain_enough(experiment, NO_GAIN).outcome is Outcome.PASS
    span = f"{found.low:+.1%} to {found.high:+.1%}"
    line = (str(number), f"{found.improvement:+.1%}", span, f"{alone.outcome}: {alone.reason}")
    return (*line, f"{verdict}: {findings[-1].reason}"), Outcome.PASS in {verdict, alone.outcome}, shorter


def measured(stage: Stage) -> list[tuple[tuple[str, ...], bool, bool]]:
    arms = stage.frontend("one", ARM), stage.frontend("other", ARM)
    stage.workers(**{f"w{number}": ROOMY for number in range(WORKERS)})
    for arm in arms:
        stage.until_ready(arm)
    found = []
    for number in range(1, RUNS + 1):
        roles = arms if number % 2 else arms[::-1]
        found.append(row(number, asyncio.run(ran(plan(number, roles)))))
        print(*found[-1][0], sep="  ", flush=True)
    return found


def main() -> bool:
    with tempfile.TemporaryDirectory() as logs, open_stage(Path(logs)) as stage:
        found = measured(stage)
    passed, shorter = sum(one[1] for one in found), sum(one[2] for one in found)
    publish(
        "routing-aa",
        "What the routing A/B finds where there is nothing to find",
        f"{RUNS} real A/A runs: the arms go through two frontends in KV mode that are alike and change roles after "
        f"each, to the same {WORKERS} mock workers, with the generator, the salts and the judgement of an A/B. Scaled "
        "down: 8 blocks as by default, but "
        "20 requests per run instead of 125, at 30 per second instead of 4, prompts of 2,000 tokens, and a washout of "
        "0.1 s instead of 5 s: about 20 seconds instead of 10 minutes each, so a block scatters more than a real one. "
        "The rule on the gain is told alone too, for the whole judgement voids an A/A anyway: its baseline is no "
        "round-robin. (Two frontends in round-robin mode can't be run: such a one doesn't list its workers.) Passed, "
        f"by either: **{passed}**, limit 0. Intervals wholly on the side of a gain, however small: **{shorter}**, "
        f"limit {MOST_SHORTER}.",
        ("run", "TTFT shorter by", "95% interval", "gain of 20%", "whole judgement"),
        [one[0] for one in found],
    )
    complete = all(one[0][1] != "–" for one in found)
    return complete and passed == 0 and shorter <= MOST_SHORTER


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
