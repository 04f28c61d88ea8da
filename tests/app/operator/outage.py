"""A door between an operator and its API server that a test can shut: refused connections, or silence."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from urllib.parse import urlsplit


@dataclass
class Door:
    """Forwards bytes while it is open, those of answers after `slow_seconds`. Shut, it hangs up on everybody and
    refuses; silent, it only listens."""

    server: str
    slow_seconds: float = 0.0
    is_open: bool = True
    is_silent: bool = False
    knocks: int = 0
    _ends: list[socket.socket] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        parts = urlsplit(self.server)
        self._beyond = (str(parts.hostname), parts.port or 443)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"https://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._listen, daemon=True).start()

    def shut(self) -> None:
        self.is_open = False
        self._hang_up()

    def open(self) -> None:
        self.is_open, self.is_silent = True, False
        self._hang_up()

    def fall_silent(self) -> None:
        self.is_silent = True
        self._hang_up()

    def close(self) -> None:
        self._listener.close()
        self._hang_up()

    def _hang_up(self) -> None:
        with self._lock:
            ends, self._ends = self._ends, []
        for end in ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _listen(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                self.knocks += 1
                self._admit(near)

    def _admit(self, near: socket.socket) -> None:
        if not self.is_open:
            near.close()
            return
        with self._lock:
            self._ends.append(near)
        if self.is_silent:
            return
        far = socket.create_connection(self._beyond)
        with self._lock:
            self._ends.append(far)
        threading.Thread(target=_forward, args=[near, far, lambda: 0.0], daemon=True).start()
        threading.Thread(target=_forward, args=[far, near, lambda: self.slow_seconds], daemon=True).start()


def _forward(source: socket.socket, sink: socket.socket, delay_seconds: Callable[[], float]) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            time.sleep(delay_seconds())
            sink.sendall(data)
    for end in (source, sink):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def door(server: str) -> Iterator[Door]:
    made = Door(server)
    try:
        yield made
    finally:
        made.close()
