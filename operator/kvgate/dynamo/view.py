"""A deployment as the judgement sees it: from what was read to switches, steps and findings."""

from __future__ import annotations

from kvgate.api.status import BaselineEntry
from kvgate.api.words import Capability, Outcome
from kvgate.core import target as core
from kvgate.core.findings import Concern, Finding
from kvgate.core.shoes import Shoes
from kvgate.dynamo.hands import hands
from kvgate.dynamo.patch import baseline, conflicts
from kvgate.dynamo.projection import projection_json, target_projection
from kvgate.dynamo.shape import Target, TargetProblem
from kvgate.dynamo.split_rules import assigned
from kvgate.dynamo.steps import NotToggleable, Steps
from kvgate.dynamo.storage import stores
from kvgate.dynamo.toggle import enable, observed_state, off_words, plan_steps
from kvgate.dynamo.words import FabricClass, Role, SwitchState

SWITCHED = (Capability.ROUTING, Capability.DISAGGREGATION)
_SWITCH = {
    SwitchState.ON: core.Switch.ON,
    SwitchState.OFF: core.Switch.OFF,
    SwitchState.MIXED: core.Switch.MIXED,
    SwitchState.UNKNOWN: core.Switch.UNREADABLE,
}
_FABRIC = {
    FabricClass.NONE: core.FabricClass.TCP,
    FabricClass.IB: core.FabricClass.INFINIBAND,
    FabricClass.ROCE: core.FabricClass.ROCE,
    FabricClass.EFA: core.FabricClass.EFA,
}


def view(read: Target | TargetProblem, free_gpus: int | None = None) -> core.TargetView | core.TargetProblem:
    """What the judgement needs of a deployment; a document that is none stays a problem with its remedy."""
    if isinstance(read, TargetProblem):
        return core.TargetProblem(read.reason.value, f"{read.message}: {read.remedy}")
    mode, source = read.router
    return core.TargetView(
        uid=read.uid,
        fabric_class=_fabric(read),
        router_mode=f"{mode.value} ({source.value})",
        split=observed_state(read, Capability.DISAGGREGATION).value,
        prefill_pods=_pods(read, Role.PREFILL),
        decode_pods=_pods(read, Role.DECODE),
        decode_tensor_parallel=_decode_ranks(read),
        toggles={c: _toggle(read, c, free_gpus) for c in SWITCHED} | {Capability.KV_STORAGE: _storage(read)},
        stores=tuple(str(store) for store in stores(read)),
        leaving=read.leaving,
    )


def _toggle(read: Target, capability: Capability, free_gpus: int | None) -> core.Toggle:
    planned = plan_steps(read, capability, free_gpus)
    projection = projection_json(target_projection(read))
    if isinstance(planned, NotToggleable):
        message = f"{planned.message}: {planned.remedy}"
        refusal = Finding("target", Outcome.ERROR, planned.reason.value, message, Concern.TARGET)
        return core.Toggle(_SWITCH[observed_state(read, capability)], refusal=refusal, projection=projection)
    held = conflicts(read, enable(planned))
    return core.Toggle(
        switch=_SWITCH[planned.state],
        steps=tuple(core.ToggleStep(step.component, step.env, step.to) for step in planned.on),
        findings=() if planned.state is SwitchState.ON else _remarks(planned),
        projection=projection,
        conflict=held[0].owner.manager if held else "",
        baseline=baseline(read, planned),
        off_values=_off(planned),
        off_words=off_words(capability),
        hands=hands(read, planned),
    )


def _storage(read: Target) -> core.Toggle:
    """Its owner's to switch: without steps, and bound by no approval."""
    return core.Toggle(_SWITCH[observed_state(read, Capability.KV_STORAGE)])


def _remarks(planned: Steps) -> tuple[Finding, ...]:
    return tuple(
        Finding("target", Outcome.INCONCLUSIVE, remark.reason, remark.message, Concern.TARGET)
        for remark in planned.remarks
    )


def _off(planned: Steps) -> tuple[BaselineEntry, ...]:
    return tuple(
        BaselineEntry(component=step.component, env=step.env, present=True, value=step.to) for step in planned.off
    )


def _fabric(read: Target) -> core.FabricClass:
    """The most demanding fabric that any worker asks for."""
    asked = {_FABRIC[worker.fabric] for worker in read.workers}
    return max(asked, key=list(core.FabricClass).index, default=core.FabricClass.TCP)


def _pods(read: Target, role: Role) -> int | None:
    """The worker pods of a role, split or not; None where any count is not known, for a part of a sum is no sum."""
    counts = [worker.replicas for worker, given in assigned(read) if given is role]
    known = [count for count in counts if count is not None]
    return sum(known) if counts and len(known) == len(counts) else None


def placement(read: Target, role: Role) -> dict[str, str]:
    """The node labels that the worker of this role asks for, split or not; empty when it asks for none."""
    return next((dict(worker.node_selector) for worker, given in assigned(read) if given is role), {})


def shoes(read: Target, role: Role) -> Shoes:
    """What a probe copies of the worker of this role, split or not."""
    return next((worker.shoes for worker, given in assigned(read) if given is role), Shoes())


def block_tokens(read: Target) -> int | None:
    """Tokens per KV block, where all workers' args agree on one."""
    named = {worker.engine.block_tokens for worker in read.workers}
    return named.pop() if len(named) == 1 else None


def kv_dtype(read: Target) -> str:
    """The KV cache's element type that all workers' args name; empty when they leave it to the model."""
    named = {worker.engine.kv_dtype for worker in read.workers} - {"auto"}
    return named.pop() if len(named) == 1 else ""


def _decode_ranks(read: Target) -> int | None:
    """Tensor-parallel ranks of the worker that pulls the cache, where its args say."""
    return next((worker.engine.tensor_parallel for worker, role in assigned(read) if role is Role.DECODE), None)
