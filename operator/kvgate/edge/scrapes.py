"""Looks at the KV events of a pool's pods: each asked by its own address, never a Service, and the last few kept."""

from __future__ import annotations

import ipaddress
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TypeVar

from kvgate.api.words import KVEvents
from kvgate.core.events_seen import EventsSeen, FrontendLook, WorkerLook
from kvgate.core.events_series import kept
from kvgate.core.world import Pool, World
from kvgate.dynamo.document import at
from kvgate.dynamo.metrics import Unreadable, frontend_counts, worker_counts
from kvgate.dynamo.shape import Target
from kvgate.dynamo.watched import Watched, WatchedFrontend, WatchedWorker, watched
from kvgate.edge.bounded_http import Fault, NoBody, get, host_in_url
from kvgate.edge.objects import Objects
from kvgate.edge.observe import target_document, target_of

LONGEST_SECONDS = 5.0
ROUND_SECONDS = 10.0
"""One look at all pods of a pool; those that it does not reach come first at the next."""
PATIENCE_SECONDS = 1.0
"""How long a turn waits for the look that it began. What comes later, the next turn finds: pods that hang hold up no
worker, and with it no other pool."""
AT_ONCE = 16
MOST_LOOKING = 16
"""Pools that are looked at at a time; others are at a later turn."""
LARGEST_SCRAPE_BYTES = 4 * 1024 * 1024
MOST_LOOKS = 8
MOST_POOLS = 1024
EARLY_SECONDS = 0.5
"""A look may be that much early, so that a turn that comes a moment before is not lost."""

Look = WorkerLook | FrontendLook
Counts = TypeVar("Counts")
Fetch = Callable[[str, int], "str | Unread"]


@dataclass(frozen=True)
class Unread:
    """Why a pod gave no metrics."""

    message: str


@dataclass
class _Memory:
    """The looks at one pool's pods, by the pods' uid. The lock of the looks guards all of it."""

    taken_at_seconds: float
    looking: bool = False
    workers: dict[str, tuple[WorkerLook, ...]] = field(default_factory=dict)
    frontends: dict[str, tuple[FrontendLook, ...]] = field(default_factory=dict)


class EventLooks:
    """The looks at the pods of all pools, in memory alone: after a restart two looks are due again."""

    def __init__(
        self,
        clock: Callable[[], datetime],
        monotonic: Callable[[], float] = time.monotonic,
        fetch: Fetch | None = None,
        round_seconds: float = ROUND_SECONDS,
    ) -> None:
        self._clock = clock
        self._monotonic = monotonic
        self._fetch = fetch or get_metrics
        self._seconds = round_seconds
        self._lock = threading.Lock()
        self._pools: OrderedDict[str, _Memory] = OrderedDict()
        self._looking = 0

    def seen(self, pool: Pool, pods: Callable[[], Watched | None]) -> EventsSeen | None:
        """What is known of the pool's KV events, looked at anew once in each monitor.interval. None where the pool does
        not ask for them: then nobody is asked, and what was known is forgotten. Within PATIENCE_SECONDS; never raises
        for what a pod does."""
        found = pods() if wants_events(pool) else None
        if found is None:
            self.forget(pool.uid)
            return None
        memory = self._memory(pool.uid)
        if self._begins(memory, pool.spec.monitor.interval.seconds - EARLY_SECONDS):
            look = threading.Thread(target=self._look, args=(memory, found), name="event-look", daemon=True)
            try:
                look.start()
            except RuntimeError:  # no further thread is to be had
                self._ended(memory)
                raise
            look.join(PATIENCE_SECONDS)
        with self._lock:
            return _seen(memory, found)

    def forget(self, uid: str) -> None:
        """The pool is gone, or asks for no events any more."""
        with self._lock:
            self._pools.pop(uid, None)

    def _memory(self, uid: str) -> _Memory:
        with self._lock:
            memory = self._pools.pop(uid, None) or _Memory(-float("inf"))
            self._pools[uid] = memory
            while len(self._pools) > MOST_POOLS:
                self._pools.popitem(last=False)
            return memory

    def _begins(self, memory: _Memory, rest_seconds: float) -> bool:
        """Whether a look at these pods begins now."""
        with self._lock:
            rested = self._monotonic() - memory.taken_at_seconds >= rest_seconds
            if memory.looking or not rested or self._looking >= MOST_LOOKING:
                return False
            memory.taken_at_seconds, memory.looking = self._monotonic(), True
            self._looking += 1
            return True

    def _look(self, memory: _Memory, found: Watched) -> None:
        try:
            now = self._clock()
            pods = _oldest_first(memory, (*found.workers, *found.frontends))
            read = _read_all(self._fetch, pods, self._seconds)
            workers = {pod.uid: _worker_look(pod, now, read) for pod in found.workers}
            frontends = {pod.uid: _frontend_look(pod, now, read) for pod in found.frontends}
            with self._lock:
                old, older = memory.workers, memory.frontends
                memory.workers = {uid: kept((*old.get(uid, ()), w), MOST_LOOKS) for uid, w in workers.items()}
                memory.frontends = {uid: kept((*older.get(uid, ()), f), MOST_LOOKS) for uid, f in frontends.items()}
        finally:
            self._ended(memory)

    def _ended(self, memory: _Memory) -> None:
        with self._lock:
            memory.looking = False
            self._looking -= 1


def watched_pods(pool: Pool, world: World, objects: Objects) -> Watched | None:
    """The pods to look at; None where there is no deployment that can be read, or another pool owns it."""
    source = target_document(pool, objects)
    target = None if source is None else target_of(source)
    if not isinstance(target, Target) or world.claimed_by:
        return None
    bodies = [body for body in objects.pods if at(body, "metadata", "namespace") == pool.namespace]
    told = [one for one in objects.metadata if one.namespace == pool.namespace]
    return watched(target, world.pods, bodies, told)


def wants_events(pool: Pool) -> bool:
    """Whether somebody waits for an answer: routing is gated, needs events, and the pool acts."""
    routing = pool.spec.criteria.routing
    acts = not pool.spec.suspend and not pool.deleted
    return acts and routing is not None and routing.kv_events is KVEvents.REQUIRED


Pod = WatchedWorker | WatchedFrontend
Answers = Mapping[str, "str | Unread"]


def _oldest_first(memory: _Memory, pods: Iterable[Pod]) -> list[Pod]:
    """Pods whose last look gave nothing, or that were never looked at, come first."""

    def order(pod: Pod) -> tuple[bool, str]:
        looks: tuple[Look, ...] = memory.workers.get(pod.uid, ()) or memory.frontends.get(pod.uid, ())
        return bool(looks) and looks[-1].counts is not None, pod.uid

    return sorted(pods, key=order)


def _read_all(fetch: Fetch, pods: list[Pod], seconds: float) -> Answers:
    """What each pod answered. A slow one holds up none but itself: what is not there in time is left behind."""
    late = Unread(f"not reached within {seconds:g} s; {_ADMIN}")
    answers: dict[str, str | Unread] = {pod.uid: late for pod in pods if pod.address}
    pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="scrape")
    try:
        asked = {pool.submit(fetch, pod.address, pod.port): pod.uid for pod in pods if pod.address}
        done, _ = wait(asked, timeout=seconds)
        for future in done:
            error = future.exception()
            answers[asked[future]] = Unread(f"kvgate failed ({type(error).__name__})") if error else future.result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    return answers


def _worker_look(pod: WatchedWorker, now: datetime, read: Answers) -> WorkerLook:
    counts, problem = _counted(pod, read, worker_counts)
    return WorkerLook(now, pod.advert, counts, problem)


def _frontend_look(pod: WatchedFrontend, now: datetime, read: Answers) -> FrontendLook:
    counts, problem = _counted(pod, read, frontend_counts)
    return FrontendLook(now, counts, problem)


def _counted(pod: Pod, read: Answers, count: Callable[[str], Counts | Unreadable]) -> tuple[Counts | None, str]:
    where = f"/metrics at {_host(pod.address)}:{pod.port}" if pod.address else "the pod has no address yet"
    answer = read.get(pod.uid)
    if answer is None:
        return None, where
    counted = Unreadable(answer.message) if isinstance(answer, Unread) else count(answer)
    return (None, f"{where}: {counted.message}") if isinstance(counted, Unreadable) else (counted, "")


def _seen(memory: _Memory, found: Watched) -> EventsSeen:
    return EventsSeen(
        found.routes,
        tuple(replace(pod.worker, looks=memory.workers.get(pod.uid, ())) for pod in found.workers),
        tuple(replace(pod.frontend, looks=memory.frontends.get(pod.uid, ())) for pod in found.frontends),
    )


def get_metrics(address: str, port: int) -> str | Unread:
    """The text at /metrics of one pod, within LONGEST_SECONDS and LARGEST_SCRAPE_BYTES. Never raises."""
    if not (host := _host(address)):
        return Unread("its address is none")
    found = get(f"http://{host}:{port}/metrics", LONGEST_SECONDS, LARGEST_SCRAPE_BYTES, accept="text/plain")
    if isinstance(found, NoBody):
        return Unread(_FAULTS[found.fault].format(status=found.status))
    return found.decode("utf-8", errors="replace")


def _host(address: str) -> str:
    """A pod's address as a URL has it; empty for what is none."""
    try:
        return host_in_url(ipaddress.ip_address(address))
    except ValueError:
        return ""


_ADMIN = "the cluster's administrator must see whether a NetworkPolicy keeps kvgate away"
_FAULTS = {
    Fault.LATE: f"no whole answer within {LONGEST_SECONDS:g} s; {_ADMIN}",
    Fault.TOO_LARGE: f"above the limit of {LARGEST_SCRAPE_BYTES} bytes; the deployer must expose less there",
    Fault.REDIRECT: "a redirect, which is not followed; the deployer must expose metrics at the pod itself",
    Fault.STATUS: "HTTP {status}, expected 200; the deployer must enable metrics there",
    Fault.BROKEN: f"no connection, or it broke off; {_ADMIN}",
}
