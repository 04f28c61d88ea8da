"""Criteria on the split itself: the target, the KV size, throughput, budget and load."""

from __future__ import annotations

import math

from kvgate.api.words import Outcome
from kvgate.core import text
from kvgate.core.findings import Concern, Finding
from kvgate.core.judging import Case
from kvgate.core.world import KVUnknown

SCREENS = "an estimate that screens; only the TTFT measured after enabling decides"


def kv_size_known(case: Case) -> Finding:
    kv = case.world.kv
    if isinstance(kv, KVUnknown):
        return Finding("kvCache", Outcome.UNKNOWN, kv.reason, kv.message, Concern.MODEL)
    longest = max(prompt.tokens for prompt in case.pool.spec.workload.prompts)
    if kv.size.bytes_for(longest, kv.block_tokens) <= 0:
        what = "0 KV bytes would let any link pass; supply spec.model.kvCache.bytesPerToken"
        return Finding("kvCache", Outcome.UNKNOWN, "KVBytesUnknown", what, Concern.MODEL)
    return Finding(
        "kvCache", Outcome.PASS, "KVBytesKnown", f"{kv.bytes_per_token} B per token: {kv.derivation}", Concern.MODEL
    )


def throughput_enough(case: Case) -> Finding:
    limit, rate = case.criteria.min_throughput, case.judged_bytes_per_second
    if limit is None:
        return Finding("minThroughput", Outcome.PASS, "NoMinimum", "no minThroughput is asked for")
    if rate is None:
        return Finding("minThroughput", Outcome.UNKNOWN, "NotMeasured", "no path in use has a number yet")
    what = f"the judged path carries {text.rate(rate)}, minThroughput is {limit}"
    if rate < limit.bytes_per_second:
        return Finding(
            "minThroughput", Outcome.FAIL, "ThroughputTooLow", f"{what}; the network team must look{case.blame}"
        )
    return Finding("minThroughput", Outcome.PASS, "ThroughputEnough", what)


def within_budget(case: Case) -> Finding:
    """Every prompt size: fixedOverhead + S + wait ≤ ttftBudget."""
    if case.transfer is None:
        return Finding("ttftBudget", Outcome.UNKNOWN, "NotMeasured", "the estimate needs a throughput and a KV size")
    slowest = max(case.pool.spec.workload.prompts, key=lambda prompt: prompt.tokens)
    wait = case.load.wait_seconds if case.load else 0.0
    total = added_ttft(case, slowest.tokens, wait)
    budget = case.criteria.ttft_budget
    what = (
        f"{slowest.tokens} tokens = {text.size(case.transfer.kv_bytes(slowest.tokens))} would add "
        f"{text.span(total)} (transfer {text.span(case.transfer.seconds(slowest.tokens))}, wait {text.span(wait)}) "
        f"at {text.rate(case.transfer.bytes_per_second)}; ttftBudget is {budget}"
    )
    if total > budget.seconds:
        advice = "a faster path, a larger budget or shorter prompts would change that"
        return Finding("ttftBudget", Outcome.FAIL, "TTFTBudgetExceeded", f"{what}; {advice}")
    return Finding("ttftBudget", Outcome.PASS, "TTFTWithinBudget", f"{what}; {SCREENS}")


def added_ttft(case: Case, tokens: int, wait_seconds: float) -> float:
    """fixedOverhead + S + wait, in seconds; without end while there is nothing to compute it from."""
    if case.transfer is None:
        return math.inf
    return case.pool.spec.workload.fixed_overhead.seconds + case.transfer.seconds(tokens) + wait_seconds


def load_bearable(case: Case) -> Finding:
    if case.pool.spec.workload.peak_requests_per_second is None:
        what = "workload.peakRequestsPerSecond is not set, so the load cannot be judged; the pool's owner must set it"
        return Finding("maxUtilization", Outcome.UNKNOWN, "PeakRateUnknown", what, Concern.LOAD)
    if case.load is None:
        what = "the load needs a throughput and a KV size"
        return Finding("maxUtilization", Outcome.UNKNOWN, "NotMeasured", what, Concern.LOAD)
    limit, peak = case.criteria.max_utilization, case.pool.spec.workload.peak_requests_per_second
    full = text.percent(case.load.utilization)
    what = f"{peak} requests/s fill the {case.load.where} to {full}, maxUtilization is {limit}"
    if case.load.utilization > limit.fraction:
        return Finding("maxUtilization", Outcome.FAIL, "PathOversubscribed", what, Concern.LOAD)
    return Finding("maxUtilization", Outcome.PASS, "LoadBearable", what, Concern.LOAD)
