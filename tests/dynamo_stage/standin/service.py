"""A Service in front of local frontends: one address that forwards each connection to a pod that is available now."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

CHUNK_BYTES = 65536
Backend = tuple[str, int]


@dataclass
class Service:
    """Connections are shared out in turn; kube-proxy does so by chance. With no backend, one is closed at once."""

    backends: Callable[[], Sequence[Backend]]
    listener: socket.socket = field(default_factory=lambda: socket.create_server(("127.0.0.1", 0)))
    turn: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        threading.Thread(target=self._accept, name="service", daemon=True).start()

    @property
    def base(self) -> str:
        address, port = self.listener.getsockname()
        return f"http://{address}:{port}"

    def close(self) -> None:
        self.listener.close()

    def _accept(self) -> None:
        while True:
            try:
                taken, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(taken,), daemon=True).start()

    def _serve(self, taken: socket.socket) -> None:
        with taken:
            backend = self._next()
            if backend is None:
                return
            try:
                with socket.create_connection(backend, timeout=5) as far:
                    far.settimeout(None)
                    back = threading.Thread(target=_pump, args=(far, taken), daemon=True)
                    back.start()
                    _pump(taken, far)
                    back.join()
            except OSError:
                return

    def _next(self) -> Backend | None:
        found = self.backends()
        with self.lock:
            self.turn += 1
            return found[self.turn % len(found)] if found else None


def _pump(source: socket.socket, target: socket.socket) -> None:
    try:
        while data := source.recv(CHUNK_BYTES):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        return
