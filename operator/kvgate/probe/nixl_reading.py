"""Reads what the two NIXL scripts printed at the end that moved: bytes and seconds, lanes, and whether all arrived."""

from __future__ import annotations

from kvgate.core.evidence import Failure, FailureKind
from kvgate.core.text import rate
from kvgate.probe.flows import Flows
from kvgate.probe.iperf3_errors import quoted
from kvgate.probe.iperf3_text import Refused
from kvgate.probe.measured import Accepted, Expected, Numbers, version_in
from kvgate.probe.ucx_reading import checked_transport, lanes_of, version_of
from kvgate_probe.fields import Fields, WireError
from kvgate_probe.nixl_pair import MARK


def read_nixl(text: str, expected: Expected) -> Accepted | Failure:
    """Never raises. Data that did not arrive as they were are a failure of the path, whatever the rate."""
    try:
        told = _told(text)
        _same_test(told, expected)
        numbers = _numbers(told, expected)
        lanes = lanes_of(text)
        set_up = told.maybe_number("setUpSeconds", above=-1)
        return Accepted(
            numbers,
            Flows(),
            "",
            checked_transport(lanes),
            lanes,
            sums_equal=True,
            set_up_seconds=set_up,
            version=version_in(", ".join(filter(None, (told.text(MARK), version_of(text))))),
        )
    except Refused as refused:
        return refused.failure
    except WireError as error:
        return Failure(FailureKind.UNREADABLE, f"not a finished NIXL result: {error}")


def _told(text: str) -> Fields:
    lines = [line for line in text.splitlines() if line.startswith(f'{{"{MARK}"')]
    if len(lines) != 1:
        raise Refused(FailureKind.UNREADABLE, f"NIXL's output holds {len(lines)} results ({len(text)} characters)")
    told = Fields.of(lines[0], "NIXL's result")
    error = told.maybe_text("error")
    if error is not None:
        kind = FailureKind.CONNECT_REFUSED if "ConnectionRefused" in error else FailureKind.TOOL_FAILED
        raise Refused(kind, f"NIXL failed: {quoted(error)}")
    return told


def _same_test(told: Fields, expected: Expected) -> None:
    operation, size = told.text("operation").lower(), told.whole("pieceBytes", least=1)
    if operation != (expected.operation or "read") or (expected.piece_bytes and size != expected.piece_bytes):
        raise Refused(FailureKind.IMPLAUSIBLE, "the result is of another operation or size of pieces than planned")
    if not told.flag("sumsEqual"):
        message = f"the data that arrived are not those that were sent ({told.whole('pieces')} pieces of {size} bytes)"
        raise Refused(FailureKind.DATA_CORRUPT, message)


def _numbers(told: Fields, expected: Expected) -> Numbers:
    moved, seconds = told.whole("bytes"), told.number("seconds", above=-1)
    if not moved or seconds < expected.least_seconds:
        raise Refused(FailureKind.TOO_SHORT, f"{moved} bytes were moved in {seconds:.2f} s: too few to tell a rate")
    per_second, line = moved / seconds, expected.line_rate_bytes_per_second
    if line is not None and per_second > 1.05 * line:
        raise Refused(FailureKind.IMPLAUSIBLE, f"{rate(per_second)} is above 1.05 x the line rate of {rate(line)}")
    return Numbers(moved, seconds, per_second, bytes_sent=told.maybe_whole("sentBytes"))
