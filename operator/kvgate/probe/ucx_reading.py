"""Reads what ucx_perftest printed at the reading end: how many pieces came in which time, and over which lanes."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kvgate.core.evidence import Failure, FailureKind
from kvgate.core.text import rate
from kvgate.probe.flows import Flows
from kvgate.probe.iperf3_errors import quoted
from kvgate.probe.iperf3_text import Refused
from kvgate.probe.measured import MOST_CHARACTERS_OF_A_LANE, Accepted, Expected, Numbers

SHARE_OF_PLANNED_SECONDS = 0.85
"""It tells how far it is once a second or so: what it read after the last of these lines does not count."""
LEAST_PIECES = 16
LINE_RATE_TOLERANCE = 1.05
MEBIBYTE = 1 << 20
"""What ucx_perftest means by MB."""
TCP, RDMA, SHARED_MEMORY = "tcp", "rdma", "shared memory"
_ITERATIONS, _MICROSECONDS, _RATE = "iterations", "overall_lat", "overall_bw"
_THREAD = re.compile(r"^(\[thread \d+\]|Final: *)")
_LANES = re.compile(r"(?<![a-z_])(rma|rma_am)\(([^)]*)\)")
_VERSION = re.compile(r"UCX  INFO  Version ([0-9][0-9A-Za-z.+-]{0,30}) ")
_SHARED = ("sysv", "posix", "cma", "knem", "xpmem", "self")
_ERRORS: tuple[tuple[str, FailureKind, str], ...] = (
    ("not available", FailureKind.TOOL_FAILED, "the network device that UCX_NET_DEVICES names is not there"),
    ("no usable transports", FailureKind.TOOL_FAILED, "no transport that UCX_TLS names works here"),
    ("refused", FailureKind.CONNECT_REFUSED, "nothing listened at the source"),
    ("no route", FailureKind.NO_ROUTE, "no route to the source"),
    ("unreachable", FailureKind.NO_ROUTE, "no route to the source"),
    ("timed out", FailureKind.CONNECT_TIMEOUT, "no answer from the source"),
    ("reset by", FailureKind.SERVER_LOST, "the source went away during the test"),
    ("broken pipe", FailureKind.SERVER_LOST, "the source went away during the test"),
    ("memory", FailureKind.TOOL_FAILED, "UCX could not register or map memory: give the probe more of it"),
)


def read_ucx(text: str, expected: Expected) -> Accepted | Failure:
    """Never raises. Takes no number from a text that is broken off, stuck, of no known transport or implausible."""
    try:
        rows, lanes = list(_rows(text)), lanes_of(text)
        if not rows:
            raise _nothing(text, lanes, expected)
        numbers = _numbers(text, rows[-1], expected)
        _check_rate(numbers, rows[-1][2], expected)
        return Accepted(numbers, Flows(), "", checked_transport(lanes), lanes, version=version_of(text))
    except Refused as refused:
        return refused.failure


def _numbers(text: str, last: tuple[int, float, float], expected: Expected) -> Numbers:
    pieces, seconds, _ = last
    if not expected.piece_bytes:
        raise Refused(FailureKind.UNREADABLE, "the schedule does not say how large a piece is")
    if seconds < SHARE_OF_PLANNED_SECONDS * expected.planned_seconds:
        raise _broken_off(text, seconds, expected)
    if pieces < LEAST_PIECES:
        raise Refused(FailureKind.TOO_SHORT, f"{pieces} pieces were read, at least {LEAST_PIECES} are needed")
    moved = pieces * expected.piece_bytes
    return Numbers(moved, seconds, moved / seconds)


def _check_rate(numbers: Numbers, told: float, expected: Expected) -> None:
    derived, line = numbers.bytes_per_second, expected.line_rate_bytes_per_second
    if abs(told * MEBIBYTE - derived) > 0.02 * derived:
        message = f"its rate {rate(told * MEBIBYTE)} is not its pieces over its seconds, {rate(derived)}"
        raise Refused(FailureKind.IMPLAUSIBLE, message)
    if line is not None and derived > LINE_RATE_TOLERANCE * line:
        message = f"{rate(derived)} is above {LINE_RATE_TOLERANCE:g} x the line rate of {rate(line)}"
        raise Refused(FailureKind.IMPLAUSIBLE, message)


def checked_transport(lanes: tuple[str, ...]) -> str:
    """Raises Refused where bytes went by no network, or by what nobody knows."""
    transport = transport_of(lanes)
    if transport == SHARED_MEMORY:
        message = f"read by {', '.join(lanes)}: not over a network between two nodes"
        raise Refused(FailureKind.WRONG_HOST, message)
    if not transport:
        raise Refused(FailureKind.UNREADABLE, "UCX's log does not say which lanes carried the bytes")
    return transport


def lanes_of(text: str) -> tuple[str, ...]:
    """The lanes that carry remote reads, by UCX's own log; those of active messages say nothing of them."""
    found = {kind: inner.split() for line in text.splitlines() if "cfg" in line for kind, inner in _LANES.findall(line)}
    return tuple(_plain(lane) for lane in found.get("rma") or found.get("rma_am") or [])


def _plain(lane: str) -> str:
    """A name that is safe in a log and in evidence; with a `?` in it, it is of no transport that is known."""
    return "".join(one if one.isascii() and one.isprintable() else "?" for one in lane[:MOST_CHARACTERS_OF_A_LANE])


def version_of(text: str) -> str:
    """UCX's own version, by its log; "" where that does not tell it."""
    found = _VERSION.search(text)
    return f"UCX {found[1]}" if found else ""


def transport_of(lanes: tuple[str, ...]) -> str:
    """What the lanes amount to: the slowest kind among them; "" where there are none, or a spoilt one."""
    if any("?" in lane for lane in lanes):
        return ""
    kinds = {lane.partition("/")[0] for lane in lanes}
    if not kinds:
        return ""
    if any(kind.startswith(_SHARED) for kind in kinds):
        return SHARED_MEMORY
    return TCP if "tcp" in kinds else RDMA


def _rows(text: str) -> Iterator[tuple[int, float, float]]:
    """(pieces, seconds, MiB per second) so far, of each line that tells them; the header says which column is which."""
    columns: list[str] = []
    for line in text.splitlines():
        fields = _THREAD.sub("", line.strip()).split(",")
        if fields[0] == _ITERATIONS:
            columns = fields
        elif columns and len(fields) == len(columns) and fields[0].isdigit():
            row = dict(zip(columns, fields, strict=True))
            try:
                pieces, microseconds, told = int(row[_ITERATIONS]), float(row[_MICROSECONDS]), float(row[_RATE])
            except (KeyError, ValueError):
                continue
            if 0 < pieces * microseconds < float("inf"):
                yield pieces, pieces * microseconds / 1e6, told


def _nothing(text: str, lanes: tuple[str, ...], expected: Expected) -> Refused:
    error = _error(text)
    if error is not None:
        return error
    if lanes:
        size = f"piece of {expected.piece_bytes} bytes" if expected.piece_bytes else "piece"
        what = f"connected by {', '.join(lanes)}, and not one {size} was told of in {expected.planned_seconds:g} s"
        return Refused(FailureKind.TOOL_FAILED, f"{what} (MTU, filtering, or a slow path)")
    return Refused(FailureKind.UNREADABLE, f"ucx_perftest's output holds no result ({len(text)} characters)")


def _broken_off(text: str, seconds: float, expected: Expected) -> Refused:
    error = _error(text)
    if error is not None:
        return error
    what = f"pieces came for {seconds:.1f} of {expected.planned_seconds:g} s and then none"
    if seconds < expected.planned_seconds / 2:
        return Refused(FailureKind.STALLED_FLOW, f"{what} (MTU, path MTU discovery or filtering)")
    return Refused(FailureKind.TOO_SHORT, what)


def _error(text: str) -> Refused | None:
    told = [line.rpartition("UCX  ERROR")[2].strip() for line in text.splitlines() if "UCX  ERROR" in line]
    for line in told:
        for words, kind, meaning in _ERRORS:
            if words in line.lower():
                return Refused(kind, f"{meaning} (UCX: {quoted(line)})")
    return Refused(FailureKind.TOOL_FAILED, f"UCX failed: {quoted(told[0])}") if told else None
