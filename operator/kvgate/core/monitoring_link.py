"""What of the watched metrics switches back: errors and readiness soon after a switch, and metrics that stay away."""

from __future__ import annotations

from kvgate.api.words import LossAction, Outcome
from kvgate.core.links import Look, Progress, View
from kvgate.core.monitoring import Watch, errors_as_before, metrics_arrive, model_ready, watch
from kvgate.core.rollout_links import outage


def closing(view: View) -> Look | None:
    """Why the capability goes off now; None where it stays. A failure here is remembered: a metric that recovers before
    the patch is written changes nothing."""
    watched = watch(view.case)
    if watched is None:
        return None
    loss = view.case.pool.spec.monitor.on_metrics_lost
    if watched.lost and loss.action is LossAction.REVERT:
        found = metrics_arrive(watched)
        return Look(Progress.FAILED, found.reason, found.message)
    return _errors(view, watched) if watched.blamed is view.memory.capability else None


def _errors(view: View, watched: Watch) -> Look | None:
    for rule in (model_ready, errors_as_before):
        found = rule(watched)
        if found is not None and found.outcome is Outcome.FAIL:
            return Look(Progress.FAILED, found.reason, found.message)
    return outage(view)
