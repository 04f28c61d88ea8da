"""When Dynamo serves and when it answers 503: facts 0.1 to 0.6, on which the order of kvgate's switching rests."""

from __future__ import annotations

import pytest

from tests.dynamo_stage.load import SteadyLoad
from tests.dynamo_stage.specs import Frontend, Role, RouterMode, Worker
from tests.dynamo_stage.stage import Stage

pytestmark = pytest.mark.dynamo

AGGREGATED, PREFILL, DECODE = Worker(), Worker(Role.PREFILL), Worker(Role.DECODE)


@pytest.mark.parametrize(
    ("workers", "missing"),
    [
        pytest.param({"d1": DECODE}, {"demo": ("prefill",)}, id="decode without prefill lacks prefill"),
        pytest.param({"a1": AGGREGATED, "d1": DECODE}, {"demo": ("prefill",)}, id="so it does beside aggregated"),
        pytest.param(
            {"a1": AGGREGATED, "p1": PREFILL}, {"demo": ("decode",)}, id="a lone prefill takes aggregated down"
        ),
    ],
)
def test_an_incomplete_namespace_is_an_outage(
    workers: dict[str, Worker], missing: dict[str, tuple[str, ...]], stage: Stage
) -> None:
    frontend = stage.frontend()
    stage.workers(**workers)
    stage.until(lambda: frontend.door.readiness().body.get("namespaces"), "the frontend to find the workers", frontend)
    stage.until(lambda: frontend.door.readiness().missing == missing, f"{missing} to be missing", frontend)
    stage.until(lambda: frontend.door.chat("hello").status != 404, "the model to be known", frontend)
    answer = frontend.door.chat("hello")
    assert (answer.status, "is not ready to serve requests yet" in answer.error) == (503, True)
    assert (frontend.door.readiness().status, frontend.door.models()) == (503, ())


def test_an_outage_shows_in_readiness_and_failures_and_in_neither_health_nor_requests(stage: Stage) -> None:
    frontend = stage.frontend()
    stage.workers(p1=PREFILL, d1=DECODE)
    stage.until_ready(frontend)
    assert frontend.door.chat("hello").good
    stage.stop("p1")
    stage.until(lambda: frontend.door.readiness().status == 503, "the model to be withdrawn", frontend)
    before = frontend.door.scrape()
    assert [frontend.door.chat(f"hello {n}").status for n in range(3)] == [503, 503, 503]
    after = frontend.door.scrape()
    assert [frontend.door.get(path)[0] for path in ("/health", "/live")] == [200, 200]
    assert after.total("dynamo_frontend_model_ready", model="tiny") == 0
    assert after.has("dynamo_frontend_model_ready", model="tiny")
    requests, failures = "dynamo_frontend_requests_total", "dynamo_frontend_failures_total"
    assert after.total(requests) == before.total(requests) == 1
    unavailable = {"class": "Unavailable", "reason": "backend.unavailable"}
    assert after.total(failures, **unavailable) - before.total(failures, **unavailable) == 3


def test_aggregated_prefill_and_decode_in_one_namespace_serve_mixed(stage: Stage) -> None:
    frontend = stage.frontend()
    stage.workers(a1=AGGREGATED, p1=PREFILL, d1=DECODE)
    stage.until_ready(frontend)
    present = {"demo": ("aggregated", "decode", "prefill")}
    stage.until(lambda: frontend.door.readiness().types("present") == present, "all three types", frontend)
    answers = [frontend.door.chat(f"{n} hello") for n in range(12)]
    assert {(answer.status, answer.split) for answer in answers} == {(200, True), (200, False)}


def test_each_generation_is_ready_for_itself(stage: Stage) -> None:
    frontend = stage.frontend()
    stage.workers(a1=Worker(generation="aaaa"), p1=Worker(Role.PREFILL, generation="bbbb"))
    stage.until_ready(frontend)
    wanted = {"demo-aaaa": (), "demo-bbbb": ("decode",)}
    stage.until(lambda: frontend.door.readiness().missing == wanted, f"{wanted} to be missing", frontend)
    answers = [frontend.door.chat(f"{n} hello") for n in range(6)]
    assert {(answer.status, answer.split) for answer in answers} == {(200, False)}


def test_both_switches_by_generation_are_no_outage(stage: Stage) -> None:
    """Fact 0.4: a complete new generation first, then the old one drained, with a migration limit of 3."""
    frontend = stage.frontend(spec=Frontend(RouterMode.KV, migration_limit=3))
    old, new = Worker(generation="aaaa", speedup=2), Worker(generation="cccc", speedup=2)
    stage.workers(a1=old, a2=old)
    stage.until_ready(frontend)
    with SteadyLoad(frontend.door, 8) as load:
        load.wait_for(8)
        load.phase = "to split"
        stage.workers(p1=Worker(Role.PREFILL, generation="bbbb"), d1=Worker(Role.DECODE, generation="bbbb"))
        stage.until(lambda: len(frontend.door.readiness().missing) == 2, "the new generation", frontend)
        load.wait_for(8)
        stage.stop("a1", "a2")
        load.phase = "split"
        load.wait_for(16)
        load.phase = "back"
        stage.workers(a3=new, a4=new)
        stage.until(lambda: "demo-cccc" in frontend.door.readiness().missing, "the third generation", frontend)
        load.wait_for(8)
        stage.stop("p1", "d1")
        load.phase = "aggregated"
        load.wait_for(16)
    assert load.outages() == [], load.told()
    assert len(load.raced()) <= 2, load.told()
    paths = {(one.phase, one.answer.split) for one in load.so_far()}
    assert {("before", False), ("split", True), ("aggregated", False)} <= paths
    assert {("before", True), ("split", False)} & paths == set()


def test_prefill_scaled_to_zero_before_aggregated_serves_is_an_outage(stage: Stage) -> None:
    """Fact 0.4: the naive way back."""
    frontend = stage.frontend(spec=Frontend(RouterMode.KV))
    stage.workers(p1=Worker(Role.PREFILL, generation="bbbb"), d1=Worker(Role.DECODE, generation="bbbb"))
    stage.until_ready(frontend)
    with SteadyLoad(frontend.door, 8) as load:
        load.wait_for(8)
        stage.stop("p1")
        load.wait_for(8)
        stage.worker("a1", Worker(generation="cccc"))
        stage.until_ready(frontend)
    assert {one.answer.status for one in load.outages()} == {503}


def test_a_frontend_is_healthy_before_it_knows_a_model(stage: Stage) -> None:
    """So a new frontend pod may be Ready and answer 404 for a moment."""
    frontend = stage.frontend()
    assert (frontend.door.get("/health")[0], frontend.door.chat("hello").status) == (200, 404)
