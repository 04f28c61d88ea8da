"""Which pools an event concerns: the only thing that is decided before a key is queued."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass

ONE_LIST_SECONDS = 30.0
"""Objects of a list come no further apart, however busy the process is: what comes later is of another list."""


@dataclass(frozen=True)
class Known:
    """A pool as its last event told it: the deployment that it aims at, and the one that its A/B would run on."""

    target: str
    uid: str = ""
    staging: str = ""


class Intake:
    """Remembers which pool has which deployments, and queues the keys of the pools that an event may matter to.

    It knows nothing else of the cluster: what was missed while a watch was down, the pools' next turns find.
    """

    def __init__(
        self,
        add: Callable[[str], None],
        written: Callable[[str], str] = lambda _: "",
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`written` is the version of a pool that this process wrote last: whoever wrote it knows what is due."""
        self._add = add
        self._written = written
        self._monotonic = monotonic
        self._listed: dict[str, float] = {}
        self._pools: dict[str, Known] = {}
        self._nodes: dict[str, Hashable] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """How many pools there are."""
        return len(self._pools)

    def listed(self, kind: str) -> None:
        """An object came by a list, with which each watch begins. One that begins anew missed what was deleted in
        between, which no event tells of: all pools are looked at, once for each list."""
        now = self._monotonic()
        with self._lock:
            last, self._listed[kind] = self._listed.get(kind), now
        if last is not None and now - last >= ONE_LIST_SECONDS:
            self.everything()

    def pool(self, namespace: str, name: str, found: Known, changed_to: str = "") -> None:
        """A pool appeared or changed, to this version. One that is new is looked at with those of the same target, for
        it may be the older one: creation times are whole seconds. So are those that waited behind its forerunner."""
        key = f"{namespace}/{name}"
        with self._lock:
            before = self._pools.get(key)
            self._pools[key] = found
        if not changed_to or changed_to != self._written(key):
            self._add(key)
        if before is None or (before.uid, before.target) != (found.uid, found.target):
            aims = {found.target} | ({before.target} if before else set())
            self._queue(lambda other, known: other != key and known.target in aims and _lies_in(other, namespace))

    def pool_gone(self, key: str, uid: str = "") -> None:
        """A pool is gone: those that waited behind it for the same target are looked at, and it once more itself, so
        that whoever turns it learns that it is gone. Where `uid` is given, another of the same name stays known."""
        with self._lock:
            found = self._pools.get(key)
            if found is None or (uid and found.uid and uid != found.uid):
                return
            del self._pools[key]
        self._add(key)
        self.target(key.partition("/")[0], found.target)

    def target(self, namespace: str, name: str) -> None:
        """A deployment appeared, changed or went."""
        self._queue(lambda key, known: name in {known.target, known.staging} and _lies_in(key, namespace))

    def namespace(self, namespace: str) -> None:
        """Something changed that any pool of the namespace may depend on."""
        self._queue(lambda key, _: _lies_in(key, namespace))

    def named(self, namespace: str, pool: str) -> None:
        """Something changed that names its pool, which we may not have heard of yet."""
        self._add(f"{namespace}/{pool}")

    def node(self, name: str, facts: Hashable) -> None:
        """A node appeared or reported. Only what a pool could care about is compared: nodes report all the time."""
        with self._lock:
            if self._nodes.get(name) == facts:
                return
            self._nodes[name] = facts
        self.everything()

    def node_gone(self, name: str) -> None:
        with self._lock:
            self._nodes.pop(name, None)
        self.everything()

    def everything(self) -> None:
        """Something changed that any pool may depend on, such as the operator's settings."""
        self._queue(lambda _key, _known: True)

    def _queue(self, concerns: Callable[[str, Known], bool]) -> None:
        with self._lock:
            keys = [key for key, known in self._pools.items() if concerns(key, known)]
        for key in keys:
            self._add(key)


def _lies_in(key: str, namespace: str) -> bool:
    return key.partition("/")[0] == namespace
