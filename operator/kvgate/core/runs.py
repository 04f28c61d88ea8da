"""Runs of Jobs that kvgate makes: how one is named, and how the single Job of one is found."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class JobState(StrEnum):
    """How far the Job is."""

    RUNNING = "Running"
    ENDED = "Ended"


@dataclass(frozen=True)
class RunningJob:
    """The Job of a run that is under way, as it was found; `trouble` says what keeps it from going on."""

    run_id: str
    uid: str
    state: JobState
    trouble: str = ""


def run_id(pool_uid: str, now: datetime, *kind: str) -> str:
    """Names the run that this turn starts: the same turn read twice names the same run."""
    seed = "/".join((pool_uid, *kind, now.isoformat()))
    return hashlib.sha256(seed.encode()).hexdigest()[:10]
