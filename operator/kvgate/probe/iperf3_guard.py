"""Accepts a finished iperf3 document as a measurement of one path, or refuses it with what, why and the limit."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable

from kvgate.core.evidence import Failure, FailureKind
from kvgate.core.text import rate
from kvgate.probe.flows import flows_of
from kvgate.probe.iperf3_result import read_numbers
from kvgate.probe.iperf3_text import Refused, read_document
from kvgate.probe.measured import SHARE_OF_PLANNED_SECONDS, Accepted, Expected, Numbers, version_in
from kvgate_probe.fields import Fields, WireError

MIN_SECONDS = 0.95
MIN_BYTES = 1_048_576
SHORTEST_INTERVAL_SECONDS = 0.1
LINE_RATE_TOLERANCE = 1.05
LEAST_SHARE_RECEIVED = 0.5
FIRST_VERSION_WITH_RIGHT_OMIT = (3, 14)


def guard(text: str, expected: Expected) -> Accepted | Failure:
    """Never raises, never takes a number from a document that is unfinished, foreign, short or implausible."""
    try:
        fields, exact = read_document(text)
        for check in CHECKS:
            check(fields, expected)
        numbers = read_numbers(fields, exact)
        _check_numbers(numbers, expected)
        start = fields.within("start")
        return Accepted(numbers, flows_of(fields), start.text("cookie"), version=version_in(start.text("version")))
    except Refused as refused:
        return refused.failure
    except WireError as error:
        return Failure(FailureKind.UNREADABLE, f"not a finished iperf3 document: {error}")


def cookie_of(document: str) -> str | None:
    """What both ends' documents of one test share; None where this one does not tell."""
    try:
        return Fields.of(document, "iperf3").within("start").text("cookie")
    except WireError:
        return None


def _finished(fields: Fields, _: Expected) -> None:
    """An empty end, or one without the receiver's sum, says nothing of what arrived."""
    if not isinstance(fields.within("end").values.get("sum_received"), dict):
        seen = len(fields.items("intervals"))
        message = f"the receiver's sum is missing after {seen} intervals: nobody confirmed what arrived"
        raise Refused(FailureKind.SERVER_LOST if seen else FailureKind.UNREADABLE, message)


def _the_planned_test(fields: Fields, expected: Expected) -> None:
    test = fields.within("start").within("test_start")
    _same("protocol", test.text("protocol"), expected.protocol)
    _same("streams", test.count("num_streams"), expected.streams)
    if test.values.get("reverse") or test.values.get("bidir"):
        raise Refused(FailureKind.IMPLAUSIBLE, "the test ran in the other direction than planned")


def _same(what: str, seen: object, planned: object) -> None:
    if seen != planned:
        message = f"the document is of another test: its {what} is not the planned {planned}"
        raise Refused(FailureKind.IMPLAUSIBLE, message)


def _the_planned_host(fields: Fields, expected: Expected) -> None:
    connected = fields.within("start").objects("connected")
    if len(connected) != expected.streams:
        message = f"{len(connected)} connections, {expected.streams} planned"
        raise Refused(FailureKind.IMPLAUSIBLE, message)
    wanted = plain_address(expected.remote_address)
    if wanted is None or any(plain_address(one.text("remote_host")) != wanted for one in connected):
        message = "connected to another address than the partner's: evidence of another path"
        raise Refused(FailureKind.WRONG_HOST, message)


def plain_address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address without zone, a mapped IPv4 address as IPv4; None where the text is no address."""
    try:
        address = ipaddress.ip_address(text.strip("[]").partition("%")[0])
    except ValueError:
        return None
    mapped = getattr(address, "ipv4_mapped", None)
    return mapped if isinstance(mapped, ipaddress.IPv4Address) else address


def _steady(fields: Fields, _: Expected) -> None:
    """A flow that carried bytes and then none for half of its intervals is stuck, not slow."""
    sums = [interval.within("sum") for interval in fields.objects("intervals")]
    whole = [one for one in sums if one.number("seconds") >= SHORTEST_INTERVAL_SECONDS]
    counted = [one.count("bytes") for one in whole if one.values.get("omitted") is not True]
    zeros = counted.count(0)
    if not counted or zeros * 2 < len(counted):
        return
    message = f"the flow stalled: no byte in {zeros} of {len(counted)} intervals (MTU, path MTU discovery or filtering)"
    raise Refused(FailureKind.STALLED_FLOW, message)


def _right_warm_up(fields: Fields, _: Expected) -> None:
    omit = fields.within("start").within("test_start").values.get("omit") or 0
    if omit and _version(fields) < FIRST_VERSION_WITH_RIGHT_OMIT:
        message = "warm-up left out by an iperf3 older than 3.14, whose sums then count too much"
        raise Refused(FailureKind.UNREADABLE, message)


def _version(fields: Fields) -> tuple[int, ...]:
    words = fields.within("start").text("version").split()
    numbers = words[-1].rstrip("+").split(".") if words else []
    return tuple(int(number) for number in numbers if number.isdigit())


CHECKS: tuple[Callable[[Fields, Expected], None], ...] = (
    _finished,
    _the_planned_test,
    _the_planned_host,
    _steady,
    _right_warm_up,
)


def _check_numbers(numbers: Numbers, expected: Expected) -> None:
    _check_length(numbers, expected)
    told, derived = numbers.bytes_per_second, numbers.bytes_received / numbers.seconds
    if abs(told - derived) > 0.02 * derived:
        message = f"its rate {rate(told)} is not its bytes over its seconds, {rate(derived)}"
        raise Refused(FailureKind.IMPLAUSIBLE, message)
    line = expected.line_rate_bytes_per_second
    if line is not None and told > line * LINE_RATE_TOLERANCE:
        message = f"{rate(told)} is above {LINE_RATE_TOLERANCE:g} x the line rate of {rate(line)}"
        raise Refused(FailureKind.IMPLAUSIBLE, message)
    _check_both_ends(numbers)


def _check_length(numbers: Numbers, expected: Expected) -> None:
    least = max(MIN_SECONDS, SHARE_OF_PLANNED_SECONDS * expected.planned_seconds)
    if numbers.seconds < least:
        message = f"{numbers.seconds:.2f} s measured, at least {least:.2f} s needed"
        raise Refused(FailureKind.TOO_SHORT, message)
    if numbers.bytes_received == 0:
        raise Refused(FailureKind.STALLED_FLOW, f"no byte arrived in {numbers.seconds:.1f} s")
    if numbers.bytes_received < MIN_BYTES:
        message = f"{numbers.bytes_received} bytes arrived, at least {MIN_BYTES} needed to tell a link from a burst"
        raise Refused(FailureKind.TOO_SHORT, message)


def _check_both_ends(numbers: Numbers) -> None:
    sent, received = numbers.bytes_sent, numbers.bytes_received
    if sent is None:
        return
    if received > sent * 1.01 or received < sent * LEAST_SHARE_RECEIVED:
        message = f"{received} bytes received of {sent} sent: at least {LEAST_SHARE_RECEIVED:.0%} must be confirmed"
        raise Refused(FailureKind.IMPLAUSIBLE, message)
