"""Whether a capability of a target can be switched by one variable, by which steps, and how it stands now."""

from __future__ import annotations

from kvgate.api.words import Capability
from kvgate.dynamo.capacity import reduced_capacity
from kvgate.dynamo.roles import words_of
from kvgate.dynamo.routing_rules import ROUTING_RULES
from kvgate.dynamo.shape import Target
from kvgate.dynamo.split_rules import SPLIT_FORM, SPLIT_RULES, assigned
from kvgate.dynamo.steps import Blocker, Change, NotToggleable, Step, Steps
from kvgate.dynamo.storage import storage_state
from kvgate.dynamo.words import ROUTER_ENV, SPLIT_ENV, Role, RouterMode, Source, SwitchState

_ON_MODES = (RouterMode.KV, RouterMode.KV_APPROXIMATE)


def plan_steps(target: Target, capability: Capability, free_gpus: int | None = None) -> Steps | NotToggleable:
    """The steps that switch a capability on, or every reason in the spec why none would.

    `free_gpus`: GPUs that are free for the workers' surge; None where nobody counted them, which is
    ReducedCapacity and for a person to accept. Storage is never patched: it has no steps.
    """
    match capability:
        case Capability.ROUTING:
            return _routing(target)
        case Capability.DISAGGREGATION:
            return _split(target, free_gpus)
        case Capability.KV_STORAGE:
            return Steps(capability, (), (), storage_state(target))


def observed_state(target: Target, capability: Capability) -> SwitchState:
    """How the spec stands, wherever it says so; also for targets that kvgate can't switch."""
    match capability:
        case Capability.ROUTING:
            return _routing_state(target)
        case Capability.DISAGGREGATION:
            return _split_state(target)
        case Capability.KV_STORAGE:
            return storage_state(target)


def off_words(capability: Capability) -> frozenset[str]:
    """Every value of the gated variable with which a component is off; another can't have stood there before."""
    match capability:
        case Capability.ROUTING:
            unstated = (RouterMode.MIXED, RouterMode.UNKNOWN)
            return frozenset(mode.value for mode in RouterMode if mode not in (*_ON_MODES, *unstated))
        case Capability.DISAGGREGATION:
            return words_of(Role.AGGREGATED)
        case Capability.KV_STORAGE:
            return frozenset()


def enable(steps: Steps) -> Change:
    return Change(steps.capability, steps.on)


def _routing(target: Target) -> Steps | NotToggleable:
    blockers = tuple(blocker for rule in ROUTING_RULES for blocker in rule(target))
    if blockers:
        return NotToggleable(Capability.ROUTING, blockers)
    names = tuple(frontend.name for frontend in target.frontends)
    return Steps(
        Capability.ROUTING,
        on=tuple(Step(name, ROUTER_ENV, RouterMode.KV.value) for name in names),
        off=tuple(Step(name, ROUTER_ENV, RouterMode.ROUND_ROBIN.value) for name in names),
        state=_routing_state(target),
    )


def _split(target: Target, free_gpus: int | None) -> Steps | NotToggleable:
    blockers = _split_blockers(target)
    if blockers:
        return NotToggleable(Capability.DISAGGREGATION, blockers)
    roles = sorted(assigned(target), key=lambda pair: pair[0].name)
    return Steps(
        Capability.DISAGGREGATION,
        on=tuple(Step(worker.name, SPLIT_ENV, role.value) for worker, role in roles),
        off=tuple(Step(worker.name, SPLIT_ENV, Role.AGGREGATED.value) for worker, _ in roles),
        state=_split_state(target),
        remarks=reduced_capacity(target.workers, free_gpus),
    )


def _split_blockers(target: Target) -> tuple[Blocker, ...]:
    """What concerns the pair of workers is only asked once there is a pair."""
    form = tuple(blocker for rule in SPLIT_FORM for blocker in rule(target))
    return form or tuple(blocker for rule in SPLIT_RULES for blocker in rule(target))


def _routing_state(target: Target) -> SwitchState:
    mode, _ = target.router
    if mode is RouterMode.MIXED:
        return SwitchState.MIXED
    if mode is RouterMode.UNKNOWN:
        return SwitchState.UNKNOWN
    return SwitchState.ON if mode in _ON_MODES else SwitchState.OFF


def _split_state(target: Target) -> SwitchState:
    """A component's type alone starts no role: without flag or variable the engine serves aggregated."""
    roles = {
        Role.AGGREGATED if worker.role_source is Source.TYPE and worker.determinable else worker.role
        for worker in target.workers
    }
    if not roles or Role.UNKNOWN in roles:
        return SwitchState.UNKNOWN
    split = roles & {Role.PREFILL, Role.DECODE}
    if not split:
        return SwitchState.OFF
    return SwitchState.ON if len(split) == 2 and Role.AGGREGATED not in roles else SwitchState.MIXED
