"""The words of a switch: its steps, the change that is written, and why a target can't be switched."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from kvgate.api.words import Capability
from kvgate.dynamo.words import SwitchState

REDUCED_CAPACITY = "ReducedCapacity"


class RefusalReason(StrEnum):
    TARGET_NOT_TOGGLEABLE = "TargetNotToggleable"


@dataclass(frozen=True)
class Step:
    """One variable of one component's `main`, and the value it is to have."""

    component: str
    env: str
    to: str


@dataclass(frozen=True)
class EnvRef:
    component: str
    env: str


@dataclass(frozen=True)
class Blocker:
    """One thing in the manifest that stands in the way, and what its author is to change."""

    message: str
    remedy: str


@dataclass(frozen=True)
class NotToggleable:
    capability: Capability
    blockers: tuple[Blocker, ...]
    reason: RefusalReason = RefusalReason.TARGET_NOT_TOGGLEABLE

    @property
    def message(self) -> str:
        return "; ".join(dict.fromkeys(blocker.message for blocker in self.blockers))

    @property
    def remedy(self) -> str:
        return "; ".join(dict.fromkeys(blocker.remedy for blocker in self.blockers))


@dataclass(frozen=True)
class Remark:
    """A reason that makes the outcome Inconclusive until a person accepts it by name."""

    reason: str
    message: str


@dataclass(frozen=True)
class Steps:
    """The full enabled state `on` and its opposite `off`, both also where they already hold."""

    capability: Capability
    on: tuple[Step, ...]
    off: tuple[Step, ...]
    state: SwitchState
    remarks: tuple[Remark, ...] = ()


@dataclass(frozen=True)
class Change:
    """All that one capability's field manager writes, and what it lets go of."""

    capability: Capability
    writes: tuple[Step, ...]
    releases: tuple[EnvRef, ...] = ()
