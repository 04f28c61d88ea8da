"""What keeps KV events from being judged, one rule for each doubt: nobody there, nothing read, nothing to expect."""

from __future__ import annotations

from kvgate.api.words import Outcome
from kvgate.core import events_canaries as canaries
from kvgate.core.events_seen import Declares, FrontendLook, Routes, WorkerLook, WorkerSeen
from kvgate.core.events_series import LOOKS, lasted, life
from kvgate.core.events_view import CRITERION, READY_SECONDS, SILENT_BLOCKS, Pod, View, named
from kvgate.core.findings import Concern, Finding
from kvgate.core.text import listed


def nobody_there(view: View) -> Finding | None:
    """No worker that must publish, or none that was ready long enough."""
    if not view.required:
        what = "no pod of a worker that must publish KV events was found; the deployer must see whether any runs"
        return Finding(CRITERION, Outcome.UNKNOWN, "KVEventsNoWorkers", what, Concern.EVENTS)
    if not view.judged or (view.seen.routes is Routes.KV and not view.frontends):
        what = f"pods are judged once they are ready for more than {READY_SECONDS} s, and none is yet"
        return Finding(CRITERION, Outcome.UNKNOWN, "KVEventsSettling", what, Concern.EVENTS)
    doubtful = tuple(worker for worker in view.young if _doubtful(worker))
    if doubtful:
        what = f"{named(doubtful)}: no KV events announced, but not ready for more than {READY_SECONDS} s yet"
        return Finding(CRITERION, Outcome.UNKNOWN, "KVEventsSettling", what, Concern.EVENTS)
    return None


def unseen(view: View) -> Finding | None:
    """A pod that could not be read, at two looks running; or that was looked at only once."""
    pods: tuple[Pod, ...] = (*view.judged, *view.listening)
    blind = tuple(pod for pod in pods if _blind(pod))
    if blind:
        told = next((pod.last.problem for pod in blind if pod.last and pod.last.problem), "it was never reached")
        what = f"{named(blind)} cannot be read: {told}"
        return Finding(CRITERION, Outcome.UNKNOWN, "KVEventsNotObserved", what, Concern.EVENTS)
    if any(len(pod.looks) < LOOKS for pod in pods):
        what = f"{LOOKS} looks are needed, one monitor.interval apart, and the second is due"
        return Finding(CRITERION, Outcome.UNKNOWN, "KVEventsFirstLook", what, Concern.EVENTS)
    return None


def without_metrics(view: View) -> Finding | None:
    """A metric that judges and is not there, which is not the same as 0."""
    bare = tuple(worker for worker in view.judged if lasted(life(worker.looks), _lacks))
    deaf = tuple(frontend for frontend in view.listening if lasted(life(frontend.looks), _lacks))
    lacking: tuple[Pod, ...] = (*bare, *deaf)
    if not lacking:
        return None
    tried = {name for pod in lacking for look in pod.looks if look.counts for name in look.counts.absent}
    what = f"{named(lacking)} expose no {'; no '.join(sorted(tried))}; absent is not 0"
    said = f"{what}: the deployer must see that these metrics are on"
    return Finding(CRITERION, Outcome.UNKNOWN, "KVEventMetricsAbsent", said, Concern.EVENTS)


def undeclared(view: View) -> Finding | None:
    """A worker of which nothing says whether it publishes."""
    mute = tuple(worker for worker in view.judged if _undeclared(worker) and not view.proven(worker))
    if not mute:
        return None
    why = mute[0].declared.why or "its command line does not say"
    what = f"{named(mute)}: no DynamoWorkerMetadata says whether KV events are published, and {why}"
    return Finding(CRITERION, Outcome.UNKNOWN, "KVEventsNotDeclared", f"{what}; the deployer must look", Concern.EVENTS)


def unanswered(view: View) -> Finding | None:
    """Canaries that were not served: of those workers nothing is known."""
    failed = {worker.pod: why for worker in view.judged if (why := canaries.failure(view, worker))}
    if not failed:
        return None
    workers = named(worker for worker in view.judged if worker.pod in failed)
    what = f"{workers}: the canary was not served: {listed(tuple(sorted(set(failed.values()))))}"
    said = f"{what}; the deployer must see the logs of frontend and worker"
    return Finding(CRITERION, Outcome.UNKNOWN, "KVEventsCanaryFailed", said, Concern.EVENTS)


def unproven(view: View) -> Finding | None:
    """Nothing that shows events, and too few new blocks to expect any."""
    served = (worker for worker in view.judged if view.unproven(worker) and not canaries.denies(worker))
    workers = tuple(worker for worker in served if not canaries.proven(view, worker))
    if workers:
        count = any(view.counts_events(worker) for worker in workers)
        why = "where other workers published some" if count else "as far as is known: their publishers do not count"
        said = f"{named(workers)}: requests served and no event published, {why}; a canary tells"
        return Finding(CRITERION, Outcome.UNKNOWN, "KVEventsIdle", said, Concern.EVENTS)
    if not view.listening or view.flows or all(canaries.heard(view, worker) for worker in view.judged):
        return None
    what = f"no event was applied, and fewer than {SILENT_BLOCKS} new blocks were filled: silence proves nothing yet"
    said = f"{what}; requests or a canary will tell"
    return Finding(CRITERION, Outcome.UNKNOWN, "KVEventsIdle", said, Concern.EVENTS)


def _doubtful(worker: WorkerSeen) -> bool:
    advert = worker.last.advert if worker.last else None
    if advert is None or advert.publishing is None:
        return worker.declared.says is not Declares.ON
    return not advert.publishing or advert.has_source is False


def _blind(pod: Pod) -> bool:
    looks = pod.looks[-LOOKS:]
    return not looks or all(look.counts is None for look in looks)


def _lacks(look: WorkerLook | FrontendLook) -> bool:
    return look.counts is not None and bool(look.counts.absent)


def _undeclared(worker: WorkerSeen) -> bool:
    advert = worker.last.advert if worker.last else None
    unsaid = advert is None or advert.publishing is None
    return unsaid and worker.declared.says is Declares.UNKNOWN
