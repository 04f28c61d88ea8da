"""Canaries for workers that traffic says nothing of: who is asked, and what answers and later looks prove."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from statistics import median

from kvgate.api.status import CanariesStatus
from kvgate.core.events_heard import publishes
from kvgate.core.events_seen import Canary, CanaryAnswer, CanaryState, Declares, WorkerSeen
from kvgate.core.events_series import LOOKS, full_blocks, growth, life
from kvgate.core.events_view import View, published

CANARY_BLOCKS = 4
"""New blocks that a canary's prompt fills: more than one, so that an event must come, and few, since it is a cost."""
MOST_AT_ONCE = 8
"""Workers that are asked in one round; there is at most one round for each look."""
PROOFS = 2
"""So many canaries running must be unknown to a router before it counts as silence."""
HEARD_SHARE = 0.5
"""Of a repeated prompt, what a router that heard of it expects to be cached at least."""
RESTS = (timedelta(minutes=1), timedelta(minutes=5), timedelta(minutes=30))
"""How long a worker is left alone after its first, second, and any later canary that failed."""


class Told(StrEnum):
    """What one canary told of its worker."""

    FLOWS = "Flows"
    SILENT = "Silent"
    FAILED = "Failed"
    OPEN = "Open"
    """The looks that tell are still to come."""
    NOTHING = "Nothing"
    """It was served, and there is no counter that would tell."""


def wanted(view: View) -> tuple[Canary, ...]:
    """The requests to send now, those first that were longest not asked; none while others are under way, and none
    before there was a look since."""
    if not view.block_tokens or view.seen.asking or not _looked_since(view):
        return ()
    asked = sorted((worker for worker in view.judged if _wants(view, worker)), key=_last_asked)
    return tuple(canary for worker in asked[:MOST_AT_ONCE] if (canary := _canary(view, worker)) is not None)


def state(view: View, worker: WorkerSeen) -> CanaryState:
    """What the worker is now, as far as answers of another time may not count for it."""
    advert = worker.last.advert if worker.last else None
    says = (advert.publishing, advert.has_source) if advert else ()
    process = f"{worker.instance} {worker.restarts} {worker.ready_since} {worker.generation} {says}"
    return CanaryState(process, f"{view.seen.routes} {sorted(frontend.pod for frontend in view.listening)}")


def proven(view: View, worker: WorkerSeen) -> bool:
    """Whether an event of this process was seen to come: by its own counter, by a canary, whichever router heard of it,
    or by the event probe."""
    now = state(view, worker).process
    mine = (answer for answer in worker.canaries if answer.state.process == now)
    by_canary = any(told(view, worker, answer) is Told.FLOWS for answer in mine)
    return view.proven(worker) or by_canary or publishes(view, worker)


def heard(view: View, worker: WorkerSeen) -> bool:
    """Whether a canary brought an event of this worker to one of the routers that listen now."""
    return any(told(view, worker, answer) is Told.FLOWS for answer in _answers(view, worker))


def silent(view: View, worker: WorkerSeen) -> bool:
    """Whether canaries were served there and no event came: by the worker's own counter at two looks, or to the routers
    twice running."""
    served = _served(view, worker)
    if heard(view, worker) or not served:
        return False
    last = served[-PROOFS:]
    held = all(told(view, worker, answer) is Told.SILENT for answer in last)
    return held and (len(last) == PROOFS or not _by_router(view, last[-1]))


def failure(view: View, worker: WorkerSeen) -> str:
    """Why the last canary was not served; empty where it was, or where an earlier one tells enough."""
    answers = _answers(view, worker)
    unserved = answers and told(view, worker, answers[-1]) is Told.FAILED and not _served(view, worker)
    return answers[-1].failure if unserved and not view.proven(worker) else ""


def told(view: View, worker: WorkerSeen, answer: CanaryAnswer) -> Told:
    """A router's own expectation of the repeat comes first; without one, the publisher's counter at the next looks."""
    if _by_router(view, answer):
        return Told.FLOWS if _rate(answer) >= HEARD_SHARE else _silent_if_new(view, answer)
    after = tuple(look for look in life(worker.looks) if look.taken_at >= answer.ended_at)
    before = tuple(look for look in life(worker.looks) if look.taken_at <= answer.asked_at)
    if growth((*before[-1:], *after[-1:]), published) or (not before and after and published(after[-1])):
        return Told.FLOWS
    if answer.failure:
        return Told.FAILED
    if len(after) < LOOKS:
        return Told.OPEN
    return _silent_if_new(view, answer) if view.counts_events(worker) else Told.NOTHING


def told_in_short(view: View) -> CanariesStatus | None:
    """For the status; None where no worker answered."""
    last = [(worker, served[-1]) for worker in view.required if (served := _served(view, worker))]
    if not last:
        return None
    first = [answer.first.ttft_seconds for _, answer in last if answer.first.ttft_seconds is not None]
    again = [answer.again.ttft_seconds for _, answer in last if answer.again and answer.again.ttft_seconds is not None]
    cached = [share for _, answer in last if (share := _cached_share(answer)) is not None]
    return CanariesStatus(
        answered=len(last),
        flowing=sum(heard(view, worker) for worker, _ in last),
        repeat_cached_percent=round(100 * median(cached)) if cached else None,
        first_ttft_milliseconds=_milliseconds(first),
        repeat_ttft_milliseconds=_milliseconds(again),
    )


def _looked_since(view: View) -> bool:
    looks = [worker.last.taken_at for worker in view.required if worker.last]
    since = view.seen.canaries_at
    return bool(looks) and (since is None or max(looks) > since)


def _last_asked(worker: WorkerSeen) -> tuple[float, str]:
    return max((answer.asked_at.timestamp() for answer in worker.canaries), default=0.0), worker.pod


def _canary(view: View, worker: WorkerSeen) -> Canary | None:
    if worker.instance is None:
        return None
    tokens = CANARY_BLOCKS * view.block_tokens + 1
    return Canary(worker.pod, worker.instance, tokens, worker.prefills, state(view, worker))


def _wants(view: View, worker: WorkerSeen) -> bool:
    """Once until its state changes; again only where a router did not hear of it, or where it was not served."""
    if worker.instance is None or denies(worker) or view.silent(worker) or heard(view, worker):
        return False
    answers, served = _answers(view, worker), _served(view, worker)
    if served:
        return len(served) < PROOFS and told(view, worker, served[-1]) is Told.SILENT and _by_router(view, served[-1])
    if answers:
        return _rested(worker, answers)
    doubted = view.unproven(worker) and not proven(view, worker)
    return view.idle(worker) or doubted or (bool(view.listening) and not view.flows)


def denies(worker: WorkerSeen) -> bool:
    """Whether it says itself that no events come: a request would not tell more."""
    advert = worker.last.advert if worker.last else None
    off = advert is not None and (advert.publishing is False or advert.has_source is False)
    return off or worker.declared.says is Declares.BROKEN


def _rested(worker: WorkerSeen, failed: tuple[CanaryAnswer, ...]) -> bool:
    now: datetime | None = worker.last.taken_at if worker.last else None
    return now is not None and now - failed[-1].ended_at >= RESTS[min(len(failed), len(RESTS)) - 1]


def _answers(view: View, worker: WorkerSeen) -> tuple[CanaryAnswer, ...]:
    if not worker.canaries:
        return ()
    now = state(view, worker)
    return tuple(answer for answer in worker.canaries if answer.state == now)


def _served(view: View, worker: WorkerSeen) -> tuple[CanaryAnswer, ...]:
    return tuple(answer for answer in _answers(view, worker) if not answer.failure)


def _by_router(view: View, answer: CanaryAnswer) -> bool:
    """Whether a router that listens to events said what it expected of the repeat."""
    return bool(view.listening) and answer.again is not None and answer.again.router_hit_rate is not None


def _rate(answer: CanaryAnswer) -> float:
    return (answer.again.router_hit_rate or 0.0) if answer.again else 0.0


def _silent_if_new(view: View, answer: CanaryAnswer) -> Told:
    """Only blocks that were new make silence mean something."""
    reply = answer.first
    if answer.failure:
        return Told.FAILED
    new = (reply.prompt_tokens or 0) - (reply.cached_tokens or 0)
    return Told.SILENT if full_blocks(new, 1, view.block_tokens) >= CANARY_BLOCKS else Told.NOTHING


def _cached_share(answer: CanaryAnswer) -> float | None:
    again = answer.again
    if again is None or not again.prompt_tokens or again.cached_tokens is None:
        return None
    return min(1.0, again.cached_tokens / again.prompt_tokens)


def _milliseconds(seconds: list[float]) -> int | None:
    return round(1000 * median(seconds)) if seconds else None
