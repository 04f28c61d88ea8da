"""From walkers' logs to samples: this run, the right node, planned paths, once each, and both ends agreeing."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kvgate.api.words import Phase
from kvgate.core.evidence import Failure, FailureKind, Path, Sample
from kvgate.probe.identities import tools
from kvgate.probe.plan import LinkTest
from kvgate.probe.results import MOST_LOG_CHARACTERS, MOST_PROBLEMS, Elsewhere, Reading, Setting, read_logs
from kvgate_probe.summary import Summary, encode_summary
from kvgate_probe.wire import Pair, Result, Role, Schedule, Trouble, encode_result
from tests.probe.documents import finished, text_of
from tests.probe.matrix import plan_sweep

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
TEST = LinkTest(duration_seconds=10, streams=1, port=5201)
PLAN = plan_sweep("run-7", "pool-1", ["p"], ["d"], TEST, Phase.ISOLATED)
PAIR = Pair("p", "d")
GOOD = text_of(finished())


def record(role: Role = Role.SOURCE, **changes: Any) -> Result:
    source = role is Role.SOURCE
    good = Result(
        run_id="run-7",
        pool_uid="pool-1",
        node="p" if source else "d",
        role=role,
        pair=PAIR,
        round=0,
        phase="Isolated",
        tool="iperf3",
        streams=1,
        planned_seconds=10.0,
        started_at=NOW.timestamp() - 60,
        ended_at=NOW.timestamp() - 50,
        attempts=1,
        partner_run="run-7",
        partner_address="10.0.0.2" if source else "10.0.0.1",
        local_address="10.0.0.1" if source else "10.0.0.2",
        interface="eth0",
        mtu=1500,
        interface_bytes_before=1000,
        interface_bytes_after=13_000_000_000,
        document=GOOD,
    )
    return replace(good, **changes)


def log(*results: Result) -> str:
    return "".join(encode_result(result) + "\n" for result in results)


def read(p: str = "", d: str = "", schedule: Schedule = PLAN.schedule, setting: Setting | None = None) -> Reading:
    return read_logs(schedule, {"p": p, "d": d}, setting or Setting(NOW))


def only_sample(reading: Reading) -> Sample:
    assert len(reading.samples) == 1, reading
    return reading.samples[0]


def failure_of(reading: Reading) -> Failure:
    failure = only_sample(reading).failure
    assert failure is not None, reading
    return failure


def test_two_good_ends_make_one_number() -> None:
    reading = read(p=log(record()), d=log(record(Role.DESTINATION)))
    sample = only_sample(reading)
    assert reading.problems == ()
    assert sample.path == Path("p", "d")
    assert sample.bytes_per_second == pytest.approx(9.4e9 / 8)
    assert (sample.bytes_moved, sample.seconds, sample.streams) == (11_750_000_000, 10, 1)
    assert (sample.interface, sample.interface_bytes) == ("eth0", 12_999_999_000)
    assert (sample.tool, sample.operation, sample.transport) == ("iperf3", "tcp-stream", "tcp")
    assert sample.measured_at == NOW
    assert sample.notes == ()


def test_a_sample_tells_the_tools_version_and_both_round_trips() -> None:
    document = finished()
    for one in document["end"]["streams"]:
        one["sender"]["mean_rtt"] = 2500
    sample = only_sample(read(log(record(document=text_of(document), round_trip_seconds=0.0002))))
    assert sample.tool_version == document["start"]["version"] != ""
    assert (sample.round_trip_seconds, sample.loaded_round_trip_seconds) == (0.0002, 0.0025)
    assert tools([sample]) == (f"iperf3: {sample.tool_version}",)


def test_without_the_destinations_record_the_number_says_so() -> None:
    assert "left no record" in only_sample(read(p=log(record()))).notes[0]


def test_a_silent_path_has_no_sample_and_no_zero() -> None:
    assert read(p="", d="") == Reading(())


@pytest.mark.parametrize(
    ("source", "destination", "kind"),
    [
        pytest.param(
            record(document="", trouble=Trouble.PARTNER_SILENT, message="no answer"),
            None,
            FailureKind.PARTNER_SILENT,
            id="the partner never answered",
        ),
        pytest.param(
            record(document=GOOD, trouble=Trouble.INTERRUPTED),
            record(Role.DESTINATION),
            FailureKind.INTERRUPTED,
            id="a trouble outweighs a document beside it",
        ),
        pytest.param(
            record(),
            record(Role.DESTINATION, document="", trouble=Trouble.INTERRUPTED),
            FailureKind.INTERRUPTED,
            id="the destination was ended although the source has a number",
        ),
        pytest.param(
            None,
            record(Role.DESTINATION),
            FailureKind.PARTNER_LOST,
            id="the destination alone is never a number",
        ),
        pytest.param(
            None,
            record(Role.DESTINATION, document="", trouble=Trouble.PORT_IN_USE),
            FailureKind.PORT_IN_USE,
            id="the destination alone tells its trouble",
        ),
        pytest.param(
            record(partner_run="run-6"), None, FailureKind.WRONG_RUN, id="E16 the partner was of an earlier run"
        ),
        pytest.param(record(partner_run=""), None, FailureKind.WRONG_RUN, id="E16 the partner never told its run"),
        pytest.param(
            record(interface="lo"), None, FailureKind.WRONG_HOST, id="F16 both ends on one host, over loopback"
        ),
        pytest.param(
            record(local_address="10.0.0.2"),
            None,
            FailureKind.WRONG_HOST,
            id="F16 both ends have one address",
        ),
        pytest.param(
            record(interface_bytes_after=1000),
            None,
            FailureKind.COUNTERS_STILL,
            id="the source's interface counted nothing",
        ),
        pytest.param(
            record(interface_bytes_after=6_000_000_000),
            None,
            FailureKind.COUNTERS_STILL,
            id="half of the bytes went by another interface",
        ),
        pytest.param(
            record(),
            record(Role.DESTINATION, interface_bytes_after=1001),
            FailureKind.COUNTERS_STILL,
            id="the destination's interface counted nothing",
        ),
        pytest.param(
            record(),
            record(Role.DESTINATION, document=GOOD.replace('cookie": "', 'cookie": "x')),
            FailureKind.AMBIGUOUS,
            id="F15 the two ends' documents are of two tests: a foreign server answered",
        ),
        pytest.param(record(document="{"), record(Role.DESTINATION), FailureKind.UNREADABLE, id="a broken document"),
    ],
)
def test_no_number_is_taken(source: Result | None, destination: Result | None, kind: FailureKind) -> None:
    source_log = "" if source is None else log(source)
    failure = failure_of(read(source_log, "" if destination is None else log(destination)))
    assert failure.kind is kind
    assert failure.message


def test_two_records_of_one_test_are_ambiguous_even_when_equal() -> None:
    assert failure_of(read(p=log(record(), record()))).kind is FailureKind.AMBIGUOUS
    twice = log(record(Role.DESTINATION), record(Role.DESTINATION))
    assert failure_of(read(p=log(record()), d=twice)).kind is FailureKind.AMBIGUOUS


@pytest.mark.parametrize(
    "stranger",
    [
        pytest.param(record(run_id="run-6"), id="of another run"),
        pytest.param(record(pool_uid="pool-2"), id="of another pool"),
        pytest.param(record(node="q"), id="of another node than the log is from"),
        pytest.param(record(pair=Pair("p", "x")), id="of a path that nobody planned"),
        pytest.param(record(round=3), id="of another round"),
        pytest.param(record(role=Role.DESTINATION), id="of the wrong end"),
        pytest.param(record(streams=2), id="of another number of streams"),
        pytest.param(record(phase="Concurrent"), id="of another phase"),
        pytest.param(record(planned_seconds=1.0), id="of a shorter test"),
        pytest.param(record(paced_bits_per_second=10**9), id="of another pace"),
    ],
)
def test_a_record_that_is_not_ours_is_named_and_ignored(stranger: Result) -> None:
    reading = read(p=log(stranger))
    assert reading.samples == ()
    assert "log of p, line 1" in reading.problems[0]


LIMITED = replace(PLAN.schedule, most_bytes=10**12)


@pytest.mark.parametrize(
    ("seconds", "note"),
    [
        pytest.param(10.0, None, id="as long as planned"),
        pytest.param(4.0, "tested for 4 of 10 s, for the operator's probe.maxBytesPerSweep", id="shorter"),
    ],
)
def test_a_limit_on_bytes_lets_a_senders_test_be_shorter_and_the_sample_says_so(
    seconds: float, note: str | None
) -> None:
    document = text_of(finished(seconds=round(seconds)))
    sent = record(planned_seconds=seconds, document=document, sent_bytes=7)
    sample = only_sample(read(p=log(sent), d=log(record(Role.DESTINATION, document=document)), schedule=LIMITED))
    assert (sample.failure, sample.bytes_sent) == (None, 7)
    assert [told for told in sample.notes if "maxBytesPerSweep" in told] == ([note] if note else [])


@pytest.mark.parametrize(
    "stranger",
    [
        pytest.param(record(planned_seconds=11.0), id="longer than planned"),
        pytest.param(record(planned_seconds=0.5), id="shorter than a second"),
        pytest.param(record(planned_seconds=2.5), id="not of whole seconds"),
        pytest.param(record(Role.DESTINATION, planned_seconds=4.0, node="p"), id="of a receiver"),
    ],
)
def test_no_limit_on_bytes_lets_a_test_be_of_any_length(stranger: Result) -> None:
    assert read(p=log(stranger), schedule=LIMITED).samples == ()


def test_a_short_test_must_still_be_as_long_as_it_was_meant_to_be() -> None:
    short = record(planned_seconds=4.0, document=text_of(finished(seconds=2)))
    assert failure_of(read(p=log(short), schedule=LIMITED)).kind is FailureKind.TOO_SHORT


def test_a_failed_test_keeps_what_it_sent() -> None:
    stopped = record(document="", trouble=Trouble.BYTE_BUDGET_SPENT, message="stopped after 12 bytes", sent_bytes=12)
    sample = only_sample(read(p=log(stopped), schedule=LIMITED))
    assert sample.bytes_sent == 12
    assert sample.failure == Failure(FailureKind.BYTE_BUDGET_SPENT, "p: stopped after 12 bytes")


SUMMARY = encode_summary(Summary("run-7", "p", 1, 1, 0, interrupted=False, seconds=1.0))


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        pytest.param(SUMMARY, 0, id="the walker's own summary is no problem"),
        pytest.param("\n\n", 0, id="empty lines are no problem"),
        pytest.param("Traceback (most recent call last):", 1, id="a traceback"),
        pytest.param('{"kvgateProbe":1}', 1, id="a result without fields"),
        pytest.param("[1,2]", 1, id="a list"),
        pytest.param(encode_result(record())[:200], 1, id="a line cut short"),
        pytest.param(encode_result(record()).replace('"mtu":1500', '"mtu":NaN'), 1, id="a NaN"),
        pytest.param("\x00\ufffd" * 50, 1, id="bytes that are no text"),
    ],
)
def test_what_else_a_pod_prints(text: str, problems: int) -> None:
    reading = read(p=text)
    assert reading.samples == ()
    assert len(reading.problems) == problems
    assert all(problem.isprintable() for problem in reading.problems)


def test_many_problems_are_counted_and_not_listed_without_end() -> None:
    problems = read(p="noise\n" * 1000).problems
    assert len(problems) == MOST_PROBLEMS + 1
    assert problems[-1] == f"and {1000 - MOST_PROBLEMS} more problems"


def test_a_log_without_end_gives_no_number_and_says_how_much_is_read() -> None:
    reading = read(log(record()) + "x" * MOST_LOG_CHARACTERS, log(record(Role.DESTINATION)))

    assert all(sample.failure for sample in reading.samples)
    assert any(f"at most {MOST_LOG_CHARACTERS} are read" in problem for problem in reading.problems)


def test_evidence_ages_by_our_clock_and_a_node_that_is_ahead_is_named() -> None:
    ahead = (NOW + timedelta(minutes=7)).timestamp()
    reading = read(p=log(record(ended_at=ahead)))
    assert only_sample(reading).measured_at == NOW
    assert reading.problems == ("clock of p: more than 5 min ahead; evidence ages by ours",)


@pytest.mark.parametrize(
    "ended",
    [
        pytest.param(timedelta(milliseconds=60), id="60 ms ahead is ordinary"),
        pytest.param(timedelta(minutes=-63), id="3 min before the sweep began too"),
        pytest.param(timedelta(minutes=-50), id="what ended early in a sweep of an hour is not behind"),
    ],
)
def test_a_small_skew_changes_nothing(ended: timedelta) -> None:
    sweep = Setting(NOW, began_at=NOW - timedelta(hours=1))
    reading = read(p=log(record(ended_at=(NOW + ended).timestamp())), setting=sweep)
    assert reading.problems == ()
    assert only_sample(reading).measured_at == NOW


@pytest.mark.parametrize(
    "behind",
    [
        pytest.param(timedelta(minutes=10), id="10 min behind"),
        pytest.param(timedelta(hours=25), id="25 h behind"),
    ],
)
def test_a_node_that_is_behind_is_named_and_its_clock_ages_nothing(behind: timedelta) -> None:
    sweep, ended = Setting(NOW, began_at=NOW - timedelta(seconds=90)), NOW - timedelta(seconds=50) - behind
    reading = read(p=log(record(ended_at=ended.timestamp())), setting=sweep)
    assert reading.problems == ("clock of p: more than 5 min behind; evidence ages by ours",)
    assert (only_sample(reading).measured_at, only_sample(reading).failure) == (NOW, None)


def test_the_partners_address_must_be_one_of_the_destinations_own() -> None:
    theirs = Setting(NOW, addresses={"d": frozenset({"fd00::2", "10.0.0.2"})})
    assert only_sample(read(setting=theirs, p=log(record()))).failure is None
    others = Setting(NOW, addresses={"d": frozenset({"10.0.0.99"})})
    assert failure_of(read(setting=others, p=log(record()))).kind is FailureKind.WRONG_HOST


@pytest.mark.parametrize(
    ("document", "away", "counts"),
    [
        pytest.param(GOOD, {}, True, id="both on their workers' networks"),
        pytest.param(GOOD, {"x": Elsewhere("far")}, True, id="another node that was not"),
        pytest.param(GOOD, {"p": Elsewhere("far")}, False, id="the source on another network"),
        pytest.param(GOOD, {"d": Elsewhere("far")}, False, id="the destination on another network"),
        pytest.param("", {"d": Elsewhere("far")}, False, id="and a path that carried nothing there is not dead"),
        pytest.param(GOOD, {"d": Elsewhere("far", tcp_alone=True)}, False, id="TCP on another network"),
    ],
)
def test_what_was_measured_on_another_network_than_the_workers_is_no_number_and_no_fault(
    document: str, away: dict[str, Elsewhere], *, counts: bool
) -> None:
    silent = None if document else Trouble.PARTNER_SILENT
    setting = Setting(NOW, elsewhere=away)
    sample = only_sample(read(log(record(document=document, trouble=silent)), setting=setting))
    assert (sample.bytes_per_second is not None) is counts
    if not counts:
        assert sample.failure == Failure(FailureKind.OTHER_NETWORK, f"{min(away)}: far")


@pytest.mark.parametrize("tcp_alone", [True, False])
def test_a_network_without_addresses_takes_nothing_from_rdma(*, tcp_alone: bool) -> None:
    schedule = replace(PLAN.schedule, tool="ib_read_bw")
    table = "#bytes #iterations BW peak[Gb/sec] BW average[Gb/sec] MsgRate[Mpps]\n65536 190000 98.1 97.9 0.18\n"
    ends = [record(role, tool="ib_read_bw", document=table) for role in Role]
    setting = Setting(NOW, elsewhere={"p": Elsewhere("far", tcp_alone=tcp_alone)})
    sample = only_sample(read(log(ends[0]), log(ends[1]), schedule, setting))
    assert (sample.failure is None) is tcp_alone


def test_loopback_is_allowed_where_asked_for_and_labelled() -> None:
    paced = plan_sweep("run-7", "pool-1", ["p"], ["d"], replace(TEST, paced_bits_per_second=10**9), Phase.ISOLATED)
    document = text_of(finished(host="127.0.0.1"))
    here = record(
        interface="lo",
        local_address="127.0.0.1",
        partner_address="127.0.0.1",
        document=document,
        paced_bits_per_second=10**9,
    )
    sample = only_sample(read(log(here), schedule=paced.schedule, setting=Setting(NOW, loopback=True)))
    assert sample.failure is None
    assert sample.notes[0] == "paced, not a link: both ends are on one host"


def test_unknown_counters_are_said_and_not_taken_for_still_ones() -> None:
    unknown = record(interface_bytes_before=None, interface_bytes_after=None)
    sample = only_sample(read(p=log(unknown)))
    assert sample.failure is None
    assert any("counters not read" in note for note in sample.notes)


def test_a_line_rate_in_the_schedule_bounds_every_sample() -> None:
    slow = plan_sweep(
        "run-7", "pool-1", ["p"], ["d"], replace(TEST, line_rate_bytes_per_second=1e9 / 8), Phase.ISOLATED
    )
    assert failure_of(read(schedule=slow.schedule, p=log(record()))).kind is FailureKind.IMPLAUSIBLE


def test_the_order_of_lines_and_logs_changes_nothing() -> None:
    plan = plan_sweep("run-7", "pool-1", ["p", "q"], ["d"], TEST, Phase.ISOLATED)
    rounds = {pair: number for number, pairs in enumerate(plan.schedule.rounds) for pair in pairs}
    ends = [
        record(Role.DESTINATION, pair=pair, round=number, partner_address="10.0.0.1") for pair, number in rounds.items()
    ]
    first = read(schedule=plan.schedule, d=log(*ends))
    assert first == read(schedule=plan.schedule, d=log(*reversed(ends)))
    assert [sample.path for sample in first.samples] == [Path("p", "d"), Path("q", "d")]


def test_a_hostile_message_is_made_fit_to_print() -> None:
    bad = record(document="", trouble=Trouble.TOOL_FAILED, message="\x1b[2J\n<b>" + "x" * 5000)
    message = failure_of(read(p=log(bad))).message
    assert message.isprintable()
    assert "<" not in message
    assert len(message) < 300


def test_every_trouble_of_the_wire_is_a_kind_of_failure() -> None:
    assert {trouble.value for trouble in Trouble} <= {kind.value for kind in FailureKind}


def test_a_result_survives_the_wire_as_one_line() -> None:
    line = encode_result(record(message="two\nlines"))
    assert "\n" not in line
    assert json.loads(line)["kvgateProbe"] == 1
