"""The deployment as the judgement sees it: what is on, what would be patched, and what stands in the way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from kvgate.api.status import BaselineEntry
from kvgate.api.words import Capability
from kvgate.core.findings import Finding


class Switch(StrEnum):
    """What the deployment's spec holds for one capability, verified or not."""

    ON = "On"
    OFF = "Off"
    MIXED = "Mixed"
    UNREADABLE = "Unreadable"


class FabricClass(StrEnum):
    """What the workers ask for to move KV bytes."""

    TCP = "tcp"
    INFINIBAND = "ib"
    ROCE = "roce"
    EFA = "efa"

    @property
    def rdma(self) -> bool:
        return self is not FabricClass.TCP


@dataclass(frozen=True, order=True)
class ToggleStep:
    """One env entry of one component, and the value that it has when the capability is on."""

    component: str
    env: str
    to: str


class Deed(StrEnum):
    """What another hand did to a gated field."""

    OVERWROTE = "Overwrote"
    REMOVED = "Removed"


@dataclass(frozen=True)
class Hand:
    """Another manager that gave gated fields another value, or removed them, as the managed fields tell it.

    `fields` are component/env; `manager` is empty where they tell nobody; `remedy` is what its owner can do.
    """

    manager: str
    deed: Deed
    fields: tuple[str, ...]
    remedy: str


@dataclass(frozen=True)
class Toggle:
    """One capability on this deployment.

    `refusal` says why kvgate cannot switch it at all; `findings` are what a person may have to accept. `projection` is
    the part of the deployment that an approval binds, as canonical JSON. `conflict` names another manager of a gated
    field. `baseline` is how the gated fields stand now, `off_values` what they hold when the capability is off, and
    `off_words` every value by which one of them can be off.
    """

    switch: Switch
    steps: tuple[ToggleStep, ...] = ()
    refusal: Finding | None = None
    findings: tuple[Finding, ...] = ()
    projection: str = ""
    conflict: str = ""
    baseline: tuple[BaselineEntry, ...] = ()
    off_values: tuple[BaselineEntry, ...] = ()
    off_words: frozenset[str] = frozenset()
    hands: tuple[Hand, ...] = ()
    """Whose doing it is that fields do not hold the switched-on value; whether they ever held it, history tells."""


@dataclass(frozen=True)
class TargetView:
    """A DynamoGraphDeployment that was found and could be read."""

    uid: str
    fabric_class: FabricClass = FabricClass.TCP
    router_mode: str = ""
    split: str = ""
    prefill_pods: int | None = None
    decode_pods: int | None = None
    decode_tensor_parallel: int | None = None
    toggles: Mapping[Capability, Toggle] = field(default_factory=dict)
    leaving: bool = False
    """It is being deleted."""
    stores: tuple[str, ...] = ()
    """Where its workers keep KV cache outside their own memory, as the spec says it."""


@dataclass(frozen=True)
class TargetProblem:
    """Why there is no target to speak of."""

    reason: str
    message: str
