"""Runs kopf for its watches alone, in a thread, and runs it again when it gives up."""

from __future__ import annotations

import asyncio
import logging
import math
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import kopf

from kvgate.app.operator.backoff import backoff_seconds
from kvgate.app.operator.logs import say

CALL_SECONDS = 5.0
WATCH_SECONDS = 270
"""A whole number: the API server refuses any other."""
UNUSED_FINALIZER = "kvgate.dev/kopf"
"""kopf takes its finalizer off whatever it watches without needing it. The default name would be another operator's."""
OUR_JOBS = "app.kubernetes.io/managed-by=kvgate"
"""Of a cluster's Jobs, the watch sees those of sweeps alone."""
TICK_SECONDS = 1.0
HEALTHY_SECONDS = 60.0


def settings(executor: ThreadPoolExecutor, *, scanning: bool = True) -> kopf.OperatorSettings:
    """kopf writes nothing: no events, no annotations, no finalizer, no peering. Without `scanning` it watches no CRDs
    and no namespaces, which takes rights in the whole cluster: kinds that come later are seen at the next start."""
    made = kopf.OperatorSettings()
    made.execution.executor = executor
    made.networking.request_timeout = CALL_SECONDS
    made.networking.connect_timeout = CALL_SECONDS
    made.networking.error_backoffs = (1, 2, 4)
    made.persistence.finalizer = UNUSED_FINALIZER
    made.posting.enabled = False
    made.peering.standalone = True
    made.scanning.disabled = not scanning
    made.watching.server_timeout = WATCH_SECONDS
    made.watching.client_timeout = WATCH_SECONDS + 10
    made.watching.connect_timeout = CALL_SECONDS
    made.watching.reconnect_backoff = 1.0
    made.watching.chunk_size = 500
    made.watching.label_selectors["batch", "v1", "jobs"] = OUR_JOBS
    return made


class Watching:
    """The watches of all kinds, in the given namespaces, or in all when none is given."""

    def __init__(
        self, make_registry: Callable[[], kopf.OperatorRegistry], namespaces: Sequence[str], beat: Callable[[], None]
    ) -> None:
        """The registry is made anew each time that kopf is begun: the cluster may serve other versions by then."""
        self._make_registry = make_registry
        self._namespaces = tuple(namespaces)
        self._beat = beat
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._end: asyncio.Future[None] | None = None
        self._started = threading.Event()

    @property
    def started(self) -> bool:
        """Whether kopf runs now, past its start."""
        return self._started.is_set()

    def run(self) -> None:
        """Until `stop`. When kopf ends by itself (a 403 while roles load, a kind that went away), it is begun anew."""
        failures = 0
        with ThreadPoolExecutor(max_workers=1, thread_name_prefix="events") as executor:
            while not self._stopping.is_set():
                lasted = self._run_once(executor)
                failures = 1 if lasted >= HEALTHY_SECONDS else failures + 1
                self._pause(0.0 if self._stopping.is_set() else backoff_seconds(failures, 0.0))

    def stop(self) -> None:
        self._stopping.set()
        with self._lock:
            if self._loop is not None and self._end is not None:
                self._loop.call_soon_threadsafe(_resolve, self._end)

    def _run_once(self, executor: ThreadPoolExecutor) -> float:
        """How many seconds kopf ran."""
        loop = asyncio.new_event_loop()
        began = loop.time()
        try:
            with self._lock:
                self._loop, self._end = loop, loop.create_future()
                if self._stopping.is_set():
                    return 0.0
            loop.call_soon(self._tick, loop)
            self._run_kopf(loop, executor)
        except Exception as error:  # noqa: BLE001  whatever ends kopf, the watches are taken up again
            say(logging.WARNING, "the watches ended and are begun anew", reason=type(error).__name__)
        finally:
            self._started.clear()
            lasted = loop.time() - began
            with self._lock:
                self._loop = self._end = None
            loop.close()
        return lasted

    def _run_kopf(self, loop: asyncio.AbstractEventLoop, executor: ThreadPoolExecutor) -> None:
        kopf.run(
            loop=loop,
            registry=self._make_registry(),
            settings=settings(executor, scanning=not self._namespaces),
            standalone=True,
            clusterwide=not self._namespaces,
            namespaces=self._namespaces,
            ready_flag=self._started,
            stop_flag=self._end,
        )

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        self._beat()
        loop.call_later(TICK_SECONDS, self._tick, loop)

    def _pause(self, seconds: float) -> None:
        """A pause is no hang, however long: it is told of each second."""
        for _ in range(math.ceil(seconds / TICK_SECONDS)):
            self._beat()
            if self._stopping.wait(TICK_SECONDS):
                return
        self._beat()


def _resolve(end: asyncio.Future[None]) -> None:
    if not end.done():
        end.set_result(None)
