"""Which pools an event concerns: the only thing that is decided before a key is queued."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable


class Intake:
    """Remembers which pool has which target, and queues the keys of the pools that an event may matter to.

    It knows nothing else of the cluster: what was missed while a watch was down, the pool's own next turn finds.
    """

    def __init__(self, add: Callable[[str], None], written: Callable[[str], str] = lambda _: "") -> None:
        """`written` is the version of a pool that this process wrote last: whoever wrote it knows what is due."""
        self._add = add
        self._written = written
        self._targets: dict[str, str] = {}
        self._nodes: dict[str, Hashable] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """How many pools there are."""
        return len(self._targets)

    def pool(self, namespace: str, name: str, target: str, changed_to: str = "") -> None:
        """A pool appeared or changed, to this version."""
        key = f"{namespace}/{name}"
        with self._lock:
            self._targets[key] = target
        if not changed_to or changed_to != self._written(key):
            self._add(key)

    def pool_gone(self, key: str) -> None:
        """A pool is gone: those that waited behind it for the same target are looked at, and it once more itself, so
        that whoever turns it learns that it is gone."""
        with self._lock:
            target = self._targets.pop(key, None)
        if target is not None:
            self._add(key)
            self.target(key.partition("/")[0], target)

    def target(self, namespace: str, name: str) -> None:
        """A deployment appeared, changed or went."""
        self._queue(lambda key, target: target == name and _lies_in(key, namespace))

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
        self._queue(lambda _key, _target: True)

    def _queue(self, concerns: Callable[[str, str], bool]) -> None:
        with self._lock:
            keys = [key for key, target in self._targets.items() if concerns(key, target)]
        for key in keys:
            self._add(key)


def _lies_in(key: str, namespace: str) -> bool:
    return key.partition("/")[0] == namespace
