"""`kvgate reconcile -f DIR`: the operator's ring on a directory of manifests."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from kvgate.app.output import Report, approval_template
from kvgate.app.progress import sweeping
from kvgate.app.ring import Clock, look, settle
from kvgate.core.explain import explain
from kvgate.edge.directory import Directory, RateReader
from kvgate.edge.errors import EdgeError, MeasureError
from kvgate.edge.localsweep import LocalSweep
from kvgate.edge.worker_config import LONGEST_SECONDS, WorkerConfigs


def reconcile_directory(folder: Path, rates: RateReader, clock: Clock, errors: Console) -> tuple[Report, ...]:
    """A report per pool, after its turns. Raises EdgeError for a directory that cannot be read or written."""
    ground = Directory(
        folder, LocalSweep(clock, sweeping(errors)), rates, WorkerConfigs(patience_seconds=LONGEST_SECONDS + 1)
    )
    with ground.locked():
        pools = ground.pools()
        if not pools:
            raise EdgeError(f"{folder}: holds no InferencePool of kvgate.dev/v1alpha1")
        return _all(ground, pools, clock, errors)


def _all(ground: Directory, pools: tuple[str, ...], clock: Clock, errors: Console) -> tuple[Report, ...]:
    """Every pool has its turns, also after one could not be carried through; the first such error ends the call."""
    reports: list[Report] = []
    failed: list[EdgeError] = []
    for key in pools:
        try:
            reports.append(_reconciled(ground, key, clock, errors))
        except EdgeError as error:
            failed.append(error)
    if failed:
        raise failed[0]
    return tuple(reports)


def _reconciled(ground: Directory, key: str, clock: Clock, errors: Console) -> Report:
    ground.done.clear()
    ground.patches.clear()
    try:
        last = settle(ground, key, clock)[-1]
    except MeasureError as error:
        errors.print(f"kvgate: {key} cannot be measured: {error}", soft_wrap=True)
        last = look(ground, key, clock)
    told = explain(last.pool, last.world, last.at)
    return Report(
        pool=last.pool,
        status=last.decision.status,
        explanation=told,
        done=tuple(ground.done),
        patch="".join(ground.patches),
        approval=approval_template(last.pool, last.decision.status, told),
    )
