"""A proxy before the API server that fails requests by a seeded plan, in the ways in which a real one does."""

from __future__ import annotations

import json
import random
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import urllib3

from tests.cluster.access import Access
from tests.faults.watches import Watches, is_watch

HANG_SECONDS = 6.0
"""Longer than any call of kvgate's may take."""
NOT_FORWARDED = frozenset({"host", "connection", "accept-encoding", "transfer-encoding", "content-length"})
LOG = re.compile(r"/pods/([^/]+)/log")
LEASE = "/leases"
"""Renewals come every two seconds; of them no plan is made."""


class Fault(StrEnum):
    TOO_MANY = "429"
    INTERNAL = "500"
    CUT_BEFORE = "the connection ends before the request is carried out"
    CUT_AFTER = "the request is carried out and its answer is lost"
    TRUNCATED = "the answer ends half-way"
    CONFLICT = "409: somebody else writes the object first"
    HANG = "no answer comes in time"
    DEATH_BEFORE = "kvgate is killed before the request"
    DEATH_AFTER = "kvgate is killed once the request was carried out"


PROXYS = (Fault.TOO_MANY, Fault.INTERNAL, Fault.CUT_BEFORE, Fault.CUT_AFTER, Fault.TRUNCATED, Fault.CONFLICT)
DEATHS = (Fault.DEATH_BEFORE, Fault.DEATH_AFTER)
WRITES_IN_DOUBT, READS_IN_DOUBT = 24, 120
"""Of a run, the first requests that may fail; later ones succeed, so that every run comes to an end."""


@dataclass
class Doubts:
    """Which request of a run fails, and how: the n-th that writes, the n-th that reads; none while it is `over`."""

    writes: dict[int, Fault]
    reads: dict[int, Fault]
    met: list[str] = field(default_factory=list)
    dead: bool = False
    over: bool = False
    _seen: dict[bool, int] = field(default_factory=lambda: {True: 0, False: 0})
    _lock: threading.Lock = field(default_factory=threading.Lock, compare=False)

    def next(self, method: str, path: str) -> Fault | None:
        writes = method != "GET"
        with self._lock:
            if self.over:
                return None
            self._seen[writes] += 1
            fault = (self.writes if writes else self.reads).get(self._seen[writes])
            if fault is not None:
                self.met.append(f"{method} {path.partition('?')[0]}: {fault}")
            return fault


def doubts(seed: int, reads_in_doubt: int = READS_IN_DOUBT) -> Doubts:
    """A third of the writes and a few reads; now and then one that hangs, which takes its time."""
    draw = random.Random(seed)
    writes = {n: draw.choice((*PROXYS, *DEATHS)) for n in range(1, WRITES_IN_DOUBT) if draw.random() < 1 / 3}
    kinds = (Fault.TOO_MANY, Fault.INTERNAL, Fault.CUT_BEFORE, Fault.TRUNCATED)
    reads = {n: draw.choice(kinds) for n in range(1, reads_in_doubt) if draw.random() < 1 / 40}
    if draw.random() < 1 / 10:
        writes[draw.randrange(1, 8)] = Fault.HANG
    return Doubts(writes, reads)


@dataclass
class Doubtful:
    """The proxy; `address` is plain HTTP on loopback. `disturb` makes the path's object another than was read, `kill`
    ends the process that asks, and `log` gives what a pod's container printed, where no kubelet can be asked."""

    access: Access
    doubts: Doubts
    disturb: Callable[[str], None]
    kill: Callable[[], None] = lambda: None
    log: Callable[[str], str] | None = None

    def __post_init__(self) -> None:
        self.pool = urllib3.PoolManager(ca_certs=str(self.access.authority), retries=False, maxsize=32)
        self.watches = Watches(self.pool)
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one_request(self) -> None:
                with suppress(OSError):
                    super().handle_one_request()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the word of its base
                del format, args

            def answer(self) -> None:
                outer.answer(self)

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = answer  # noqa: N815

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.address = f"http://127.0.0.1:{self.server.server_address[1]}"

    def answer(self, at: BaseHTTPRequestHandler) -> None:
        body = at.rfile.read(int(at.headers.get("Content-Length") or 0))
        pod = LOG.search(at.path)
        if is_watch(at.path):
            self.watches.stream(at, f"{self.access.server}{at.path}", _headers(at))
        elif pod and self.log is not None:
            _send(at, 200, self.log(pod[1]).encode())
        else:
            self._answer(at, body, None if LEASE in at.path else self.doubts.next(at.command, at.path))

    def _answer(self, at: BaseHTTPRequestHandler, body: bytes, fault: Fault | None) -> None:
        match fault:
            case Fault.TOO_MANY:
                _send(at, 429, _status(429, "TooManyRequests"), {"Retry-After": "1"})
            case Fault.INTERNAL:
                _send(at, 500, _status(500, "InternalError"))
            case Fault.CUT_BEFORE | Fault.DEATH_BEFORE:
                self._dies(fault is Fault.DEATH_BEFORE)
                _hang_up(at)
            case Fault.HANG:
                time.sleep(HANG_SECONDS)
                _hang_up(at)
            case Fault.CUT_AFTER:
                self._forward(at, body)
                _hang_up(at)
            case _:
                if fault is Fault.CONFLICT:
                    self.disturb(at.path)
                status, content = self._forward(at, body)
                self._dies(fault is Fault.DEATH_AFTER)
                _send(at, status, content, whole=fault is not Fault.TRUNCATED)

    def _dies(self, dies: bool) -> None:
        self.doubts.dead = dies
        if dies:
            self.kill()

    def _forward(self, at: BaseHTTPRequestHandler, body: bytes) -> tuple[int, bytes]:
        url = f"{self.access.server}{at.path}"
        told = self.pool.request(at.command, url, body=body or None, headers=_headers(at))
        return told.status, told.data


def _headers(at: BaseHTTPRequestHandler) -> dict[str, str]:
    return {name: value for name, value in at.headers.items() if name.lower() not in NOT_FORWARDED}


def _status(code: int, reason: str) -> bytes:
    told = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code}
    return json.dumps(told).encode()


def _send(
    at: BaseHTTPRequestHandler, status: int, body: bytes, more: dict[str, str] | None = None, *, whole: bool = True
) -> None:
    at.send_response(status)
    headers = {"Content-Type": "application/json", "Content-Length": str(len(body)), **(more or {})}
    for name, value in headers.items():
        at.send_header(name, value)
    at.end_headers()
    at.wfile.write(body if whole else body[: len(body) // 2])
    if not whole:
        _hang_up(at)


def _hang_up(at: BaseHTTPRequestHandler) -> None:
    at.wfile.flush()
    at.close_connection = True
    with suppress(OSError):
        at.connection.shutdown(2)


@contextmanager
def doubtful(
    access: Access,
    plan: Doubts,
    disturb: Callable[[str], None] = lambda _: None,
    kill: Callable[[], None] = lambda: None,
    log: Callable[[str], str] | None = None,
) -> Iterator[Doubtful]:
    made = Doubtful(access, plan, disturb, kill, log)
    thread = threading.Thread(target=made.server.serve_forever, args=[0.05], daemon=True)
    thread.start()
    try:
        yield made
    finally:
        made.watches.resume()
        made.watches.drop()
        made.server.shutdown()
        made.server.server_close()
        thread.join()
