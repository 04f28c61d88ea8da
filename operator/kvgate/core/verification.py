"""The chain after a patch: what turns "the spec holds our value" into verified, inconclusive, or failed at a link."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from kvgate.api.status import LinkFailed, LinkPassed, PoolStatus, Verification
from kvgate.api.words import Capability, Mode
from kvgate.core import memory as books
from kvgate.core import text
from kvgate.core.canary_links import answers_agree, cache_hits, remote_prefill, watched
from kvgate.core.judging import Case
from kvgate.core.links import SPANS, Link, Look, Progress, View
from kvgate.core.memory import Action
from kvgate.core.moments import later
from kvgate.core.monitoring import LINK as MONITOR
from kvgate.core.monitoring_link import closing
from kvgate.core.pairs_link import worker_paths
from kvgate.core.rollout_links import generation_observed, model_ready, outage, rollout_complete
from kvgate.core.serving import Exam
from kvgate.core.ttft_link import ttft_within_budget

LOOK_AGAIN_SECONDS = 2.0
DOUBTED_AGAIN_SECONDS = 30.0
_ROLLED_OUT: Mapping[Link, Callable[[View], Look]] = {
    Link.GENERATION: generation_observed,
    Link.ROLLOUT: rollout_complete,
    Link.READINESS: model_ready,
}
CHAINS: Mapping[Capability, Mapping[Link, Callable[[View], Look]]] = {
    Capability.ROUTING: {**_ROLLED_OUT, Link.REQUESTS: cache_hits},
    Capability.DISAGGREGATION: {
        **_ROLLED_OUT,
        Link.PATHS: worker_paths,
        Link.REQUESTS: remote_prefill,
        Link.ANSWERS: answers_agree,
        Link.TTFT: ttft_within_budget,
    },
}
LONGEST_CHAIN = sum((SPANS[link] for link in Link), timedelta())


@dataclass(frozen=True)
class Chain:
    """How far a capability that is on has come. `state` is Passed once verified; `memory` is what must be written."""

    memory: Verification
    state: Progress
    message: str
    exam: Exam | None = None
    look_again_seconds: float = LOOK_AGAIN_SECONDS
    sweep: str = ""
    """Why a sweep is needed before it can go on."""

    @property
    def failed(self) -> LinkFailed | None:
        return self.memory.failed


def remembered(status: PoolStatus, capability: Capability) -> Verification:
    """What stands in the status about its verification; an empty one if nothing does."""
    found = (entry for entry in status.verifications if entry.capability is capability)
    return next(found, Verification(capability=capability))


def verify(case: Case, capability: Capability, accepted: frozenset[str] = frozenset()) -> Chain | None:
    """One look along the chain of a capability that is on and ours; None where kvgate would not act on it, or sees no
    pods. `accepted` are the Inconclusive reasons that an approval names."""
    if capability not in CHAINS or case.world.serving is None or not acts(case):
        return None
    memory = remembered(case.pool.status, capability)
    if memory.started_at is None:
        memory = memory.model_copy(update={"started_at": case.now, "failed": None, "calibration": ()})
    view = View(case, memory, case.world.serving)
    if memory.failed is not None:
        return Chain(memory, Progress.FAILED, _told(memory.failed.link, memory.failed.message))
    if (bad := closing(view)) is not None:
        return _broken(view, MONITOR, bad)
    if memory.verified_at is not None:
        return _watching(view)
    if (out := outage(view)) is not None:
        return _broken(view, Link.READINESS, out)
    return _walk(view, accepted)


def acts(case: Case) -> bool:
    """Whether kvgate may switch this deployment: only then does it put prompts to it."""
    spec = case.pool.spec
    resting = spec.suspend or case.pool.deleted or case.world.claimed_by
    return spec.mode is Mode.ENFORCE and not resting


@dataclass(frozen=True)
class _Walked:
    """How far along: `since` is when the last link was passed, `allowed` what the links after it may take together."""

    memory: Verification
    since: datetime
    allowed: timedelta = timedelta()
    doubts: tuple[Look, ...] = field(default=())


def _walk(view: View, accepted: frozenset[str]) -> Chain:
    at = _Walked(view.memory, view.memory.started_at or view.case.now)
    times = {entry.link: entry.time for entry in view.memory.passed}
    for link, look_at in CHAINS[view.memory.capability].items():
        if link in times:
            at = _Walked(at.memory, times[link], doubts=at.doubts)
            continue
        look = look_at(replace(view, memory=at.memory))
        at = replace(at, memory=_learned(at.memory, look), allowed=at.allowed + SPANS[link])
        if look.progress is Progress.FAILED:
            return _broken(replace(view, memory=at.memory), link, look)
        if look.progress is Progress.INCONCLUSIVE and look.reason not in accepted:
            at = replace(at, doubts=(*at.doubts, look))
        elif look.progress in {Progress.PASSED, Progress.INCONCLUSIVE}:
            at = _Walked(_passed(at.memory, link, view.case.now), view.case.now, doubts=at.doubts)
        else:
            return _open(replace(view, memory=at.memory), link, look, later(at.since, at.allowed))
    return _ended(view.case, at)


def _learned(memory: Verification, look: Look) -> Verification:
    return memory.model_copy(update={"calibration": look.calibration}) if look.calibration else memory


def _passed(memory: Verification, link: Link, now: datetime) -> Verification:
    entry = LinkPassed(link=link, time=now.replace(microsecond=0))
    return memory.model_copy(update={"passed": (*memory.passed, entry)})


def _open(view: View, link: Link, look: Look, deadline: datetime) -> Chain:
    """Not there yet. Past its deadline it has failed; what was on before kvgate is left to a person, and so is what
    came to the end of its chain before and is only asked again."""
    if view.memory.inconclusive_since is not None:
        return Chain(view.memory, Progress.INCONCLUSIVE, f"{look.reason}: {_told(link, look.message)}", look.exam)
    if view.case.now < deadline:
        what = f"{_told(link, look.message)}; it is switched back unless that is passed by {text.moment(deadline)}"
        return Chain(view.memory, Progress.WAITING, what, look.exam, sweep=look.sweep)
    late = f"{look.message}; that was to be passed by {text.moment(deadline)}"
    if _taken_over(view):
        return Chain(view.memory, Progress.INCONCLUSIVE, f"{look.reason}: {_told(link, late)}", look.exam)
    return _broken(view, link, replace(look, message=late))


def _taken_over(view: View) -> bool:
    newest = books.of(view.case.pool.status.history, view.memory.capability)[:1]
    return bool(newest) and newest[0].action == Action.ADOPTED


def _broken(view: View, link: str, look: Look) -> Chain:
    at = view.case.now.replace(microsecond=0)
    failed = LinkFailed(link=link, reason=look.reason, message=look.message, time=at)
    memory = view.memory.model_copy(update={"failed": failed})
    return Chain(memory, Progress.FAILED, _told(link, look.message))


def _told(link: str, message: str) -> str:
    return f"{link}: {message}"


def _ended(case: Case, at: _Walked) -> Chain:
    if at.doubts:
        return _doubtful(case, at)
    memory = at.memory.model_copy(update={"verified_at": case.now.replace(microsecond=0), "inconclusive_since": None})
    return _watching(View(case, memory, case.world.serving)) if case.world.serving else _verified(memory)


def _doubtful(case: Case, at: _Walked) -> Chain:
    """A person must say; meanwhile the prompts that gave no word are put again, as others may."""
    told = "; ".join(f"{look.reason}: {look.message}" for look in at.doubts)
    since = at.memory.inconclusive_since or case.now.replace(microsecond=0)
    memory = at.memory.model_copy(update={"inconclusive_since": since})
    exam = next((look.exam for look in at.doubts if look.exam), None)
    return Chain(memory, Progress.INCONCLUSIVE, told, exam, DOUBTED_AGAIN_SECONDS)


def _verified(memory: Verification) -> Chain:
    links = ", ".join(entry.link for entry in memory.passed)
    return Chain(memory, Progress.PASSED, f"verified on the running deployment: {links}", look_again_seconds=300.0)


def _watching(view: View) -> Chain:
    look = watched(view)
    if look.progress is Progress.FAILED:
        return _broken(view, Link.ANSWERS, look)
    interval = view.case.pool.spec.monitor.interval.seconds
    return replace(_verified(view.memory), exam=look.exam, look_again_seconds=interval)


def resting(memory: Verification) -> Verification:
    """What is kept once it is off: why its verification failed, and what that taught; and what was measured for the
    next switch."""
    if memory.started_at is None:
        return memory
    return Verification(capability=memory.capability, failed=memory.failed, calibration=memory.calibration)


def under_way(case: Case, capability: Capability) -> bool:
    """Whether another capability of this deployment is still being verified."""
    if case.world.serving is None or not acts(case):
        return False
    others = (entry for entry in case.pool.status.verifications if entry.capability is not capability)
    return any(
        entry.started_at is not None
        and entry.verified_at is None
        and entry.failed is None
        and case.now < later(entry.started_at, LONGEST_CHAIN)
        for entry in others
    )
