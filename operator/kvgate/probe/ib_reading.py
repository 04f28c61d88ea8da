"""Reads what ib_read_bw printed at the reading end, as text or as JSON; its unit is taken from what it says itself."""

from __future__ import annotations

import re

from kvgate.core.evidence import Failure, FailureKind
from kvgate.core.text import rate
from kvgate.probe.flows import Flows
from kvgate.probe.iperf3_errors import quoted
from kvgate.probe.iperf3_text import Refused
from kvgate.probe.measured import Accepted, Expected, Numbers
from kvgate.probe.ucx_reading import RDMA
from kvgate_probe.fields import Fields, WireError

LEAST_ITERATIONS = 16
MEBIBYTE, GIGABIT = 1 << 20, 1e9 / 8
"""What perftest means by MB/sec, and by Gb/sec, in bytes."""
_UNIT = re.compile(r"BW average\[(MB|Gb|MiB)/sec\]")
_VERSION = re.compile(r"\s*Version: *([0-9][0-9A-Za-z.+-]{0,30})[^\n]*\n")
_DEVICE = re.compile(r"^\s*Device\s*:\s*([\w.-]{1,64})\s*$", re.MULTILINE)
_ERRORS: tuple[tuple[str, FailureKind, str], ...] = (
    ("couldn't connect", FailureKind.CONNECT_REFUSED, "nothing listened at the source"),
    ("no ib devices found", FailureKind.TOOL_FAILED, "no RDMA device in the probe's pod"),
    ("unable to find the infiniband", FailureKind.TOOL_FAILED, "the RDMA device that was chosen is not there"),
    ("couldn't allocate mr", FailureKind.TOOL_FAILED, "it cannot pin memory: probe.allowedCapabilities lacks IPC_LOCK"),
    ("failed status", FailureKind.TOOL_FAILED, "the RDMA transfer failed"),
    ("completion with error", FailureKind.TOOL_FAILED, "the RDMA transfer failed"),
    ("timed out", FailureKind.CONNECT_TIMEOUT, "no answer from the source"),
)


def read_ib(text: str, expected: Expected) -> Accepted | Failure:
    """Never raises. A rate without its unit is none."""
    try:
        version, told = _version(text)
        size, iterations, per_second = _json(told) if told.lstrip().startswith("{") else _table(told)
        _check(size, iterations, per_second, expected)
        moved = size * iterations
        lanes = tuple(f"rc/{device}" for device in _DEVICE.findall(text)[:1])
        return Accepted(Numbers(moved, moved / per_second, per_second), Flows(), "", RDMA, lanes, version=version)
    except Refused as refused:
        return refused.failure
    except WireError as error:
        return Failure(FailureKind.UNREADABLE, f"not a finished ib_read_bw result: {error}")


def _version(text: str) -> tuple[str, str]:
    """What the walker had it say of itself, on a line before its result; and the result."""
    found = _VERSION.match(text)
    return (f"perftest {found[1]}", text[found.end() :]) if found else ("", text)


def _check(size: int, iterations: int, per_second: float, expected: Expected) -> None:
    line = expected.line_rate_bytes_per_second
    if expected.piece_bytes and size != expected.piece_bytes:
        raise Refused(FailureKind.IMPLAUSIBLE, f"messages of {size} bytes, {expected.piece_bytes} planned")
    if iterations < LEAST_ITERATIONS or per_second <= 0:
        raise Refused(FailureKind.TOO_SHORT, f"{iterations} reads, at least {LEAST_ITERATIONS} are needed")
    seconds, least = size * iterations / per_second, expected.least_seconds
    if seconds < least:
        message = f"{iterations} reads took {seconds:.3f} s, at least {least:.2f} s are needed"
        raise Refused(FailureKind.TOO_SHORT, message)
    if line is not None and per_second > 1.05 * line:
        raise Refused(FailureKind.IMPLAUSIBLE, f"{rate(per_second)} is above 1.05 x the line rate of {rate(line)}")


def _json(text: str) -> tuple[int, int, float]:
    """Asked for with --report_gbits, so that it says Gb/s where it names no unit."""
    results = Fields.of(text, "ib_read_bw").within("results")
    size, iterations = results.whole("MsgSize", least=1), results.whole("n_iterations")
    return size, iterations, results.number("BW_average", above=-1) * GIGABIT


def _table(text: str) -> tuple[int, int, float]:
    unit = _UNIT.search(text)
    rows = [line.split() for line in text.splitlines() if re.match(r"^\s*\d+\s+\d+\s+[\d.]+\s+[\d.]+", line)]
    if unit is None or len(rows) != 1:
        raise _error(text) or Refused(
            FailureKind.UNREADABLE, f"ib_read_bw's output holds {len(rows)} results ({len(text)} characters)"
        )
    size, iterations, _, average = rows[0][:4]
    told = Fields("ib_read_bw", {"size": int(size), "n": int(iterations), "average": _float(average)})
    scale = GIGABIT if unit[1] == "Gb" else MEBIBYTE
    return told.whole("size", least=1), told.whole("n"), told.number("average", above=-1) * scale


def _float(word: str) -> float | None:
    try:
        return float(word)
    except ValueError:
        return None


def _error(text: str) -> Refused | None:
    for line in text.splitlines():
        for words, kind, meaning in _ERRORS:
            if words in line.lower():
                return Refused(kind, f"{meaning} (ib_read_bw: {quoted(line.strip())})")
    return None
