"""Answers the kubelet: alive while every part of the operator still moves, ready while the API server answers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

LIVE_PATH, READY_PATH = "/healthz", "/readyz"
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
    """The endpoint's server, in a thread of its own, on all addresses."""

    def __init__(self, port: int, beats: Beats, ready: Callable[[], bool]) -> None:
        handler = type("_Bound", (_Answer,), {"beats": beats, "ready": staticmethod(ready)})
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
    beats: Beats
    ready: Callable[[], bool]

    def do_GET(self) -> None:
        if self.path == LIVE_PATH:
            hanging = self.beats.hanging()
            self._say(not hanging, f"hangs: {', '.join(hanging)}" if hanging else "ok")
        elif self.path == READY_PATH:
            ready = self.ready()
            self._say(ready, "ok" if ready else "the API server does not answer")
        else:
            self.send_error(HTTPStatus.NOT_FOUND)

    def _say(self, good: bool, text: str) -> None:  # noqa: FBT001
        body = f"{text}\n".encode()
        self.send_response(HTTPStatus.OK if good else HTTPStatus.SERVICE_UNAVAILABLE)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        with suppress(BrokenPipeError, ConnectionResetError):
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Probes come every few seconds; they are not news."""
