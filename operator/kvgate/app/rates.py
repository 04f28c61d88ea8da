"""The observed request rate of a pool, from the Prometheus that the operator's settings name."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from kvgate.app.settings import Settings, read_settings
from kvgate.core.world import Pool
from kvgate.edge.directory import RateReader
from kvgate.edge.errors import EdgeError
from kvgate.edge.prometheus import observed_request_rate
from kvgate.edge.promql import NoData


def rates(settings: Path | None, errors: Console) -> RateReader:
    """Reads a pool's rate, or says why there is none. Raises EdgeError for settings that cannot be read."""
    given = _settings(settings)
    known: dict[str, float | None] = {}

    def observed(pool: Pool) -> float | None:
        """Asked once for a pool, however many turns it takes."""
        if pool.key not in known:
            known[pool.key] = asked(pool)
        return known[pool.key]

    def asked(pool: Pool) -> float | None:
        ref = pool.spec.monitor.prometheus_ref
        endpoint = given.endpoint(ref.name) if ref and given else None
        if endpoint is None:
            return None
        found = observed_request_rate(endpoint, pool.namespace, pool.spec.target_ref.name)
        if isinstance(found, NoData):
            errors.print(f"kvgate: {pool.key}: no observed request rate: {found.message}", soft_wrap=True)
            return None
        return found.requests_per_second

    return observed


def _settings(path: Path | None) -> Settings | None:
    if path is None:
        return None
    try:
        read = read_settings(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise EdgeError(f"{path}: cannot be read") from error
    if not isinstance(read, Settings):
        raise EdgeError(f"{path}: {read[0]}")
    return read
