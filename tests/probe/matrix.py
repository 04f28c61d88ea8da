"""Rounds and plan of a whole matrix, which is what most tests of walks and results start from."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product

from kvgate.api.words import Phase
from kvgate.core.evidence import Path
from kvgate.probe.colouring import Rounds, rounds_of
from kvgate.probe.plan import LinkTest, SweepPlan, plan_paths


def matrix(prefill: Iterable[str], decode: Iterable[str]) -> list[Path]:
    """Every prefill → decode path between two nodes once."""
    return [Path(a, b) for a, b in product(set(prefill), set(decode)) if a != b]


def rounds_between(prefill: Iterable[str], decode: Iterable[str]) -> Rounds:
    return rounds_of(matrix(prefill, decode))


def plan_sweep(
    run_id: str, pool_uid: str, prefill: Iterable[str], decode: Iterable[str], test: LinkTest, phase: Phase
) -> SweepPlan:
    return plan_paths(run_id, pool_uid, matrix(prefill, decode), test, phase)
