"""The watches that pass the proxy: each can be ended, and begun again where history is forgotten."""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler

import urllib3

LONGEST_WAIT_SECONDS = 60.0
GONE = re.compile(rb'"code":\s*410')


def is_watch(path: str) -> bool:
    return re.search(r"[?&]watch=(1|true)", path) is not None


@dataclass
class Watches:
    """Those that are open now. `gone` names the kinds of which the API server has said that it forgot (410)."""

    pool: urllib3.PoolManager
    gone: list[str] = field(default_factory=list)
    _open: dict[str, BaseHTTPRequestHandler] = field(default_factory=dict)
    _forgotten: set[str] = field(default_factory=set)
    _gate: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._gate.set()

    def drop(self, *, forget: bool = False, hold: bool = False) -> None:
        """End all of them. With `forget`, each that is taken up again asks for the first revision, which the API
        server knows no more; with `hold`, none is until `resume`."""
        if hold:
            self._gate.clear()
        with self._lock:
            ended, self._open = self._open, {}
            self._forgotten |= set(ended) if forget else set()
        for at in ended.values():
            with suppress(OSError):
                at.connection.shutdown(2)

    def resume(self) -> None:
        self._gate.set()

    def stream(self, at: BaseHTTPRequestHandler, url: str, headers: Mapping[str, str]) -> None:
        """Until either side ends it."""
        self._gate.wait(LONGEST_WAIT_SECONDS)
        kind = at.path.partition("?")[0].rpartition("/")[2]
        with self._lock:
            self._open[kind] = at
            forgotten = kind in self._forgotten
            self._forgotten.discard(kind)
        asked = re.sub(r"resourceVersion=\d+", "resourceVersion=1", url) if forgotten else url
        answer = self.pool.request("GET", asked, headers=dict(headers), preload_content=False)
        at.close_connection = True
        at.send_response(answer.status)
        at.send_header("Content-Type", "application/json")
        at.end_headers()
        with suppress(OSError, urllib3.exceptions.HTTPError):
            for part in answer.stream(65536):
                if GONE.search(part):
                    self.gone.append(kind)
                at.wfile.write(part)
                at.wfile.flush()
        answer.close()
