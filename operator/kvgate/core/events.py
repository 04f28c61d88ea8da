"""Whether KV events arrive: the looks at workers and routers folded into one finding, a status, and wanted canaries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kvgate.api.status import EventsStatus
from kvgate.api.words import Outcome
from kvgate.core import events_canaries as canaries
from kvgate.core import events_doubts as doubts
from kvgate.core import events_faults as faults
from kvgate.core import events_heard as listened
from kvgate.core.events_seen import Canary, Declares, EventsSeen, WorkerSeen
from kvgate.core.events_view import CRITERION, View
from kvgate.core.findings import Concern, Finding

RULES: tuple[Callable[[View], Finding | None], ...] = (
    faults.disabled,
    listened.garbage,
    listened.other_blocks,
    faults.without_source,
    faults.unequal_blocks,
    faults.unconvertible,
    faults.silent_workers,
    faults.silent_to_canaries,
    faults.lossy,
    faults.refused,
    faults.mismatched,
    faults.silent_routers,
    doubts.nobody_there,
    doubts.unseen,
    doubts.without_metrics,
    doubts.undeclared,
    doubts.unanswered,
    doubts.unproven,
    faults.unused,
    listened.by_bytes,
    listened.unreachable,
    faults.mute_workers,
)
"""Causes before what follows from them: of two that are equally bad, the first is told."""


@dataclass(frozen=True)
class EventsJudged:
    """What is said of the events, and the requests that would tell more."""

    finding: Finding
    status: EventsStatus
    canaries: tuple[Canary, ...] = ()


def judge_events(seen: EventsSeen) -> EventsJudged:
    """The worst that any rule finds. Total; the order in which workers and frontends come changes nothing."""
    view = View(seen)
    found = [finding for rule in RULES if (finding := rule(view)) is not None]
    worst = max(found, key=lambda finding: _RANK[finding.outcome], default=None)
    return EventsJudged(worst or _healthy(view), _status(view), canaries.wanted(view))


_RANK = {outcome: rank for rank, outcome in enumerate(Outcome)}


def _healthy(view: View) -> Finding:
    many = f"all {len(view.required)} workers that must publish KV events"
    if view.listening:
        what = f"{many} do, and the routers of all {len(view.listening)} frontends apply them"
        return Finding(CRITERION, Outcome.PASS, "KVEventsFlow", what, Concern.EVENTS)
    if all(canaries.proven(view, worker) for worker in view.judged):
        what = f"{many} do; no router applies them while none routes by KV cache"
        return Finding(CRITERION, Outcome.PASS, "KVEventsPublished", what, Concern.EVENTS)
    what = f"{many} announce them; that they come, the routing A/B and the looks after the switch must show"
    return Finding(CRITERION, Outcome.PASS, "KVEventsAnnounced", what, Concern.EVENTS)


def _status(view: View) -> EventsStatus:
    return EventsStatus(
        expected_workers=len(view.required),
        publishing_workers=sum(_publishes(view, worker) for worker in view.required),
        applied=_applied(view),
        source=", ".join(_sources(view)),
        canaries=canaries.told_in_short(view),
        probe=listened.told_in_short(view),
    )


def _publishes(view: View, worker: WorkerSeen) -> bool:
    """By what is known: announced and not silent."""
    advert = worker.last.advert if worker.last else None
    if view.silent(worker) or canaries.silent(view, worker) or worker.declared.says is Declares.BROKEN:
        return False
    if advert is None or advert.publishing is None:
        return worker.declared.says is Declares.ON or canaries.proven(view, worker)
    return advert.publishing and advert.has_source is not False


def _applied(view: View) -> bool | None:
    if any(view.deaf(frontend) for frontend in view.listening):
        return False
    return True if view.listening and view.flows else None


def _sources(view: View) -> tuple[str, ...]:
    last = [worker.last for worker in view.required if worker.last]
    by_metadata = any(look.advert is not None for look in last)
    by_args = any(worker.declared.says is not Declares.UNKNOWN for worker in view.required)
    by_worker = any(look.counts is not None for look in last)
    known = {
        "worker metadata": by_metadata,
        "args": by_args,
        "worker counters": by_worker,
        "router gauges": bool(view.listening),
    }
    return tuple(name for name, used in known.items() if used)
