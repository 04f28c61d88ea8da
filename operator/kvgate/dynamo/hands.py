"""Whose doing it is that a gated field does not hold what was set: told from the managed fields, with the remedy."""

from __future__ import annotations

from dataclasses import dataclass

from kvgate.core.target import Deed, Hand
from kvgate.dynamo.document import shown
from kvgate.dynamo.owners import ARGO_MANAGERS, FLUX_MANAGERS, HELM_MANAGERS, Writer
from kvgate.dynamo.shape import Target
from kvgate.dynamo.steps import Step, Steps
from kvgate.dynamo.words import FIELD_MANAGER

OUR_MANAGERS = ", ".join(sorted(FIELD_MANAGER.values()))
_DROP = "drop the line from the manifest in its repository"
_ARGO_SPARES = (
    "in its Application set syncOptions ServerSideApply=true, or ignoreDifferences with managedFieldsManagers "
    f"[{OUR_MANAGERS}] and RespectIgnoreDifferences=true"
)
_IN_THE_MANIFEST = "put the enabled value into the manifest (mode Recommend writes it out)"


@dataclass(frozen=True)
class _Taken:
    manager: str
    deed: Deed
    field: str


def hands(target: Target, steps: Steps) -> tuple[Hand, ...]:
    """For each manager and deed one hand with all its fields; nothing for fields that hold the switched-on value.

    An owner of another value is certain. A removal leaves no trace of its own: named is who applies the whole list,
    those that update before those that apply server-side, the latest first. In v1alpha1 the list has an owner.
    """
    taken = [found for step in steps.on if (found := _taken(target, step)) is not None]
    deeds = dict.fromkeys((one.manager, one.deed) for one in taken)
    return tuple(_hand(manager, deed, taken) for manager, deed in deeds)


def _taken(target: Target, step: Step) -> _Taken | None:
    component = target.component(step.component)
    entry = component.container.entry(step.env) if component and component.container else None
    field = f"{shown(step.component)}/{step.env}"
    ours = FIELD_MANAGER.values()
    owners = [owner.manager for owner in target.owners_of(step.component, step.env) if owner.manager not in ours]
    if entry is None:
        return _Taken(owners[0] if owners else _remover(target, step.component), Deed.REMOVED, field)
    if entry.readable and entry.value == step.to:
        return None
    return _Taken(owners[0] if owners else "", Deed.OVERWROTE, field)


def _remover(target: Target, component: str) -> str:
    """The likeliest writer of the component's template."""
    ranked = sorted(target.writers, key=lambda writer: _likelihood(writer, component))
    return ranked[-1].manager if ranked else ""


def _likelihood(writer: Writer, component: str) -> tuple[bool, bool, str]:
    return writer.operation == "Update", component in writer.components, writer.at


def _hand(manager: str, deed: Deed, taken: list[_Taken]) -> Hand:
    fields = tuple(one.field for one in taken if (one.manager, one.deed) == (manager, deed))
    return Hand(shown(manager), deed, fields, _remedy(manager, deed))


def _remedy(manager: str, deed: Deed) -> str:
    removed = deed is Deed.REMOVED
    if manager in ARGO_MANAGERS:
        return _ARGO_SPARES if removed else f"{_DROP}, and {_ARGO_SPARES}"
    if manager in FLUX_MANAGERS - HELM_MANAGERS:
        return (
            f"{_IN_THE_MANIFEST}, for its apply is server-side and spares what it does not name" if removed else _DROP
        )
    if manager.startswith("kubectl"):
        whole = "apply the whole manifest with kubectl apply --server-side"
        return f"{whole}, or {_IN_THE_MANIFEST}" if removed else f"drop the line from the manifest, and {whole}"
    spare = f"let it leave alone what the managers {OUR_MANAGERS} own"
    return f"{spare}, or {_IN_THE_MANIFEST}" if removed else f"drop the line from its manifest, or {spare}"
