"""Weighs the two ends' records of one test: a number only where both ends stand by it."""

from __future__ import annotations

from kvgate.core.evidence import Failure, FailureKind
from kvgate.probe.iperf3_errors import quoted
from kvgate.probe.iperf3_guard import Accepted, Expected, guard, plain_address
from kvgate_probe.fields import Fields, WireError
from kvgate_probe.wire import Result, Schedule

LEAST_SHARE_COUNTED = 0.9
MOST_MESSAGE_CHARACTERS = 250
LOOPBACK = ("lo", "lo0")


def weigh(
    source: Result | None,
    destination: Result | None,
    schedule: Schedule,
    addresses: frozenset[str],
    *,
    loopback: bool,
) -> Accepted | Failure:
    """The source's document where it passes the guard and the destination does not speak against it.

    `addresses` are those that the destination's walker may have; empty where not known.
    """
    if source is None:
        return _only_the_destination(destination)
    outcome = _trouble(source) or _identity(source, schedule, addresses, loopback=loopback)
    if outcome is not None:
        return outcome
    accepted = guard(source.document, _expected(source, schedule))
    if isinstance(accepted, Failure):
        return accepted
    against = _counters(source, accepted) or _destination_against(destination, accepted)
    return against or accepted


def _only_the_destination(destination: Result | None) -> Failure:
    trouble = None if destination is None else _trouble(destination)
    return trouble or Failure(FailureKind.PARTNER_LOST, "the source left no record of this test")


def _trouble(result: Result) -> Failure | None:
    if result.trouble is None:
        return None
    return Failure(
        FailureKind(result.trouble.value), f"{result.node}: {quoted(result.message, MOST_MESSAGE_CHARACTERS)[1:-1]}"
    )


def _identity(source: Result, schedule: Schedule, addresses: frozenset[str], *, loopback: bool) -> Failure | None:
    if source.partner_run != schedule.run_id:
        return Failure(FailureKind.WRONG_RUN, "the partner did not answer with this run's ID")
    partner = plain_address(source.partner_address)
    if addresses and partner not in {plain_address(address) for address in addresses}:
        return Failure(FailureKind.WRONG_HOST, "the partner's address is none of the destination's own")
    local = source.interface in LOOPBACK or plain_address(source.local_address) == partner
    if local and not loopback:
        message = "both ends are on one host: no wire was measured between two nodes"
        return Failure(FailureKind.WRONG_HOST, message)
    return None


def _expected(source: Result, schedule: Schedule) -> Expected:
    return Expected(
        remote_address=source.partner_address,
        planned_seconds=source.planned_seconds,
        streams=schedule.streams,
        line_rate_bytes_per_second=schedule.line_rate_bytes_per_second,
    )


def _destination_against(destination: Result | None, accepted: Accepted) -> Failure | None:
    if destination is None:
        return None
    trouble = _trouble(destination) or _counters(destination, accepted)
    if trouble is not None:
        return trouble
    cookie = _cookie(destination.document)
    if cookie is not None and cookie != accepted.cookie:
        message = "the two ends' documents are of two different tests"
        return Failure(FailureKind.AMBIGUOUS, message)
    return None


def _cookie(document: str) -> str | None:
    try:
        return Fields.of(document, "iperf3").within("start").text("cookie")
    except WireError:
        return None


def counted_bytes(result: Result | None) -> int | None:
    """Bytes that the interface moved during the test; None where the system did not tell or the count wrapped."""
    if result is None or result.interface_bytes_before is None or result.interface_bytes_after is None:
        return None
    moved = result.interface_bytes_after - result.interface_bytes_before
    return moved if moved >= 0 else None


def _counters(result: Result, accepted: Accepted) -> Failure | None:
    moved, told = counted_bytes(result), accepted.numbers.bytes_received
    if moved is None or moved >= LEAST_SHARE_COUNTED * told:
        return None
    message = (
        f"{result.node}: its interface counted {moved} bytes while {told} were reported, "
        f"at least {LEAST_SHARE_COUNTED:.0%} must have passed it"
    )
    return Failure(FailureKind.COUNTERS_STILL, message)
