"""Whether an A/B counts at all: whole, on an unchanged deployment, with caches that the arms did not share."""

from __future__ import annotations

import math

from kvgate.api.words import Outcome
from kvgate.core import text
from kvgate.core.ab.experiment import Arm, Experiment, Limits, Request, Run
from kvgate.core.findings import Concern, Finding


def not_aborted(experiment: Experiment, _: Limits) -> Finding:
    if experiment.aborted:
        what = f"it was ended early: {experiment.aborted}; it is run again when the deployment is quieter"
        return Finding("abRun", Outcome.ERROR, "BenchmarkAborted", what, Concern.BENCHMARK)
    return Finding("abRun", Outcome.PASS, "BenchmarkEnded", "it ran to its end", Concern.BENCHMARK)


def whole(experiment: Experiment, _: Limits) -> Finding:
    """Every block that was planned beforehand, once per arm, with something to count in each."""
    ran = sorted((run.block, run.arm) for run in experiment.runs)
    planned = sorted((block, arm) for block in range(experiment.blocks) for arm in Arm)
    empty = tuple(
        f"{run.arm} of block {run.block}" for run in experiment.runs if not _measurable(experiment, run.counted)
    )
    if ran != planned or experiment.blocks < 2 or empty:
        bad = f", nothing to count in {text.listed(empty)}" if empty else ""
        what = f"{len(experiment.pairs)} of {experiment.blocks} planned blocks have one run of each arm{bad}"
        return Finding("abBlocks", Outcome.ERROR, "BenchmarkIncomplete", f"{what}; run it again", Concern.BENCHMARK)
    what = f"{experiment.blocks} blocks of one run per arm"
    return Finding("abBlocks", Outcome.PASS, "BenchmarkWhole", what, Concern.BENCHMARK)


def _measurable(experiment: Experiment, counted: tuple[Request, ...]) -> bool:
    waits = [request.first_token_seconds for request in counted if request.first_token_seconds is not None]
    return bool(counted) and experiment.timeout_seconds > 0 and (not waits or max(waits) > 0)


def comparable(experiment: Experiment, _: Limits) -> Finding:
    before, after = experiment.before, experiment.after
    changed = tuple(
        what
        for what, same in (
            ("generation", before.generation == after.generation),
            ("set of workers", before.workers == after.workers),
            ("model cards", before.cards == after.cards),
        )
        if not same
    )
    if changed:
        what = f"the deployment's {text.listed(changed)} changed while it ran; it is run again"
        return Finding("abArms", Outcome.ERROR, "ArmsNotComparable", what, Concern.BENCHMARK)
    what = f"{len(before.workers)} workers, unchanged from start to end"
    return Finding("abArms", Outcome.PASS, "ArmsComparable", what, Concern.BENCHMARK)


def several_workers(experiment: Experiment, _: Limits) -> Finding:
    count = len(experiment.before.workers)
    if count < 2:
        what = f"{count} worker: a router has nothing to choose, so KV routing can gain nothing; add workers"
        return Finding("abWorkers", Outcome.INCONCLUSIVE, "NotApplicable", what, Concern.BENCHMARK)
    return Finding("abWorkers", Outcome.PASS, "WorkersToChoose", f"{count} workers to choose from", Concern.BENCHMARK)


def arms_apart(experiment: Experiment, _: Limits) -> Finding:
    """A prompt that its run had not sent before may find the template in the cache, and nothing else."""
    first = [request for run in experiment.runs for request in run.requests if not request.repeated_tokens]
    alone = [request for run in experiment.runs for request in first_alone(run)]
    if not experiment.reports_cache or not alone:
        why = (
            "every prompt was overtaken by its repeats" if experiment.reports_cache else "no answer tells cached tokens"
        )
        what = f"{why}, so that the arms shared no cache cannot be shown; use an engine and a load that show it"
        return Finding("abSalt", Outcome.ERROR, "CacheNotReported", what, Concern.BENCHMARK)
    leaks = [request for request in alone if (request.cached_tokens or 0) > experiment.template_tokens]
    if leaks:
        most = max(request.cached_tokens or 0 for request in leaks)
        what = (
            f"{len(leaks)} of {len(first)} prompts sent for the first time were found in the cache, up to {most} "
            f"tokens where the template has {experiment.template_tokens}: an arm used what the other had warmed"
        )
        return Finding("abSalt", Outcome.ERROR, "ArmsShareCache", f"{what}; report this", Concern.BENCHMARK)
    what = f"none of {len(alone)} prompts sent for the first time was found in a cache"
    return Finding("abSalt", Outcome.PASS, "ArmsApart", what, Concern.BENCHMARK)


def first_alone(run: Run) -> tuple[Request, ...]:
    """First occurrences that were answered before the next of their family was due: none of those can have filled the
    cache for them."""
    families: dict[int, list[Request]] = {}
    for request in sorted(run.requests, key=lambda request: request.arrival_seconds):
        families.setdefault(request.family, []).append(request)
    found = []
    for first, *later in families.values():
        answered = math.inf if first.first_token_seconds is None else first.arrival_seconds + first.first_token_seconds
        if not first.repeated_tokens and first.fault is None and all(answered <= r.arrival_seconds for r in later[:1]):
            found.append(first)
    return tuple(found)
