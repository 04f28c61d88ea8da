"""The request rate that Prometheus observed of a deployment, asked now and then without a turn waiting for it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass

from kvgate.app.operator.logs import say
from kvgate.app.settings import Settings
from kvgate.core.world import Pool
from kvgate.edge.prometheus import observed_request_rate
from kvgate.edge.promql import NoData, PrometheusEndpoint

RATE_SECONDS = 300.0
"""How long an observed rate stands: it is a mean over as long, and each new one is a write of the status."""
PATIENCE_SECONDS = 1.0
"""How long the turn that asks waits: a Prometheus that hangs must not hold up pools, and the next turn finds more."""


@dataclass
class _Known:
    until: float
    rate: float | None = None


class ObservedRates:
    """Requests per second of a pool's deployment; None where no Prometheus is named, or it does not say."""

    def __init__(self, settings: Callable[[], Settings], monotonic: Callable[[], float]) -> None:
        self._settings = settings
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._known: dict[str, _Known] = {}

    def __call__(self, pool: Pool) -> float | None:
        ref = pool.spec.monitor.prometheus_ref
        endpoint = self._settings().endpoint(ref.name) if ref else None
        if endpoint is None:
            return None
        known, due = self._of(pool.uid)
        if due:
            asking = threading.Thread(target=_ask, args=(known, endpoint, pool), name="rate", daemon=True)
            asking.start()
            asking.join(PATIENCE_SECONDS)
        return known.rate

    def _of(self, uid: str) -> tuple[_Known, bool]:
        """What is known of the pool, and whether it is to be asked for now. Those that nobody asks for are dropped."""
        now = self._monotonic()
        with self._lock:
            known = self._known.get(uid) or _Known(now)
            due = now >= known.until
            if due:
                kept = {other: held for other, held in self._known.items() if held.until > now - RATE_SECONDS}
                self._known = kept | {uid: known}
                known.until = now + RATE_SECONDS
            return known, due


def _ask(known: _Known, endpoint: PrometheusEndpoint, pool: Pool) -> None:
    found = observed_request_rate(endpoint, pool.namespace, pool.spec.target_ref.name)
    if isinstance(found, NoData):
        say(logging.INFO, "no observed request rate", pool=pool.key, reason=found.message)
    known.rate = None if isinstance(found, NoData) else found.requests_per_second
