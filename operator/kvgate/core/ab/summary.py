"""What people ask of an A/B: percentiles, errors by class, who served how much, and which families earned the reuse."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from kvgate.core.ab.experiment import Arm, Experiment, Fault, Request, cached_ratio, wait_seconds


@dataclass(frozen=True)
class ArmSummary:
    """One arm's counted requests. Times in seconds; a failed request waits for the timeout."""

    arm: Arm
    requests: int
    mean_seconds: float
    p50_seconds: float
    p90_seconds: float
    p99_seconds: float
    mean_gap_seconds: float | None
    cached_ratio: float
    faults: tuple[tuple[Fault, int], ...]
    workers: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class FamilySummary:
    """One prompt family: how many counted requests it had in both arms, and what each arm found cached."""

    family: int
    requests: int
    cached_ratio: float
    cached_ratio_round_robin: float


def arms(experiment: Experiment) -> tuple[ArmSummary, ...]:
    """An arm without a counted request has no summary."""
    return tuple(_arm(experiment, arm) for arm in Arm if experiment.counted(arm))


def _arm(experiment: Experiment, arm: Arm) -> ArmSummary:
    counted = experiment.counted(arm)
    waits = sorted(wait_seconds(request, experiment.timeout_seconds) for request in counted)
    gaps = [request.token_gap_seconds for request in counted if request.token_gap_seconds is not None]
    faults = Counter(request.fault for request in counted if request.fault is not None)
    served = Counter(request.worker for request in counted if request.worker)
    return ArmSummary(
        arm=arm,
        requests=len(counted),
        mean_seconds=fmean(waits),
        p50_seconds=nearest_rank(waits, 50),
        p90_seconds=nearest_rank(waits, 90),
        p99_seconds=nearest_rank(waits, 99),
        mean_gap_seconds=fmean(gaps) if gaps else None,
        cached_ratio=cached_ratio(counted),
        faults=tuple(sorted(faults.items())),
        workers=tuple(sorted(served.items())),
    )


def nearest_rank(ordered: Sequence[float], percent: int) -> float:
    """The smallest value that at least `percent` of the ordered values do not exceed."""
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def families(experiment: Experiment, most: int) -> tuple[FamilySummary, ...]:
    """The largest `most` families, largest first."""
    by_family: dict[int, dict[Arm, list[Request]]] = {}
    for arm in Arm:
        for request in experiment.counted(arm):
            by_family.setdefault(request.family, {}).setdefault(arm, []).append(request)
    found = [_family(family, per_arm) for family, per_arm in by_family.items()]
    return tuple(sorted(found, key=lambda entry: (-entry.requests, entry.family))[:most])


def _family(family: int, per_arm: dict[Arm, list[Request]]) -> FamilySummary:
    return FamilySummary(
        family=family,
        requests=sum(map(len, per_arm.values())),
        cached_ratio=cached_ratio(per_arm.get(Arm.KV, ())),
        cached_ratio_round_robin=cached_ratio(per_arm.get(Arm.ROUND_ROBIN, ())),
    )
