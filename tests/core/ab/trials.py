"""Experiments for the tables of this folder: one that passes everything, and how to spoil it in one place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from kvgate.core.ab.experiment import (
    Arm,
    Calibration,
    Experiment,
    Fault,
    Identity,
    Limits,
    Request,
    Run,
    Workload,
)

WORKERS = ("w1", "w2")
BLOCK = 16
FAMILIES = 10
PER_RUN = 130
PROMPT = 1000
HIT, MISS = 0.1, 0.5
LIMITS = Limits(least_improvement=0.2, most_added_errors=0.005)
UNCHANGED = Identity(3, WORKERS, "cards")

Change = Callable[[Request], Request]


def request(number: int, arm: Arm, **changes: object) -> Request:
    """Round-robin finds half of a repeated prompt cached, KV nine tenths; the wait is what that makes it."""
    first = number < FAMILIES
    cached = 0 if first else 480 if arm is Arm.ROUND_ROBIN else 896
    plain = Request(
        family=number % FAMILIES,
        arrival_seconds=number / 4,
        prompt_tokens=PROMPT,
        repeated_tokens=0 if first else 960,
        first_token_seconds=MISS - (MISS - HIT) * cached / PROMPT,
        token_gap_seconds=0.01,
        cached_tokens=cached,
        overlap_tokens=cached if arm is Arm.KV else None,
        worker=WORKERS[number % 2],
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


def run(block: int, arm: Arm, factor: float = 1.0) -> Run:
    requests = tuple(request(number, arm) for number in range(PER_RUN))
    return Run(block, arm, PER_RUN, tuple(slower(factor)(each) for each in requests))


def experiment(*, blocks: int = 8, **changes: object) -> Experiment:
    runs = tuple(run(block, arm) for block in range(blocks) for arm in Arm)
    plain = Experiment(
        workload=Workload.TRACE,
        blocks=blocks,
        runs=runs,
        timeout_seconds=30.0,
        block_tokens=BLOCK,
        template_tokens=12,
        before=UNCHANGED,
        after=UNCHANGED,
        calibration=tuple(Calibration(worker, MISS, HIT) for worker in WORKERS),
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


def but(arm: Arm | None, change: Change, where: Callable[[int], bool] = lambda _: True) -> Experiment:
    """The passing experiment with `change` made to the requests of one arm, or of both, whose number `where` picks."""
    sound = experiment()
    return replace(
        sound, runs=tuple(_changed(each, change, where) if arm in {None, each.arm} else each for each in sound.runs)
    )


def _changed(found: Run, change: Change, where: Callable[[int], bool]) -> Run:
    made = tuple(change(each) if where(number) else each for number, each in enumerate(found.requests))
    return replace(found, requests=made)


def slower(factor: float) -> Change:
    return lambda each: (
        each
        if each.first_token_seconds is None
        else replace(each, first_token_seconds=each.first_token_seconds * factor)
    )


def having(**changes: object) -> Change:
    return lambda each: replace(each, **changes)  # type: ignore[arg-type]


def failing(fault: Fault = Fault.OVERLOADED) -> Change:
    return having(
        first_token_seconds=None,
        token_gap_seconds=None,
        cached_tokens=None,
        overlap_tokens=None,
        worker="",
        fault=fault,
    )


def with_ratios(logs: tuple[float, ...]) -> Experiment:
    """Blocks whose KV run waits exp(log) × as long as the round-robin run, exactly."""
    base = tuple(replace(each, first_token_seconds=0.3) for each in run(0, Arm.ROUND_ROBIN).requests)
    runs = []
    for block, log in enumerate(logs):
        runs.append(Run(block, Arm.ROUND_ROBIN, PER_RUN, base))
        kv = tuple(slower(2.718281828459045**log)(replace(each, overlap_tokens=each.cached_tokens)) for each in base)
        runs.append(Run(block, Arm.KV, PER_RUN, kv))
    return experiment(blocks=len(logs), runs=tuple(runs))
