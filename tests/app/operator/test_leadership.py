"""Who may act: two operators and one Lease, by a clock that the test turns."""

import logging
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvgate.app.operator.election import LEASE_SECONDS, RENEW_SECONDS, RETRY_SECONDS, Move, Sighting, next_move
from kvgate.app.operator.leadership import Leadership, NotLeadingError
from kvgate.edge.connection import CALL_SECONDS
from kvgate.edge.errors import EdgeError, WriteConflictError
from kvgate.edge.leases import LeaseRecord, micro_time

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)


@dataclass
class Time:
    seconds: float = 1000.0


@dataclass
class OneLease:
    """Plays the API server's Lease: create fails when there is one, replace when the version is not the last."""

    stored: LeaseRecord | None = None
    away: bool = False
    writes: int = 0
    reads: int = 0
    versions: int = 0
    lost_answers: int = 0
    writers: list[str] = field(default_factory=list)

    def read(self) -> LeaseRecord | None:
        self._reach()
        self.reads += 1
        return self.stored

    def create(self, record: LeaseRecord, now: datetime) -> LeaseRecord:
        self._reach()
        if self.stored is not None:
            raise WriteConflictError("Lease: the name is taken")
        return self._store(record)

    def replace(self, record: LeaseRecord, now: datetime) -> LeaseRecord:
        self._reach()
        if self.stored is None or self.stored.version != record.version:
            raise WriteConflictError("Lease: it was changed since it was read")
        return self._store(record)

    def _reach(self) -> None:
        if self.away:
            raise EdgeError("Lease: the API server gave no answer")

    def _store(self, record: LeaseRecord) -> LeaseRecord:
        self.versions += 1
        self.writes += 1
        self.writers.append(record.holder)
        self.stored = replace(record, version=str(self.versions))
        if self.lost_answers:
            self.lost_answers -= 1
            raise EdgeError("Lease: the API server gave no answer")
        return self.stored


def operator(lease: OneLease, time: Time, name: str) -> Leadership:
    return Leadership(lease, name, lambda: time.seconds, lambda: NOW)


def run(time: Time, seconds: float, *operators: Leadership) -> None:
    until = time.seconds + seconds
    while time.seconds < until:
        time.seconds += RETRY_SECONDS
        for one in operators:
            one.step()


def test_the_first_one_makes_the_lease_and_acts() -> None:
    lease, time = OneLease(), Time()
    first = operator(lease, time, "first")
    first.step()

    assert first.holds()
    assert lease.stored == LeaseRecord("first", LEASE_SECONDS, 0, "1")


def test_a_second_one_waits_as_long_as_the_first_renews() -> None:
    lease, time = OneLease(), Time()
    first, second = operator(lease, time, "first"), operator(lease, time, "second")
    first.step()
    run(time, 300, first, second)

    assert (first.holds(), second.holds()) == (True, False)


def test_when_the_first_dies_the_second_acts_within_a_lease_and_a_look() -> None:
    lease, time = OneLease(), Time()
    first, second = operator(lease, time, "first"), operator(lease, time, "second")
    first.step()
    run(time, 10, first, second)
    died = time.seconds
    while not second.holds():
        run(time, RETRY_SECONDS, second)

    assert LEASE_SECONDS <= time.seconds - died <= LEASE_SECONDS + 2 * RETRY_SECONDS
    assert lease.stored is not None
    assert (lease.stored.holder, lease.stored.transitions) == ("second", 1)


def test_a_holder_whom_the_api_server_does_not_answer_stops_before_another_may_begin() -> None:
    lease, time = OneLease(), Time()
    first = operator(lease, time, "first")
    first.step()
    lease.away = True
    began = time.seconds
    while first.holds():
        time.seconds += 0.5
        first.step()

    assert time.seconds - began <= RENEW_SECONDS
    with pytest.raises(NotLeadingError):
        first.require()


def test_a_holder_that_hangs_no_longer_holds_though_nobody_told_it() -> None:
    lease, time = OneLease(), Time()
    first = operator(lease, time, "first")
    first.step()
    time.seconds += RENEW_SECONDS

    assert not first.holds()


def test_the_last_call_of_a_holder_ends_before_another_may_begin() -> None:
    assert RENEW_SECONDS + CALL_SECONDS <= LEASE_SECONDS


def test_when_the_api_server_was_away_for_longer_than_a_lease_the_holder_acts_again_if_nobody_took_it() -> None:
    lease, time = OneLease(), Time()
    first = operator(lease, time, "first")
    first.step()
    lease.away = True
    run(time, 10 * LEASE_SECONDS, first)
    lease.away = False
    first.step()

    assert first.holds()
    assert lease.stored is not None
    assert lease.stored.transitions == 0


def test_when_another_took_it_meanwhile_the_old_holder_waits() -> None:
    lease, time = OneLease(), Time()
    first, second = operator(lease, time, "first"), operator(lease, time, "second")
    first.step()
    second.step()
    run(time, LEASE_SECONDS + RETRY_SECONDS, second)
    first.step()
    first.step()

    assert (first.holds(), second.holds()) == (False, True)


def test_a_renewal_whose_answer_was_lost_is_found_again() -> None:
    lease, time = OneLease(), Time()
    first = operator(lease, time, "first")
    first.step()
    lease.lost_answers = 1
    run(time, 3 * RETRY_SECONDS, first)

    assert first.holds()


def test_a_lease_that_was_deleted_is_made_again() -> None:
    lease, time = OneLease(), Time()
    first = operator(lease, time, "first")
    first.step()
    lease.stored = None
    run(time, 2 * RETRY_SECONDS, first)

    assert first.holds()
    assert lease.stored is not None


def test_letting_go_lets_the_next_one_act_at_its_next_look() -> None:
    lease, time = OneLease(), Time()
    first, second = operator(lease, time, "first"), operator(lease, time, "second")
    first.step()
    second.step()
    first.release()
    assert not first.holds()
    second.step()

    assert second.holds()


def test_who_does_not_hold_it_does_not_let_it_go() -> None:
    lease, time = OneLease(), Time()
    first, second = operator(lease, time, "first"), operator(lease, time, "second")
    first.step()
    second.step()
    second.release()

    assert first.holds()
    assert lease.stored is not None
    assert lease.stored.holder == "first"


def test_holding_costs_one_write_per_renewal_and_no_read() -> None:
    lease, time = OneLease(), Time()
    first = operator(lease, time, "first")
    first.step()
    lease.reads = lease.writes = 0
    run(time, 60, first)

    assert (lease.reads, lease.writes) == (0, 30)


@pytest.mark.parametrize(
    ("record", "age", "move"),
    [
        pytest.param(None, 0, Move.CREATE, id="there is none: make it"),
        pytest.param(LeaseRecord("me", 15, 0, "1"), 99, Move.RENEW, id="it is ours: renew it, however old"),
        pytest.param(LeaseRecord("", 15, 0, "1"), 0, Move.TAKE, id="it was let go: take it"),
        pytest.param(LeaseRecord("other", 15, 0, "1"), 14.9, Move.WAIT, id="another holds it: wait"),
        pytest.param(LeaseRecord("other", 15, 0, "1"), 15, Move.TAKE, id="another's has stood still: take it"),
        pytest.param(LeaseRecord("other", 60, 0, "1"), 15, Move.WAIT, id="another asked for longer: wait longer"),
        pytest.param(LeaseRecord("other", 0, 0, "1"), 5, Move.WAIT, id="one that says no time has ours"),
    ],
)
def test_next_move(record: LeaseRecord | None, age: float, move: Move) -> None:
    assert next_move("me", Sighting(record, 100.0), 100.0 + age) is move


@given(
    st.lists(
        st.tuples(st.sampled_from(["first", "second", "away", "back", "restart"]), st.floats(0, 20, allow_nan=False)),
        max_size=60,
    )
)
def test_two_never_act_at_once_whatever_happens(script: list[tuple[str, float]]) -> None:
    lease, time = OneLease(), Time()
    both = {name: operator(lease, time, name) for name in ("first", "second")}
    for number, (what, seconds) in enumerate(script):
        time.seconds += seconds
        match what:
            case "away" | "back":
                lease.away = what == "away"
            case "restart":
                both["first"] = operator(lease, time, f"first-{number}")
            case name:
                both[name].step()
        assert [one.holds() for one in both.values()].count(True) < 2


def test_it_knows_whether_the_api_server_answers_also_while_it_waits() -> None:
    lease, time = OneLease(), Time()
    first, second = operator(lease, time, "first"), operator(lease, time, "second")
    unasked = second.answered()
    first.step()
    second.step()
    waits = second.answered()
    lease.away = True
    run(time, LEASE_SECONDS, second)

    assert (unasked, waits, second.answered()) == (False, True, False)


def test_times_are_written_as_microtime_even_on_the_whole_second() -> None:
    assert micro_time(NOW) == "2026-11-30T12:00:00.000000Z"


def test_a_standby_says_once_whom_it_waits_for(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    lease, time = OneLease(), Time()
    first, second = operator(lease, time, "first"), operator(lease, time, "second")
    first.step()
    run(time, 60, first, second)

    told = [record for record in caplog.records if record.getMessage() == "another process holds the lease"]
    assert len(told) == 1
    assert "first" in str(vars(told[0]))
