"""The estimate against real NIXL READs over shaped links: from link and endpoint together, and from the link alone."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.ground import pool, sweep
from benchmarks.tables import publish
from kvgate.core.estimate import Transfer
from kvgate.core.evidence import Layer
from kvgate.core.kvcache import KVLayout, declared_layout
from kvgate.edge.lab import LabNode, lab, shape
from kvgate_probe.nixl_tool import PYTHON

ROOT = Path(__file__).parents[1]
NIXL = shutil.which("nixl-python") or str(Path(sys.prefix) / "bin" / "nixl-python")
BYTES_PER_TOKEN, TOKENS, BLOCK = 114_688, 3216, 16
GIGABITS = tuple(float(word) for word in os.environ.get("KVGATE_BENCH_GIGABITS", "0.5 1 2.5 5 10").split())
PIECES = (8_192, 32_768, 131_072)
CONCURRENT = (1, 4)
TEST_SECONDS, PORT = 2, 7100
SLOW_GIGABITS, SLOW_LIMIT, FAST_LIMIT = 2.5, 0.02, 0.10


@dataclass(frozen=True)
class Case:
    """One row: what was measured (bytes per second), predicted and read (seconds)."""

    gigabits: float
    piece_bytes: int
    at_once: int
    link: float
    endpoint: float
    predicted: float
    by_link: float
    truth: float

    @property
    def error(self) -> float:
        return self.predicted / self.truth - 1

    @property
    def link_error(self) -> float:
        return self.by_link / self.truth - 1

    @property
    def cells(self) -> tuple[str, ...]:
        return (
            f"{self.gigabits:g} Gbit/s",
            f"{self.piece_bytes // 1024} KiB",
            str(self.at_once),
            f"{self.link / 1e6:.1f} MB/s",
            f"{self.endpoint / 1e6:.1f} MB/s",
            f"{self.predicted:.3f} s",
            f"{self.truth:.3f} s",
            f"{self.error:+.1%}",
            f"{self.link_error:+.1%}",
        )


def measured(source: LabNode, destination: LabNode, piece_bytes: int) -> tuple[float, float]:
    """Bytes per second of the link and of the endpoint, by one sweep of the real walkers. Raises RuntimeError."""
    endpoint = {"tool": "nixl", "operation": "read", "duration": f"{TEST_SECONDS}s", "descriptorBytes": piece_bytes}
    evidence, _ = sweep(pool(TEST_SECONDS, endpoint=endpoint), [source], [destination])
    found = {sample.layer: sample.bytes_per_second for sample in evidence.samples if sample.bytes_per_second}
    if found.keys() != {Layer.LINK, Layer.ENDPOINT}:
        raise RuntimeError(f"not measured: {[sample.failure for sample in evidence.samples]} {evidence.problems}")
    return found[Layer.LINK], found[Layer.ENDPOINT]


def read_seconds(source: LabNode, destination: LabNode, piece_bytes: int, count: int, at_once: int) -> float:
    """Until the last of so many READs by one reader was whole, each of `count` bytes; the median of some."""
    times = 3 if count * at_once < 4e8 else 1
    asked = tuple(map(str, (PORT, piece_bytes, count, times, at_once)))
    with _end("serve", source, source.address, asked), _end("read", destination, source.address, asked) as reader:
        assert reader.stdin is not None
        for _ in range(times):
            _line(reader, "ready")
            reader.stdin.write("go\n")
            reader.stdin.flush()
        told = json.loads(_line(reader, "{"))
    if not told["equal"]:
        raise RuntimeError("what was read is not what was there")
    return float(statistics.median(told["seconds"]))


def _line(process: subprocess.Popen[str], start: str) -> str:
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(start):
            return line
    raise RuntimeError(f"NIXL ended with {process.wait()} before it said {start!r}")


@contextmanager
def _end(end: str, node: LabNode, host: str, asked: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
    command = ("nsenter", f"--net=/run/netns/{node.namespace}", NIXL, "-m", "benchmarks.nixl_read", end, host, *asked)
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        env=_environment(), cwd=ROOT,
    ) as process:  # fmt: skip
        try:
            yield process
        finally:
            process.kill()


def _environment() -> Mapping[str, str]:
    """As the probe's, whose ends would take shared memory on one host."""
    forced = {"UCX_TLS": "tcp", "UCX_NET_DEVICES": "eth0", "NIXL_TELEMETRY_ENABLE": "n"}
    return {**os.environ, **forced, "PYTHONPATH": f"{ROOT}:{ROOT / 'probes'}"}


def main() -> bool:
    os.environ[PYTHON] = NIXL
    layout = declared_layout(BYTES_PER_TOKEN)
    assert isinstance(layout, KVLayout)
    cases = list[Case]()
    with lab({"prefill": 10**9, "decode": 10**9}) as (prefill, decode):
        for gigabits in GIGABITS:
            for node in (prefill, decode):
                shape(node, round(gigabits * 1e9))
            for piece_bytes in PIECES:
                link, endpoint = measured(prefill, decode, piece_bytes)
                both, by_link = (Transfer(layout, BLOCK, 1, rate) for rate in (min(link, endpoint), link))
                count = both.kv_bytes(TOKENS)
                for at_once in CONCURRENT:
                    predicted, shared = both.seconds(TOKENS) * at_once, by_link.seconds(TOKENS) * at_once
                    truth = read_seconds(prefill, decode, piece_bytes, count, at_once)
                    case = Case(gigabits, piece_bytes, at_once, link, endpoint, predicted, shared, truth)
                    print(" | ".join(case.cells), flush=True)
                    cases.append(case)
    return tell(cases)


def tell(cases: Sequence[Case]) -> bool:
    slow, fast = ([c for c in cases if (c.gigabits <= SLOW_GIGABITS) is wanted] for wanted in (True, False))
    medians = [statistics.median(abs(c.error) for c in some) if some else 0.0 for some in (slow, fast)]
    by_link = [statistics.median(abs(c.link_error) for c in some) if some else 0.0 for some in (slow, fast)]
    short = {f"{c.gigabits:g} Gbit/s ({c.link * 8e-9:.1f})" for c in cases if c.link * 8e-9 < 0.85 * c.gigabits}
    why = "both ends share its processors"
    less = f" This machine does not fill the links of {', '.join(sorted(short))}: {why}." if short else ""
    publish(
        "estimate-against-nixl",
        "The estimate against real NIXL READs",
        f"351.75 MiB ({TOKENS:,} tokens × {BYTES_PER_TOKEN:,} B) read between two network namespaces by the nixl wheel "
        "(UCX over TCP, memory of the host, pieces in shuffled order, in three transfers, sums compared). Predicted "
        "from one sweep: the bytes of all that are read at once ÷ the smaller of link (iperf3) and endpoint "
        f"(NIXL). Median error up to {SLOW_GIGABITS:g} Gbit/s {medians[0]:.1%} (limit "
        f"{SLOW_LIMIT:.0%}), above {medians[1]:.1%} (limit {FAST_LIMIT:.0%}); by the link alone {by_link[0]:.1%} and "
        f"{by_link[1]:.1%}.{less}",
        ("link", "pieces", "at once", "iperf3", "NIXL", "predicted", "read in", "error", "error by iperf3 alone"),
        [case.cells for case in cases],
    )
    return medians[0] <= SLOW_LIMIT and medians[1] <= FAST_LIMIT


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
