"""Sees every version of every pool as the API server hands it out, and holds each to the rules of all statuses."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import urllib3
from kubernetes import client, watch

from kvgate.api.status import PoolStatus
from kvgate.api.wire import GROUP, VERSION
from tests.invariants import broken

Document = dict[str, Any]
LOOK_SECONDS = 0.5
PAUSE_SECONDS = 0.05
CONNECT_SECONDS, SILENCE_SECONDS, WATCH_SECONDS = 10, 5, 600


@dataclass(frozen=True)
class Seen:
    """One version of one pool."""

    uid: str
    generation: int
    status: PoolStatus

    @property
    def current(self) -> bool:
        """Whether the status was judged for the spec that stands beside it."""
        return self.status.observed_generation == self.generation


class PoolWatch:
    """A watch in a thread of its own. No version is missed, so each status is held to the one before it."""

    def __init__(self, connection: client.ApiClient) -> None:
        self._pools = client.CustomObjectsApi(connection)
        self._latest: dict[str, Seen] = {}
        self._broken: list[str] = []
        self._version = ""
        self._changed = threading.Condition()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pool-watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(10)

    def latest(self, key: str) -> Seen | None:
        with self._changed:
            return self._latest.get(key)

    def pools(self) -> dict[str, Seen]:
        """The pools that there are, by namespace/name."""
        with self._changed:
            return dict(self._latest)

    def broken(self) -> list[str]:
        """Each rule that any status broke so far, with the pool that broke it."""
        with self._changed:
            return list(self._broken)

    def wait_for(self, key: str, holds: Callable[[Seen], bool], seconds: float) -> Seen | None:
        """The first version from the present one on for which `holds`; None when there was none in time."""
        deadline = time.monotonic() + seconds
        with self._changed:
            while time.monotonic() < deadline:
                seen = self._latest.get(key)
                if seen is not None and holds(seen):
                    return seen
                self._changed.wait(LOOK_SECONDS)
        return None

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._follow()
            except client.ApiException:
                self._version = ""
            except (urllib3.exceptions.HTTPError, OSError):
                pass
            self._stop.wait(PAUSE_SECONDS)

    def _follow(self) -> None:
        """From where the last connection ended, so that it matters to nobody when one ends."""
        self._version = self._version or self._list()
        events = watch.Watch().stream(  # type: ignore[no-untyped-call]
            *(self._pools.list_cluster_custom_object, GROUP, VERSION, "inferencepools"),
            resource_version=self._version,
            timeout_seconds=WATCH_SECONDS,
            _request_timeout=(CONNECT_SECONDS, SILENCE_SECONDS),
        )
        for event in events:
            self._take(event["type"], event["object"])
            self._version = event["object"]["metadata"]["resourceVersion"]

    def _list(self) -> str:
        listed: Any = self._pools.list_cluster_custom_object(
            GROUP, VERSION, "inferencepools", _request_timeout=CONNECT_SECONDS
        )
        for item in listed["items"]:
            self._take("ADDED", item)
        return str(listed["metadata"]["resourceVersion"])

    def _take(self, kind: str, document: Document) -> None:
        metadata = document["metadata"]
        key = f"{metadata['namespace']}/{metadata['name']}"
        seen = Seen(metadata["uid"], metadata["generation"], PoolStatus.model_validate(document.get("status") or {}))
        with self._changed:
            before = self._latest.pop(key, None)
            if kind != "DELETED":
                self._latest[key] = seen
                self._judge(key, seen, before)
            self._changed.notify_all()

    def _judge(self, key: str, seen: Seen, before: Seen | None) -> None:
        """A spec that was just written has the status of the one before it: the operator's next write is judged."""
        if not seen.current:
            return
        known = before is not None and before.uid == seen.uid and before.current
        past = before.status if before is not None and known else None
        lines = broken(seen.status, seen.generation, datetime.now(UTC), past)
        self._broken += [f"{key}: {line}" for line in lines]
