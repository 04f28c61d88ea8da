"""The routing A/B against Dynamo's own frontends, router and mock workers: what passes, what fails, what is void."""

from __future__ import annotations

import asyncio
import gzip
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import aiohttp
import pytest

from kvgate.api.words import Outcome
from kvgate.core.ab.experiment import Experiment, Limits
from kvgate.core.ab.judgement import judge
from kvgate.core.findings import Finding, worst
from kvgate.probe.benchmark_results import Seen, read_experiment
from kvgate_bench import workload
from kvgate_bench.session import Door, Prompt, Session
from kvgate_bench.trace import HASH_TOKENS, TraceRequest
from kvgate_bench.wire import TRACE, Plan, encode_ending, encode_plan, encode_run
from kvgate_bench.workload import Salt
from tests.dynamo_stage import model
from tests.dynamo_stage.specs import Frontend, RouterMode, Worker
from tests.dynamo_stage.stage import Stage
from tests.dynamo_stage.traces import reuse_trace, written

pytestmark = pytest.mark.dynamo

LIMITS = Limits(least_improvement=0.2, most_added_errors=0.005)
UNCHANGED = Seen(generation=1, cards="cards")
STICKY = ("--router-prefill-load-scale", "8")
"""Long prompts, short answers: the router is told that a prompt costs more than the answer it waits behind."""
REFUSES = {"DYN_ACTIVE_DECODE_BLOCKS_THRESHOLD": "0.0001"}
"""A frontend that answers 529 as soon as a worker is at work."""
ROOMY = Worker(speedup=2.0, blocks=1 << 17)


KV = Frontend(RouterMode.KV, prefix=False, arguments=STICKY)
ROUND_ROBIN = Frontend(RouterMode.ROUND_ROBIN, prefix=False)


@dataclass(frozen=True)
class Ground:
    """Two shadow frontends, and the workers that both of them use."""

    kv: Frontend = KV
    round_robin: Frontend = ROUND_ROBIN
    worker: Worker = ROOMY
    workers: int = 3
    prompt: Prompt = workload.prompt
    changes: Mapping[str, object] = field(default_factory=dict)


def plan_on(stage: Stage, ground: Ground) -> Plan:
    """Both arms run, every worker is known to the router; two short blocks of a built-in workload unless changed."""
    kv, round_robin = stage.frontend("kv", ground.kv), stage.frontend("round-robin", ground.round_robin)
    stage.workers(**{f"w{number}": ground.worker for number in range(ground.workers)})
    stage.until_ready(kv)
    stage.until_ready(round_robin)
    plain = Plan(
        run_id="ab1",
        pool_uid="pool",
        model=model.NAME,
        seed=7,
        blocks=2,
        requests_per_run=50,
        requests_per_second=20.0,
        timeout_seconds=10.0,
        washout_seconds=0.2,
        block_tokens=model.BLOCK_SIZE_TOKENS,
        cache_blocks=ground.worker.blocks,
        first_token=10,
        last_token=1200,
        output_tokens=2,
        round_robin=round_robin.door.base,
        kv=kv.door.base,
        prompts=(4000,),
        family_size=4 * ground.workers,
        workers=ground.workers,
    )
    return replace(plain, **ground.changes)  # type: ignore[arg-type]


def experiment(stage: Stage, ground: Ground, trace: Sequence[TraceRequest] | None = None) -> Experiment:
    """The A/B as the generator runs it, in this process, and as the operator reads what it told."""
    plan = plan_on(stage, ground)
    lines: list[str] = []

    async def run() -> None:
        connector = aiohttp.TCPConnector(limit=0, force_close=True)
        async with aiohttp.ClientSession(connector=connector, read_bufsize=1 << 20) as http:
            door = Door(http, lambda result: lines.extend(encode_run(plan.run_id, result)), ground.prompt)
            ending = await Session(plan, workload.requests_of(plan, trace), door).run()
            lines.append(encode_ending(plan.run_id, ending))

    asyncio.run(run())
    return read_experiment(plan, "\n".join(lines), UNCHANGED, UNCHANGED)


def told(findings: Sequence[Finding]) -> str:
    return "\n".join(f"{finding.outcome} {finding.reason}: {finding.message}" for finding in findings)


def reasons(findings: Sequence[Finding], outcome: Outcome) -> set[str]:
    return {finding.reason for finding in findings if finding.outcome is outcome}


@pytest.mark.timeout(400)
def test_a_trace_with_reuse_passes_through_the_generator_as_it_is_shipped(stage: Stage, tmp_path: Path) -> None:
    """Eight blocks of 125 requests, 800 of them counted per arm: what a pool gets that says nothing else."""
    changes = {"blocks": 8, "requests_per_run": 125, "workload": TRACE}
    plan = plan_on(stage, Ground(workers=6, changes=changes))
    trace = written(reuse_trace(1000, family_size=24))
    (tmp_path / "trace.jsonl.gz").write_bytes(gzip.compress(trace.encode()))
    (tmp_path / "plan.json").write_text(encode_plan(plan))
    words = ("run", "--plan", tmp_path / "plan.json", "--trace", tmp_path / "trace.jsonl.gz")
    ended = subprocess.run(
        (sys.executable, "-m", "kvgate_bench", *words), capture_output=True, text=True, timeout=300, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert max(map(len, ended.stdout.splitlines())) < 16_384
    findings = judge(read_experiment(plan, ended.stdout, UNCHANGED, UNCHANGED), LIMITS)
    assert worst(finding.outcome for finding in findings) is Outcome.PASS, told(findings)


def test_a_trace_without_reuse_proves_nothing(stage: Stage) -> None:
    trace = [TraceRequest(4 * HASH_TOKENS, 2, tuple(range(4 * n, 4 * n + 4))) for n in range(50)]
    findings = judge(experiment(stage, Ground(changes={"workload": TRACE}), trace), LIMITS)
    assert reasons(findings, Outcome.ERROR) == {"NotExercised"}, told(findings)


def test_kv_mode_with_events_off_is_void(stage: Stage) -> None:
    findings = judge(experiment(stage, Ground(worker=replace(ROOMY, prefix_caching=False))), LIMITS)
    assert reasons(findings, Outcome.ERROR) == {"NotExercised"}, told(findings)


def test_an_overloaded_kv_arm_fails_on_errors(stage: Stage) -> None:
    refusing = replace(KV, environment=REFUSES)
    changes = {"requests_per_run": 90, "requests_per_second": 25.0}
    findings = judge(experiment(stage, Ground(kv=refusing, workers=2, changes=changes)), LIMITS)
    assert "ErrorRateIncreased" in reasons(findings, Outcome.FAIL), told(findings)


@pytest.mark.parametrize(
    "ground",
    [
        pytest.param(Ground(round_robin=replace(ROUND_ROBIN, environment=REFUSES), workers=2), id="it refuses"),
        pytest.param(Ground(worker=replace(ROOMY, speedup=0.25), workers=2), id="it queues"),
    ],
)
def test_an_unhealthy_baseline_is_void(stage: Stage, ground: Ground) -> None:
    findings = judge(experiment(stage, ground), LIMITS)
    assert reasons(findings, Outcome.ERROR) == {"BaselineUnhealthy"}, told(findings)


def unsalted(plan: Plan, due: workload.Due, _: Salt) -> list[int]:
    return workload.prompt(plan, due, Salt(plan.seed, 0, "every run"))


@pytest.mark.parametrize(
    ("prompt", "void"),
    [
        pytest.param(workload.prompt, set(), id="with its salt"),
        pytest.param(unsalted, {"ArmsShareCache"}, id="without"),
    ],
)
def test_without_the_salt_the_arms_share_a_cache(stage: Stage, prompt: Prompt, void: set[str]) -> None:
    findings = judge(experiment(stage, Ground(prompt=prompt)), LIMITS)
    assert reasons(findings, Outcome.ERROR) & {"ArmsShareCache"} == void, told(findings)


def test_one_worker_has_nothing_to_choose(stage: Stage) -> None:
    changes = {"family_size": 12, "requests_per_run": 20}
    findings = judge(experiment(stage, Ground(workers=1, changes=changes)), LIMITS)
    assert findings[-1].reason == "NotApplicable", told(findings)
