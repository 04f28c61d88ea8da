"""`kvgate operator`: puts watches, queue, workers, Lease and health together, and takes them down in order."""

from __future__ import annotations

import logging
import re
import signal
import socket
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import kopf

from kvgate.app.operator.calls import Calls
from kvgate.app.operator.grounds import GuardedGround, TellingGround
from kvgate.app.operator.handlers import log_in, register
from kvgate.app.operator.health import Beats, Health
from kvgate.app.operator.intake import Intake
from kvgate.app.operator.leadership import Leadership
from kvgate.app.operator.logs import confess, say, set_up_logs, threads_confess
from kvgate.app.operator.meters import Meters
from kvgate.app.operator.queue import DelayQueue
from kvgate.app.operator.settings_file import SettingsFile
from kvgate.app.operator.watching import Watching
from kvgate.app.operator.workers import Office, Workers
from kvgate.app.settings import Settings
from kvgate.edge.cluster.client import Client
from kvgate.edge.cluster.discovery import target_version
from kvgate.edge.errors import EdgeError
from kvgate.edge.leases import Leases

LEASE_NAME = "kvgate-operator"
LEASE_NAMESPACE = "kube-system"
"""One for all installations of a cluster, so that one of them acts at a time."""
HEALTH_PORT = 8081
REFRESH_SECONDS = 5.0
LAST_TURNS_SECONDS = 20.0
"""How long turns in progress may take to end after SIGTERM; the pod's grace period is longer."""
ELECTION_LIMIT_SECONDS, WATCHING_LIMIT_SECONDS, WORKER_LIMIT_SECONDS = 45.0, 45.0, 600.0
"""A turn may make a Job on each of a thousand nodes; each request that it waits for has a limit of its own."""
FAILED, FINE = 1, 0

GroundMaker = Callable[[Callable[[], Settings], str, Callable[[], None]], TellingGround]
"""Makes the ground of the operator of this identity. It asks for the settings each time, for they may change, and
calls the third before each of its writes: it raises when we may not act any more."""
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


@dataclass(frozen=True)
class OperatorOptions:
    """What the command line says. No namespaces: all of them. `kubeconfig` is for the watches, and empty for the
    pod's own ServiceAccount. Port 0: any free one."""

    namespaces: tuple[str, ...] = ()
    settings: Path | None = None
    kubeconfig: str = ""
    lease_namespace: str = LEASE_NAMESPACE
    health_port: int = HEALTH_PORT


def run_operator(
    options: OperatorOptions,
    client: Client,
    make_ground: GroundMaker,
    meters: Meters | None = None,
    calls: Calls | None = None,
) -> int:
    """Runs until SIGTERM or SIGINT, then returns 0; 1 when a part of it broke. Raises EdgeError when it cannot begin:
    for settings or namespaces that cannot be used, or on a port that is taken. `meters` is served, and a request of
    `calls` that does not end fails the operator's health."""
    _check(options)
    settings = SettingsFile(options.settings)
    set_up_logs(settings.current().log_level)
    identity = f"{socket.gethostname()}_{uuid.uuid4()}"
    leadership = Leadership(Leases(client, options.lease_namespace, LEASE_NAME), identity, time.monotonic, _now)
    ground = make_ground(settings.current, identity, leadership.require)
    operator = Operator(options, settings, leadership, ground, lambda: target_version(client), meters, calls)
    before = {number: signal.signal(number, operator.hear) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    try:
        with threads_confess():
            return operator.run()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _check(options: OperatorOptions) -> None:
    """kopf would take a name with a star or a comma for a pattern."""
    for name in (*options.namespaces, options.lease_namespace):
        if not _NAMESPACE.fullmatch(name):
            raise EdgeError("a namespace must be named exactly: at most 63 lower case letters, digits, inner hyphens")


class Operator:
    """All parts, each in threads of its own; a part that breaks ends the process, and the kubelet begins it anew."""

    def __init__(
        self,
        options: OperatorOptions,
        settings: SettingsFile,
        leadership: Leadership,
        ground: TellingGround,
        version: Callable[[], str] = lambda: "v1beta1",
        meters: Meters | None = None,
        calls: Calls | None = None,
    ) -> None:
        """`version` says in which version the cluster serves Dynamo's deployments now."""
        self._options = options
        self._settings = settings
        self._version = version
        self._beats = Beats(time.monotonic)
        self._calls = calls or Calls(time.monotonic)
        self._meters = meters or Meters(_now)
        self._meters.leads = leadership.holds
        self._stop = threading.Event()
        self._stop_electing = threading.Event()
        self._broke = False
        self._queue = DelayQueue(time.monotonic)
        self._leadership = leadership
        self._intake = Intake(self._queue.add, ground.written)
        self._watching = self._make_watching()
        self._workers = Workers(self._office(ground))

    def hear(self, number: int, frame: object) -> None:
        """A signal to end. A second one changes nothing: the end is bounded in time as it is."""
        del number, frame
        self._stop.set()

    def run(self) -> int:
        health = self._start_health()
        watching = self._part("watching", self._watching.run)
        election = self._part("election", self._elect)
        workers = [self._part(f"worker-{index}", self._work(index)) for index in range(self._count)]
        where = ",".join(self._options.namespaces) or "all"
        say(logging.INFO, "kvgate operator started", namespaces=where, health_port=health.port)
        while not self._stop.wait(REFRESH_SECONDS):
            if self._settings.refresh():
                set_up_logs(self._settings.current().log_level)
                self._intake.everything()
        self._end(watching, workers, election)
        health.stop()
        return FAILED if self._broke else FINE

    @property
    def _count(self) -> int:
        return self._settings.current().workers

    def _end(self, watching: threading.Thread, workers: list[threading.Thread], election: threading.Thread) -> None:
        """The Lease is held until nothing acts any more, and let go only then."""
        say(logging.INFO, "stopping")
        self._queue.close()
        self._watching.stop()
        until = time.monotonic() + LAST_TURNS_SECONDS
        for thread in workers:
            thread.join(max(0.0, until - time.monotonic()))
        self._stop_electing.set()
        election.join(LAST_TURNS_SECONDS)
        if any(thread.is_alive() for thread in (*workers, election)):
            say(logging.WARNING, "a turn did not end in time; the lease is left to expire")
        else:
            self._leadership.release()
        watching.join(LAST_TURNS_SECONDS)
        say(logging.INFO, "stopped")

    def _make_watching(self) -> Watching:
        return Watching(self._registry, self._options.namespaces, self._beats.part("watching", WATCHING_LIMIT_SECONDS))

    def _registry(self) -> kopf.OperatorRegistry:
        registry = kopf.OperatorRegistry()
        register(registry, self._intake, self._version())
        log_in(registry, self._options.kubeconfig)
        return registry

    def _office(self, ground: TellingGround) -> Office:
        return Office(
            queue=self._queue,
            ground=GuardedGround(ground, self._leadership.require, self._meters),
            clock=_now,
            leads=self._leadership.holds,
            gone=self._intake.pool_gone,
            meters=self._meters,
            pools=lambda: len(self._intake),
        )

    def _start_health(self) -> Health:
        try:
            health = Health(self._options.health_port, self._hanging, self._is_ready, self._meters.page)
        except OSError as error:
            raise EdgeError(f"port {self._options.health_port} for health cannot be had ({error.strerror})") from error
        health.start()
        return health

    def _hanging(self) -> tuple[str, ...]:
        return (*self._beats.hanging(), *self._calls.hanging())

    def _is_ready(self) -> bool:
        return self._watching.started and self._leadership.answered()

    def _elect(self) -> None:
        self._leadership.run(self._stop_electing, self._beats.part("election", ELECTION_LIMIT_SECONDS))

    def _work(self, index: int) -> Callable[[], None]:
        return lambda: self._workers.run(self._stop, self._beats.part(f"worker-{index}", WORKER_LIMIT_SECONDS))

    def _part(self, name: str, run: Callable[[], None]) -> threading.Thread:
        def guarded() -> None:
            try:
                run()
            except Exception as error:  # noqa: BLE001  half an operator is worse than none
                self._broke = True
                self._stop.set()
                confess("a part of the operator broke", error, part=name)

        thread = threading.Thread(target=guarded, name=name, daemon=True)
        thread.start()
        return thread


def _now() -> datetime:
    return datetime.now(UTC)
