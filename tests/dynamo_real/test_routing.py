"""How Dynamo's router is told its mode, and what shows whether KV events reach it: facts 0.7, 2(a), 3 and 4."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from kvgate.core.evidence import Path as Way
from tests.app.report import saved
from tests.app.yard import kvgate
from tests.dynamo_stage.client import UserDoor
from tests.dynamo_stage.specs import Frontend, Role, RouterMode, Worker
from tests.dynamo_stage.stage import RunningFrontend, Stage

pytestmark = pytest.mark.dynamo

MISMATCH = "dynamo_component_router_kv_event_source_mismatch_workers"
APPLIED = "dynamo_component_kv_cache_events_applied"
HIT_RATES = "dynamo_component_router_kv_hit_rate_count"
BYTES_PER_TOKEN = 114_688
PREFIX = "the quick brown fox jumps over the lazy dog " * 20
KV_BY_FLAG = Frontend(RouterMode.KV)
KV_BY_ENV = Frontend("", environment={"DYN_ROUTER_MODE": "kv"})


def two_workers(stage: Stage, frontend: Frontend, worker: Worker) -> RunningFrontend:
    started = stage.frontend(spec=frontend)
    stage.workers(w1=worker, w2=worker)
    stage.until_ready(started)
    stage.until(lambda: "2" in str(started.door.readiness().body), "both workers", started)
    return started


def follows_the_prefix(door: UserDoor) -> bool:
    """Whether requests of one prefix all go to the worker that holds it; two workers in turn would share them."""
    door.chat(PREFIX)
    return len({door.chat(f"{PREFIX}{number}").decode_worker for number in range(8)}) == 1


@pytest.mark.parametrize(
    ("frontend", "worker", "kv"),
    [
        pytest.param(KV_BY_FLAG, Worker(), True, id="the flag alone"),
        pytest.param(KV_BY_ENV, Worker(), True, id="the environment alone"),
        pytest.param(Frontend(""), Worker(), False, id="neither is round-robin"),
        pytest.param(
            Frontend(RouterMode.ROUND_ROBIN, environment={"DYN_ROUTER_MODE": "kv"}),
            Worker(),
            False,
            id="the flag wins over the environment",
        ),
        pytest.param(
            KV_BY_FLAG, Worker(router_mode="round-robin"), False, id="what a worker advertises wins over the frontend"
        ),
        pytest.param(
            Frontend(RouterMode.ROUND_ROBIN), Worker(router_mode="kv"), True, id="also from round-robin towards KV"
        ),
        pytest.param(
            KV_BY_FLAG,
            Worker(environment={"DYN_ROUTER_MODE": "round-robin"}),
            False,
            id="a worker's environment advertises too",
        ),
    ],
)
def test_the_mode_that_holds(frontend: Frontend, worker: Worker, kv: bool, stage: Stage) -> None:
    started = two_workers(stage, frontend, worker)
    stage.until(lambda: follows_the_prefix(started.door) is kv, f"KV routing to be {kv}", started, seconds=20)
    assert (started.door.scrape().total(HIT_RATES) > 0) is kv


@pytest.mark.parametrize(
    ("worker", "code"),
    [
        pytest.param(Worker(prefix_caching=False), "kv_event_publisher_disabled", id="prefix caching off"),
        pytest.param(Worker(claims_events=False), "kv_event_publisher_disabled", id="the card says off"),
    ],
)
def test_a_worker_whose_card_says_off_is_a_mismatch_at_once(worker: Worker, code: str, stage: Stage) -> None:
    started = two_workers(stage, KV_BY_FLAG, worker)
    stage.until(lambda: started.door.scrape().total(MISMATCH) == 2, "two mismatches", started, seconds=20)
    stage.until(lambda: code in started.said(), code, started, seconds=20)


def test_healthy_events_are_counted_and_no_mismatch(stage: Stage) -> None:
    started = two_workers(stage, KV_BY_FLAG, Worker())
    assert all(started.door.chat(f"{number} {PREFIX}").good for number in range(4))
    stored = {"event_type": "stored", "status": "ok"}
    stage.until(lambda: started.door.scrape().has(APPLIED, **stored), "events", started)
    scrape = started.door.scrape()
    assert scrape.has(MISMATCH)
    assert scrape.total(MISMATCH) == 0


@pytest.mark.parametrize(
    ("worker", "mismatches"),
    [
        pytest.param(Worker(prefix_caching=False, claims_events=True), 2, id="a claim without a source is a mismatch"),
        pytest.param(Worker(silent=True), 0, id="a source whose engine says nothing is none"),
    ],
)
def test_claimed_and_silent(worker: Worker, mismatches: int, stage: Stage) -> None:
    started = two_workers(stage, KV_BY_FLAG, worker)
    assert all(started.door.chat(f"{number} {PREFIX}").good for number in range(6))
    stage.until(lambda: started.door.scrape().total(MISMATCH) == mismatches, f"{mismatches} mismatches", started)
    assert started.door.scrape().total(APPLIED, event_type="stored") == 0


def test_in_approximate_mode_the_gauge_is_absent_and_events_are_the_routers_own(stage: Stage) -> None:
    started = two_workers(stage, Frontend(RouterMode.KV, kv_events=False), Worker())
    stage.until(lambda: follows_the_prefix(started.door), "KV routing", started, seconds=20)
    scrape = started.door.scrape()
    assert not scrape.has(MISMATCH)
    assert scrape.total(APPLIED, event_type="stored") > 0


def test_round_robin_has_no_family_of_kv_events(stage: Stage) -> None:
    started = two_workers(stage, Frontend(), Worker())
    assert started.door.chat("hello").good
    names = started.door.scrape().names()
    assert not {MISMATCH, APPLIED} & names
    assert "dynamo_component_router_kv_hit_rate_count" in names


def test_a_restarted_frontend_rebuilds_its_index_from_the_workers(stage: Stage) -> None:
    started = stage.frontend(spec=KV_BY_FLAG)
    stage.workers(w1=Worker(), w2=Worker(), w3=Worker())
    stage.until_ready(started)
    prompts = [f"family {number} {PREFIX}" for number in range(8)]
    owners = [started.door.chat(prompt).decode_worker for prompt in prompts]
    assert len(set(owners)) > 1
    stage.stop("frontend")
    again = stage.frontend(spec=KV_BY_FLAG)
    stage.until_ready(again)
    stage.until(
        lambda: [again.door.chat(prompt).decode_worker for prompt in prompts] == owners, "the same owners", again
    )


def test_a_split_request_proves_itself_and_an_aggregated_one_too(stage: Stage) -> None:
    started = stage.frontend()
    stage.workers(p1=Worker(Role.PREFILL), d1=Worker(Role.DECODE))
    stage.until_ready(started)
    answer = started.door.chat(PREFIX)
    assert (answer.split, (answer.timing["ttft_ms"] or 0) > 0) == (True, True)
    stage.stop("p1", "d1")
    stage.worker("a1")
    stage.until_ready(started)
    aggregated = started.door.chat(PREFIX)
    assert (aggregated.split, aggregated.prefill_worker) == (False, aggregated.decode_worker)


def test_a_pinned_request_goes_to_that_worker(stage: Stage) -> None:
    started = two_workers(stage, Frontend(), Worker())
    stage.until(lambda: len({started.door.chat("x").decode_worker for _ in range(4)}) == 2, "both to serve", started)
    wanted = started.door.chat("x").decode_worker
    pinned = [started.door.chat("x", extra={"nvext": {"backend_instance_id": wanted}}) for _ in range(5)]
    assert {answer.decode_worker for answer in pinned} == {wanted}


def exported(folder: Path, bytes_per_second: float) -> tuple[str, ...]:
    """What `kvgate report --format mocker` says of a fabric where each path carries so much."""
    swept = saved.evidence({Way("p1", "d1"): bytes_per_second})
    out = folder / "mocker.yaml"
    file = saved.save(folder, [saved.pool(), *saved.reports(swept)])
    assert kvgate("report", file, "--format", "mocker", "-o", out) == 0
    return tuple(yaml.safe_load(out.read_text(encoding="utf-8"))["args"])


def test_a_transfer_takes_the_time_of_its_bytes_by_the_arguments_that_a_report_exports(
    stage: Stage, tmp_path: Path
) -> None:
    """Fact 6: charged tokens × bytes per token ÷ bandwidth of the prefill worker, on top of what else takes time."""
    started, fastest, tokens = stage.frontend(), [], 0
    free = ("--kv-bytes-per-token", str(BYTES_PER_TOKEN), "--kv-transfer-bandwidth", "0")
    for arguments in (free, exported(tmp_path, 1e9)):
        prefill = Worker(Role.PREFILL, speedup=100, arguments=arguments)
        stage.workers(prefill=prefill, decode=Worker(Role.DECODE, speedup=100))
        stage.until_ready(started)
        answers = [started.door.chat(f"{number} {'baba' * 384}", max_tokens=1) for number in range(8)]
        fastest.append(min(answer.seconds for answer in answers))
        tokens = answers[0].prompt_tokens
        stage.stop("prefill", "decode")
        stage.until(lambda: not started.door.readiness().ready, "the workers to be gone", started)
    assert tokens == pytest.approx(400, rel=0.1)
    assert fastest[1] - fastest[0] == pytest.approx(tokens * BYTES_PER_TOKEN / 1e9, abs=0.015)


EXPECTED_NAMES = (
    "dynamo_frontend_time_to_first_token_seconds_bucket",
    "dynamo_frontend_inter_token_latency_seconds_bucket",
    "dynamo_frontend_requests_total",
    "dynamo_frontend_requests_started_total",
    "dynamo_frontend_cached_tokens_sum",
    "dynamo_frontend_input_sequence_tokens_sum",
    "dynamo_frontend_model_ready",
    "dynamo_component_router_kv_hit_rate_sum",
    "dynamo_component_router_worker_registered",
    APPLIED,
    MISMATCH,
)


def test_the_names_that_kvgate_reads_are_there(stage: Stage) -> None:
    started = two_workers(stage, KV_BY_FLAG, Worker())
    assert all(started.door.chat(f"{number} {PREFIX}").good for number in range(4))
    stage.until(lambda: started.door.scrape().has(APPLIED), "events", started)
    assert set(EXPECTED_NAMES) - started.door.scrape().names() == set()
