"""One capability's change as a document: what is applied, what was there before, and how it is taken back."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from kvgate.api.status import BaselineEntry
from kvgate.api.words import Capability
from kvgate.dynamo.document import Document, at, mapping, mappings, shown, text
from kvgate.dynamo.owners import FieldOwner
from kvgate.dynamo.shape import Target
from kvgate.dynamo.steps import Change, EnvRef, Step, Steps
from kvgate.dynamo.words import FIELD_MANAGER, KIND, MAIN, V1BETA1


class ApplyReason(StrEnum):
    NOT_THE_TARGET = "NotTheTarget"
    COMPONENT_MISSING = "ComponentMissing"
    CONTAINER_MISSING = "ContainerMissing"
    ENTRY_NOT_PLAIN = "EntryNotPlain"


@dataclass(frozen=True)
class ApplyProblem:
    reason: ApplyReason
    message: str


@dataclass(frozen=True)
class Conflict:
    """Another manager holds a variable that the change would give another value: 409 without force."""

    component: str
    env: str
    owner: FieldOwner


def apply_patch(target: Target, change: Change) -> dict[str, object]:
    """The document for a server-side apply by the capability's own field manager.

    It carries all that the manager owns, so an entry left out of `writes` is released. With uid and
    resourceVersion a deleted, replaced or changed target answers 409 and nothing is created.
    """
    identity = {
        "name": target.name,
        "namespace": target.namespace,
        "uid": target.uid,
        "resourceVersion": target.resource_version,
    }
    return {
        "apiVersion": V1BETA1,
        "kind": KIND,
        "metadata": {key: held for key, held in identity.items() if held},
        "spec": {"components": [_component_patch(name, change) for name in _components(target, change.writes)]},
    }


def field_manager(capability: Capability) -> str:
    """The manager's name; storage has none, for kvgate never writes it."""
    return FIELD_MANAGER.get(capability, "")


def baseline(target: Target, steps: Steps, *, adopted: bool = False) -> tuple[BaselineEntry, ...]:
    """Each gated entry as it stands before the first write.

    A baseline never restores the switched-on value: for an adopted capability, and for an entry that
    already holds it, the value is the off value.
    """
    off = {(step.component, step.env): step.to for step in steps.off}
    return tuple(_baseline_entry(target, step, off[step.component, step.env], adopted) for step in steps.on)


def revert(capability: Capability, entries: Iterable[BaselineEntry]) -> Change:
    """Writes each baseline value; lets go of an entry only where there was none."""
    held = tuple(entries)
    return Change(
        capability,
        writes=tuple(Step(entry.component, entry.env, entry.value) for entry in held if entry.present),
        releases=tuple(EnvRef(entry.component, entry.env) for entry in held if not entry.present),
    )


def conflicts(target: Target, change: Change) -> tuple[Conflict, ...]:
    """Entries that others hold with another value; whoever owns the manifest must drop the line."""
    ours = field_manager(change.capability)
    return tuple(
        Conflict(step.component, step.env, owner)
        for step in change.writes
        if _value(target, step) != step.to
        for owner in target.owners_of(step.component, step.env)
        if owner.manager != ours
    )


def holds(target: Target, change: Change) -> bool:
    """True when every written entry is read back with its value: nothing is left to write."""
    return all(_value(target, step) == step.to for step in change.writes)


def apply_to_document(document: Document, change: Change) -> dict[str, object] | ApplyProblem:
    """What the server would make of this document: entries merge by name; nothing else is touched or added."""
    if document.get("kind") != KIND or document.get("apiVersion") != V1BETA1:
        return ApplyProblem(ApplyReason.NOT_THE_TARGET, f"The document is no {V1BETA1} {KIND}")
    result = copy.deepcopy(dict(document))
    refs: tuple[Step | EnvRef, ...] = (*change.writes, *change.releases)
    problems = (_carry_out(result, ref) for ref in refs)
    return next((problem for problem in problems if problem is not None), result)


def _carry_out(document: dict[str, object], ref: Step | EnvRef) -> ApplyProblem | None:
    main = _main_of(document, ref.component)
    if isinstance(main, ApplyProblem):
        return main
    return _set_entry(main, ref) if isinstance(ref, Step) else _drop_entry(main, ref)


def _components(target: Target, writes: tuple[Step, ...]) -> tuple[str, ...]:
    """In the deployment's own order: an apply gives the list the order in which it names its entries."""
    order = {component.name: place for place, component in enumerate(target.components)}
    return tuple(sorted({step.component for step in writes}, key=lambda name: order.get(name, len(order))))


def _component_patch(name: str, change: Change) -> dict[str, object]:
    env = [{"name": step.env, "value": step.to} for step in change.writes if step.component == name]
    return {"name": name, "podTemplate": {"spec": {"containers": [{"name": MAIN, "env": env}]}}}


def _baseline_entry(target: Target, step: Step, off: str, adopted: bool) -> BaselineEntry:  # noqa: FBT001
    component = target.component(step.component)
    container = component.container if component else None
    entry = container.entry(step.env) if container else None
    owners = target.owners_of(step.component, step.env)
    others = sorted({owner.manager for owner in owners} - set(FIELD_MANAGER.values()))
    value = entry.value if entry else ""
    if adopted or value == step.to:
        return BaselineEntry(component=step.component, env=step.env, present=True, value=off, owner=",".join(others))
    return BaselineEntry(
        component=step.component,
        env=step.env,
        present=entry is not None,
        value=value,
        owner=",".join(others),
    )


def _value(target: Target, step: Step) -> str | None:
    component = target.component(step.component)
    entry = component.container.entry(step.env) if component and component.container else None
    return entry.value if entry is not None and entry.readable else None


def _main_of(document: Document, component: str) -> dict[str, object] | ApplyProblem:
    for held in mappings(at(document, "spec", "components")):
        if held.get("name") != component:
            continue
        for container in mappings(at(held, "podTemplate", "spec", "containers")):
            if container.get("name") == MAIN and isinstance(container, dict):
                return container
        message = f"Component {shown(component)} has no container {MAIN}; it is never added"
        return ApplyProblem(ApplyReason.CONTAINER_MISSING, message)
    message = f"There is no component {shown(component)}; it is never added"
    return ApplyProblem(ApplyReason.COMPONENT_MISSING, message)


def _set_entry(main: dict[str, object], step: Step) -> ApplyProblem | None:
    env = main.get("env")
    if env is None:
        main["env"] = [{"name": step.env, "value": step.to}]
        return None
    if not isinstance(env, list):
        return _not_plain(step, "its env is no list")
    found = [entry for entry in env if mapping(entry).get("name") == step.env]
    if not found:
        env.append({"name": step.env, "value": step.to})
        return None
    if len(found) > 1 or "valueFrom" in found[0]:
        return _not_plain(step, "it stands twice or takes its value from elsewhere")
    found[0]["value"] = step.to
    return None


def _drop_entry(main: dict[str, object], ref: EnvRef) -> ApplyProblem | None:
    env = main.get("env")
    if not isinstance(env, list):
        return None
    kept = [entry for entry in env if text(mapping(entry).get("name")) != ref.env]
    if kept:
        main["env"] = kept
    elif env:
        main.pop("env")
    return None


def _not_plain(step: Step, why: str) -> ApplyProblem:
    message = f"{step.env} of {shown(step.component)} can't be set: {why}"
    return ApplyProblem(ApplyReason.ENTRY_NOT_PLAIN, message)
