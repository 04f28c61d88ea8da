"""What the event probe heard at the workers' own endpoints, as rules of the judgement of KV events."""

from __future__ import annotations

from collections import Counter

from kvgate.api.words import Outcome
from kvgate.core.events_seen import Heard, Hears, WorkerSeen
from kvgate.core.events_view import CRITERION, View, named
from kvgate.core.findings import Concern, Finding

_UNHEARD = frozenset({Hears.NOT_REACHABLE, Hears.NOT_ZMQ})


def garbage(view: View) -> Finding | None:
    """A worker that publishes what is no batch of KV events."""
    workers = _with(view, Hears.GARBAGE)
    if not workers:
        return None
    what = f"{named(workers)}: what the event probe heard at the announced address is no batch of KV events"
    said = f"{what}; the deployer must see what publishes there, and of which release"
    return Finding(CRITERION, Outcome.FAIL, "KVEventsGarbage", said, Concern.EVENTS)


def other_blocks(view: View) -> Finding | None:
    """A worker that publishes blocks of another size than its card and the router name."""
    workers = _with(view, Hears.OTHER_BLOCK_SIZE)
    if not workers:
        return None
    sizes = sorted({size for worker in workers for entry in entries(view, worker) for size in entry.block_tokens})
    told = ", ".join(str(size) for size in sizes[:4])
    what = f"{named(workers)}: the event probe heard blocks of {told} tokens, wanted {view.block_tokens}"
    said = f"{what}; the deployer must give engine and router one block size"
    return Finding(CRITERION, Outcome.FAIL, "KVBlockSizeMismatch", said, Concern.EVENTS)


def by_bytes(view: View) -> Finding | None:
    """A worker that names its blocks by bytes."""
    workers = _with(view, Hears.BYTES)
    if not workers:
        return None
    what = f"{named(workers)}: the event probe heard blocks that are named by bytes, and routers take 64-bit numbers"
    said = f"{what}; the deployer must choose another hash for the engine"
    return Finding(CRITERION, Outcome.INCONCLUSIVE, "KVEventsUnreadable", said, Concern.EVENTS)


def unreachable(view: View) -> Finding | None:
    """A worker of whose events nothing is known otherwise, and at which the probe could not listen."""
    workers = tuple(w for w in view.judged if _deaf_at(view, w) and not view.flows and not view.proven(w))
    if not workers:
        return None
    what = f"{named(workers)}: the event probe found nobody that publishes at the announced address"
    said = f"{what}; the deployer must see that the engine binds there and that a NetworkPolicy lets routers reach it"
    return Finding(CRITERION, Outcome.INCONCLUSIVE, "KVEventsNotReachable", said, Concern.EVENTS)


def publishes(view: View, worker: WorkerSeen) -> bool:
    """Whether the probe heard stored events of this worker."""
    return any(entry.state is Hears.FLOWS for entry in entries(view, worker))


def entries(view: View, worker: WorkerSeen) -> tuple[Heard, ...]:
    """What was heard of the worker since it is ready, at addresses that it still announces."""
    listening, advert = view.seen.listening, worker.last.advert if worker.last else None
    if listening is None or advert is None or worker.ready_since is None or listening.ended_at < worker.ready_since:
        return ()
    return tuple(one for one in listening.entries if one.pod == worker.pod and one.address in advert.addresses)


def told_in_short(view: View) -> str:
    """For the status: how many endpoints are in which state, or what went wrong."""
    listening = view.seen.listening
    if listening is None:
        return ""
    counts = Counter(entry.state for worker in view.required for entry in entries(view, worker))
    states = ", ".join(f"{state} {counts[state]}" for state in Hears if counts[state])
    return "; ".join(filter(None, (states, listening.trouble)))


def _with(view: View, state: Hears) -> tuple[WorkerSeen, ...]:
    return tuple(w for w in view.judged if any(entry.state is state for entry in entries(view, w)))


def _deaf_at(view: View, worker: WorkerSeen) -> bool:
    heard = entries(view, worker)
    return bool(heard) and all(entry.state in _UNHEARD for entry in heard)
