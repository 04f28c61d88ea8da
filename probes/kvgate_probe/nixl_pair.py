"""Two ends that move blocks with the real NIXL library; run by a Python that has its wheel, with or without torch.

`python -m kvgate_probe.nixl_pair serve …` holds memory and waits, `… run …` moves for so many seconds and prints one
line of JSON. Pieces are moved in shuffled order, as KV blocks lie; what arrives is compared by a digest of all of it,
for the first transfer and for the last.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import importlib
import importlib.metadata
import json
import os
import random
import socket
import struct
import sys
import time
from collections.abc import Iterator
from typing import Any

MODULES = ("nixl._api", "nixl_cu12._api", "nixl_cu13._api")
PACKAGES = ("nixl", "nixl-cu12", "nixl-cu13")
BUFFER_BYTES = 64 << 20
CONNECT_SECONDS = 10.0
SILENCE_SECONDS = 30.0
"""Longer than any one transfer of the buffer should take."""
BUSY_SECONDS = 0.005
"""A transfer is asked about without a pause for so long: over RDMA, the whole buffer takes less."""
PAUSE_SHARE, LONGEST_PAUSE_SECONDS = 1 / 200, 0.0005
"""Later with pauses, each a small part of the time so far: NIXL moves the bytes in a thread of its own, and whoever
asks without end takes a processor from it."""
MARK = "kvgateNixl"
READ, WRITE = "READ", "WRITE"


def nixl() -> Any:
    """NIXL's Python API, by whichever name its wheel has. Raises ImportError."""
    for name in MODULES:
        with contextlib.suppress(ImportError):
            return importlib.import_module(name)
    raise ImportError("none of the wheels nixl, nixl-cu12 and nixl-cu13 can be imported")


def version() -> str:
    for package in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            return f"{package} {importlib.metadata.version(package)}"
    return "nixl"


class Talk:
    """Messages of JSON and bytes over one connection, each led by its length."""

    def __init__(self, sock: socket.socket) -> None:
        sock.settimeout(SILENCE_SECONDS)
        self._file = sock.makefile("rwb")

    def say(self, blob: bytes = b"", **words: Any) -> None:
        head = json.dumps(words).encode()
        self._file.write(struct.pack("!II", len(head), len(blob)) + head + blob)
        self._file.flush()

    def hear(self) -> tuple[dict[str, Any], bytes]:
        """Raises EOFError where the other end has gone."""
        sizes = self._file.read(8)
        if len(sizes) < 8:
            raise EOFError("the other end went away")
        head, blob = struct.unpack("!II", sizes)
        return json.loads(self._file.read(head)), self._file.read(blob)


class Side:
    """One agent with its registered buffer, cut into pieces."""

    def __init__(self, name: str, piece_bytes: int, *, filled: bool) -> None:
        api, numpy = nixl(), importlib.import_module("numpy")
        self.pieces = max(1, BUFFER_BYTES // piece_bytes)
        self.piece_bytes = piece_bytes
        size = self.pieces * piece_bytes
        self.memory = numpy.zeros(size, dtype=numpy.uint8)
        if filled:
            self.memory[:] = numpy.frombuffer(random.Random(name).randbytes(size), dtype=numpy.uint8)  # noqa: S311
        self.agent = api.nixl_agent(name, api.nixl_agent_config(backends=["UCX"]))
        base = int(self.memory.ctypes.data)
        self.agent.register_memory([(base, size, 0, "")], "DRAM")
        order = list(range(self.pieces))
        random.Random(1).shuffle(order)  # noqa: S311
        self.descs = [(base + place * piece_bytes, piece_bytes, 0) for place in order]

    @property
    def digest(self) -> str:
        return hashlib.blake2b(self.memory.data, digest_size=16).hexdigest()

    def forget(self) -> None:
        self.memory[:] = 0


def serve(port: int, bind: str, piece_bytes: int, operation: str) -> None:
    side = Side(f"target-{os.getpid()}", piece_bytes, filled=operation == READ)
    family = socket.AF_INET6 if ":" in bind else socket.AF_INET
    with socket.create_server((bind, port), family=family) as listener:
        sock, _ = listener.accept()
    with sock:
        talk = Talk(sock)
        _, metadata = talk.hear()
        side.agent.add_remote_agent(metadata)
        told = side.digest if operation == READ else ""
        talk.say(side.agent.get_agent_metadata(), name=side.agent.name, descs=side.descs, digest=told)
        with contextlib.suppress(EOFError, OSError):
            while True:
                asked, _ = talk.hear()
                if asked.get("forget"):
                    side.forget()
                talk.say(digest=side.digest if asked.get("digest") else "")
    print(json.dumps({MARK: version(), "served": True}), flush=True)


def run(
    host: str, port: int, piece_bytes: int, operation: str, seconds: float, most_bytes: int | None
) -> dict[str, Any]:
    side = Side(f"initiator-{os.getpid()}", piece_bytes, filled=operation == WRITE)
    size = side.pieces * piece_bytes
    with connected(host, port) as sock:
        talk = Talk(sock)
        talk.say(side.agent.get_agent_metadata())
        told, metadata = talk.hear()
        wired = time.perf_counter()
        side.agent.add_remote_agent(metadata)
        local = side.agent.get_xfer_descs(side.descs, "DRAM")
        remote = side.agent.get_xfer_descs([tuple(desc) for desc in told["descs"]], "DRAM")
        handle = side.agent.initialize_xfer(operation, local, remote, told["name"])
        first = once(side, handle)
        until_first = time.perf_counter() - wired
        sums = _arrived(side, talk, operation, told["digest"])
        room = None if most_bytes is None else most_bytes - 2 * size
        moved, took, slowest = _repeated(side, handle, size, seconds, room)
        _forget(side, talk, operation)
        once(side, handle)
        sums = sums and _arrived(side, talk, operation, told["digest"])
    return {
        MARK: version(),
        "operation": operation,
        "pieces": side.pieces,
        "pieceBytes": piece_bytes,
        "bytes": moved,
        "seconds": took,
        "slowestSeconds": slowest,
        "sentBytes": moved + 2 * size,
        "setUpSeconds": max(0.0, until_first - took * size / max(1, moved)),
        "firstSeconds": first,
        "sumsEqual": sums,
    }


@contextlib.contextmanager
def connected(host: str, port: int) -> Iterator[socket.socket]:
    """The other end may need a while to load the library."""
    until = time.monotonic() + CONNECT_SECONDS
    while True:
        try:
            sock = socket.create_connection((host, port), timeout=CONNECT_SECONDS)
            break
        except ConnectionRefusedError:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)
    with sock:
        yield sock


def once(side: Side, handle: Any) -> float:
    """Seconds of one transfer of all pieces. Raises RuntimeError where NIXL says that it failed, or falls silent."""
    began = time.perf_counter()
    state = side.agent.transfer(handle)
    while state == "PROC":
        passed = time.perf_counter() - began
        if passed > SILENCE_SECONDS:
            raise RuntimeError(f"one transfer did not end within {SILENCE_SECONDS:g} s")
        if passed > BUSY_SECONDS:
            time.sleep(min(passed * PAUSE_SHARE, LONGEST_PAUSE_SECONDS))
        state = side.agent.check_xfer_state(handle)
    if state != "DONE":
        raise RuntimeError(f"the transfer ended in state {state}")
    return time.perf_counter() - began


def _repeated(side: Side, handle: Any, size: int, seconds: float, most: int | None) -> tuple[int, float, float]:
    moved, took, slowest = 0, 0.0, 0.0
    while took < seconds and (most is None or moved + size <= most):
        one = once(side, handle)
        moved, took, slowest = moved + size, took + one, max(slowest, one)
    return moved, took, slowest


def _forget(side: Side, talk: Talk, operation: str) -> None:
    """Zeroes on the side that receives, so that what is there afterwards has come by the next transfer."""
    if operation == READ:
        side.forget()
        return
    talk.say(forget=True)
    talk.hear()


def _arrived(side: Side, talk: Talk, operation: str, source: str) -> bool:
    if operation == READ:
        return side.digest == source
    talk.say(digest=True)
    told, _ = talk.hear()
    return bool(told["digest"] == side.digest)


def main() -> int:
    parser = argparse.ArgumentParser(prog="kvgate_probe.nixl_pair")
    parser.add_argument("end", choices=("serve", "run"))
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--host", default="", help="of the other end; to listen at, where it serves")
    parser.add_argument("--piece-bytes", type=int, required=True)
    parser.add_argument("--operation", choices=(READ, WRITE), required=True)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--most-bytes", type=int)
    asked = parser.parse_args()
    try:
        if asked.end == "serve":
            serve(asked.port, asked.host, asked.piece_bytes, asked.operation)
        else:
            told = run(asked.host, asked.port, asked.piece_bytes, asked.operation, asked.seconds, asked.most_bytes)
            print(json.dumps(told), flush=True)
    except Exception as error:  # noqa: BLE001 -- NIXL raises classes of its own
        print(json.dumps({MARK: version(), "error": f"{type(error).__name__}: {error}"[:300]}), flush=True)
        return 1
    return 0


if __name__ == "__main__":
    ended = main()
    sys.stdout.flush()
    os._exit(ended)  # NIXL's own clearing up can crash, after all is told
