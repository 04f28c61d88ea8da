"""A ground of pools that are kept in memory: it plays what the cluster's ground documents, and notes each call."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from kvgate.api.status import PoolStatus
from kvgate.core.steps import Step
from kvgate.core.world import Pool, World
from kvgate.edge.errors import PoolGoneError, WriteConflictError
from tests.core import cases


def pool(key: str, status: PoolStatus | None = None) -> Pool:
    namespace, _, name = key.partition("/")
    return Pool(
        name=name,
        namespace=namespace,
        uid=f"uid-of-{name}",
        generation=1,
        spec=cases.spec(),
        status=status or PoolStatus(),
        created_at=datetime(2026, 11, 1, tzinfo=UTC),
    )


@dataclass
class MemoryGround:
    """`observe` raises PoolGoneError for a pool that is not there, `write_status` WriteConflictError for one that was
    written since; `before` may raise what a call out may raise."""

    pools: dict[str, Pool] = field(default_factory=dict)
    calls: list[tuple[str, str]] = field(default_factory=list)
    told: list[tuple[str, str, str]] = field(default_factory=list)
    before: Callable[[str, str], None] = lambda _call, _key: None
    lock: threading.Lock = field(default_factory=threading.Lock)

    def observe(self, key: str) -> tuple[Pool, World]:
        self._note("observe", key)
        if key not in self.pools:
            raise PoolGoneError(f"InferencePool {key} is gone")
        return self.pools[key], World(target=cases.target(), kv=cases.kv(), nodes=cases.nodes())

    def write_status(self, pool: Pool, status: PoolStatus) -> None:
        self._note("write_status", pool.key)
        if self.pools[pool.key] is not pool:
            raise WriteConflictError(f"InferencePool {pool.key}: it was changed since it was read")
        self.pools[pool.key] = replace(pool, status=status)

    def written(self, key: str) -> str:
        """No API server counts versions here."""
        del key
        return ""

    def carry_out(self, pool: Pool, world: World, step: Step) -> None:
        self._note("carry_out", pool.key)

    def tell(self, pool: Pool, events: Sequence[tuple[str, str, str]]) -> None:
        self._note("tell", pool.key)
        self.told += events

    def count(self, call: str, key: str) -> int:
        with self.lock:
            return self.calls.count((call, key))

    def _note(self, call: str, key: str) -> None:
        with self.lock:
            self.calls.append((call, key))
        self.before(call, key)


def until(holds: Callable[[], bool], seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"still not so after {seconds:.0f} s"
        time.sleep(0.01)
