"""What a decision asks the outside to do, as values."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from kvgate.api.status import BaselineEntry, PoolStatus
from kvgate.api.words import Capability, SweepExtent
from kvgate.core.at_once import ONE_BY_ONE, UNLIMITED, Apart, AtOnce
from kvgate.core.events_seen import Canary
from kvgate.core.evidence import Path
from kvgate.core.serving import Exam
from kvgate.core.target import ToggleStep


@dataclass(frozen=True)
class Measure:
    """Run one sweep over the paths; one from a node to itself goes between two pods on it."""

    run_id: str
    paths: tuple[Path, ...]
    reason: str
    extent: SweepExtent = SweepExtent.ALL
    number: int = 0
    at_once: AtOnce = UNLIMITED
    in_use: int | None = None
    """How many paths could have been measured."""
    prefill: frozenset[str] = frozenset()
    """The pool's prefill nodes. Some paths are tested the other way round, so that their sources do not tell."""
    apart: Apart = ONE_BY_ONE
    pace_bytes_per_second: float | None = None
    """What each path is asked for; None for as much as it carries."""
    descriptor_bytes: int | None = None
    """What the KV transport moves at a time; None leaves it to the tool."""

    def stands_for_prefill(self, node: str) -> bool:
        """Whether what measures on this node stands for a prefill worker; for a decode worker otherwise."""
        return node in self.prefill if self.prefill else any(path.source == node for path in self.paths)


@dataclass(frozen=True)
class Introduce:
    """Tell every running walker of the sweep where all the others are."""

    run_id: str


@dataclass(frozen=True)
class Collect:
    """Read what the walkers wrote, keep it as evidence, and clear the sweep away. `late` names those not done.

    `patient` asks again for what cannot be read now; once the sweep's time is up it is left out.
    """

    run_id: str
    late: tuple[str, ...] = ()
    patient: bool = True


@dataclass(frozen=True)
class StartBenchmark:
    """Make the Job of an A/B."""

    run_id: str


@dataclass(frozen=True)
class CollectBenchmark:
    """Read what the load generator told, keep it as evidence, and clear the A/B away. `aborted` ends it early."""

    run_id: str
    aborted: str = ""


@dataclass(frozen=True)
class AbandonBenchmark:
    """Clear the A/B away; nothing of it counts."""

    run_id: str


@dataclass(frozen=True)
class Enable:
    """Write the enabled values of one capability, in one apply."""

    capability: Capability
    steps: tuple[ToggleStep, ...]
    operation_id: str


@dataclass(frozen=True)
class Revert:
    """Write back what stood there before."""

    capability: Capability
    baseline: tuple[BaselineEntry, ...]
    operation_id: str
    reason: str


@dataclass(frozen=True)
class Recommend:
    """Write the patch out for a person; touch nothing."""

    capability: Capability
    steps: tuple[ToggleStep, ...]


@dataclass(frozen=True)
class Prepare:
    """Put prompts to the deployment before a capability is switched on, in the background."""

    capability: Capability
    exam: Exam


@dataclass(frozen=True)
class Verify:
    """Put prompts to the deployment once a capability is on, in the background."""

    capability: Capability
    exam: Exam


@dataclass(frozen=True)
class AskWorkers:
    """Send these canaries, by which KV events are judged where traffic shows none, in the background."""

    canaries: tuple[Canary, ...]


@dataclass(frozen=True)
class Listen:
    """Make the Job that listens to the workers' KV events."""

    run_id: str


@dataclass(frozen=True)
class CollectListening:
    """Read what that Job's pod told, and keep it for the looks to come."""

    run_id: str


@dataclass(frozen=True)
class AbandonListening:
    """Clear that Job away: it was collected, or nobody waits for it any more."""

    run_id: str


@dataclass(frozen=True)
class Abandon:
    """End the sweep of a pool that is being deleted; nothing of it becomes evidence."""

    run_id: str


@dataclass(frozen=True)
class HoldDeletion:
    """Set our finalizer, so that what is about to be enabled can be switched back before the pool is gone."""


@dataclass(frozen=True)
class LetGo:
    """Take our finalizer off: nothing is left to switch back, or `reason` says why nothing will be."""

    reason: str


Benchmarks = StartBenchmark | CollectBenchmark | AbandonBenchmark
Sweeps = Measure | Introduce | Collect | Abandon
EventsProbes = Listen | CollectListening | AbandonListening
Asks = Prepare | Verify | AskWorkers
Step = Sweeps | Benchmarks | EventsProbes | Asks | Enable | Revert | Recommend | HoldDeletion | LetGo


class Line(StrEnum):
    """Where a pool stands whose sweep waits for other pools' to end: the longest waiting is called first, and before
    it those at the front."""

    NOWHERE = ""
    BACK = "Back"
    FRONT = "Front"


@dataclass(frozen=True)
class Decided:
    """One capability after a turn that decided something about it: what changed, and what it rested on.

    `patch` holds component/env=value of what is to be written now; empty where nothing is.
    """

    capability: Capability
    outcome: str
    decisive: str
    held_by: str
    enabled: bool
    plan_hash: str
    approval: str
    actor: str
    operation: str
    inputs: tuple[str, ...]
    findings: tuple[str, ...]
    patch: tuple[str, ...]


@dataclass(frozen=True)
class Decision:
    """What to do, what to write, when to look again at the latest, and whether to call this pool when a sweep ends."""

    steps: tuple[Step, ...]
    status: PoolStatus
    requeue_after_seconds: float
    line: Line = Line.NOWHERE
    watched_within_seconds: float = math.inf
    """How long what is watched may go unlooked at, though a step fails and is tried ever less often."""
    audit: tuple[Decided, ...] = ()
    """What was decided anew in this turn, one for each capability at most."""

    @property
    def patches(self) -> tuple[Enable | Revert, ...]:
        return tuple(step for step in self.steps if isinstance(step, Enable | Revert))
