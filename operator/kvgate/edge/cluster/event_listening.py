"""The cluster's part in the event probe: how its Job stands, and the steps that make, collect and clear it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from functools import partial

from kvgate.core.digests import digest
from kvgate.core.events_listening import REST, endpoints_of
from kvgate.core.events_seen import EventsSeen, Listening
from kvgate.core.runs import RunningJob
from kvgate.core.steps import AbandonListening, CollectListening, Listen
from kvgate.core.world import World
from kvgate.dynamo.document import at, text
from kvgate.edge.cluster import runs
from kvgate.edge.cluster.client import CONFIG_MAPS, JOBS, Client, Document
from kvgate.edge.cluster.faults import Faults
from kvgate.edge.cluster.reading import ReadPool
from kvgate.edge.cluster.refusals import NotFound, Refused
from kvgate.edge.cluster.runs import NO_IMAGE
from kvgate.edge.cluster.sweeps import clear, tolerations
from kvgate.edge.cluster.walkers import is_of_run, is_owned
from kvgate.edge.errors import MeasureError
from kvgate.probe.events_job import (
    CONTAINER,
    PLAN_DIGEST,
    PLAN_KEY,
    listen_config_map,
    listen_job,
    listen_job_name,
    listen_plan_name,
    plan_listening,
)
from kvgate.probe.events_results import MOST_LOG_CHARACTERS, HeardAll, read_listening
from kvgate.probe.jobs import Owner
from kvgate_probe.fields import WireError
from kvgate_probe.kvevents_wire import Endpoint, decode_plan, encode_plan

MOST_POOLS = 1024
_PROBE = "event probe"
Step = Listen | CollectListening | AbandonListening


class EventListening:
    """What was heard of each pool's workers, in memory alone, and why nobody could be listened to."""

    def __init__(self, client: Client, image: Callable[[], str], clock: Callable[[], datetime]) -> None:
        self._client, self._image, self._clock = client, image, clock
        self._heard: dict[str, Listening] = {}
        self._faults = Faults(clock, REST)

    def seen(self, pool: ReadPool, world: World) -> World:
        """The world with what was heard, and the Job of the probe that is under way."""
        events = world.events
        if events is None:
            self._heard.pop(pool.uid, None)
        problem = self._faults.of(pool.uid) if self._image() else NO_IMAGE
        known = replace(events, listening=self._heard.get(pool.uid)) if events is not None else None
        return replace(world, events=known, listener=self._standing(pool), listener_problem=problem)

    def forget(self, uid: str) -> None:
        """The pool is gone."""
        self._heard.pop(uid, None)
        self._faults.forget(uid)

    def _standing(self, pool: ReadPool) -> RunningJob | None:
        fence = pool.status.events_probe
        job = self._job(pool.owner, fence.run_id) if fence is not None else None
        return runs.standing(job, fence.run_id) if fence is not None and job is not None else None

    def _job(self, owner: Owner, run_id: str) -> Document | None:
        return runs.job_of(self._client, owner, run_id, listen_job_name(owner, run_id))

    def do(self, pool: ReadPool, world: World, step: Step) -> None:
        """Raises MeasureError for a probe that cannot be run; the next look tells why."""
        match step:
            case Listen():
                self._start(pool, world, step.run_id)
            case CollectListening():
                self._collect(pool, world)
            case AbandonListening():
                clear(self._client, pool.owner, step.run_id)

    def _start(self, pool: ReadPool, world: World, run_id: str) -> None:
        with self._faults.noted(pool.uid):
            self._make(pool, world.events, world, run_id)

    def _make(self, pool: ReadPool, events: EventsSeen | None, world: World, run_id: str) -> None:
        plan = plan_listening(run_id, events, world.pods) if events is not None else None
        if plan is None or not plan.endpoints or not self._image():
            raise MeasureError("no worker announces KV events at its own address, so nobody can be listened to")
        owner, plans = pool.owner, listen_config_map(pool.owner, plan)
        kept = partial(self._plan, owner, run_id)
        written = runs.make(self._client, CONFIG_MAPS, plans, encode_plan(plan), kept, _PROBE)
        job: Mapping[str, object] = listen_job(owner, run_id, written, self._image(), tolerations(pool))
        runs.make(self._client, JOBS, job, job, partial(self._job, owner, run_id), _PROBE)

    def _plan(self, owner: Owner, run_id: str) -> str | None:
        """The plan that the run was given, as it is written; None when it is not there or not ours."""
        try:
            found = self._client.get(CONFIG_MAPS, owner.namespace, listen_plan_name(owner, run_id))
        except NotFound:
            return None
        return text(at(found, "data", PLAN_KEY)) if is_of_run(found, owner, run_id) else None

    def _collect(self, pool: ReadPool, world: World) -> None:
        """Only what the pod of the recorded Job said counts. Nothing is cleared: one that dies here collects again."""
        fence, events = pool.status.events_probe, world.events
        if fence is None or events is None or world.listener is None:
            return
        read = self._read(pool.owner, fence.run_id, world.listener.uid)
        self._heard[pool.uid] = Listening(
            run_id=fence.run_id,
            ended_at=self._clock(),
            endpoints=endpoints_of(events),
            requested=pool.measure_requested_at,
            entries=read.entries,
            trouble=read.trouble,
        )
        while len(self._heard) > MOST_POOLS:
            self._heard.pop(next(iter(self._heard)))

    def _read(self, owner: Owner, run_id: str, job_uid: str) -> HeardAll:
        job, written = self._job(owner, run_id), self._plan(owner, run_id)
        given = at(job or {}, "metadata", "annotations", PLAN_DIGEST)
        if job is None or written is None or given != digest(written):
            return HeardAll((), "the event probe's plan is gone or altered: nothing it says can be read")
        pods = [pod for pod in runs.pods_of(self._client, owner, run_id) if is_owned(pod, job_uid)]
        if len(pods) != 1:
            return HeardAll((), f"{len(pods)} pods are of the event probe's Job, wanted 1: nothing they say is read")
        try:
            log = self._client.log(owner.namespace, text(at(pods[0], "metadata", "name")), CONTAINER, _MOST_READ)
        except (NotFound, Refused):
            return HeardAll((), "the log of the event probe's pod cannot be read")
        return read_listening(log, run_id, _endpoints(written))


def _endpoints(written: str) -> tuple[Endpoint, ...]:
    try:
        return decode_plan(written).endpoints
    except WireError:
        return ()


_MOST_READ = MOST_LOG_CHARACTERS + 1
