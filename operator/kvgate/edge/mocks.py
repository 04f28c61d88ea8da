"""A deployment's frontends and mock workers as processes of this host, each at a loopback address of its own.

Without etcd and NATS they find each other by files, ask by TCP and publish by ZMQ, as seen with ai-dynamo 1.6.1.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kvgate.dynamo.document import Document, at, mappings, sequence, text, whole
from kvgate.dynamo.watched import HTTP_PORT, SYSTEM_PORT
from kvgate.dynamo.words import MAIN
from kvgate.edge.bounded_http import NoBody, get
from kvgate.edge.canary import Frontend, readiness
from kvgate.edge.children import Child, dying_with_us, end
from kvgate.edge.errors import EdgeError
from kvgate.edge.signals import orderly_end

LAUNCHER = "dynamo-python"
READY_SECONDS = 90.0
_LOOK_EVERY_SECONDS = 0.2
_HOSTS = ("TCP_RPC", "EVENT_PLANE", "SYSTEM", "TCP_RESPONSE_STREAM", "HTTP_RPC")
_LONGEST_LINE = 200


@dataclass(frozen=True)
class Mock:
    """One process in a pod's place."""

    deployment: str
    component: str
    pod: str
    frontend: bool
    address: str
    child: Child
    log: Path


def find_python(given: Path | None) -> Path:
    """The Python that has Dynamo. Raises EdgeError with what to type where there is none."""
    if given is not None:
        if not os.access(given, os.X_OK) or given.is_dir():
            raise EdgeError(f"{given}: cannot be run; name the Python of an environment that has ai-dynamo")
        return given.absolute()
    beside = Path(sys.executable).with_name(LAUNCHER)
    found = str(beside) if os.access(beside, os.X_OK) else shutil.which(LAUNCHER)
    if found is None:
        what = "NVIDIA Dynamo is not installed here: type .ci/bootstrap test in a checkout of kvgate"
        raise EdgeError(f"{what}, or name the Python of an environment that has it: --dynamo-python PATH")
    return Path(found)


@contextmanager
def mocks(python: Path, folder: Path, deployments: Sequence[Document]) -> Iterator[tuple[Mock, ...]]:
    """Run every component that these manifests have, in `folder`, from where their paths are read, until the block
    ends. Raises EdgeError where one cannot be started."""
    started: list[Mock] = []
    addresses = _addresses()
    with orderly_end():
        try:
            for document in deployments:
                started += _started(python, folder, document, addresses)
            yield tuple(started)
        finally:
            end([mock.child for mock in started])


def _addresses() -> Iterator[str]:
    """Of 127.0.0.0/8, by our own number: two of us at once meet no port of each other."""
    number = os.getpid()
    return (f"127.{128 + number // 250 % 100}.{number % 250 + 1}.{host}" for host in range(1, 250))


def _started(python: Path, folder: Path, document: Document, addresses: Iterator[str]) -> Iterator[Mock]:
    name = text(at(document, "metadata", "name"))
    for component in mappings(at(document, "spec", "components")):
        for number in range(whole(component.get("replicas")) or 1):
            yield _start(python, folder, name, component, number, next(addresses))


def _start(python: Path, folder: Path, name: str, component: Document, number: int, address: str) -> Mock:
    part, frontend = text(component.get("name")), component.get("type") == "frontend"
    pod = f"{name}-{part.lower()}-{number + 1}"
    containers = mappings(at(component, "podTemplate", "spec", "containers"))
    container = next((one for one in containers if one.get("name") == MAIN), {})
    words = [text(word) for word in (*sequence(container.get("command")), *sequence(container.get("args")))]
    command = (*dying_with_us(), str(python), *words[1:], *_ports(address, frontend=frontend))
    settings = {**_environment(folder, address), **_role(name, frontend=frontend), **_named(container)}
    log = folder / f"{pod}.log"
    try:
        with log.open("wb") as out:
            child = subprocess.Popen(  # noqa: S603
                command,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**os.environ, **settings},
                start_new_session=True,
            )
    except OSError as error:
        raise EdgeError(f"{python}: cannot be run ({error.strerror})") from error
    return Mock(name, part, pod, frontend, address, child, log)


def _ports(address: str, *, frontend: bool) -> tuple[str, ...]:
    """What a pod need not be told: processes of one host share its ports for ZMQ, which binds every address."""
    if frontend:
        return ("--http-host", address, "--http-port", str(HTTP_PORT))
    with socket.create_server(("", 0)) as free:
        return ("--zmq-kv-events-ports", str(free.getsockname()[1]))


def _environment(folder: Path, address: str) -> dict[str, str]:
    return {
        **{f"DYN_{host}_HOST": address for host in _HOSTS},
        "DYN_DISCOVERY_BACKEND": "file",
        "DYN_FILE_KV": str(folder / "discovery"),
        "DYN_REQUEST_PLANE": "tcp",
        "DYN_EVENT_PLANE": "zmq",
        "DYN_SDK_DISABLE_ANSI_LOGGING": "1",
        "HF_HUB_OFFLINE": "1",
        "HOME": str(folder),
        "TMPDIR": str(folder),
    }


def _role(name: str, *, frontend: bool) -> dict[str, str]:
    """What the Dynamo operator sets in a pod. A worker's /health is 503 until it is told whose health that is."""
    if frontend:
        return {"DYN_NAMESPACE_PREFIX": name}
    health = {"DYN_SYSTEM_PORT": str(SYSTEM_PORT), "DYN_SYSTEM_USE_ENDPOINT_HEALTH_STATUS": '["generate"]'}
    return {"DYN_NAMESPACE": name, **health}


def _named(container: Mapping[str, object]) -> dict[str, str]:
    return {text(entry.get("name")): text(entry.get("value")) for entry in mappings(container.get("env"))}


def wait_until_ready(started: Sequence[Mock], model: str) -> None:
    """Raises EdgeError with what a process said last where it ended, or is not ready within READY_SECONDS."""
    ends, waiting = time.monotonic() + READY_SECONDS, list(started)
    while waiting:
        for mock in waiting:
            if mock.child.poll() is not None:
                raise EdgeError(f"{mock.pod} ended with {mock.child.returncode}, and said last: {_last_line(mock.log)}")
        if time.monotonic() > ends:
            first = waiting[0]
            said = f"said last: {_last_line(first.log)}"
            raise EdgeError(f"{first.pod} is not ready after {READY_SECONDS:.0f} s, and {said}")
        waiting = [mock for mock in waiting if not _ready(mock, model)]
        time.sleep(_LOOK_EVERY_SECONDS)


def _ready(mock: Mock, model: str) -> bool:
    if not mock.frontend:
        return not isinstance(get(f"http://{mock.address}:{SYSTEM_PORT}/health", 2.0, 64 * 1024), NoBody)
    said = readiness(Frontend(mock.pod, mock.address), model)
    return not isinstance(said, str) and said.ready


def _last_line(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1][:_LONGEST_LINE] if lines else "nothing"
