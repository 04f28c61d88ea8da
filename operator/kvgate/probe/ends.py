"""Weighs the two ends' records of one test: a number only where both ends stand by it."""

from __future__ import annotations

from dataclasses import dataclass

from kvgate.core.evidence import Failure, FailureKind
from kvgate.core.rates import LOOPBACK
from kvgate.probe.iperf3_errors import quoted
from kvgate.probe.iperf3_guard import plain_address
from kvgate.probe.measured import Accepted, Expected, Reader
from kvgate.probe.readers import reader_of
from kvgate.probe.ucx_reading import TCP
from kvgate_probe.wire import Result, Role, Schedule, Step

LEAST_SHARE_COUNTED = 0.9
MOST_MESSAGE_CHARACTERS = 250


def weigh(
    ends: Ends,
    step: Step,
    schedule: Schedule,
    addresses: frozenset[str],
    *,
    loopback: bool,
) -> Accepted | Failure:
    """The document of the end that tells, where it passes its tool's guard and the other end does not speak against it.

    `addresses` are those that the other end's walker may have; empty where not known.
    """
    reader = reader_of(step)
    teller, other = ends.told_by(reader.teller)
    if teller is None:
        return _only_the_other(other)
    outcome = _trouble(teller) or _identity(teller, schedule, addresses, loopback=loopback)
    if outcome is not None:
        return outcome
    accepted = reader.read(teller.document, _expected(teller, step, schedule))
    if isinstance(accepted, Failure):
        return accepted
    against = _counters(teller, accepted) or _other_against(other, accepted, reader)
    return against or accepted


@dataclass(frozen=True)
class Ends:
    """What the two ends of one test recorded; None where an end left nothing."""

    source: Result | None = None
    destination: Result | None = None

    def told_by(self, role: Role) -> tuple[Result | None, Result | None]:
        """First the end whose document counts, then the other."""
        source = role is Role.SOURCE
        return (self.source, self.destination) if source else (self.destination, self.source)


def _only_the_other(other: Result | None) -> Failure:
    trouble = None if other is None else _trouble(other)
    who = "destination" if other is not None and other.role is Role.SOURCE else "source"
    return trouble or Failure(FailureKind.PARTNER_LOST, f"the {who} left no record of this test")


def _trouble(result: Result) -> Failure | None:
    if result.trouble is None:
        return None
    return Failure(
        FailureKind(result.trouble.value), f"{result.node}: {quoted(result.message, MOST_MESSAGE_CHARACTERS)[1:-1]}"
    )


def _identity(teller: Result, schedule: Schedule, addresses: frozenset[str], *, loopback: bool) -> Failure | None:
    if teller.partner_run != schedule.run_id:
        return Failure(FailureKind.WRONG_RUN, "the partner did not answer with this run's ID")
    partner = plain_address(teller.partner_address)
    if addresses and partner not in {plain_address(address) for address in addresses}:
        other = "destination" if teller.role is Role.SOURCE else "source"
        return Failure(FailureKind.WRONG_HOST, f"the partner's address is none of the {other}'s own")
    local = teller.interface in LOOPBACK or plain_address(teller.local_address) == partner
    if local and not loopback:
        message = "both ends have one address: what was measured left no pod, and no node"
        return Failure(FailureKind.WRONG_HOST, message)
    return None


def _expected(teller: Result, step: Step, schedule: Schedule) -> Expected:
    return Expected(
        remote_address=teller.partner_address,
        planned_seconds=teller.planned_seconds,
        streams=step.streams,
        line_rate_bytes_per_second=schedule.line_rate_bytes_per_second,
        piece_bytes=step.piece_bytes,
        operation=step.operation,
    )


def _other_against(other: Result | None, accepted: Accepted, reader: Reader) -> Failure | None:
    if other is None:
        return None
    trouble = _trouble(other) or _counters(other, accepted)
    if trouble is not None:
        return trouble
    cookie = reader.cookie(other.document)
    if cookie is not None and cookie != accepted.cookie:
        message = "the two ends' documents are of two different tests"
        return Failure(FailureKind.AMBIGUOUS, message)
    return None


def counted_bytes(result: Result | None) -> int | None:
    """Bytes that the interface moved during the test; None where the system did not tell or the count wrapped."""
    if result is None or result.interface_bytes_before is None or result.interface_bytes_after is None:
        return None
    moved = result.interface_bytes_after - result.interface_bytes_before
    return moved if moved >= 0 else None


def _counters(result: Result, accepted: Accepted) -> Failure | None:
    moved, told = counted_bytes(result), accepted.numbers.bytes_received
    if accepted.transport != TCP:
        return None  # RDMA passes by the counters of the network interface
    if moved is None or moved >= LEAST_SHARE_COUNTED * told:
        return None
    message = (
        f"{result.node}: its interface counted {moved} bytes while {told} were reported, "
        f"at least {LEAST_SHARE_COUNTED:.0%} must have passed it"
    )
    return Failure(FailureKind.COUNTERS_STILL, message)
