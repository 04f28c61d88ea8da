"""An HTTP session for one question: no retry, no redirect, no proxy, and bounds on bytes and time that always hold."""

from __future__ import annotations

import io
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import closing, suppress
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import IPv4Address, IPv6Address
from typing import Any, TypeVar

from requests import PreparedRequest, Response, Session
from requests.adapters import HTTPAdapter
from requests.exceptions import RequestException, Timeout, TooManyRedirects
from urllib3.exceptions import HTTPError
from urllib3.exceptions import TimeoutError as ReadTimeout

T = TypeVar("T")
_CHUNK_BYTES = 16 * 1024


class Fault(StrEnum):
    """Why a GET gave no body."""

    LATE = "late"
    TOO_LARGE = "too large"
    REDIRECT = "redirect"
    STATUS = "status"
    BROKEN = "broken"


@dataclass(frozen=True)
class NoBody:
    """A GET that gave nothing; `status` is that of the answer, where the fault is STATUS."""

    fault: Fault
    status: int = 0


class TooLargeError(Exception):
    """The body is longer than the limit."""


class BoundedAdapter(HTTPAdapter):
    """One request's connection: read to a limit of bytes and a moment in time, and cut from outside after that.

    A socket's timeout bounds one read, not all of them; a server that sends a byte now and then would hold us forever.
    `status` is that of the last response; the body of any but 200 is not read.
    """

    def __init__(self, seconds: float, most_bytes: int) -> None:
        super().__init__(max_retries=0)
        self.status = 0
        self._deadline = time.monotonic() + seconds
        self._most_bytes = most_bytes
        self._connections: list[Any] = []

    def cut(self) -> None:
        """Ends what is still being sent or received, from any thread."""
        for connection in self._connections:
            with suppress(OSError, AttributeError):
                connection.sock.shutdown(socket.SHUT_RDWR)

    def get_connection_with_tls_context(
        self, request: PreparedRequest, verify: Any, proxies: Any = None, cert: Any = None
    ) -> Any:
        pool = super().get_connection_with_tls_context(request, verify, proxies=proxies, cert=cert)
        pool.ConnectionCls = self._remembering(type(pool).ConnectionCls)
        return pool

    def _remembering(self, make: Callable[..., Any]) -> Any:
        def connection(**options: Any) -> Any:
            self._connections.append(made := make(**options))
            return made

        return connection

    def send(self, request: PreparedRequest, *args: Any, **kwargs: Any) -> Response:
        response = super().send(request, *args, **kwargs | {"stream": True})
        self.status = response.status_code
        with closing(response.raw) as body:
            response.raw = io.BytesIO(self._read(body) if response.status_code == 200 else b"")
        return response

    def _read(self, body: Any) -> bytes:
        read = b""
        while chunk := body.read1(_CHUNK_BYTES, decode_content=False):
            read += chunk
            if len(read) > self._most_bytes:
                raise TooLargeError
            if time.monotonic() > self._deadline:
                raise Timeout
        return read


def plain_session() -> Session:
    """A session that takes neither proxies, certificates nor passwords from the environment, nor follows redirects."""
    session = Session()
    session.trust_env = False
    session.max_redirects = 0
    return session


def within(seconds: float, call: Callable[[], T], cut: Callable[[], None]) -> T:
    """What the call returns or raises, if it does so in time. Raises TimeoutError otherwise, after `cut` was called to
    end the call, which goes on in a thread of its own until it notices. (Only so is name resolution bounded too.)"""
    answer: Future[T] = Future()

    def work() -> None:
        try:
            answer.set_result(call())
        except BaseException as error:  # noqa: BLE001 - raised again in the caller's thread
            answer.set_exception(error)

    threading.Thread(target=work, name="bounded-http", daemon=True).start()
    try:
        return answer.result(timeout=seconds)
    except TimeoutError:
        cut()
        raise


def host_in_url(address: IPv4Address | IPv6Address) -> str:
    return f"[{address}]" if address.version == 6 else str(address)


def get(url: str, seconds: float, most_bytes: int, accept: str = "*/*") -> bytes | NoBody:
    """The body of one plain HTTP answer with status 200, within `seconds` and `most_bytes`. Never raises for what the
    server or the network does."""
    adapter = BoundedAdapter(seconds, most_bytes)

    def call() -> bytes:
        with plain_session() as session:
            session.mount("http://", adapter)
            headers = {"Accept": accept, "Accept-Encoding": "identity"}
            return session.get(url, headers=headers, timeout=seconds, allow_redirects=False).content

    try:
        body = within(seconds, call, adapter.cut)
    except _FAILURES as error:
        return NoBody(next(fault for kinds, fault in _FAULTS if isinstance(error, kinds)))
    return body if adapter.status == 200 else NoBody(Fault.STATUS, adapter.status)


_FAULTS: tuple[tuple[tuple[type[Exception], ...], Fault], ...] = (
    ((TimeoutError, Timeout, ReadTimeout), Fault.LATE),
    ((TooLargeError,), Fault.TOO_LARGE),
    ((TooManyRedirects,), Fault.REDIRECT),
    ((RequestException, HTTPError, OSError, ValueError), Fault.BROKEN),
)
_FAILURES = tuple(kind for kinds, _ in _FAULTS for kind in kinds)
