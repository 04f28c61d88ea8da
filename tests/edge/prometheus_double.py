"""A stand-in for Prometheus on loopback, for what a real one cannot be made to do: fail, hang, lie and babble.

It plays the documented HTTP API: `GET /api/v1/query`, a JSON envelope with `status` and `data`, an instant vector in
`data.result`, 400, 422 and 503 for errors.
"""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

Answer = Callable[["Handler", threading.Event], None]


@dataclass(frozen=True)
class Asked:
    """One request as it arrived."""

    path: str
    params: dict[str, list[str]]
    headers: Message


@dataclass(frozen=True)
class Double:
    """Where it listens, and what it was asked."""

    url: str
    asked: list[Asked] = field(default_factory=list)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Quiet."""

    def reply(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)


def says(body: bytes, status: int = 200, **headers: str) -> Answer:
    return lambda handler, _: handler.reply(status, body, **headers)


def envelope(result: object) -> bytes:
    return json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}}).encode()


def value(text: str) -> bytes:
    return envelope([{"metric": {}, "value": [1767225600.123, text]}])


@contextmanager
def double(answer: Answer, tls: ssl.SSLContext | None = None) -> Iterator[Double]:
    """Listens until the block ends; `answer` gets an event that is set then, so that no hanging outlives the test."""
    ended = threading.Event()
    asked: list[Asked] = []

    class Answering(Handler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            asked.append(Asked(parts.path, parse_qs(parts.query), self.headers))
            try:
                answer(self, ended)
            except OSError:
                self.close_connection = True

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
    if tls:
        server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    try:
        yield Double(f"{'https' if tls else 'http'}://127.0.0.1:{server.server_address[1]}", asked)
    finally:
        ended.set()
        server.shutdown()
        server.server_close()
