"""The event probe as a fence: meant in the status before its Job is made, taken up again after a death, collected."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import timedelta

from kvgate.api.status import EventsProbeRun
from kvgate.api.words import Outcome
from kvgate.core.events_seen import EventsSeen
from kvgate.core.judging import Case
from kvgate.core.moments import later
from kvgate.core.runs import JobState, run_id
from kvgate.core.steps import AbandonListening, CollectListening, Listen

LOOK_AGAIN_SECONDS = 5.0
LISTEN_SECONDS = 60.0
REST = timedelta(minutes=10)
"""After a probe was begun, before the next of the same pool, whatever became of it."""
LONGEST = timedelta(minutes=15)
"""After this a probe whose Job never came is given up."""
CLEARED_UP = frozenset(
    {
        "KVEventsSilent",
        "KVEventsIdle",
        "KVEventsCanaryFailed",
        "KVEventSourceMismatch",
        "KVEventsRefused",
        "KVEventsUnreadable",
        "KVEventsContradictory",
        "KVEventsNotDeclared",
        "KVEventsNotObserved",
        "KVEventMetricsAbsent",
    }
)
"""Findings of which listening to the workers tells more."""


@dataclass(frozen=True)
class Listens:
    """What this turn does about the event probe, and the fence that it leaves in the status."""

    step: Listen | CollectListening | AbandonListening | None = None
    fence: EventsProbeRun | None = None


def listening(case: Case, *, may_start: bool) -> Listens:
    """Goes on with the probe that the status means, or starts one that is due."""
    fence = case.pool.status.events_probe
    if fence is not None:
        return _under_way(case, fence, may_start=may_start)
    if not may_start or not due(case):
        return Listens()
    run = run_id(case.pool.uid, case.now, "events")
    return Listens(Listen(run), EventsProbeRun(run_id=run, started_at=case.now))


def due(case: Case) -> bool:
    """Whether listening now would tell more: once for each state of the workers, and again where a person asks."""
    events, judged, last = case.world.events, case.events, case.pool.status.last_events_probe_at
    if events is None or judged is None or _resting(case) or case.world.listener_problem or not _addresses(events):
        return False
    if judged.finding.outcome is Outcome.PASS or judged.finding.reason not in CLEARED_UP:
        return False
    if judged.canaries or events.asking or (last is not None and case.now < later(last, REST)):
        return False
    return events.listening is None or _outdated(case, events)


def asking(case: Case) -> bool:
    """Whether answers of canaries are about to come; what they tell is acted on before the next look."""
    events, judged = case.world.events, case.events
    if events is None or judged is None:
        return False
    return events.asking or bool(judged.canaries and events.frontends)


def endpoints_of(events: EventsSeen) -> str:
    """What is announced now, in short: another process, or another address, is to be listened to anew."""
    told = sorted((w.pod, str(w.instance), str(w.ready_since), _announced(events, w.pod)) for w in events.workers)
    return hashlib.sha256(repr(told).encode()).hexdigest()[:16]


def _outdated(case: Case, events: EventsSeen) -> bool:
    heard = events.listening
    asked = case.pool.measure_requested_at
    return heard is not None and (heard.endpoints != endpoints_of(events) or heard.requested != asked)


def _announced(events: EventsSeen, pod: str) -> tuple[str, ...]:
    last = next((worker.last for worker in events.workers if worker.pod == pod), None)
    return last.advert.addresses if last is not None and last.advert is not None else ()


def _addresses(events: EventsSeen) -> bool:
    return any(worker.must_publish and _announced(events, worker.pod) for worker in events.workers)


def _resting(case: Case) -> bool:
    return case.pool.spec.suspend or case.pool.deleted or bool(case.world.claimed_by) or case.events is None


def _under_way(case: Case, fence: EventsProbeRun, *, may_start: bool) -> Listens:
    job, events = case.world.listener, case.world.events
    arrived = events is not None and events.listening is not None and events.listening.run_id == fence.run_id
    if arrived or _resting(case):
        return Listens(AbandonListening(fence.run_id), fence) if job else Listens()
    if job is None:
        return _again(case, fence, may_start=may_start)
    kept = fence if fence.job_uid else fence.model_copy(update={"job_uid": job.uid})
    if job.uid != kept.job_uid:
        return Listens(AbandonListening(fence.run_id), kept)
    return Listens(CollectListening(fence.run_id) if job.state is JobState.ENDED else None, kept)


def _again(case: Case, fence: EventsProbeRun, *, may_start: bool) -> Listens:
    """Nothing runs of what was meant: make its Job under its own name. One that was there and is gone told nothing."""
    if fence.job_uid or case.world.listener_problem or case.now >= later(fence.started_at, LONGEST):
        return Listens()
    return Listens(Listen(fence.run_id) if may_start else None, fence)
