"""The event probe: when it is due, how its fence goes on from where kvgate died, and what it heard, judged."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from kvgate.api.status import BenchmarkRun, EventsProbeRun
from kvgate.api.words import Capability, Outcome
from kvgate.core.decide import decide
from kvgate.core.events import judge_events
from kvgate.core.events_listening import LONGEST, REST, endpoints_of
from kvgate.core.events_seen import EventsSeen, Heard, Hears, Listening, Routes
from kvgate.core.runs import JobState, RunningJob
from kvgate.core.steps import AbandonListening, CollectListening, Decision, Listen
from kvgate.core.target import Switch
from kvgate.core.world import World
from kvgate_probe.kvevents_tally import State
from tests.core import worlds
from tests.core.event_looks import (
    ANNOUNCED,
    BLOCK,
    LONG_READY,
    START,
    at,
    engines,
    frontend,
    frontend_look,
    seen,
    with_advert,
    worker,
)

(ADDRESS,) = ANNOUNCED.addresses
SCENE = worlds.Scene().gating(Capability.ROUTING, Switch.OFF)
NOW = SCENE.now
SILENT = seen(worker("w1", *engines(5, 10, 15)), worker("w2", *engines(0, 0, 0)))
FINE = seen()
RUN = EventsProbeRun(run_id="r1", started_at=NOW - timedelta(minutes=2))
MADE = RUN.model_copy(update={"job_uid": "u1"})
RUNNING, ENDED = (RunningJob("r1", "u1", state) for state in (JobState.RUNNING, JobState.ENDED))
ANOTHER = replace(ENDED, uid="u2")
HEARD = Listening("r1", NOW, endpoints_of(SILENT))


def decided(events: EventsSeen | None, status: dict[str, object] | None = None, **world: object) -> Decision:
    asked = {name: world.pop(name) for name in [key for key in world if "__" in key or key == "suspend"]}
    scene = SCENE.asking(**asked) if asked else SCENE
    pool = replace(scene.pool, status=scene.pool.status.model_copy(update=status or {}))
    if "requested" in world:
        pool = replace(pool, measure_requested_at=str(world.pop("requested")))
    if world.pop("deleted", False):
        pool = replace(pool, deleted=True)
    found: World = replace(scene.world, events=events, **world)  # type: ignore[arg-type]
    return decide(pool, found, NOW)


def step(decision: Decision) -> Listen | CollectListening | AbandonListening | None:
    found = [one for one in decision.steps if isinstance(one, Listen | CollectListening | AbandonListening)]
    assert len(found) <= 1
    return found[0] if found else None


def test_the_words_are_those_of_the_probe() -> None:
    assert list(Hears) == [Hears(state.value) for state in State]


def test_a_silent_worker_is_listened_to_and_the_fence_stands_before_the_job() -> None:
    decision = decided(SILENT)
    begun, fence = step(decision), decision.status.events_probe
    assert isinstance(begun, Listen)
    assert fence is not None
    assert (fence.run_id, fence.job_uid, decision.status.last_events_probe_at) == (begun.run_id, "", NOW)


@pytest.mark.parametrize(
    ("events", "more"),
    [
        pytest.param(FINE, {}, id="events flow"),
        pytest.param(None, {}, id="nobody looks at events"),
        pytest.param(SILENT, {"suspend": True}, id="the pool is suspended"),
        pytest.param(SILENT, {"deleted": True}, id="the pool is being deleted"),
        pytest.param(SILENT, {"claimed_by": "older"}, id="an older pool has the deployment"),
        pytest.param(SILENT, {"criteria__routing__kvEvents": "Ignored"}, id="events are ignored"),
        pytest.param(SILENT, {"listener_problem": "no image"}, id="no Job can be made"),
        pytest.param(replace(SILENT, asking=True), {}, id="canaries are under way"),
        pytest.param(SILENT, {"status": {"last_events_probe_at": NOW - REST / 2}}, id="one was begun of late"),
        pytest.param(replace(SILENT, listening=HEARD), {}, id="these workers were listened to"),
        pytest.param(
            SILENT,
            {"status": {"benchmark": BenchmarkRun(run_id="ab", started_at=NOW, ran_on="shadows")}},
            id="an A/B is under way",
        ),
        pytest.param(
            replace(SILENT, workers=tuple(replace(w, looks=()) for w in SILENT.workers)), {}, id="nothing is announced"
        ),
    ],
)
def test_nobody_is_listened_to_where(events: EventsSeen | None, more: dict[str, object]) -> None:
    decision = decided(events, **more)  # type: ignore[arg-type]
    assert not isinstance(step(decision), Listen)
    assert decision.status.events_probe is None


@pytest.mark.parametrize(
    ("events", "more"),
    [
        pytest.param(
            replace(SILENT, listening=HEARD),
            {"requested": "2026-03-02", "status": {"last_handled_measure_at": "2026-03-02"}},
            id="a person asked, and the sweep that this began is over",
        ),
        pytest.param(replace(SILENT, listening=replace(HEARD, endpoints="others")), {}, id="other processes run"),
        pytest.param(SILENT, {"status": {"last_events_probe_at": NOW - REST}}, id="kvgate lost what it had heard"),
    ],
)
def test_it_is_listened_again_where(events: EventsSeen, more: dict[str, object]) -> None:
    assert isinstance(step(decided(events, **more)), Listen)  # type: ignore[arg-type]


FENCES = [
    ("the Job was not made yet", RUN, None, SILENT, Listen, RUN),
    ("the Job is made: it is remembered", RUN, RUNNING, SILENT, None, MADE),
    ("the Job runs", MADE, RUNNING, SILENT, None, MADE),
    ("the Job ended: its log is read", MADE, ENDED, SILENT, CollectListening, MADE),
    ("the Job ended before it was remembered", RUN, ENDED, SILENT, CollectListening, MADE),
    ("what it heard has arrived: it is cleared", MADE, ENDED, replace(SILENT, listening=HEARD), AbandonListening, MADE),
    ("it is cleared away", MADE, None, replace(SILENT, listening=HEARD), None, None),
    ("the remembered Job is gone: nothing of it is left", MADE, None, SILENT, None, None),
    ("another Job has its name: nothing it says counts", MADE, ANOTHER, SILENT, AbandonListening, MADE),
    ("events came to flow meanwhile", MADE, ENDED, FINE, CollectListening, MADE),
    ("events are not looked at any more", MADE, RUNNING, None, AbandonListening, MADE),
    ("nothing is left, and events are not looked at", MADE, None, None, None, None),
    (
        "no Job could be made for too long",
        RUN.model_copy(update={"started_at": NOW - LONGEST}),
        None,
        SILENT,
        None,
        None,
    ),
]


@pytest.mark.parametrize(
    ("fence", "job", "events", "wanted", "kept"), [pytest.param(*case, id=name) for name, *case in FENCES]
)
def test_the_fence_goes_on_where_it_stands(
    fence: EventsProbeRun,
    job: RunningJob | None,
    events: EventsSeen | None,
    wanted: type[object] | None,
    kept: EventsProbeRun | None,
) -> None:
    status = {"events_probe": fence, "last_events_probe_at": fence.started_at}
    decision = decided(events, status, listener=job)
    taken = step(decision)
    assert (type(taken) if taken else None) is wanted
    assert decision.status.events_probe == kept
    assert decision.status.last_events_probe_at == fence.started_at


@pytest.mark.parametrize(
    "gone", [pytest.param({"suspend": True}, id="suspended"), pytest.param({"deleted": True}, id="deleted")]
)
def test_a_pool_that_rests_clears_it_away(gone: dict[str, object]) -> None:
    assert isinstance(step(decided(SILENT, {"events_probe": MADE}, listener=RUNNING, **gone)), AbandonListening)
    assert decided(SILENT, {"events_probe": MADE}, **gone).status.events_probe is None


def heard(state: Hears, *, routes: Routes = Routes.OTHER, flowing: bool = False, **more: object) -> EventsSeen:
    """Two workers that announce events and count none, where the probe heard this of the second."""
    quiet = frontend(
        "fe-1", *(frontend_look(n, stored=40 if flowing else 0, input_tokens=0, prompts=0) for n in (1, 2))
    )
    entry = replace(Heard("w2", ADDRESS, state, (64,)), **more)  # type: ignore[arg-type]
    listening = Listening("r", START + timedelta(minutes=1), entries=(Heard("w1", ADDRESS, Hears.FLOWS), entry))
    workers = tuple(with_advert(name, ANNOUNCED) for name in ("w1", "w2"))
    fronts = (quiet,) if routes is Routes.KV else ()
    return EventsSeen(routes, workers, fronts, listening=listening)


@pytest.mark.parametrize(
    ("state", "outcome", "reason"),
    [
        pytest.param(Hears.FLOWS, Outcome.PASS, "KVEventsPublished", id="both publish"),
        pytest.param(Hears.GARBAGE, Outcome.FAIL, "KVEventsGarbage", id="one publishes garbage"),
        pytest.param(Hears.OTHER_BLOCK_SIZE, Outcome.FAIL, "KVBlockSizeMismatch", id="one has other blocks"),
        pytest.param(Hears.BYTES, Outcome.INCONCLUSIVE, "KVEventsUnreadable", id="one names blocks by bytes"),
        pytest.param(Hears.NOT_REACHABLE, Outcome.INCONCLUSIVE, "KVEventsNotReachable", id="one is not reachable"),
        pytest.param(Hears.NOT_ZMQ, Outcome.INCONCLUSIVE, "KVEventsNotReachable", id="one speaks something else"),
        pytest.param(Hears.NOTHING, Outcome.PASS, "KVEventsAnnounced", id="one is quiet, as idle engines are"),
    ],
)
def test_what_was_heard_is_judged(state: Hears, outcome: Outcome, reason: str) -> None:
    finding = judge_events(heard(state)).finding
    assert (finding.outcome, finding.reason) == (outcome, reason), finding.message
    if outcome is not Outcome.PASS:
        assert finding.message.startswith("w2: ")
        assert "the deployer must" in finding.message


def test_a_worker_out_of_reach_of_the_probe_is_no_fault_where_routers_hear_events() -> None:
    finding = judge_events(heard(Hears.NOT_REACHABLE, routes=Routes.KV, flowing=True)).finding
    assert (finding.outcome, finding.reason) == (Outcome.UNKNOWN, "KVEventsIdle"), "whose they are, a canary tells"


def test_what_was_heard_of_another_process_or_address_counts_no_more() -> None:
    events = heard(Hears.GARBAGE)
    restarted = tuple(replace(w, ready_since=START + timedelta(minutes=2)) for w in events.workers)
    later = tuple(replace(w, looks=tuple(replace(k, taken_at=at(40)) for k in w.looks)) for w in restarted)
    assert judge_events(replace(events, workers=later)).finding.reason != "KVEventsGarbage"
    assert judge_events(heard(Hears.GARBAGE, address="tcp://10.0.0.1:9")).finding.reason != "KVEventsGarbage"


def test_the_status_says_in_short_what_was_heard() -> None:
    assert judge_events(heard(Hears.GARBAGE)).status.probe == "PublishesGarbage 1, Flows 1"
    listening = Listening("r", LONG_READY, trouble="its log cannot be read")
    assert judge_events(replace(FINE, listening=listening)).status.probe == "its log cannot be read"


def test_a_block_size_is_told_with_what_is_wanted() -> None:
    message = judge_events(heard(Hears.OTHER_BLOCK_SIZE)).finding.message
    assert f"blocks of 64 tokens, wanted {BLOCK}" in message
