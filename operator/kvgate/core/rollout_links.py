"""The first links after a patch: the operator saw it, every pod was replaced, and each frontend has its workers."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from kvgate.api.words import Capability
from kvgate.core import text
from kvgate.core.links import Link, Look, Progress, View
from kvgate.core.serving import ComponentRollout, FrontendSeen, Readiness, WorkerType
from kvgate.core.target import Switch, TargetView

SPLIT_TYPES = frozenset({WorkerType.PREFILL.value, WorkerType.DECODE.value})
WHOLE_TYPES = frozenset({WorkerType.AGGREGATED.value})
SETTLES = timedelta(seconds=30)
FAILED_PHASE, ROLLING_PHASES = "Failed", frozenset({"Pending", "InProgress"})


def generation_observed(view: View) -> Look:
    rollout = view.serving.rollout
    seen = "none" if rollout.observed_generation is None else str(rollout.observed_generation)
    what = f"the deployment's generation is {rollout.generation}, its status observed {seen}"
    if rollout.observed:
        return Look(Progress.PASSED, "GenerationObserved", what)
    advice = "the Dynamo operator has not taken the change up: its owner must look at it"
    return Look(Progress.WAITING, "GenerationNotObserved", f"{what}; {advice}")


def rollout_complete(view: View) -> Look:
    rollout = view.serving.rollout
    if rollout.phase == FAILED_PHASE:
        what = "rollingUpdate.phase is Failed; the deployer must see the deployment's status"
        return Look(Progress.FAILED if _settled(view) else Progress.WAITING, "RolloutFailed", what)
    behind = tuple(_behind(component) for component in rollout.components if not component.complete)
    if rollout.phase in ROLLING_PHASES or behind:
        told = text.listed(behind) or "every component is up to date"
        phase = f"rollingUpdate.phase is {rollout.phase}" if rollout.phase in ROLLING_PHASES else "no rolling update"
        return Look(Progress.WAITING, "RolloutNotComplete", f"{phase}; {told}")
    if not rollout.components or rollout.ready is None:
        what = "the deployment's status names no components" if not rollout.components else "it has no Ready condition"
        return Look(Progress.UNSEEN, "RolloutNotComplete", what)
    if not rollout.ready:
        return Look(Progress.WAITING, "RolloutNotComplete", "the deployment's Ready condition is not True")
    return Look(
        Progress.PASSED,
        "RolloutComplete",
        f"all pods of {text.counted(len(rollout.components), 'component')} are up to date",
    )


def _settled(view: View) -> bool:
    """The word of the rollout before may stand in the status for a moment after the generation was observed."""
    seen = (entry.time for entry in view.memory.passed if entry.link == Link.GENERATION)
    return any(view.case.now - time >= SETTLES for time in seen)


def _behind(component: ComponentRollout) -> str:
    wanted = component.replicas if component.wanted is None else component.wanted
    return f"{component.name}: {component.updated or 0} updated and {component.ready or 0} ready of {wanted or 0}"


def model_ready(view: View) -> Look:
    """Every frontend replica by itself: behind a Service one that lags would be met by chance alone."""
    fronts = view.serving.frontends
    if not fronts:
        return Look(Progress.UNSEEN, "FrontendsNotObserved", "no frontend pod with an address was seen")
    wanted = wanted_types(view)
    looks = [_frontend(front, wanted) for front in fronts]
    bad = next((look for look in looks if look.progress is not Progress.PASSED), None)
    if bad is not None:
        return bad
    types = " and ".join(sorted(wanted))
    return Look(Progress.PASSED, "ModelReady", f"{len(fronts)} frontends serve the model by {types} workers")


def wanted_types(view: View) -> frozenset[str]:
    """By what the deployment holds now, whichever capability is looked at: routing is verified on a split too."""
    target = view.case.world.target
    split = target.toggles.get(Capability.DISAGGREGATION) if isinstance(target, TargetView) else None
    return SPLIT_TYPES if split is not None and split.switch is Switch.ON else WHOLE_TYPES


def _frontend(front: FrontendSeen, wanted: frozenset[str]) -> Look:
    if front.readiness is None:
        what = f"frontend {front.name} could not be asked: {front.problem or 'no answer yet'}"
        return Look(Progress.UNSEEN, "FrontendsNotObserved", what)
    readiness = front.readiness
    if not readiness.ready:
        missing = sorted({kind for space in readiness.namespaces for kind in space.missing})
        lacks = f": {', '.join(missing)} workers are missing" if missing else ""
        return Look(Progress.WAITING, "ModelNotReady", f"frontend {front.name} says the model is not ready{lacks}")
    if readiness.worker_types != wanted:
        what = (
            f"frontend {front.name} serves by {_listed(readiness)} workers, wanted are {' and '.join(sorted(wanted))}"
        )
        return Look(Progress.WAITING, "WorkerTypesWrong", what)
    return Look(Progress.PASSED, "ModelReady", "")


def _listed(readiness: Readiness) -> str:
    known = {kind.value for kind in WorkerType}
    types = sorted(kind if kind in known else "other" for kind in readiness.worker_types)
    return " and ".join(dict.fromkeys(types)) or "no"


def outage(view: View) -> Look | None:
    """The model has been unready for longer than the pool bears, rollout or not: requests get 503."""
    longest = view.case.pool.spec.monitor.model_not_ready_for
    for front in _unready(view.serving.frontends):
        if front.unready_since is not None and view.case.now - front.unready_since > longest.delta:
            since = text.moment(front.unready_since)
            what = f"frontend {front.name} has answered not ready since {since}; monitor.modelNotReadyFor is {longest}"
            return Look(Progress.FAILED, "ModelNotReady", what)
    return None


def _unready(fronts: Iterable[FrontendSeen]) -> Iterable[FrontendSeen]:
    return (front for front in fronts if front.readiness is not None and not front.readiness.ready)
