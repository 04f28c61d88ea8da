"""A deployment's KV events as the rules look at them: who is judged, who listens, and what was to be expected."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property

from kvgate.core.events_seen import (
    EventsSeen,
    FrontendCounts,
    FrontendLook,
    FrontendSeen,
    Routes,
    WorkerCounts,
    WorkerLook,
    WorkerSeen,
)
from kvgate.core.events_series import Look, full_blocks, lasted, life
from kvgate.core.text import listed

Pod = WorkerSeen | FrontendSeen
READY_FOR = timedelta(seconds=60)
READY_SECONDS = round(READY_FOR.total_seconds())
CRITERION = "kvEvents"
SILENT_BLOCKS = 64
"""So many new blocks, and no stored event for them: silence."""


@dataclass(frozen=True)
class View:
    """The deployment as the rules look at it."""

    seen: EventsSeen

    @cached_property
    def required(self) -> tuple[WorkerSeen, ...]:
        """The workers that must publish, in the order of their names, whatever order they came in."""
        return tuple(sorted((w for w in self.seen.workers if w.must_publish), key=lambda worker: worker.pod))

    @cached_property
    def judged(self) -> tuple[WorkerSeen, ...]:
        """Those of them that were ready long enough."""
        return tuple(worker for worker in self.required if _ready_long(worker))

    @cached_property
    def young(self) -> tuple[WorkerSeen, ...]:
        """Those that are ready, and not for long enough."""
        return tuple(w for w in self.required if w.ready_since is not None and not _ready_long(w))

    @cached_property
    def frontends(self) -> tuple[FrontendSeen, ...]:
        """The frontend replicas that were ready long enough, in the order of their names."""
        return tuple(sorted((f for f in self.seen.frontends if _ready_long(f)), key=lambda frontend: frontend.pod))

    @property
    def listens(self) -> bool:
        """Whether routers should apply events: by the spec, or since a running frontend has the gauge of one."""
        counted = (frontend.last.counts for frontend in self.frontends if frontend.last is not None)
        return self.seen.routes is Routes.KV or any(c is not None and c.mismatched is not None for c in counted)

    @cached_property
    def block_tokens(self) -> int:
        """The largest block size that anything names, in tokens; 0 where nothing does."""
        return max((*self.worker_blocks, *self.router_blocks), default=0)

    @property
    def worker_blocks(self) -> tuple[int, ...]:
        adverts = (worker.last.advert for worker in self.required if worker.last is not None)
        return tuple(advert.block_tokens for advert in adverts if advert is not None and advert.block_tokens)

    @property
    def router_blocks(self) -> tuple[int, ...]:
        counts = (frontend.last.counts for frontend in self.seen.frontends if frontend.last is not None)
        return tuple(c.block_tokens for c in counts if c is not None and c.block_tokens)

    @cached_property
    def flows(self) -> bool:
        """Whether some router applied stored events since it started."""
        return any(_last(frontend.looks, applied) for frontend in self.frontends)

    @cached_property
    def listening(self) -> tuple[FrontendSeen, ...]:
        """The frontends whose routers should apply events."""
        return self.frontends if self.listens and self.seen.routes is not Routes.APPROXIMATE else ()

    def deaf(self, frontend: FrontendSeen) -> bool:
        """Whether this replica's router applied nothing while at least SILENT_BLOCKS new blocks were filled."""
        return lasted(life(frontend.looks), lambda look: self._expected(frontend, look) >= SILENT_BLOCKS)

    def silent(self, worker: WorkerSeen) -> bool:
        """Whether this worker's engine filled SILENT_BLOCKS new blocks and its publisher counted no event for them."""
        return self.counts_events(worker) and self.mute(worker)

    def mute(self, worker: WorkerSeen) -> bool:
        """As `silent`, where it is not known whether publishers of this kind count their events at all."""
        return lasted(life(worker.looks), lambda look: self._unpublished(worker, look) >= SILENT_BLOCKS)

    def proven(self, worker: WorkerSeen) -> bool:
        """Whether its publisher counted a stored event since it started."""
        return bool(_last(worker.looks, published))

    def idle(self, worker: WorkerSeen) -> bool:
        """Whether it served nothing since it started, by its own count."""
        return _last(worker.looks, _served) == 0

    def unproven(self, worker: WorkerSeen) -> bool:
        """Whether it served requests and counted no event, though workers of its kind count theirs, or though routers
        apply events: these count all workers' as one, so that another's may be all that they hear."""
        told = self.counts_events(worker) or (bool(self.listening) and self.flows)
        return told and not self.proven(worker) and not self.idle(worker)

    def counts_events(self, worker: WorkerSeen) -> bool:
        """Whether publishers of this kind count their events; the family appears with the first one."""
        kin = (other for other in self.required if other.component == worker.component)
        return any(_last(other.looks, _received) is not None for other in kin)

    def _unpublished(self, worker: WorkerSeen, until: WorkerLook) -> int:
        """New blocks that the engine must have filled up to that look since its publisher's last stored event."""
        looks = [look for look in life(worker.looks) if look.taken_at <= until.taken_at]
        if not self.block_tokens or not looks:
            return 0
        count = published(looks[-1]) or 0
        still = [look for look in looks if (published(look) or 0) == count]
        return _engine_blocks(still[0] if count else None, still[-1], self.block_tokens)

    def _expected(self, frontend: FrontendSeen, until: FrontendLook) -> int:
        """New blocks that requests through all replicas must have filled while this one applied no event, up to that
        look; from its own start where it never applied one."""
        looks = [look for look in life(frontend.looks) if look.taken_at <= until.taken_at]
        if not self.block_tokens or not looks or (count := applied(looks[-1])) is None:
            return 0
        still = [look for look in looks if applied(look) == count]
        own = _since(still[0] if count else None, still[-1], self.block_tokens)
        return own + sum(self._through(other, still[0].taken_at, until) for other in self._others(frontend))

    def _others(self, frontend: FrontendSeen) -> Iterable[FrontendSeen]:
        return (other for other in self.seen.frontends if other.pod != frontend.pod)

    def _through(self, frontend: FrontendSeen, since: datetime, until: FrontendLook) -> int:
        looks = [look for look in life(frontend.looks) if since <= look.taken_at <= until.taken_at]
        return _since(looks[0], looks[-1], self.block_tokens) if len(looks) > 1 else 0


def named(pods: Iterable[Pod]) -> str:
    """The pods' names, in order, for a message."""
    return listed(tuple(sorted(pod.pod for pod in pods)))


def applied(look: FrontendLook) -> int | None:
    """Stored events that the router applied since it started."""
    return None if look.counts is None else look.counts.stored


def published(look: WorkerLook) -> int | None:
    """Stored events that the worker's publisher accepted since it started."""
    return None if look.counts is None else look.counts.stored


def _served(look: WorkerLook) -> int | None:
    return None if look.counts is None else look.counts.requests


def _received(look: WorkerLook) -> int | None:
    return None if look.counts is None else look.counts.received


def _last(looks: tuple[Look, ...], count: Callable[[Look], int | None]) -> int | None:
    """The counter at the newest look that gave counters."""
    counted = life(looks)
    return count(counted[-1]) if counted else None


def _engine_blocks(first: WorkerLook | None, last: WorkerLook, block_tokens: int) -> int:
    """Full blocks of new tokens by the engine's own count, between two looks or since the start; 0 where it keeps
    none."""
    then = first.counts if first is not None and first.counts is not None else WorkerCounts()
    now = last.counts
    if now is None or now.queried_tokens is None or now.cached_tokens is None or now.requests is None:
        return 0
    new = (now.queried_tokens - now.cached_tokens) - ((then.queried_tokens or 0) - (then.cached_tokens or 0))
    return full_blocks(new, now.requests - (then.requests or 0), block_tokens)


def _since(first: FrontendLook | None, last: FrontendLook, block_tokens: int) -> int:
    """Full blocks of new tokens between two looks, or since the start; 0 where the tokens are not counted."""
    then = first.counts if first is not None and first.counts is not None else FrontendCounts()
    now = last.counts
    if now is None or now.input_tokens is None or now.cached_tokens is None or now.prompts is None:
        return 0
    new = (now.input_tokens - now.cached_tokens) - ((then.input_tokens or 0) - (then.cached_tokens or 0))
    return full_blocks(new, now.prompts - (then.prompts or 0), block_tokens)


def _ready_long(pod: Pod) -> bool:
    return pod.ready_since is not None and pod.last is not None and pod.last.taken_at - pod.ready_since > READY_FOR
