"""One A/B as evidence: whose it is, when it ended, what it was run on, and all that it recorded."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from kvgate.core.ab.experiment import Experiment


@dataclass(frozen=True)
class Subject:
    """The pool's target as it was: its uid, the digest of what approvals bind of it, and whether it was split; and the
    digest of the workload that was sent to it, empty where none was told."""

    target_uid: str
    projection: str
    split: str
    workload: str = ""


@dataclass(frozen=True)
class TraceSeen:
    """The trace that a pool names, as it is now: the SHA-256 of its bytes, in hex; or why it cannot be read, and who
    must act."""

    digest: str = ""
    problem: str = ""


@dataclass(frozen=True)
class Provenance:
    """What is kept beside the numbers for people: nothing of it decides anything.

    `tokens_per_joule` is by arm; `no_power` says why it is missing, empty where nobody was to be asked."""

    seed: int = 0
    ran_on: str = ""
    live: bool = False
    requests_per_second: float = 0.0
    live_requests_per_second: float | None = None
    versions: tuple[str, ...] = ()
    tokens_per_joule: tuple[tuple[str, float], ...] = ()
    no_power: str = ""


@dataclass(frozen=True)
class BenchmarkEvidence:
    """The whole outcome of one routing A/B."""

    run_id: str
    pool_uid: str
    measured_at: datetime
    subject: Subject
    experiment: Experiment
    provenance: Provenance = Provenance()
    report: str = ""


@dataclass(frozen=True)
class BenchmarkGround:
    """The deployment that would serve an A/B now; `problem` says why none can be started, and who must act.

    `cards` is the digest of what its workers publish of themselves, `on_live` whether users share it.
    """

    ran_on: str
    generation: int = 0
    cards: str = ""
    on_live: bool = False
    problem: str = ""
