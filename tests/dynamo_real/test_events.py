"""KV events of NVIDIA Dynamo's real frontends and mock workers, judged as the operator judges them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kvgate.api.words import Outcome
from kvgate.core.events import EventsJudged
from kvgate.core.events_seen import Routes
from tests.dynamo_real.event_rig import INTERVAL, MISSED, Rig
from tests.dynamo_stage.specs import Frontend, Role, RouterMode, Worker
from tests.dynamo_stage.stage import RunningFrontend, RunningWorker, Stage

pytestmark = pytest.mark.dynamo
KV = Frontend(RouterMode.KV)
LOUD = Worker(zmq_events=True)
"""Its publisher counts the events of its engine, as vLLM's does."""
APPLIED = "dynamo_component_kv_cache_events_applied"


def serve(stage: Stage, spec: Frontend = KV, **workers: Worker) -> RunningFrontend:
    frontend = stage.frontend(spec=spec)
    stage.workers(**workers)
    stage.until_ready(frontend)
    return frontend


def ask(frontend: RunningFrontend, requests: int = 6, salt: str = "") -> None:
    """New prompts of some 25 blocks each: 6 of them fill more than 64."""
    for number in range(requests):
        words = f"{salt} prompt {number} " + "the quick brown fox jumps over the lazy dog " * 40
        answer = frontend.door.chat(words)
        assert answer.good, answer.error


def until_applied(stage: Stage, frontend: RunningFrontend) -> None:
    labels = {"event_type": "stored", "status": "ok"}
    stage.until(lambda: frontend.door.scrape().total(APPLIED, **labels) > 0, "events to be applied", frontend)


def told(judged: EventsJudged) -> tuple[Outcome, str]:
    return judged.finding.outcome, judged.finding.reason


def test_healthy_workers_pass(stage: Stage) -> None:
    frontend = serve(stage, w1=LOUD, w2=LOUD)
    rig = Rig(stage)
    assert told(rig.look()) == (Outcome.UNKNOWN, "KVEventsFirstLook")
    assert told(rig.look()) == (Outcome.UNKNOWN, "KVEventsIdle")
    ask(frontend)
    until_applied(stage, frontend)
    judged = rig.look(2)
    assert told(judged) == (Outcome.PASS, "KVEventsFlow"), judged.finding.message
    status = judged.status
    assert (status.expected_workers, status.publishing_workers, status.applied) == (2, 2, True)


def test_idle_workers_are_asked_by_a_canary_that_reaches_each_of_them(stage: Stage) -> None:
    frontend = serve(stage, w1=LOUD, w2=LOUD)
    rig = Rig(stage)
    wanted = rig.look(2).canaries
    assert [canary.pod for canary in wanted] == ["w1", "w2"]
    for canary in wanted:
        words = f"canary for {canary.pod} " + "one two three four five six seven eight " * (canary.tokens // 8)
        pinned = {"nvext": {"backend_instance_id": canary.instance, "extra_fields": ["worker_id"]}}
        answer = frontend.door.chat(words, extra=pinned)
        assert (answer.good, answer.decode_worker) == (True, canary.instance), answer.error
    until_applied(stage, frontend)
    judged = rig.look(2)
    assert (told(judged), judged.canaries) == ((Outcome.PASS, "KVEventsFlow"), ())


def test_prefix_caching_off_fails_and_names_every_worker(stage: Stage) -> None:
    frontend = serve(stage, w1=Worker(prefix_caching=False), w2=Worker(prefix_caching=False))
    ask(frontend, 2)
    judged = Rig(stage).look(2)
    assert told(judged) == (Outcome.FAIL, "KVEventsDisabled"), judged.finding.message
    assert "w1, w2" in judged.finding.message


def test_a_claim_without_a_source_fails_and_names_the_worker(stage: Stage) -> None:
    """One of three workers is silent: its card claims events, and it announced no source of them."""
    silent = Worker(prefix_caching=False, claims_events=True)
    frontend = serve(stage, w1=Worker(), w2=silent, w3=Worker())
    ask(frontend, 2)
    stage.until(lambda: frontend.door.scrape().total(MISSED) == 1, "the gauge to count it", frontend)
    judged = Rig(stage).look(2)
    assert told(judged) == (Outcome.FAIL, "KVEventSourceMissing"), judged.finding.message
    assert judged.finding.message.startswith("w2: ")
    assert judged.status.publishing_workers == 2


def test_a_claim_that_is_wrong_the_other_way_is_for_a_person(stage: Stage) -> None:
    """The cards say that none publishes, and the events flow."""
    frontend = serve(stage, w1=Worker(claims_events=False), w2=Worker(claims_events=False))
    rig = Rig(stage)
    for salt in ("a", "b", "c"):
        rig.look()
        ask(frontend, 4, salt)
        until_applied(stage, frontend)
    judged = rig.look()
    assert told(judged) == (Outcome.INCONCLUSIVE, "KVEventsContradictory"), judged.finding.message


def test_workers_that_announce_a_source_and_never_publish_fail_under_traffic(stage: Stage) -> None:
    """No gauge tells of it: the source is there. At least 64 new blocks were filled, and no event was applied."""
    frontend = serve(stage, w1=Worker(silent=True), w2=Worker(silent=True))
    rig = Rig(stage)
    ask(frontend, 4)
    rig.look()
    ask(frontend, 4, "more")
    judged = rig.look(2)
    assert frontend.door.scrape().total(MISSED) == 0
    assert told(judged) == (Outcome.FAIL, "KVEventsSilent"), judged.finding.message
    assert judged.status.applied is False


def test_a_restarted_worker_settles_first_and_then_passes(stage: Stage) -> None:
    frontend = serve(stage, w1=LOUD, w2=LOUD)
    rig = Rig(stage)
    ask(frontend)
    until_applied(stage, frontend)
    assert told(rig.look(2)) == (Outcome.PASS, "KVEventsFlow")
    stage.kill("w2")
    stage.worker("w2", LOUD)
    stage.until_ready(frontend)
    rig.since["w2"] = rig.now
    assert told(rig.look()) == (Outcome.PASS, "KVEventsFlow"), "the other worker and the router are well"
    ask(frontend, salt="again")
    rig.now += 4 * INTERVAL
    judged = rig.look(2)
    assert told(judged) == (Outcome.PASS, "KVEventsFlow"), judged.finding.message


def test_events_that_stop_are_seen_within_two_looks(stage: Stage) -> None:
    """A worker is rolled without events: the first look that finds it for long enough and the second make it fail."""
    frontend = serve(stage, w1=LOUD)
    rig = Rig(stage)
    ask(frontend)
    until_applied(stage, frontend)
    assert told(rig.look(2)) == (Outcome.PASS, "KVEventsFlow")
    stage.stop("w1")
    stage.worker("w1", Worker(prefix_caching=False))
    stage.until_ready(frontend)
    rig.look()
    assert told(rig.look()) == (Outcome.FAIL, "KVEventsDisabled")


def test_approximate_mode_is_said_to_use_no_events(stage: Stage) -> None:
    """Its router counts its own decisions as events, and has no gauge."""
    frontend = serve(stage, Frontend(RouterMode.KV, kv_events=False), w1=Worker(), w2=Worker())
    ask(frontend, 3)
    rig = Rig(stage, Routes.APPROXIMATE)
    judged = rig.look(2)
    assert told(judged) == (Outcome.INCONCLUSIVE, "KVEventsUnused"), judged.finding.message
    assert not frontend.door.scrape().has(MISSED)


@pytest.mark.parametrize(
    ("zmq", "reason"),
    [
        pytest.param(True, "KVEventsPublished", id="publishers that count their events"),
        pytest.param(False, "KVEventsAnnounced", id="publishers that count none"),
    ],
)
def test_before_the_switch_events_are_judged_without_a_router(stage: Stage, zmq: bool, reason: str) -> None:
    frontend = serve(stage, Frontend(RouterMode.ROUND_ROBIN), w1=Worker(zmq_events=zmq), w2=Worker(zmq_events=zmq))
    ask(frontend, 4)
    judged = Rig(stage, Routes.OTHER).look(2)
    assert told(judged) == (Outcome.PASS, reason), judged.finding.message


def test_one_silent_publisher_of_three_is_found_before_the_switch(stage: Stage) -> None:
    """Two publishers count their events and one has counted none for the requests that it served."""
    workers = {"w1": Worker(zmq_events=True), "w2": Worker(silent=True), "w3": Worker(zmq_events=True)}
    frontend = serve(stage, Frontend(RouterMode.ROUND_ROBIN), **workers)
    ask(frontend, 6)
    judged = Rig(stage, Routes.OTHER).look(2)
    assert told(judged) == (Outcome.UNKNOWN, "KVEventsIdle"), judged.finding.message
    assert judged.finding.message.startswith("w2: ")
    assert [canary.pod for canary in judged.canaries] == ["w2"]


def test_one_silent_publisher_of_three_never_passes_in_kv_mode(stage: Stage) -> None:
    """Its source is announced, so no gauge tells; the router applies the others' events."""
    workers = {"w1": Worker(zmq_events=True), "w2": Worker(silent=True), "w3": Worker(zmq_events=True)}
    frontend = serve(stage, KV, **workers)
    rig = Rig(stage)
    until_served(rig, frontend, "w2")
    judged = rig.look(2)
    assert frontend.door.scrape().total(MISSED) == 0
    assert told(judged) == (Outcome.UNKNOWN, "KVEventsIdle"), judged.finding.message
    assert [canary.pod for canary in judged.canaries] == ["w2"]


def test_a_split_needs_the_events_of_its_prefill_workers_alone(stage: Stage) -> None:
    frontend = serve(stage, p1=Worker(Role.PREFILL, zmq_events=True), d1=Worker(Role.DECODE))
    stage.until(lambda: frontend.door.chat("hello").good, "the first answer of the pair", frontend)
    ask(frontend)
    until_applied(stage, frontend)
    judged = Rig(stage).look(2)
    assert told(judged) == (Outcome.PASS, "KVEventsFlow"), judged.finding.message
    assert judged.status.expected_workers == 1


def test_workers_of_two_block_sizes_fail(stage: Stage) -> None:
    frontend = serve(stage, w1=Worker(), w2=Worker(block_size_tokens=32))
    del frontend
    judged = Rig(stage).look(2)
    assert told(judged) == (Outcome.FAIL, "KVBlockSizeMismatch"), judged.finding.message


def test_the_event_probe_hears_workers_by_both_ways(stage: Stage, tmp_path: Path) -> None:
    """At the address of the worker's own metadata, which is Dynamo's event plane, and at the engine's endpoint."""
    frontend = serve(stage, w1=Worker(), w2=Worker(zmq_events=True), quiet=Worker(silent=True))
    rig = Rig(stage)
    worker = _running(rig, "w1")
    stage.until(lambda: rig.published(worker).kv_event_addresses, "the address of w1's events", worker)
    (first,) = rig.published(worker).kv_event_addresses
    second, third = _running(rig, "w2").events_endpoint, _running(rig, "quiet").events_endpoint
    endpoints = [{"worker": "w1", "address": first}, {"worker": "w2", "address": second}]
    endpoints += [{"worker": "quiet", "address": third}, {"worker": "gone", "address": "tcp://127.0.0.1:9"}]
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"runID": "r", "seconds": 6, "blockTokens": 16, "endpoints": endpoints}), "utf-8")
    command = (sys.executable, "-m", "kvgate_probe.kvevents", "--plan", str(plan))
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as probe:
        salts = 0
        while probe.poll() is None:
            salts += 1
            ask(frontend, 6, f"salt {salts}")
        output = probe.stdout.read() if probe.stdout else ""
    lines = {told["worker"]: told for told in map(json.loads, output.splitlines())}
    states = {name: told["state"] for name, told in lines.items()}
    assert states["w1"] == states["w2"] == "Flows", lines
    assert (lines["w1"]["wires"], lines["w2"]["wires"]) == (["plane"], ["engine"])
    assert states["gone"] == "NotReachable"


def until_served(rig: Rig, frontend: RunningFrontend, name: str) -> None:
    """A KV router with an empty index spreads prompts as it likes: each worker is asked by its own id."""
    for worker in rig.workers:
        ids = [card.instance for card in rig.published(worker).cards]
        words = f"for {worker.name} " + "the quick brown fox jumps over the lazy dog " * 40
        assert frontend.door.chat(words, extra={"nvext": {"backend_instance_id": ids[0]}}).good
    served = _running(rig, name).door.scrape().total("dynamo_component_requests_total", dynamo_endpoint="generate")
    assert served > 0


def _running(rig: Rig, name: str) -> RunningWorker:
    return next(worker for worker in rig.workers if worker.name == name)
