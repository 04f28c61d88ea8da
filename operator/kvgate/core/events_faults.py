"""What is wrong with KV events, one rule for each fault: of a worker, of a router, or between them."""

from __future__ import annotations

from kvgate.api.words import Outcome
from kvgate.core import events_canaries as canaries
from kvgate.core.events_seen import Declares, FrontendLook, FrontendSeen, Routes, WorkerLook, WorkerSeen
from kvgate.core.events_series import growth, lasted, life
from kvgate.core.events_view import CRITERION, READY_SECONDS, SILENT_BLOCKS, View, applied, named
from kvgate.core.findings import Concern, Finding
from kvgate.core.text import listed

REFUSED_SHARE = 0.05


def disabled(view: View) -> Finding | None:
    """A worker that must publish and says itself, or by its spec, that it does not."""
    off = tuple(worker for worker in view.judged if _stays_off(worker))
    if not off:
        return None
    if _contradicted(view, off):
        what = f"{named(off)}: by model card or args no KV events are published, and yet they come"
        said = f"{what}; the deployer must find out which is true"
        return Finding(CRITERION, Outcome.INCONCLUSIVE, "KVEventsContradictory", said, Concern.EVENTS)
    why = off[0].declared.why or "its model card says kv_event_publishing_enabled: false"
    what = f"no KV events come from {named(off)}: {why}; the deployer must correct it"
    return Finding(CRITERION, Outcome.FAIL, "KVEventsDisabled", what, Concern.EVENTS)


def without_source(view: View) -> Finding | None:
    """A worker whose card claims events and that announced no source of them."""
    bare = tuple(worker for worker in view.judged if lasted(worker.looks, _claims_only))
    if not bare:
        return None
    what = f"{named(bare)}: claimed by the model card, and no source of KV events announced after {READY_SECONDS} s"
    said = f"{what}; the deployer must see the worker's log for a publisher that did not start"
    return Finding(CRITERION, Outcome.FAIL, "KVEventSourceMissing", said, Concern.EVENTS)


def silent_workers(view: View) -> Finding | None:
    """A worker whose engine filled new blocks and whose publisher counted no stored event for them."""
    silent = tuple(worker for worker in view.judged if view.silent(worker))
    if not silent:
        return None
    what = f"{named(silent)}: 0 stored events for at least {SILENT_BLOCKS} new blocks of the engine"
    why = "the engine emits none for this model, or not where its publisher listens"
    said = f"{what}; {why}: the deployer must look"
    return Finding(CRITERION, Outcome.FAIL, "KVEventsSilent", said, Concern.EVENTS)


def silent_to_canaries(view: View) -> Finding | None:
    """A worker that served canaries, and of whose new blocks no event came."""
    silent = tuple(worker for worker in view.judged if canaries.silent(view, worker) and not view.silent(worker))
    if not silent:
        return None
    what = (
        f"{named(silent)}: a canary of at least {canaries.CANARY_BLOCKS} new blocks was served and no event of it came"
    )
    why = "the engine emits none for this model, or they get lost on their way"
    said = f"{what}; {why}: the deployer must look"
    return Finding(CRITERION, Outcome.FAIL, "KVEventsSilent", said, Concern.EVENTS)


def mute_workers(view: View) -> Finding | None:
    """As silent_workers, where no publisher of the kind has counted an event: perhaps they count none at all."""
    mute = tuple(worker for worker in view.judged if view.mute(worker) and not view.silent(worker))
    if not mute:
        return None
    what = f"{named(mute)}: at least {SILENT_BLOCKS} new blocks of the engine, and no count of stored events"
    said = f"{what}; the deployer must find out whether the engine emits events for this model"
    return Finding(CRITERION, Outcome.INCONCLUSIVE, "KVEventsSilent", said, Concern.EVENTS)


def silent_routers(view: View) -> Finding | None:
    """A router that applied no stored event while requests filled new blocks."""
    deaf = tuple(frontend for frontend in view.listening if view.deaf(frontend))
    if not deaf:
        return None
    what = f"the router of {named(deaf)} applied 0 stored events for at least {SILENT_BLOCKS} new blocks"
    said = f"{what} of {named(view.required)}; the deployer must look at their publishers"
    return Finding(CRITERION, Outcome.FAIL, "KVEventsSilent", said, Concern.EVENTS)


def mismatched(view: View) -> Finding | None:
    """A router that misses the source of some workers, by its own gauge; which, its log alone tells."""
    missing = tuple(frontend for frontend in view.listening if lasted(life(frontend.looks), lambda k: _gauge(k) > 0))
    most = max((_gauge(frontend.looks[-1]) for frontend in missing), default=0)
    if most <= len(view.young):
        return None
    what = f"the router of {named(missing)} misses the event source of {most} workers of {named(view.required)}"
    if most >= len(view.required) and any(growth(life(f.looks), applied) for f in missing):
        said = f"{what}, which is all of them, and yet applies events; the deployer must look"
        return Finding(CRITERION, Outcome.INCONCLUSIVE, "KVEventsContradictory", said, Concern.EVENTS)
    said = f"{what}; the deployer must see its log, which names each by worker_id and diagnostic_code"
    return Finding(CRITERION, Outcome.FAIL, "KVEventSourceMismatch", said, Concern.EVENTS)


def unequal_blocks(view: View) -> Finding | None:
    """Workers of one generation whose blocks differ from each other's or from the router's."""
    if len({worker.generation for worker in view.required}) > 1 or len({*view.worker_blocks, *view.router_blocks}) < 2:
        return None
    sizes = {(f"{_block(worker)} at {worker.pod}") for worker in view.required if _block(worker)}
    routers = {f"{size} at the router" for size in view.router_blocks}
    what = f"KV blocks differ in tokens: {listed((*sorted(routers), *sorted(sizes)), 4)}"
    said = f"{what}; events of one size fit no block of the other: the deployer must give all one block size"
    return Finding(CRITERION, Outcome.FAIL, "KVBlockSizeMismatch", said, Concern.EVENTS)


def lossy(view: View) -> Finding | None:
    """A worker whose engine dropped events before they were published."""
    lost = tuple(worker for worker in view.judged if growth(life(worker.looks), _dropped) > 0)
    if not lost:
        return None
    least = _at_least(max(growth(life(worker.looks), _dropped) for worker in lost))
    what = f"{named(lost)}: {least} or more KV events lost between engine and publisher, limit 0"
    why = "the router keeps blocks that are gone"
    remedy = "the deployer must raise the engine's buffer (TensorRT-LLM: kv_cache_config.event_buffer_max_size)"
    return Finding(CRITERION, Outcome.FAIL, "KVEventsLost", f"{what}; {why}; {remedy}", Concern.EVENTS)


def unconvertible(view: View) -> Finding | None:
    """A worker whose publisher cannot make router events of what the engine sends."""
    odd = tuple(worker for worker in view.judged if growth(life(worker.looks), _unconvertible) > 0)
    if not odd:
        return None
    mute = tuple(worker for worker in odd if growth(life(worker.looks), _published) == 0)
    why = "events of the engine that its publisher cannot convert, for one because hashes are no 64-bit numbers"
    remedy = "the deployer must see the worker's log"
    if mute:
        what = f"{named(mute)}: nothing but {why}; {remedy}"
        return Finding(CRITERION, Outcome.FAIL, "KVEventsUnreadable", what, Concern.EVENTS)
    what = f"{named(odd)}: among others, {why}; {remedy}"
    return Finding(CRITERION, Outcome.INCONCLUSIVE, "KVEventsUnreadable", what, Concern.EVENTS)


def refused(view: View) -> Finding | None:
    """A router that cannot apply what it hears: blocks without their parent, or of another size."""
    bad = tuple(frontend for frontend in view.listening if _refuses(frontend))
    if not bad:
        return None
    what = f"the router of {named(bad)} cannot apply more than {REFUSED_SHARE:.0%} of the stored events"
    remedy = "events with gaps, or blocks of another size: the deployer must see the router's log"
    if not any(growth(life(frontend.looks), applied) for frontend in bad):
        said = f"{what}, and applied none; {remedy}"
        return Finding(CRITERION, Outcome.FAIL, "KVEventsRefused", said, Concern.EVENTS)
    return Finding(CRITERION, Outcome.INCONCLUSIVE, "KVEventsRefused", f"{what}; {remedy}", Concern.EVENTS)


def unused(view: View) -> Finding | None:
    """Frontends that are told not to listen, where events are required."""
    if view.seen.routes is not Routes.APPROXIMATE:
        return None
    what = "the frontends run in approximate mode, so no event is listened to"
    remedy = "the owner must set kvEvents: Ignored, or the deployer drop --no-router-kv-events"
    return Finding(CRITERION, Outcome.INCONCLUSIVE, "KVEventsUnused", f"{what}; {remedy}", Concern.EVENTS)


def _stays_off(worker: WorkerSeen) -> bool:
    return lasted(worker.looks, lambda look: _off(worker, look))


def _off(worker: WorkerSeen, look: WorkerLook) -> bool:
    """The card is believed before the spec, unless the spec turns events on in a way that cannot work."""
    said = None if look.advert is None else look.advert.publishing
    return worker.declared.says is Declares.BROKEN or said is False or (said is None and _declared_off(worker))


def _declared_off(worker: WorkerSeen) -> bool:
    return worker.declared.says is Declares.OFF


def _claims_only(look: WorkerLook) -> bool:
    return look.advert is not None and look.advert.publishing is True and look.advert.has_source is False


def _contradicted(view: View, off: tuple[WorkerSeen, ...]) -> bool:
    """Whether events of these workers came while their cards said that none do: by their own publishers, or, where all
    workers say so, by the routers."""
    if any(growth(life(worker.looks), _published) for worker in off):
        return True
    return len(off) == len(view.judged) and any(growth(life(f.looks)[-3:], applied) for f in view.listening)


def _gauge(look: FrontendLook) -> int:
    return (look.counts.mismatched or 0) if look.counts else 0


def _refuses(frontend: FrontendSeen) -> bool:
    looks = life(frontend.looks)
    no, yes = growth(looks, _refused), growth(looks, applied)
    return no > REFUSED_SHARE * (no + yes)


def _block(worker: WorkerSeen) -> int:
    advert = worker.last.advert if worker.last else None
    return (advert.block_tokens or 0) if advert else 0


def _dropped(look: WorkerLook) -> int | None:
    return look.counts.dropped if look.counts else None


def _unconvertible(look: WorkerLook) -> int | None:
    return look.counts.unconvertible if look.counts else None


def _published(look: WorkerLook) -> int | None:
    return look.counts.stored if look.counts else None


def _refused(look: FrontendLook) -> int | None:
    return look.counts.refused if look.counts else None


def _at_least(count: int) -> int:
    """A power of ten that the count reaches: a message that does not change with each event."""
    return int(10 ** (len(str(count)) - 1))
