"""One end of real NIXL READs of so many bytes, as a decode worker pulls a prompt's blocks; run by a Python that has
NIXL's wheel. The reader waits for a line on its input before each; it prints the seconds and whether the sums agree."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence

from kvgate_probe import nixl_pair
from kvgate_probe.nixl_pair import READ, Side, Talk

WARM_PIECES = 8
POLL_SECONDS = 0.0005
PARTS = 3
"""Transfers that a READ is made of, one after the other."""


def read(host: str, port: int, piece_bytes: int, times: int, at_once: int) -> None:
    side = Side(f"reader-{os.getpid()}", piece_bytes, filled=False)
    with nixl_pair.connected(host, port) as sock:
        talk = Talk(sock)
        talk.say(side.agent.get_agent_metadata())
        told, metadata = talk.hear()
        side.agent.add_remote_agent(metadata)
        nixl_pair.once(side, _handle(side, told, WARM_PIECES))
        whole = [_handle(side, told, len(side.descs)) for _ in range(at_once)]
        took = []
        for _ in range(times):
            side.forget()
            print("ready", flush=True)
            sys.stdin.readline()
            began = time.perf_counter()
            for _ in range(PARTS):
                _together(side, whole)
            took.append(time.perf_counter() - began)
        print(json.dumps({"seconds": took, "equal": side.digest == told["digest"]}), flush=True)


def _together(side: Side, handles: Sequence[object]) -> None:
    """Raises RuntimeError where NIXL says that one of them failed."""
    states = [side.agent.transfer(handle) for handle in handles]
    while "PROC" in states:
        time.sleep(POLL_SECONDS)
        states = [s if s != "PROC" else side.agent.check_xfer_state(h) for s, h in zip(states, handles, strict=True)]
    if set(states) != {"DONE"}:
        raise RuntimeError(f"the transfers ended in states {states}")


def _handle(side: Side, told: dict[str, list[list[int]]], count: int) -> object:
    local = side.agent.get_xfer_descs(side.descs[:count], "DRAM")
    remote = side.agent.get_xfer_descs([tuple(desc) for desc in told["descs"][:count]], "DRAM")
    return side.agent.initialize_xfer(READ, local, remote, told["name"])


def main() -> None:
    end, host, port, piece_bytes, whole_bytes, times, at_once = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:8])
    nixl_pair.BUFFER_BYTES = whole_bytes // PARTS
    nixl_pair.SILENCE_SECONDS = nixl_pair.CONNECT_SECONDS = 120.0
    if end == "serve":
        nixl_pair.serve(port, host, piece_bytes, READ)
    else:
        read(host, port, piece_bytes, times, at_once)


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)  # NIXL's own clearing up can crash, after all is told
