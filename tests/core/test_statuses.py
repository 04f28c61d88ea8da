"""The sections of a status: numbers with their unit, whole numbers, and nothing that JSON or 64 bits cannot hold."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

import pytest

from kvgate.api.status import LatencyStatus, PoolStatus
from kvgate.api.words import Outcome
from kvgate.core import statuses
from kvgate.core.target import TargetProblem
from kvgate.core.world import KVUnknown
from tests.core import cases
from tests.core.worlds import FAST, NOW, SLOW, SPLIT, Scene, entry, opened, proposed

LINK = cases.everywhere(FAST, cases.PATHS[:3]) + cases.everywhere(100e6, cases.PATHS[3:])
ENDPOINT = tuple(cases.endpoint(path, 80e6) for path in cases.PATHS)


def of(scene: Scene) -> PoolStatus:
    return scene.decide().status


def test_the_fabric_tells_worst_judged_and_median_per_layer() -> None:
    fabric = of(Scene(evidence=(cases.evidence(LINK, report="qwen3-run-1-0"),))).fabric
    assert fabric is not None
    assert fabric.link is not None
    assert fabric.endpoint is None
    link = fabric.link
    assert (link.tool, link.paths, link.measured) == ("iperf3", 4, 4)
    assert link.worst is not None
    assert (link.worst.source, link.worst.destination, link.worst.bytes_per_second) == ("p2", "d2", 100_000_000)
    assert (link.judged_bytes_per_second, link.median_bytes_per_second) == (100_000_000, 250_000_000)
    assert (fabric.bound_by, fabric.report) == ("link", "qwen3-run-1-0")
    assert fabric.measured_at == cases.MEASURED
    assert fabric.expires_at == cases.MEASURED + timedelta(hours=48)


def test_latency_is_told_idle_and_under_load_with_the_set_up_of_the_transport() -> None:
    link = [
        replace(one, round_trip_seconds=0.0002 * n, loaded_round_trip_seconds=0.003 * n)
        for n, one in enumerate(LINK, start=1)
    ]
    both = (*link, *(replace(one, set_up_seconds=0.4) for one in ENDPOINT))
    fabric = of(Scene(evidence=(cases.evidence(both),))).fabric
    assert fabric is not None
    assert fabric.latency == LatencyStatus(
        round_trip_microseconds=400,
        loaded_round_trip_microseconds=6000,
        worst_loaded_round_trip_microseconds=12000,
        set_up_milliseconds=400,
    )
    silent = of(Scene(evidence=(cases.evidence(LINK),))).fabric
    assert silent is not None
    assert silent.latency is None


def test_the_slower_layer_binds() -> None:
    fabric = of(Scene(evidence=(cases.evidence(LINK + ENDPOINT),))).fabric
    assert fabric is not None
    assert fabric.bound_by == "endpoint"
    assert fabric.endpoint is not None
    assert fabric.endpoint.tool == "ucx_get"


def test_without_evidence_there_is_no_fabric_and_no_estimate() -> None:
    status = of(Scene(evidence=()))
    assert (status.fabric, status.estimates, status.longest_prompt_within_budget) == (None, (), None)


def test_the_estimate_of_each_prompt_against_its_budget() -> None:
    prompts = [{"tokens": 1000, "share": "50%"}, {"tokens": 8000, "share": "50%"}]
    short, long = of(Scene().asking(workload__prompts=prompts)).estimates
    assert (short.prompt_tokens, short.kv_bytes) == (1000, 1008 * 114_688)
    assert short.added_ttft_milliseconds == pytest.approx(
        1008 * 114_688 / FAST * 1000 + (short.queue_milliseconds or 0), abs=1
    )
    assert short.budget_milliseconds == 2000
    assert (short.outcome, long.outcome) == (Outcome.PASS, Outcome.FAIL)


def test_an_estimate_tells_link_and_transport_apart() -> None:
    (entry,) = of(Scene(evidence=(cases.evidence(LINK + ENDPOINT),))).estimates
    assert entry.link_milliseconds == round(entry.kv_bytes / 100e6 * 1000)
    assert entry.endpoint_milliseconds == round(entry.kv_bytes / 80e6 * 1000)
    assert entry.bound_by == "endpoint"
    assert (entry.recompute_milliseconds, entry.break_even_bytes_per_second) == (None, None)


def test_the_break_even_is_told_for_each_prompt_size_where_prefill_speed_is_declared() -> None:
    """As Llama-3.1-8B's 131,072 B per token at 46.2 k tokens/s do at 6.06 GB/s; here 114,688 B at 40 k tokens/s."""
    declared = {"storageThroughput": "9GB/s", "prefillTokensPerSecond": 40_000}
    prompts = [{"tokens": 1600, "share": "50%"}, {"tokens": 8000, "share": "50%"}]
    asked = Scene().asking(workload__prompts=prompts, criteria__kvStorage__reloadVersusRecompute=declared)
    short, long = of(asked).estimates
    assert (short.recompute_milliseconds, long.recompute_milliseconds) == (40, 200)
    assert short.break_even_bytes_per_second == long.break_even_bytes_per_second == 114_688 * 40_000


def test_who_is_at_fault_stands_in_the_status() -> None:
    slow = (*cases.everywhere(FAST, cases.PATHS[1:]), cases.sample("p1→d1", 1e6))
    fabric = of(Scene(evidence=(cases.evidence(slow),)).asking(criteria__disaggregation__minThroughput="10MB/s")).fabric
    assert fabric is not None
    (suspect,) = fabric.suspects
    assert (suspect.name, suspect.settled, suspect.paths) == ("path p1→d1 alone", True, 1)
    assert "p1→d1 1.0 MB/s" in suspect.tests


def test_the_longest_prompt_is_in_whole_blocks_and_less_the_overhead() -> None:
    rate = 104 * cases.MIB
    scene = Scene(evidence=(cases.evidence(cases.everywhere(rate)),)).asking(
        criteria__disaggregation__ttftBudget="200ms"
    )
    assert of(scene).longest_prompt_within_budget == 176
    assert of(scene.asking(workload__fixedOverhead="100ms")).longest_prompt_within_budget == 80
    assert of(scene.asking(workload__fixedOverhead="1s")).longest_prompt_within_budget == 0


def test_a_full_path_waits_without_end_and_is_written_as_a_number() -> None:
    status = of(Scene().asking(workload__peakRequestsPerSecond="1000"))
    assert status.estimates[0].queue_milliseconds == statuses.LONGEST_WAIT_MILLISECONDS
    assert status.estimates[0].outcome is Outcome.FAIL


def test_the_largest_spec_stays_within_64_bits() -> None:
    scene = Scene(kv=cases.kv(1 << 40, 65536)).asking(workload__prompts=[{"tokens": 1 << 24}])
    assert of(scene).estimates[0].outcome is Outcome.FAIL


def test_the_kv_cache_tells_its_source() -> None:
    known = of(Scene()).kv_cache
    assert known is not None
    assert (known.bytes_per_token, known.block_tokens, known.source, known.derivation) == (
        114_688,
        16,
        "bytesPerToken",
        "declared",
    )
    assert of(Scene(kv=KVUnknown("KVBytesUnknown", "supply bytesPerToken"))).kv_cache is None


def test_the_target_as_last_read_is_kept_while_it_cannot_be() -> None:
    scene = opened()
    assert of(scene.but(target=TargetProblem("TargetNotFound", "create it"))).target == scene.status.target
    assert of(Scene(target=TargetProblem("TargetNotFound", "create it"))).target is None


def test_the_observed_rate_stands_beside_the_declared_one() -> None:
    scene = Scene()
    assert statuses.routing(scene.case) is None
    seen = replace(scene.case, world=replace(scene.world, observed_requests_per_second=0.123456))
    told = statuses.routing(seen)
    assert told is not None
    assert told.observed_requests_per_second == "0.123"


def test_a_plan_keeps_its_time_until_it_changes() -> None:
    scene = proposed()
    later = scene.later(hours=1).decide().status
    assert entry(later).proposed_at == NOW
    changed = scene.later(hours=1).asking(criteria__disaggregation__ttftBudget="3s").decide().status
    assert entry(changed).proposed_at == NOW + timedelta(hours=1, seconds=1)
    assert entry(changed).plan_hash != entry(later).plan_hash


def test_a_fresh_sweep_keeps_the_plan_and_a_failed_one_too() -> None:
    scene = proposed().later(hours=1)
    for rate in (FAST, 300e6, SLOW):
        assert entry(of(scene.measured(rate))).plan_hash == entry(scene.status).plan_hash


def test_generation_and_claim() -> None:
    assert of(Scene(generation=7)).observed_generation == 7
    assert of(Scene(generation=7).asking(suspend=True)).observed_generation == 8
    assert of(Scene()).claimed
    assert not of(Scene(claimed_by="elder")).claimed


def test_a_status_comes_back_from_json_as_it_was() -> None:
    for scene in (Scene(), Scene(evidence=()), opened(), opened().measured(SLOW)):
        status = of(scene)
        wire = json.dumps(status.model_dump(mode="json", by_alias=True, exclude_none=True), allow_nan=False)
        assert PoolStatus.model_validate_json(wire) == status
        assert {held.name for held in status.capabilities} == {SPLIT}
