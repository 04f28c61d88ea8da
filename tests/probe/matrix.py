"""The plan of a whole matrix, which is what most tests of walks and results start from."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product

from kvgate.api.words import Phase
from kvgate.core.evidence import Path
from kvgate.probe.plan import LinkTest, SweepPlan, plan_paths


def plan_sweep(
    run_id: str, pool_uid: str, prefill: Iterable[str], decode: Iterable[str], test: LinkTest, phase: Phase
) -> SweepPlan:
    """Every prefill → decode path once."""
    return plan_paths(run_id, pool_uid, (Path(a, b) for a, b in product(set(prefill), set(decode))), test, phase)
