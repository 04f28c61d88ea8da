"""Whether the workers' rolling update has GPUs to surge onto, or serves with less while it lasts."""

from __future__ import annotations

from fractions import Fraction

from kvgate.dynamo.component import Component
from kvgate.dynamo.document import shown, whole
from kvgate.dynamo.steps import REDUCED_CAPACITY, Remark

_SURGE = "nvidia.com/deployment-rolling-update-max-surge"
_UNAVAILABLE = "nvidia.com/deployment-rolling-update-max-unavailable"
_DEFAULT_SHARE = "25%"


def reduced_capacity(workers: tuple[Component, ...], free_gpus: int | None) -> tuple[Remark, ...]:
    """Empty when every worker can surge; otherwise why serving would run with less for the while."""
    needed = _needed_gpus(workers)
    if needed is None:
        return (_remark("the GPUs that the workers ask for can't be read from their resources"),)
    still = [shown(worker.name) for worker in workers if surge_pods(worker) == 0]
    if still:
        return (_remark(f"{', '.join(still)} may not surge (max-surge 0)"),)
    if needed == 0:
        return ()
    if free_gpus is None:
        return (_remark(f"the surge needs {needed} GPUs beside the running ones and the free ones are not known"),)
    if free_gpus < needed:
        return (_remark(f"the surge needs {needed} GPUs beside the running ones and {free_gpus} are free"),)
    return ()


def surge_pods(worker: Component) -> int | None:
    """Pods that a rolling update starts beside the running ones; None when the replicas are unreadable.

    Source: the Dynamo operator's rolling update; shares round up for surge and down for unavailable,
    and where both come to 0 the surge is 1.
    """
    if worker.replicas is None:
        return None
    surge = _pods(worker.annotation(_SURGE), worker.replicas, up=True)
    unavailable = _pods(worker.annotation(_UNAVAILABLE), worker.replicas, up=False)
    return 1 if surge == 0 and unavailable == 0 else surge


def _needed_gpus(workers: tuple[Component, ...]) -> int | None:
    total = 0
    for worker in workers:
        pods = surge_pods(worker)
        if pods is None or worker.gpus_per_pod is None:
            return None
        total += pods * worker.gpus_per_pod * worker.nodes
    return total


def _pods(written: str, replicas: int, *, up: bool) -> int:
    share = whole((written or _DEFAULT_SHARE).removesuffix("%"))
    if share is None:
        return 0
    if written and not written.endswith("%"):
        return share
    exact = Fraction(share * replicas, 100)
    return -((-exact.numerator) // exact.denominator) if up else exact.numerator // exact.denominator


def _remark(why: str) -> Remark:
    message = f"Switching the split restarts every worker: {why}; an approval may accept {REDUCED_CAPACITY}"
    return Remark(REDUCED_CAPACITY, message)
