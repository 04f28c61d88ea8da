"""Looks at a stage's real frontends and workers as kvgate takes them, with a clock that the test moves by an interval.

What a worker publishes of itself is read from Dynamo's file discovery, whose entries are those of DynamoWorkerMetadata.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from kvgate.api.words import Capability
from kvgate.core.events import EventsJudged, judge_events
from kvgate.core.events_seen import EventsSeen, FrontendSeen, Routes, WorkerSeen
from kvgate.core.target import Switch
from kvgate.dynamo.metadata import WorkerMetadata, read_metadata
from kvgate.dynamo.watched import Watched, WatchedFrontend, WatchedWorker, advert_of
from kvgate.edge.scrapes import EventLooks
from tests.core import worlds
from tests.dynamo_stage.specs import Role
from tests.dynamo_stage.stage import RunningFrontend, RunningWorker, Stage

START = datetime(2026, 3, 1, tzinfo=UTC)
INTERVAL = timedelta(seconds=15)
POOL = worlds.Scene().gating(Capability.ROUTING, Switch.OFF).asking(monitor__interval="15s").pool
MISSED = "dynamo_component_router_kv_event_source_mismatch_workers"
SECTIONS = {"mdc": "model_cards", "event_sources": "event_sources", "event_channels": "event_channels"}


@dataclass
class Rig:
    """A stage, and the looks at it. `since` is when a pod became ready, where it was not long ago."""

    stage: Stage
    routes: Routes = Routes.KV
    now: datetime = START
    since: dict[str, datetime] = field(default_factory=dict)
    looks: EventLooks = field(init=False)

    def __post_init__(self) -> None:
        self.looks = EventLooks(lambda: self.now, self._seconds)

    def _seconds(self) -> float:
        return (self.now - START).total_seconds()

    @property
    def frontends(self) -> list[RunningFrontend]:
        return [one for one in self.stage.running.values() if isinstance(one, RunningFrontend)]

    @property
    def workers(self) -> list[RunningWorker]:
        return [one for one in self.stage.running.values() if isinstance(one, RunningWorker)]

    def look(self, times: int = 1) -> EventsJudged:
        """One more look, an interval later, and what it comes to."""
        self.settle()
        for _ in range(times):
            self.now += INTERVAL
            seen = self.looks.seen(POOL, self.watched)
        assert isinstance(seen, EventsSeen)
        return judge_events(seen)

    def settle(self) -> None:
        """This clock says that the workers have long been ready: until then all have announced what they ever will."""
        running = [worker for worker in self.workers if worker.runs()]
        for worker in filter(_announces, running):
            self.stage.until(partial(self._announced, worker), f"the event source of {worker.name}", worker)
        if all(_announces(worker) and worker.spec.claims_events is None for worker in running):
            for frontend in self.frontends:
                self.stage.until(partial(_misses_none, frontend), f"{frontend.name} to know them", frontend)

    def _announced(self, worker: RunningWorker) -> bool:
        advert = advert_of(self.published(worker))
        return advert is not None and advert.has_source is True

    def watched(self) -> Watched:
        return Watched(
            self.routes,
            tuple(self._worker(one) for one in self.workers if one.runs()),
            tuple(
                WatchedFrontend(
                    one.name,
                    "127.0.0.1",
                    int(one.door.base.rpartition(":")[2]),
                    FrontendSeen(one.name, self._ready(one.name)),
                )
                for one in self.frontends
                if one.runs()
            ),
        )

    def published(self, worker: RunningWorker) -> WorkerMetadata:
        """What this worker's process announced, by the instance that its own metrics name."""
        samples = worker.door.scrape().samples("dynamo_component_uptime_seconds")
        instance = int(samples[0].labels["worker_id"], 16)
        found = {name: _entries(self._files / folder, instance) for folder, name in SECTIONS.items()}
        owned = {entry.get("publisher_id") or entry.get("instance_id") for entry in found["event_sources"].values()}
        channels = {
            key: entry
            for key, entry in _entries(self._files / "event_channels", None).items()
            if entry.get("instance_id") in owned
        }
        data = {**found, "event_channels": channels or {"other": {"type": "EventChannel", "topic": "kv_metrics"}}}
        return read_metadata({"metadata": {"name": worker.name}, "spec": {"data": data}})

    @property
    def _files(self) -> Path:
        return self.stage.discovery / "v1"

    def _ready(self, name: str) -> datetime:
        return self.since.get(name, START - timedelta(minutes=5))

    def _worker(self, worker: RunningWorker) -> WatchedWorker:
        told = self.published(worker)
        return WatchedWorker(
            f"{worker.name}-{worker.process.pid}",
            "127.0.0.1",
            worker.system_port,
            WorkerSeen(
                worker.name,
                worker.spec.role,
                must_publish=worker.spec.role is not Role.DECODE,
                ready_since=self._ready(worker.name),
                instance=told.cards[0].instance if told.cards else None,
                prefills=worker.spec.role is Role.PREFILL,
            ),
            advert_of(told),
        )


def _announces(worker: RunningWorker) -> bool:
    spec = worker.spec
    return spec.role is not Role.DECODE and (spec.prefix_caching or spec.silent)


def _misses_none(frontend: RunningFrontend) -> bool:
    return frontend.door.scrape().total(MISSED) == 0


def _entries(folder: Path, instance: int | None) -> dict[str, Mapping[str, object]]:
    """The entries of discovery in a folder that speak of this instance."""
    found: dict[str, Mapping[str, object]] = {}
    for path in sorted(folder.glob("*")) if folder.is_dir() else ():
        entry = json.loads(path.read_text("utf-8"))
        worker = entry.get("metadata", {}).get("worker", {}).get("worker_id") if "metadata" in entry else None
        if instance is None or instance in (entry.get("instance_id"), worker):
            found[path.name] = entry
    return found
