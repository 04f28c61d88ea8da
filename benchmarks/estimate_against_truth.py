"""The estimate against truth: 351.75 MiB predicted from iperf3, and really sent over one plain TCP stream."""

from __future__ import annotations

import statistics
import subprocess
import sys

from benchmarks.ground import pool, sweep
from benchmarks.tables import publish
from kvgate.core.estimate import Transfer
from kvgate.core.kvcache import KVLayout, declared_layout
from kvgate.edge.lab import LabNode, lab, shape

BYTES_PER_TOKEN, TOKENS, BLOCK = 114_688, 3216, 16
GIGABITS = (0.2, 0.5, 1.0, 2.5)
TRIES = 3
LIMIT = 0.03
PORT = 7000

RECEIVE = """
import socket, sys
with socket.create_server((sys.argv[1], int(sys.argv[2]))) as server:
    print("ready", flush=True)
    stream, _ = server.accept()
    left = int(sys.argv[3])
    while left:
        got = len(stream.recv(min(left, 1 << 20)))
        if not got:
            sys.exit("the sender stopped early")
        left -= got
    stream.sendall(b".")
"""
SEND = """
import socket, sys, time
piece, left = bytes(1 << 20), int(sys.argv[3])
started = time.monotonic()
with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as stream:
    while left:
        left -= stream.send(piece[: min(left, len(piece))])
    assert stream.recv(1) == b"."
print(time.monotonic() - started)
"""


def send(source: LabNode, destination: LabNode, count: int) -> float:
    """Seconds that a plain TCP stream took to bring `count` bytes across, until the receiver said it had them all."""
    arguments = (destination.address, str(PORT), str(count))
    receiver = subprocess.Popen(
        (*_inside(destination), sys.executable, "-c", RECEIVE, *arguments), stdout=subprocess.PIPE, text=True
    )
    with receiver:
        assert receiver.stdout is not None
        receiver.stdout.readline()
        done = subprocess.run(
            (*_inside(source), sys.executable, "-c", SEND, *arguments),
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        )
    return float(done.stdout)


def _inside(node: LabNode) -> tuple[str, str]:
    return "nsenter", f"--net=/run/netns/{node.namespace}"


def main() -> bool:
    layout = declared_layout(BYTES_PER_TOKEN)
    assert isinstance(layout, KVLayout)
    rows, within = [], True
    with lab({"prefill": 10**9, "decode": 10**9}) as (prefill, decode):
        for gigabits in GIGABITS:
            for node in (prefill, decode):
                shape(node, round(gigabits * 1e9))
            evidence, _ = sweep(pool(5), [prefill], [decode])
            measured = evidence.samples[0].bytes_per_second
            assert measured is not None, evidence.samples[0].failure
            transfer = Transfer(layout, BLOCK, 1, measured)
            predicted, count = transfer.seconds(TOKENS), transfer.kv_bytes(TOKENS)
            truth = statistics.median(send(prefill, decode, count) for _ in range(TRIES))
            error = predicted / truth - 1
            within = within and abs(error) <= LIMIT
            rows.append(
                (
                    f"{gigabits:g} Gbit/s",
                    f"{measured / 1e6:.1f} MB/s",
                    f"{predicted:.3f} s",
                    f"{truth:.3f} s",
                    f"{error:+.2%}",
                )
            )
    publish(
        "estimate-against-truth",
        "The estimate against truth",
        f"351.75 MiB (3,216 tokens × 114,688 B): predicted from what the walker's iperf3 measured, and really sent "
        f"over one plain TCP stream on the same shaped link, median of {TRIES}. Limit: {LIMIT:.0%}.",
        ("link", "measured", "predicted", "sent in", "error"),
        rows,
    )
    return within


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
