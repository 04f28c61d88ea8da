"""Tokens per joule of each arm: the watts of the workers' GPUs, integrated over the arm's runs. It decides nothing."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from kvgate.core import text
from kvgate.core.ab.experiment import Arm, Experiment, Run

FEWEST_SAMPLES = 2
"""Of each GPU in each run: with fewer, the watts are those of what ran before or after."""
LONGEST_GAP_SECONDS = 60.0
"""Between two samples, and between a run's end and the nearest: Prometheus scrapes once a minute unless told more."""
MOST_WATTS = 10_000.0
"""Above what any GPU may draw."""


@dataclass(frozen=True)
class Gpu:
    """One GPU's power as it was scraped, oldest first: seconds since 1970 and watts. `pod` is the worker it serves."""

    id: str
    pod: str
    samples: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class NoPower:
    """Why there is no number, which is not zero: what was looked for, and who must act."""

    message: str


Efficiency = tuple[tuple[str, float], ...]
"""Tokens per joule by arm."""


def tokens_per_joule(experiment: Experiment, gpus: Iterable[Gpu], pods: Iterable[str]) -> Efficiency | NoPower:
    """Prompt and answer tokens of all answered requests of an arm over the joules of all GPUs of `pods` during its
    runs. Every pod must have a GPU, and every GPU plausible samples in every run."""
    held, runs = tuple(gpus), experiment.runs
    refused = _unusable(held, tuple(pods))
    if refused is not None:
        return refused
    spent: dict[Arm, float] = {}
    for run in runs:
        for gpu in held:
            found = joules(gpu, run.began_at, run.ended_at)
            if isinstance(found, NoPower):
                return NoPower(f"{found.message} in {run.arm} of block {run.block}")
            spent[run.arm] = spent.get(run.arm, 0.0) + found
    return tuple((arm.value, served_tokens(experiment.of(arm)) / spent[arm]) for arm in Arm if arm in spent)


def _unusable(gpus: tuple[Gpu, ...], pods: tuple[str, ...]) -> NoPower | None:
    without = tuple(sorted(set(pods) - {gpu.pod for gpu in gpus}))
    if without or not pods:
        what = f"{len(without)} of {len(pods)} worker pods have no power: {text.listed(without)}"
        return NoPower(what if pods else "no worker pod is known")
    if len({gpu.id for gpu in gpus}) < len(gpus):
        return NoPower("one GPU has several series: it is shared, or scraped twice")
    return None


def joules(gpu: Gpu, began_at: float, ended_at: float) -> float | NoPower:
    """The trapezoid sum over the samples from `began_at` to `ended_at`, in seconds since 1970; before the first and
    after the last of them, their own watts stand."""
    seen = [(at, watts) for at, watts in gpu.samples if began_at <= at <= ended_at]
    if len(seen) < FEWEST_SAMPLES:
        return NoPower(f"a GPU of {gpu.pod} has {len(seen)} samples, {FEWEST_SAMPLES} are needed")
    if not all(math.isfinite(watts) and 0 < watts <= MOST_WATTS for _, watts in seen):
        return NoPower(f"a GPU of {gpu.pod} has watts that no GPU draws (0 W to {MOST_WATTS:.0f} W)")
    held = [(began_at, seen[0][1]), *seen, (ended_at, seen[-1][1])]
    gap = max(later - sooner for (sooner, _), (later, _) in pairwise(held))
    if gap > LONGEST_GAP_SECONDS:
        return NoPower(f"a GPU of {gpu.pod} has none for {gap:.0f} s, {LONGEST_GAP_SECONDS:.0f} s are borne")
    return sum((later - sooner) * (first + second) / 2 for (sooner, first), (later, second) in pairwise(held))


def served_tokens(runs: Iterable[Run]) -> int:
    """Of prompts and answers, of all answered requests, the first fifth of each run among them: it drew power too."""
    answered = (request for run in runs for request in run.requests if request.fault is None)
    return sum(request.prompt_tokens + request.answer_tokens for request in answered)
