"""From what the load generator told, and what was seen of the deployment, to an experiment."""

from __future__ import annotations

from dataclasses import dataclass

from kvgate.core.ab.experiment import Arm, Calibration, Experiment, Fault, Identity, Request, Run, Workload
from kvgate_bench.wire import Plan, Results, RunResult, Sent, decode_log

MOST_LOG_CHARACTERS = 9_000_000
"""A kubelet rotates a log at 10 MiB unless told otherwise, and an A/B's is a few hundred KiB."""


@dataclass(frozen=True)
class Seen:
    """The deployment as the operator saw it: its generation, and the digest of its workers' model cards."""

    generation: int
    cards: str


def read_experiment(plan: Plan, log: str, before: Seen, after: Seen) -> Experiment:
    """What the generator's log holds. A log that is cut short or cannot be read is an experiment that was aborted."""
    results = decode_log(log, plan.run_id)
    ending = results.ending
    workers = (ending.workers_before, ending.workers_after) if ending else ((), ())
    return Experiment(
        workload=Workload(plan.workload),
        blocks=plan.blocks,
        runs=tuple(_run(result) for result in results.runs),
        timeout_seconds=plan.timeout_seconds,
        block_tokens=plan.block_tokens,
        template_tokens=ending.template_tokens if ending else 0,
        before=Identity(before.generation, workers[0], before.cards),
        after=Identity(after.generation, workers[1], after.cards),
        calibration=_calibration(results),
        aborted=_aborted(results, log),
    )


def live_rate(plan: Plan, log: str) -> float | None:
    """Requests per second that users sent meanwhile; None where the generator saw none of their frontends."""
    ending = decode_log(log, plan.run_id).ending
    return ending.live_requests_per_second if ending else None


def _aborted(results: Results, log: str) -> str:
    if len(log) > MOST_LOG_CHARACTERS:
        return f"its log is larger than {MOST_LOG_CHARACTERS} characters"
    if results.ending is None:
        return "the load generator did not tell its end"
    return results.ending.aborted or next(iter(results.problems), "")


def _calibration(results: Results) -> tuple[Calibration, ...]:
    asked = results.ending.calibration if results.ending else ()
    return tuple(Calibration(entry.worker, entry.miss_seconds, entry.hit_seconds) for entry in asked)


def _run(result: RunResult) -> Run:
    requests = tuple(_request(sent) for sent in result.requests)
    return Run(
        block=result.block,
        arm=Arm(result.arm),
        offered=result.offered,
        requests=requests,
        kv_families=result.kv_families,
        began_at=result.began_at,
        ended_at=result.ended_at,
    )


def _request(sent: Sent) -> Request:
    return Request(
        family=sent.family,
        arrival_seconds=sent.arrival_seconds,
        prompt_tokens=sent.prompt_tokens,
        repeated_tokens=sent.repeated_tokens,
        first_token_seconds=sent.first_token_seconds,
        token_gap_seconds=sent.token_gap_seconds,
        cached_tokens=sent.cached_tokens,
        overlap_tokens=sent.overlap_tokens,
        worker=sent.worker,
        fault=None if sent.fault is None else Fault(sent.fault),
        answer_tokens=sent.answer_tokens,
    )
