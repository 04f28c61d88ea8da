"""Answers the kubelet and Prometheus: alive while every part moves, ready while the API server answers, metrics."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4

LIVE_PATH, READY_PATH, METRICS_PATH = "/healthz", "/readyz", "/metrics"
PLAIN = "text/plain; charset=utf-8"
READ_SECONDS = 5.0


class Beats:
    """When each part last moved. Parts say how long they may take; one that is not heard of for longer hangs."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._limits: dict[str, float] = {}
        self._last: dict[str, float] = {}

    def part(self, name: str, limit_seconds: float) -> Callable[[], None]:
        """A new part, which has just moved; what is returned is to be called each time that it does."""
        self._limits[name] = limit_seconds
        beat = partial(self._beat, name)
        beat()
        return beat

    def hanging(self) -> tuple[str, ...]:
        """The parts that have not moved for longer than they may take."""
        now = self._monotonic()
        return tuple(name for name, limit in self._limits.items() if now - self._last[name] > limit)

    def _beat(self, name: str) -> None:
        self._last[name] = self._monotonic()


class Health:
    """The endpoint's server, in a thread of its own, on all addresses. `hanging` names what should have moved."""

    def __init__(
        self, port: int, hanging: Callable[[], Sequence[str]], ready: Callable[[], bool], metrics: Callable[[], bytes]
    ) -> None:
        asked = {"hanging": hanging, "ready": ready, "metrics": metrics}
        handler = type("_Bound", (_Answer,), {name: staticmethod(ask) for name, ask in asked.items()})
        self._server = _Server(("", port), handler)
        self._thread = threading.Thread(target=self._server.serve_forever, name="health", daemon=True)

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Whoever hung up is not worth a traceback."""


class _Answer(BaseHTTPRequestHandler):
    timeout = READ_SECONDS
    hanging: Callable[[], Sequence[str]]
    ready: Callable[[], bool]
    metrics: Callable[[], bytes]

    def do_GET(self) -> None:
        if self.path == LIVE_PATH:
            hanging = self.hanging()
            self._say(not hanging, f"hangs: {', '.join(hanging)}" if hanging else "ok")
        elif self.path == READY_PATH:
            ready = self.ready()
            self._say(ready, "ok" if ready else "the API server does not answer")
        elif self.path == METRICS_PATH:
            self._send(HTTPStatus.OK, self.metrics(), CONTENT_TYPE_PLAIN_0_0_4)
        else:
            self.send_error(HTTPStatus.NOT_FOUND)

    def _say(self, good: bool, text: str) -> None:  # noqa: FBT001
        self._send(HTTPStatus.OK if good else HTTPStatus.SERVICE_UNAVAILABLE, f"{text}\n".encode(), PLAIN)

    def _send(self, status: HTTPStatus, body: bytes, content: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        with suppress(BrokenPipeError, ConnectionResetError):
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Probes come every few seconds; they are not news."""
