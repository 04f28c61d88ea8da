"""What one end records of its tests: when, over which interface, how many bytes that counted, and what came of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from kvgate_probe import host
from kvgate_probe.partners import Patience
from kvgate_probe.peers import Address
from kvgate_probe.tool import Ran
from kvgate_probe.wire import Load, Result, Role, Schedule, Test, Trouble


@dataclass(frozen=True)
class Trip:
    """What a walker needs to know before it starts."""

    schedule: Schedule
    node: str
    control_port: int
    bind: str | None
    patience: Patience
    clock: Callable[[], float]


@dataclass(frozen=True)
class _Attempt:
    """One test in flight; `before` is what the interface had counted when it began."""

    test: Test
    started_at: float
    local_address: str = ""
    interface: str = ""
    before: int | None = None
    round_trip_seconds: float | None = None


def is_source(test: Test, node: str) -> bool:
    return test.pair.source == node


class Records:
    """At most one test is in flight; `tell` receives each result as it comes."""

    def __init__(self, trip: Trip, tell: Callable[[Result], None]) -> None:
        self._trip, self._tell = trip, tell
        self._attempt: _Attempt | None = None
        self.measured = 0
        self.troubled = 0
        self.troubles: dict[int, Trouble] = {}

    @property
    def interface(self) -> str:
        """That of the test in flight, "" where it is not known."""
        return "" if self._attempt is None else self._attempt.interface

    @property
    def local_address(self) -> str:
        return "" if self._attempt is None else self._attempt.local_address

    @property
    def in_flight(self) -> Test | None:
        return None if self._attempt is None else self._attempt.test

    def begin(self, test: Test) -> None:
        self._attempt = _Attempt(test, self._trip.clock())

    def drop(self) -> None:
        """The test is left to the make-up pass."""
        self._attempt = None

    def start(self, local_address: str) -> None:
        """The tool is about to run: from here on the interface counts."""
        if self._attempt is not None:
            test, interface = self._attempt.test, host.interface_of(self._trip.bind or local_address)
            before = self._counted(test, interface)
            trip = self._attempt.round_trip_seconds
            self._attempt = _Attempt(test, self._trip.clock(), local_address, interface, before, trip)

    def took(self, round_trip_seconds: float | None) -> None:
        """How long a small packet took there and back, before the tool ran."""
        if self._attempt is not None:
            self._attempt = replace(self._attempt, round_trip_seconds=round_trip_seconds)

    @property
    def moved(self) -> int | None:
        """Bytes that the interface has counted since the tool of the test in flight began; None where not known."""
        if self._attempt is None or self._attempt.before is None:
            return None
        now = self._counted(self._attempt.test, self._attempt.interface)
        return None if now is None else max(0, now - self._attempt.before)

    def end(self, ran: Ran, partner_run: str, partner: Address | None) -> None:
        attempt, self._attempt = self._attempt, None
        if attempt is None:
            return
        self.measured += ran.good
        self.troubled += not ran.good
        if ran.trouble is not None:
            self.troubles[attempt.test.index] = ran.trouble
        self._tell(self._result(attempt, ran, partner_run, "" if partner is None else partner.host))

    def _counted(self, test: Test, interface: str) -> int | None:
        counters = host.counters_of(interface)
        if counters is None:
            return None
        return counters.sent if is_source(test, self._trip.node) else counters.received

    def _result(self, attempt: _Attempt, ran: Ran, partner_run: str, partner_address: str) -> Result:
        plan, test = self._trip.schedule, attempt.test
        step, (driver, firmware) = plan.steps[test.step], host.driver_of(attempt.interface)
        return Result(
            run_id=plan.run_id,
            pool_uid=plan.pool_uid,
            node=self._trip.node,
            role=Role.SOURCE if is_source(test, self._trip.node) else Role.DESTINATION,
            pair=test.pair,
            round=test.round,
            phase=plan.phase_of(test.round),
            tool=step.tool,
            streams=step.streams,
            planned_seconds=ran.seconds or step.seconds,
            started_at=attempt.started_at,
            ended_at=self._trip.clock(),
            attempts=ran.attempts,
            partner_run=partner_run,
            partner_address=partner_address,
            local_address=attempt.local_address,
            interface=attempt.interface,
            mtu=host.mtu_of(attempt.interface) if attempt.interface else None,
            interface_bytes_before=attempt.before,
            interface_bytes_after=None if attempt.before is None else self._counted(test, attempt.interface),
            paced_bits_per_second=plan.paced_bits_per_second,
            sent_bytes=ran.sent_bytes,
            step=test.step,
            round_trip_seconds=attempt.round_trip_seconds,
            set_up_seconds=ran.set_up_seconds,
            line_rate_bytes_per_second=host.speed_of(attempt.interface),
            driver=driver,
            firmware=firmware,
            load=ran.load or Load(),
            document=ran.document,
            trouble=ran.trouble,
            message=ran.message,
        )
