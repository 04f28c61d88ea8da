"""Plays a Dynamo frontend's HTTP face where the real one cannot be made to misbehave: slow, cut, refusing, endless.

It answers `/v1/models/{model}/ready` and streams chat answers as Dynamo 1.6.1 does, with `nvext.worker_id`, usage, and
one token per event; workers are named in turn unless a request pins them.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TOKENS_PER_WORD = 2


@dataclass
class Manners:
    """How it behaves; the defaults are a healthy split of one pair."""

    status: int = 200
    pairs: tuple[tuple[int, int], ...] = ((1, 2),)
    first_token_seconds: float = 0.0
    cut_after: int | None = None
    drips: bool = False
    counts: bool = True
    ready: str = '{"ready": true, "namespaces": {}}'
    asked: list[dict[str, object]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, manners: Manners) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.manners = manners


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    @property
    def manners(self) -> Manners:
        assert isinstance(self.server, _Server)
        return self.server.manners

    def do_GET(self) -> None:
        body = self.manners.ready.encode()
        self.send_response(self.manners.status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.manners.lock:
            self.manners.asked.append(body)
            index = len(self.manners.asked) - 1
        self.send_response(self.manners.status)
        self.send_header("Connection", "close")
        self.end_headers()
        if self.manners.status == 200:
            self._stream(body, index)

    def _stream(self, body: dict[str, object], index: int) -> None:
        for _ in range(300 if self.manners.drips else 0):
            self._say(":")
            time.sleep(0.1)
        time.sleep(self.manners.first_token_seconds)
        for number, line in enumerate(_events(body, index, self.manners)):
            if self.manners.cut_after == number:
                return
            self._say(f"{line}\n\n")

    def _say(self, text: str) -> None:
        with suppress(OSError):
            self.wfile.write(text.encode())
            self.wfile.flush()

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def frontend(manners: Manners) -> Iterator[str]:
    """Serve on loopback; gives `host:port`."""
    server = _Server(manners)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _events(body: dict[str, object], index: int, manners: Manners) -> Iterator[str]:
    nvext = body["nvext"]
    assert isinstance(nvext, dict)
    prefill, decode = manners.pairs[index % len(manners.pairs)]
    both = nvext.get("backend_instance_id")
    workers = {
        "prefill_worker_id": nvext.get("prefill_worker_id", both or prefill),
        "decode_worker_id": nvext.get("decode_worker_id", both or decode),
    }
    for text in ("41", " 07", " 93"):
        yield f"data: {json.dumps({'choices': [{'delta': {'content': text}}], 'nvext': {'worker_id': workers}})}"
    if manners.counts:
        messages = body["messages"]
        assert isinstance(messages, list)
        tokens = TOKENS_PER_WORD * len(messages[0]["content"].split())
        usage = {"prompt_tokens": tokens, "prompt_tokens_details": {"cached_tokens": 0}}
        yield f"data: {json.dumps({'choices': [], 'usage': usage})}"
    yield "data: [DONE]"
