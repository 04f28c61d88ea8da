"""Which components keep KV cache outside their own memory, as far as the deployment's spec says so."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from kvgate.dynamo.component import Component
from kvgate.dynamo.document import shown
from kvgate.dynamo.shape import Target
from kvgate.dynamo.words import SwitchState

_VARIABLES = (
    (re.compile(r"DYN_KVBM_DISK_.+"), "KVBM's disk tier"),
    (re.compile(r"DYN_KVBM_(?:USE_)?OBJECT_.+"), "KVBM's object store"),
    (re.compile(r"DYN_KVBM_REMOTE_.+"), "KVBM's remote storage"),
    (re.compile(r"LMCACHE_REMOTE_URL"), "LMCache's remote store"),
    (re.compile(r"LMCACHE_LOCAL_DISK"), "LMCache's disk"),
    (re.compile(r"MOONCAKE_.+"), "Mooncake's store"),
)
"""Variables that turn a store on; KVBM's CPU tier and LMCache's CPU memory stay within the pod."""
_ARGUMENTS = (
    (re.compile(r"\bLMCache(?:MP)?Connector(?:V1)?\b"), "LMCache"),
    (re.compile(r"\bMooncakeStoreConnector(?:V1)?\b"), "Mooncake's store"),
    (re.compile(r"\bFlexKVConnector(?:V1)?\b"), "FlexKV"),
    (re.compile(r"\b(?:SharedStorageConnector|ExampleConnector)\b"), "vLLM's shared directory"),
    (re.compile(r"--hicache-storage-backend\b"), "SGLang's HiCache storage"),
    (re.compile(r"--(?:(?:kv-)?connector|kv-offloading-backend)[=\s]+lmcache\b"), "LMCache"),
    (re.compile(r"--enable-lmcache\b"), "LMCache"),
)
_OFF = frozenset({"", "0", "false", "none"})


@dataclass(frozen=True)
class Store:
    """A place outside the workers' memory: which component keeps KV cache there, and what in the spec says so."""

    component: str
    what: str
    where: str

    def __str__(self) -> str:
        return f"{shown(self.component)}: {self.what} ({self.where})"


def stores(target: Target) -> tuple[Store, ...]:
    """Every store that a worker's env or arguments turn on; one for each that says so."""
    return tuple(store for worker in target.workers for store in _of(worker))


def storage_state(target: Target) -> SwitchState:
    """On where a store is named, if by a value that a Secret holds; unknown where arguments hide behind a launcher."""
    if stores(target):
        return SwitchState.ON
    hidden = any(not worker.determinable for worker in target.workers)
    return SwitchState.UNKNOWN if hidden else SwitchState.OFF


def _of(worker: Component) -> Iterator[Store]:
    for entry in worker.env:
        for pattern, what in _VARIABLES:
            if pattern.fullmatch(entry.name) and (entry.source or entry.value.strip().lower() not in _OFF):
                yield Store(worker.name, what, entry.name)
    said = " ".join((*worker.container.command, *worker.container.args)) if worker.container else ""
    for pattern, what in _ARGUMENTS:
        if found := pattern.search(said):
            yield Store(worker.name, what, found[0].split("=")[0].split()[0])
