"""Whether the arms did what they claim: KV routing that followed the cache, and round-robin that did not."""

from __future__ import annotations

from collections import Counter
from statistics import median_low

from kvgate.api.words import Outcome
from kvgate.core import text
from kvgate.core.ab.experiment import Arm, Experiment, Limits, Request, Workload, cached_ratio
from kvgate.core.findings import Concern, Finding

LEAST_EXERCISED = 0.8
REQUESTS_PER_WORKER = 3


def repeats(experiment: Experiment) -> tuple[Request, ...]:
    """The answered requests of the KV arm whose run had sent at least one block of the same prompt before."""
    return tuple(r for r in experiment.answered(Arm.KV) if r.repeated_tokens >= experiment.block_tokens)


def overlap_seen(experiment: Experiment, _: Limits) -> Finding:
    again = repeats(experiment)
    if not again:
        return _void("no prompt of the workload was ever repeated, so there was no cache to route to")
    seen = sum(1 for request in again if (request.overlap_tokens or 0) > 0)
    what = f"the router saw an overlap for {seen} of {len(again)} repeated prompts"
    if seen < LEAST_EXERCISED * len(again):
        return _void(f"{what}, {text.percent(LEAST_EXERCISED)} are needed: see KVEventsHealthy")
    return _exercised(what)


def overlap_true(experiment: Experiment, _: Limits) -> Finding:
    """The router's index and the engine's cache must mean the same blocks."""
    again = [r for r in repeats(experiment) if r.overlap_tokens is not None and r.cached_tokens is not None]
    close = sum(1 for r in again if abs((r.overlap_tokens or 0) - (r.cached_tokens or 0)) <= experiment.block_tokens)
    what = (
        f"overlap and cached tokens agreed within {experiment.block_tokens} tokens for {close} of {len(again)} repeats"
    )
    if not again or close < LEAST_EXERCISED * len(again):
        return _void(f"{what}, {text.percent(LEAST_EXERCISED)} are needed: compare the block sizes")
    return _exercised(what)


def baseline_blind(experiment: Experiment, _: Limits) -> Finding:
    shown = tuple(sorted({family for run in experiment.of(Arm.ROUND_ROBIN) for family in run.kv_families}))
    if shown:
        return _void(
            f"the round-robin arm's own router counted KV events ({text.listed(shown)}): it routed by cache too"
        )
    return _exercised("the round-robin arm knew nothing of any cache")


def attributable(experiment: Experiment, _: Limits) -> Finding:
    kv, round_robin = (cached_ratio(experiment.counted(arm)) for arm in (Arm.KV, Arm.ROUND_ROBIN))
    what = (
        f"{text.percent(kv)} of prompt tokens were cached with KV routing, {text.percent(round_robin)} with round-robin"
    )
    if kv > round_robin:
        return Finding("abCause", Outcome.PASS, "Attributable", what, Concern.BENCHMARK)
    why = f"{what}: whatever the gain, it did not come from the cache; try a workload with reuse"
    return Finding("abCause", Outcome.ERROR, "NotAttributable", why, Concern.BENCHMARK)


def reuse_long_enough(experiment: Experiment, _: Limits) -> Finding:
    """Short families favour KV routing: round-robin has not yet filled every worker. Half of the requests must stand
    in families of three requests per worker, in each run."""
    least = REQUESTS_PER_WORKER * len(experiment.before.workers)
    sizes = [size for run in experiment.runs for size in _family_sizes(run.requests)]
    typical = median_low(sizes) if sizes else 0
    what = f"half of the requests stand in prompt families of {typical} or more per run, {least} are needed"
    if typical < least:
        why = f"{what} ({REQUESTS_PER_WORKER} for each worker): give a longer trace in benchmark.trace"
        return Finding("abReuse", Outcome.INCONCLUSIVE, "ShortReuse", why, Concern.BENCHMARK)
    return Finding("abReuse", Outcome.PASS, "ReuseLongEnough", what, Concern.BENCHMARK)


def _family_sizes(requests: tuple[Request, ...]) -> list[int]:
    """For each request, how many of its run share its first block."""
    sizes = Counter(request.family for request in requests)
    return [sizes[request.family] for request in requests]


def own_workload(experiment: Experiment, limits: Limits) -> Finding:
    if experiment.workload is Workload.BUILT_IN and limits.enforce:
        what = (
            "the built-in workload reuses prompts by design and cannot decide; give the site's own in benchmark.trace"
        )
        return Finding("abWorkload", Outcome.INCONCLUSIVE, "BuiltInWorkload", what, Concern.BENCHMARK)
    what = f"workload: {experiment.workload}"
    return Finding("abWorkload", Outcome.PASS, "WorkloadDecides", what, Concern.BENCHMARK)


def _exercised(what: str) -> Finding:
    return Finding("abExercise", Outcome.PASS, "Exercised", what, Concern.BENCHMARK)


def _void(what: str) -> Finding:
    return Finding("abExercise", Outcome.ERROR, "NotExercised", what, Concern.BENCHMARK)
