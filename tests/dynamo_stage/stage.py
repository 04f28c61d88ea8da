"""A stage: NVIDIA Dynamo's real frontends, routers and mock workers as local processes that find each other by files.

Facts that this rests on were seen with ai-dynamo 1.6.1: file discovery spans processes; without NATS and etcd the
request plane is TCP and the event plane ZMQ; DYN_SYSTEM_PORT is parsed as a signed 16-bit number; a worker's /health is
503 until DYN_SYSTEM_USE_ENDPOINT_HEALTH_STATUS names its endpoint.
"""

from __future__ import annotations

import os
import secrets
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.cluster import leftovers, processes
from tests.cluster.cache import CannotRunError
from tests.cluster.leftovers import Kind, Ledger, states
from tests.cluster.processes import Process
from tests.dynamo_stage.client import Door, UserDoor
from tests.dynamo_stage.model import write_model
from tests.dynamo_stage.specs import Frontend, Worker
from tests.ports import free_ports

LOOPBACK = "127.0.0.1"
HTTP_PORT, SYSTEM_PORT = 8000, 9090
READY_SECONDS = 90.0
TAIL_BYTES = 4000
LAUNCHER = Path(sys.executable).with_name("dynamo-python")


@dataclass(frozen=True)
class Running:
    """A process of the stage with the door to it."""

    name: str
    process: Process
    log: Path

    def runs(self) -> bool:
        return self.process.runs()

    def said(self) -> str:
        """Everything it has logged."""
        return self.log.read_text("utf-8", errors="replace")


@dataclass(frozen=True)
class RunningFrontend(Running):
    spec: Frontend
    door: UserDoor


@dataclass(frozen=True)
class RunningWorker(Running):
    """`events_endpoint` is where a ZMQ subscriber reads vLLM's wire format; empty unless the spec asked for it."""

    spec: Worker
    door: Door
    system_port: int
    events_endpoint: str = ""

    def healthy(self) -> bool:
        return self.door.get("/health")[0] == 200


@dataclass
class Stage:
    """Starts, finds and ends the processes of one Dynamo installation; nothing outside of it sees them."""

    ledger: Ledger
    logs: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    running: dict[str, Running] = field(default_factory=dict)

    @property
    def model_directory(self) -> Path:
        return self.ledger.state / "model"

    @property
    def discovery(self) -> Path:
        """Where the processes tell each other of themselves, one JSON file for each endpoint and model card."""
        return self.ledger.state / "discovery"

    def frontend(
        self, name: str = "frontend", spec: Frontend | None = None, *, wait: bool = True, address: str = LOOPBACK
    ) -> RunningFrontend:
        """Start a frontend; with `wait`, return when it answers HTTP, which says nothing of its models.

        At an address of its own it listens on port 8000, as in a pod.
        """
        spec = spec or Frontend()
        port = free_ports(1) if address == LOOPBACK else HTTP_PORT
        process, log = self._start(name, spec.command(port, address), spec.variables(), address)
        started = RunningFrontend(name, process, log, spec, UserDoor(f"http://{address}:{port}"))
        self.running[name] = started
        if wait:
            self.until(lambda: started.door.get("/live")[0] == 200, f"{name} to answer", started)
        return started

    def worker(
        self, name: str, spec: Worker | None = None, *, wait: bool = True, address: str = LOOPBACK
    ) -> RunningWorker:
        """Start a mock worker; with `wait`, return when its own /health says that its endpoint serves.

        At an address of its own its system port is 9090, as in a pod.
        """
        spec = spec or Worker()
        zmq_port = free_ports(1, "0.0.0.0")
        port = free_ports(1) if address == LOOPBACK else SYSTEM_PORT
        system = {"DYN_SYSTEM_PORT": str(port), "DYN_SYSTEM_USE_ENDPOINT_HEALTH_STATUS": '["generate"]'}
        command = spec.command(self.model_directory, zmq_port)
        process, log = self._start(name, command, {**system, **spec.variables(zmq_port)}, address)
        events = f"tcp://{address}:{zmq_port}" if spec.zmq_events or spec.silent else ""
        started = RunningWorker(name, process, log, spec, Door(f"http://{address}:{port}"), port, events)
        self.running[name] = started
        if wait:
            self.until(started.healthy, f"{name} to be healthy", started)
        return started

    def workers(self, **specs: Worker) -> dict[str, RunningWorker]:
        """Start all of them, then wait for all of them."""
        started = {name: self.worker(name, spec, wait=False) for name, spec in specs.items()}
        for name, one in started.items():
            self.until(one.healthy, f"{name} to be healthy", one)
        return started

    def until(self, holds: Callable[[], object], what: str, *needed: Running, seconds: float = READY_SECONDS) -> None:
        """Poll until `holds` is true; raises AssertionError after `seconds`, or when a needed process has ended."""
        deadline = time.monotonic() + seconds
        while not holds():
            for one in needed:
                assert one.runs(), f"{one.name} ended while we waited for {what}:\n{one.said()[-TAIL_BYTES:]}"
            assert time.monotonic() < deadline, f"waited {seconds:.0f} s in vain for {what}"
            time.sleep(0.05)

    def until_ready(self, frontend: RunningFrontend, *, seconds: float = READY_SECONDS) -> None:
        """Wait until the model is ready to serve through this frontend, by its readiness endpoint."""
        self.until(lambda: frontend.door.readiness().ready, "the model to be ready", frontend, seconds=seconds)

    def stop(self, *names: str, seconds: float = 20.0) -> None:
        """End these as Kubernetes does: SIGTERM, so that they drain, and SIGKILL after `seconds`."""
        named = [self.terminate(name) for name in names]
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and any(process.runs() for process in named):
            time.sleep(0.05)
        processes.kill(named)

    def terminate(self, name: str) -> Process:
        """Ask one to end and return at once; it leaves the stage, and what does not end by itself ends with it."""
        process = self.running.pop(name).process
        _terminate(process)
        return process

    def reap(self, process: Process) -> None:
        """End what was asked to end, if it still runs, and take note of its end."""
        processes.kill([process])

    def kill(self, *names: str) -> None:
        """End these as a crash does."""
        processes.kill([self.running.pop(name).process for name in names])

    def tails(self) -> dict[str, str]:
        """The end of each process's log."""
        return {log.stem: log.read_bytes()[-TAIL_BYTES:].decode("utf-8", "replace") for log in self.logs.glob("*.log")}

    def _start(
        self, name: str, command: tuple[str, ...], variables: Mapping[str, str], address: str
    ) -> tuple[Process, Path]:
        assert name not in self.running, f"{name} runs already"
        log = self.logs / f"{name}.log"
        environment = {**self._common(address), **variables, **self.ledger.mark}
        process = processes.start((LAUNCHER, *command), log, environment)
        self.ledger.note(Kind.PROCESS, str(process.pid), process.start_ticks)
        return process, log

    def _common(self, address: str) -> dict[str, str]:
        hosts = ("TCP_RPC", "EVENT_PLANE", "SYSTEM", "TCP_RESPONSE_STREAM", "HTTP_RPC")
        return {
            **{f"DYN_{host}_HOST": address for host in hosts},
            "DYN_DISCOVERY_BACKEND": "file",
            "DYN_FILE_KV": str(self.discovery),
            "DYN_REQUEST_PLANE": "tcp",
            "DYN_EVENT_PLANE": "zmq",
            "DYN_LOG": "info",
            "DYN_SDK_DISABLE_ANSI_LOGGING": "1",
            "HF_HUB_OFFLINE": "1",
            "HOME": str(self.ledger.state),
            **self.environment,
        }


@contextmanager
def open_stage(logs: Path, environment: Mapping[str, str] | None = None) -> Iterator[Stage]:
    """A fresh stage whose logs are kept in `logs`; all that it started is ended with the block, or by the next run."""
    require_dynamo()
    leftovers.clear_abandoned()
    ledger = Ledger.open(states() / f"d{secrets.token_hex(3)}")
    previous = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        logs.mkdir(parents=True, exist_ok=True)
        write_model(ledger.state / "model")
        yield Stage(ledger, logs, environment or {})
    finally:
        signal.signal(signal.SIGTERM, previous)
        leftovers.clear(ledger.state)


def require_dynamo() -> None:
    if not LAUNCHER.exists():
        raise CannotRunError(f"NVIDIA Dynamo is not installed for {sys.executable}: run .ci/bootstrap test")


def _terminate(process: Process) -> None:
    if process.runs():
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGTERM)
