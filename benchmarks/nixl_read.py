"""One end of real NIXL READs of so many bytes, as a decode worker pulls a prompt's blocks; run by a Python that has
NIXL's wheel. The reader waits for a line on its input before each; it prints the seconds and whether the sums agree."""

from __future__ import annotations

import json
import os
import sys
import time

from kvgate_probe import nixl_pair
from kvgate_probe.nixl_pair import READ, Side, Talk

WARM_PIECES = 8
PARTS = 3
"""Transfers that a READ is made of, one after the other."""


def read(host: str, port: int, piece_bytes: int, times: int) -> None:
    side = Side(f"reader-{os.getpid()}", piece_bytes, filled=False)
    with nixl_pair.connected(host, port) as sock:
        talk = Talk(sock)
        talk.say(side.agent.get_agent_metadata())
        told, metadata = talk.hear()
        side.agent.add_remote_agent(metadata)
        whole, few = (_handle(side, told, count) for count in (len(side.descs), WARM_PIECES))
        nixl_pair.once(side, few)
        took = []
        for _ in range(times):
            side.forget()
            print("ready", flush=True)
            sys.stdin.readline()
            began = time.perf_counter()
            for _ in range(PARTS):
                nixl_pair.once(side, whole)
            took.append(time.perf_counter() - began)
        print(json.dumps({"seconds": took, "equal": side.digest == told["digest"]}), flush=True)


def _handle(side: Side, told: dict[str, list[list[int]]], count: int) -> object:
    local = side.agent.get_xfer_descs(side.descs[:count], "DRAM")
    remote = side.agent.get_xfer_descs([tuple(desc) for desc in told["descs"][:count]], "DRAM")
    return side.agent.initialize_xfer(READ, local, remote, told["name"])


def main() -> None:
    end, host, port, piece_bytes, whole_bytes, times = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:7])
    nixl_pair.BUFFER_BYTES = whole_bytes // PARTS
    nixl_pair.SILENCE_SECONDS = nixl_pair.CONNECT_SECONDS = 120.0
    if end == "serve":
        nixl_pair.serve(port, host, piece_bytes, READ)
    else:
        read(host, port, piece_bytes, times)


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)  # NIXL's own clearing up can crash, after all is told
