"""What the status shows of the routing A/B that counts."""

from __future__ import annotations

from kvgate.api.status import RoutingStatus
from kvgate.core.ab.experiment import Arm, cached_ratio
from kvgate.core.ab.gain import gain
from kvgate.core.benchmark_criteria import chosen, void
from kvgate.core.judging import Case

_LARGEST_PERCENT = 1e9


def benchmark_status(case: Case) -> RoutingStatus | None:
    """None where none counts or routing is not gated. A void A/B is named and shows no gain."""
    kept = chosen(case) if case.pool.spec.criteria.routing is not None else None
    if kept is None:
        return None
    found, power = None if void(case, kept) else gain(kept.experiment), dict(kept.provenance.tokens_per_joule)
    if found is None:
        return RoutingStatus(benchmark=kept.report)
    return RoutingStatus(
        improvement_percent=_percent(found.improvement),
        low_percent=_percent(found.low),
        high_percent=_percent(found.high),
        cached_token_ratio=f"{cached_ratio(kept.experiment.counted(Arm.KV)):.3f}",
        benchmark=kept.report,
        tokens_per_joule=_decimal(power.get(Arm.KV)),
        tokens_per_joule_round_robin=_decimal(power.get(Arm.ROUND_ROBIN)),
    )


def _decimal(value: float | None) -> str | None:
    return None if value is None else f"{value:.3f}"


def _percent(fraction: float) -> str:
    return f"{max(fraction * 100, -_LARGEST_PERCENT):.1f}"
