"""What in a manifest keeps two workers from being switched between aggregated and split by one variable each."""

from __future__ import annotations

from collections.abc import Callable

from kvgate.dynamo.component import Component
from kvgate.dynamo.document import shown
from kvgate.dynamo.roles import role_flags
from kvgate.dynamo.rules import (
    Rule,
    can_be_read,
    each,
    env_path,
    flag_in_args,
    has_main,
    newest_version,
    not_assigned_in_shell,
    one_readable_entry,
)
from kvgate.dynamo.shape import Target
from kvgate.dynamo.steps import Blocker
from kvgate.dynamo.words import (
    MIGRATION_ENV,
    SPLIT_ENV,
    Engine,
    Provider,
    ReplicasOwner,
    Role,
    Source,
)

_OLDEST_RUNTIME = (1, 5, 0)
_IN_PLACE_REPLICAS = 2
_STRATEGY = "nvidia.com/deployment-strategy"
_GPU_PRODUCT = "nvidia.com/gpu.product"
_NAMED_ROLES = (Role.PREFILL, Role.DECODE)


def two_workers(target: Target) -> tuple[Blocker, ...]:
    count = len(target.workers)
    if count == 2:
        return ()
    message = f"{shown(target.name)} has {count} worker components; the split switches exactly 2"
    remedy = "create the deployment with two equal worker components, one of type prefill and one of type decode"
    return (Blocker(message, f"{remedy} (Dynamo refuses to add or remove components later)"),)


def workers_are_readable(target: Target) -> tuple[Blocker, ...]:
    return each(target.workers, has_main, lambda part: can_be_read(part, "The role"))


def runs_vllm(target: Target) -> tuple[Blocker, ...]:
    return each(target.workers, _runs_vllm)


def role_not_in_args(target: Target) -> tuple[Blocker, ...]:
    return each(target.workers, _role_not_in_args, _role_not_in_shell, _role_entry_is_readable)


def roles_are_assigned(target: Target) -> tuple[Blocker, ...]:
    """Which worker is which must follow from the spec alone, on or off, or the plan would change with the switch."""
    roles = assigned(target)
    if {role for _, role in roles} != set(_NAMED_ROLES):
        names = " and ".join(shown(worker.name) for worker in target.workers)
        message = f"Which of {names} does prefill is not said"
        return (Blocker(message, "set type: prefill on one worker component and type: decode on the other"),)
    return tuple(blocker for worker, role in roles for blocker in _role_contradicted(worker, role))


def moves_kv(target: Target) -> tuple[Blocker, ...]:
    return each(target.workers, _moves_kv)


def runs_on_deployments(target: Target) -> tuple[Blocker, ...]:
    """In place, one pod each leaves a moment in which neither generation is complete."""
    multinode = any(worker.nodes > 1 for worker in target.workers)
    if target.provider is Provider.DEPLOYMENT and not multinode:
        return each(target.workers, _not_recreated)
    short = [worker for worker in target.workers if (worker.replicas or 0) < _IN_PLACE_REPLICAS]
    if not short:
        return ()
    how = {Provider.UNKNOWN: "may roll in place (whether Grove runs them is not said)"}
    names = ", ".join(f"{shown(part.name)} ({part.replicas} replicas)" for part in short)
    message = f"{names}: workers {how.get(target.provider, 'roll in place')}, which needs at least 2 replicas each"
    remedy = 'create the deployment with the annotation nvidia.com/enable-grove: "false", or run 2 replicas each'
    return (Blocker(message, remedy),)


def replicas_are_running(target: Target) -> tuple[Blocker, ...]:
    return each(target.workers, _has_replicas)


def runtime_is_recent(target: Target) -> tuple[Blocker, ...]:
    return each((*target.workers, *target.frontends), _runtime_is_recent)


def requests_migrate(target: Target) -> tuple[Blocker, ...]:
    if not target.frontends:
        return (Blocker(f"{shown(target.name)} has no frontend", "add a component of type frontend"),)
    return each(target.frontends, _requests_migrate)


def workers_are_twins(target: Target) -> tuple[Blocker, ...]:
    """Equal but for the mode, so that either can serve aggregated and the cache layouts agree."""
    if len(target.workers) != 2:
        return ()
    one, other = target.workers
    unlike = [named for named, reading in _TWIN_FIELDS if reading(one) != reading(other)]
    if not unlike:
        return ()
    message = f"{shown(one.name)} and {shown(other.name)} differ in {', '.join(unlike)}"
    return (Blocker(message, f"make both workers equal in {', '.join(unlike)}; only {SPLIT_ENV} may differ"),)


def assigned(target: Target) -> tuple[tuple[Component, Role], ...]:
    """Each worker's role when split: by its type, else by the one role that its name holds."""
    return tuple((worker, _assigned_role(worker)) for worker in target.workers)


def _assigned_role(worker: Component) -> Role:
    if worker.type in tuple(role.value for role in _NAMED_ROLES):
        return Role(worker.type)
    held = [role for role in _NAMED_ROLES if role.value in worker.name.lower()]
    return held[0] if len(held) == 1 else Role.UNKNOWN


def _role_contradicted(worker: Component, role: Role) -> tuple[Blocker, ...]:
    if worker.role_source is not Source.ENV or worker.role in (role, Role.AGGREGATED):
        return ()
    name = shown(worker.name)
    message = f"{name} stands for {role} but its {SPLIT_ENV} says something else"
    return (Blocker(message, f"set {SPLIT_ENV} of {name} to {role} or agg, or change the component's type"),)


def _runs_vllm(part: Component) -> tuple[Blocker, ...]:
    if part.engine.engine is Engine.VLLM or not part.determinable:
        return ()
    message = f"{shown(part.name)} runs {part.engine.engine}; kvgate switches the split of vLLM workers alone"
    return (Blocker(message, "switch this engine's split by hand, or serve it with dynamo.vllm"),)


def _role_not_in_args(part: Component) -> tuple[Blocker, ...]:
    found = ((name, part.line.gated_flag(name)) for name in role_flags(part.line))
    value = part.role.value if part.role in (*_NAMED_ROLES, Role.AGGREGATED) else Role.AGGREGATED.value
    return tuple(flag_in_args(part, flag, SPLIT_ENV, value) for _, flag in found if flag is not None)


def _role_not_in_shell(part: Component) -> tuple[Blocker, ...]:
    return not_assigned_in_shell(part, SPLIT_ENV)


def _role_entry_is_readable(part: Component) -> tuple[Blocker, ...]:
    return one_readable_entry(part, SPLIT_ENV)


def _moves_kv(part: Component) -> tuple[Blocker, ...]:
    if part.engine.kv_transfer or not part.determinable:
        return ()
    config = '\'{"kv_connector":"NixlConnector","kv_role":"kv_both"}\''
    message = f"{shown(part.name)} has no readable --kv-transfer-config, without which a prefill worker does not start"
    return (Blocker(message, f"add --kv-transfer-config {config} to the args of {shown(part.name)}"),)


def _not_recreated(part: Component) -> tuple[Blocker, ...]:
    if part.annotation(_STRATEGY) != "Recreate":
        return ()
    message = f"{shown(part.name)} is recreated on a change: all its pods end before new ones start"
    return (Blocker(message, f"remove the annotation {_STRATEGY} from the pod template of {shown(part.name)}"),)


def _has_replicas(part: Component) -> tuple[Blocker, ...]:
    if part.replicas != 0:
        return ()
    if part.replicas_owner is ReplicasOwner.SCALING_ADAPTER:
        remedy = "scale its DynamoGraphDeploymentScalingAdapter to at least 1"
    else:
        remedy = "set at least 1 replica"
    message = f"{shown(part.name)} has 0 replicas; a split with one side empty answers 503"
    return (Blocker(message, f"{shown(part.name)}: {remedy}"),)


def _runtime_is_recent(part: Component) -> tuple[Blocker, ...]:
    if part.runtime is not None and part.runtime >= _OLDEST_RUNTIME:
        return ()
    name = shown(part.name)
    ran = "of unknown version" if part.runtime is None else ".".join(str(number) for number in part.runtime)
    remedy = f'use an image of Dynamo 1.5.0 or later in {name}, or say its version: runtimeVersionOverride: "1.6.1"'
    return (Blocker(f"{name} runs Dynamo {ran}; the switch needs at least 1.5.0", remedy),)


def _requests_migrate(part: Component) -> tuple[Blocker, ...]:
    if part.migration_limit is not None and part.migration_limit >= 1:
        return ()
    limit = "unreadable" if part.migration_limit is None else str(part.migration_limit)
    name = shown(part.name)
    message = f"The migration limit of {name} is {limit}; requests in flight would fail while workers roll (needs ≥ 1)"
    return (Blocker(message, f"set {MIGRATION_ENV}=3 in {env_path(part.name)}"),)


_TWIN_FIELDS: tuple[tuple[str, Callable[[Component], object]], ...] = (
    ("image", lambda part: part.container.image if part.container else ""),
    ("model", lambda part: (part.engine.model, part.engine.served_model)),
    ("block size", lambda part: part.engine.block_tokens),
    ("tensor parallelism", lambda part: part.engine.tensor_parallel),
    ("KV cache dtype", lambda part: part.engine.kv_dtype),
    ("max-model-len", lambda part: part.engine.max_model_tokens),
    ("resources", lambda part: part.container.resources if part.container else ()),
    ("nodes per replica", lambda part: part.nodes),
    ("GPU product", lambda part: dict(part.node_selector).get(_GPU_PRODUCT, "")),
)

SPLIT_FORM: tuple[Rule, ...] = (newest_version, two_workers, workers_are_readable)
SPLIT_RULES: tuple[Rule, ...] = (
    runs_vllm,
    role_not_in_args,
    roles_are_assigned,
    moves_kv,
    runs_on_deployments,
    replicas_are_running,
    runtime_is_recent,
    requests_migrate,
    workers_are_twins,
)
