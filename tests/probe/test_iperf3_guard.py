"""What iperf3 printed in the field and here: a number is taken from a finished, plausible, own document alone."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kvgate.core.evidence import FAULTS_OF_THE_PATH, Failure, FailureKind
from kvgate.probe.flows import Flows, hash_limited
from kvgate.probe.iperf3_guard import guard, plain_address
from kvgate.probe.measured import Accepted
from tests.probe.documents import REAL_CLIENT, REAL_SERVER, Document, expected, finished, real_expected, text_of

GIGABIT = 1e9 / 8


def accepted(text: str, **asked: Any) -> Accepted:
    outcome = guard(text, expected(**asked))
    assert isinstance(outcome, Accepted), outcome
    return outcome


def refused(text: str, **asked: Any) -> Failure:
    outcome = guard(text, expected(**asked))
    assert isinstance(outcome, Failure), outcome
    assert outcome.message.isprintable()
    assert len(outcome.message) < 300
    return outcome


def failed(error: str, **parts: Any) -> str:
    document = {"start": {"connected": [], "version": "iperf 3.12"}, "intervals": [], "end": {}} | parts
    return json.dumps(document | {"error": error})


def changed(**sums: Any) -> Document:
    """A finished document with other values in its sums: sent__retransmits=-1."""
    document = finished()
    for name, value in sums.items():
        part, _, key = name.partition("__")
        document["end"][f"sum_{part}"][key] = value
    return document


def test_a_real_document_is_read_to_the_byte() -> None:
    outcome = guard(REAL_CLIENT, real_expected())
    assert isinstance(outcome, Accepted), outcome
    told = json.loads(REAL_CLIENT)["end"]
    numbers = outcome.numbers
    assert numbers.bytes_received == told["sum_received"]["bytes"]
    assert numbers.bytes_per_second == told["sum_received"]["bits_per_second"] / 8
    assert numbers.seconds == told["sum_received"]["seconds"]
    assert numbers.retransmits == told["sum_sent"]["retransmits"]
    assert numbers.host_cpu_percent == told["cpu_utilization_percent"]["host_total"]
    assert numbers.remote_cpu_percent == told["cpu_utilization_percent"]["remote_total"]
    assert len(outcome.flows.bytes_per_second) == 2


def test_both_ends_of_a_real_test_carry_one_cookie() -> None:
    assert json.loads(REAL_CLIENT)["start"]["cookie"] == json.loads(REAL_SERVER)["start"]["cookie"]


LONG_REFUSAL = (
    "unable to connect to server - server may have stopped running or use a different port, firewall issue, etc.: "
)
TWO_INTERVALS = [{"streams": [], "sum": {"seconds": 1.0, "bytes": 5_000_000_000, "omitted": False}}] * 2


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        pytest.param(
            failed("unable to connect to server: Connection refused"),
            FailureKind.CONNECT_REFUSED,
            id="A01 refused, in the words of 3.12 that exits with 0",
        ),
        pytest.param(
            failed(LONG_REFUSAL + "Connection refused"),
            FailureKind.CONNECT_REFUSED,
            id="A01 refused, in the long words of 3.21",
        ),
        pytest.param(
            failed(LONG_REFUSAL + "Connection timed out"), FailureKind.CONNECT_TIMEOUT, id="A01 timed out: filtered"
        ),
        pytest.param(
            failed("error - unable to connect to server: No route to host"),
            FailureKind.NO_ROUTE,
            id="A01 no route, with the old prefix",
        ),
        pytest.param(
            failed("the server is busy running a test. try again later"), FailureKind.SERVER_BUSY, id="A02 busy server"
        ),
        pytest.param(
            failed("control socket has closed unexpectedly", intervals=TWO_INTERVALS),
            FailureKind.SERVER_LOST,
            id="A04 server killed after two good intervals",
        ),
        pytest.param(
            failed("interrupt - the client has terminated", intervals=TWO_INTERVALS),
            FailureKind.INTERRUPTED,
            id="client ended by a signal",
        ),
        pytest.param(
            failed("unable to create a new stream: Permission denied"),
            FailureKind.TOOL_FAILED,
            id="no writable /tmp",
        ),
        pytest.param(
            failed("unable to start listener for connections: Address already in use"),
            FailureKind.PORT_IN_USE,
            id="F15 port taken",
        ),
        pytest.param(
            text_of(finished()) + "\niperf3: error - unable to send control message: Broken pipe",
            FailureKind.UNREADABLE,
            id="A06 text after the document: the control channel broke",
        ),
        pytest.param(
            "warning: JSON data length overflow\n" + failed("unable to receive results: "),
            FailureKind.SERVER_LOST,
            id="A06 a warning before a document with an error",
        ),
        pytest.param(
            "warning: JSON data length overflow\n" + text_of(finished()),
            FailureKind.UNREADABLE,
            id="A06 a warning before a document that looks good",
        ),
        pytest.param(
            text_of(finished()) + "\n" + text_of(finished()),
            FailureKind.AMBIGUOUS,
            id="A06 two documents",
        ),
        pytest.param(
            text_of(finished()).replace('"retransmits": 0', '"lost_percent": -nan'),
            FailureKind.UNREADABLE,
            id="A07 -nan is no JSON",
        ),
        pytest.param(text_of(changed(received__bytes=float("nan"))), FailureKind.UNREADABLE, id="A07 NaN bytes"),
        pytest.param(
            text_of(changed(received__bits_per_second=float("inf"))), FailureKind.UNREADABLE, id="A07 an infinite rate"
        ),
        pytest.param(
            text_of(changed()).replace('"seconds": 10', '"seconds": 1e999'),
            FailureKind.UNREADABLE,
            id="A07 a number beyond every float",
        ),
        pytest.param(
            text_of(changed()).replace('"seconds": 10', '"seconds": ' + "9" * 500),
            FailureKind.UNREADABLE,
            id="A07 a whole number beyond every float",
        ),
        pytest.param(text_of(changed(received__bytes=-5)), FailureKind.UNREADABLE, id="negative bytes"),
        pytest.param(text_of(changed(received__bytes="many")), FailureKind.UNREADABLE, id="bytes that are a word"),
        pytest.param(text_of(changed(received__seconds=0)), FailureKind.UNREADABLE, id="zero seconds"),
        pytest.param(
            text_of(changed(received__bytes=0, received__bits_per_second=0)),
            FailureKind.STALLED_FLOW,
            id="zero bytes arrived although all were sent",
        ),
        pytest.param("", FailureKind.UNREADABLE, id="nothing printed"),
        pytest.param("iperf3: command not found", FailureKind.UNREADABLE, id="no JSON at all"),
        pytest.param(text_of(finished())[:700], FailureKind.UNREADABLE, id="JSON cut short"),
        pytest.param("[" * 100_000 + '{"a":' * 100_000, FailureKind.UNREADABLE, id="JSON nested without end"),
        pytest.param(
            '{"event":"start","data":{}}\n{"event":"interval","data":{}}\n{"event":"interval","da',
            FailureKind.UNREADABLE,
            id="A18 a stream of events whose client was killed",
        ),
        pytest.param(
            '{"event":"error","data":"x"}\n{"event":"end","data":{}}\n',
            FailureKind.UNREADABLE,
            id="A18 a stream with an error and an empty end",
        ),
        pytest.param(
            text_of(finished() | {"end": {}}), FailureKind.SERVER_LOST, id="good intervals, empty end, no error"
        ),
        pytest.param(
            text_of(finished() | {"end": {}, "intervals": []}),
            FailureKind.UNREADABLE,
            id="an empty end and no intervals",
        ),
        pytest.param("{}", FailureKind.UNREADABLE, id="an empty object"),
    ],
)
def test_no_number_is_taken(text: str, kind: FailureKind) -> None:
    assert refused(text).kind is kind


def test_the_errors_words_are_quoted_short_and_harmless() -> None:
    failure = refused(failed("\x1b[31m" + "<script>" * 100 + "\nsecond line"))
    assert "\x1b" not in failure.message
    assert "\n" not in failure.message
    assert "<" not in failure.message


@pytest.mark.parametrize(
    ("retransmits", "read"),
    [
        pytest.param(1.8446744073709552e19, None, id="a 64-bit -1 printed unsigned is unknown"),
        pytest.param(4294967294, None, id="a 32-bit -2 printed unsigned is unknown"),
        pytest.param(-1, None, id="-1 is unknown"),
        pytest.param(None, None, id="null is unknown"),
        pytest.param(0, 0, id="zero is zero"),
        pytest.param(3148, 3148, id="a number is that number"),
    ],
)
def test_retransmits_are_known_or_unknown_and_the_rate_stays(retransmits: object, read: int | None) -> None:
    numbers = accepted(text_of(changed(sent__retransmits=retransmits))).numbers
    assert numbers.retransmits == read
    assert numbers.bytes_per_second == pytest.approx(9.4 * GIGABIT)


def test_a_reverse_test_of_an_old_version_has_no_retransmits_field() -> None:
    document = finished()
    del document["end"]["sum_sent"]["retransmits"]
    assert accepted(text_of(document)).numbers.retransmits is None


def test_exponents_above_32_bits_are_read_whole() -> None:
    text = text_of(finished(100e9)).replace("125000000000", "1.25e+11")
    assert "1.25e+11" in text
    assert accepted(text).numbers.bytes_received == 125_000_000_000


def udp(**received: float) -> str:
    document = finished(9.56e8)
    document["start"]["test_start"]["protocol"] = "UDP"
    document["end"]["sum"] = {"bits_per_second": 2.858e9, "lost_percent": 66.49, "bytes": 1, "seconds": 10}
    document["end"]["sum_received"] |= received
    return text_of(document)


def test_udp_is_read_at_the_receiver() -> None:
    assert accepted(udp(), protocol="UDP").numbers.bytes_per_second == pytest.approx(0.956 * GIGABIT)


def test_udp_without_the_receivers_sum_is_an_estimate_and_so_refused() -> None:
    document = json.loads(udp())
    del document["end"]["sum_received"]
    assert "receiver" in refused(json.dumps(document), protocol="UDP").message


def test_udp_where_tcp_was_planned_is_another_test() -> None:
    assert refused(udp()).kind is FailureKind.IMPLAUSIBLE


TINY = {"bytes": 757304, "seconds": 0.0379, "bits_per_second": 1.597e8}


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(changed(**{f"received__{k}": v for k, v in TINY.items()}), id="A10 a megabyte in 38 ms"),
        pytest.param(
            changed(received__bytes=1048576, received__seconds=1.001, received__bits_per_second=8.38e6),
            id="A10 a megabyte that newer versions spread over a second of ten planned",
        ),
        pytest.param(finished(9.4e9, seconds=8), id="eight of ten planned seconds"),
        pytest.param(finished(1e5), id="fewer bytes than a burst holds"),
    ],
)
def test_too_short_to_be_evidence(document: Document) -> None:
    assert refused(text_of(document)).kind is FailureKind.TOO_SHORT


def with_intervals(bits: list[float], *, omitted: int = 0, document: Document | None = None) -> Document:
    document = document or finished()
    template = document["intervals"][0]["sum"]
    document["intervals"] = [
        {"streams": [], "sum": template | {"bytes": round(rate / 8), "omitted": place < omitted}}
        for place, rate in enumerate(bits)
    ]
    return document


@pytest.mark.parametrize(
    "bits",
    [
        pytest.param([2.09e7] + [0.0] * 9, id="A12 MTU black hole: one good interval, nine of nothing"),
        pytest.param([2.09e7] * 5 + [0.0] * 5, id="half of the intervals"),
        pytest.param([0.0] * 10, id="nothing from the start"),
    ],
)
def test_a_stalled_flow_is_a_fault_of_the_path_and_not_a_slow_link(bits: list[float]) -> None:
    failure = refused(text_of(with_intervals(bits)))
    assert failure.kind is FailureKind.STALLED_FLOW
    assert failure.kind in FAULTS_OF_THE_PATH


def test_a_few_empty_intervals_do_not_make_a_stall() -> None:
    assert accepted(text_of(with_intervals([9.4e9] * 6 + [0.0] * 4)))


def test_an_empty_rest_of_an_interval_at_the_end_is_no_stall() -> None:
    document = with_intervals([9.4e9, 0.0], document=finished(9.4e9, seconds=1))
    document["intervals"][1]["sum"] |= {"seconds": 0.0003}
    assert accepted(text_of(document), planned_seconds=1)


def test_omitted_intervals_do_not_count_as_a_stall() -> None:
    assert accepted(text_of(with_intervals([0.0] * 10 + [9e10] * 10, omitted=10, document=finished(9e10))))


def test_the_version_and_the_round_trip_under_load_come_with_the_number() -> None:
    document = finished()
    for one in document["end"]["streams"]:
        one["sender"]["mean_rtt"] = 2500
    outcome = accepted(text_of(document))
    assert outcome.version == document["start"]["version"]
    assert outcome.numbers.loaded_round_trip_seconds == 0.0025


def warmed_up(version: str) -> str:
    document = with_intervals([3e9] * 2 + [9e10] * 10, omitted=2, document=finished(9e10))
    document["start"]["test_start"]["omit"] = 2
    document["start"]["version"] = version
    return text_of(document)


def test_a_warm_up_left_out_by_a_version_that_does_it_right() -> None:
    assert accepted(warmed_up("iperf 3.21+")).numbers.bytes_per_second == pytest.approx(90 * GIGABIT)


def test_a_warm_up_left_out_by_a_version_that_does_it_wrong_is_refused() -> None:
    assert "3.14" in refused(warmed_up("iperf 3.12")).message


@pytest.mark.parametrize(
    ("remote", "partner"),
    [
        pytest.param("::ffff:10.0.2.15", "10.0.2.15", id="A17 a mapped IPv4 address"),
        pytest.param("fd00::15", "fd00:0::15", id="A17 IPv6 written in another way"),
        pytest.param("fe80::1%eth0", "fe80::1", id="A17 a link-local address with its zone"),
    ],
)
def test_the_partners_address_in_every_writing(remote: str, partner: str) -> None:
    assert accepted(text_of(finished(host=remote)), remote_address=partner)


@pytest.mark.parametrize(
    ("remote", "partner"),
    [
        pytest.param("10.0.0.3", "10.0.0.2", id="another pod answered"),
        pytest.param("some-host", "10.0.0.2", id="no address"),
        pytest.param("10.0.0.2", "", id="no partner known"),
    ],
)
def test_evidence_of_another_path_is_refused(remote: str, partner: str) -> None:
    assert refused(text_of(finished(host=remote)), remote_address=partner).kind is FailureKind.WRONG_HOST


def test_one_stream_to_a_stranger_spoils_the_test() -> None:
    document = finished(streams=2)
    document["start"]["connected"] = [{"remote_host": "10.0.0.2"}, {"remote_host": "10.0.0.9"}]
    assert refused(text_of(document), streams=2).kind is FailureKind.WRONG_HOST


@pytest.mark.parametrize(
    ("line_rate", "passes"),
    [
        pytest.param(9.4 * GIGABIT / 1.04, True, id="four per cent above the line rate is taken"),
        pytest.param(9.4 * GIGABIT / 1.06, False, id="six per cent above the line rate is refused"),
        pytest.param(None, True, id="an unknown line rate refuses nothing"),
    ],
)
def test_nothing_is_faster_than_the_line(line_rate: float | None, passes: bool) -> None:
    outcome = guard(text_of(finished()), expected(line_rate_bytes_per_second=line_rate))
    assert isinstance(outcome, Accepted) is passes
    assert passes or (isinstance(outcome, Failure) and outcome.kind is FailureKind.IMPLAUSIBLE)


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(changed(received__bits_per_second=9.4e10), id="a rate that is not its bytes over its seconds"),
        pytest.param(changed(sent__bytes=1000), id="more received than sent"),
        pytest.param(changed(sent__bytes=40_000_000_000), id="most of what was sent never confirmed"),
    ],
)
def test_numbers_that_contradict_each_other_are_refused(document: Document) -> None:
    assert refused(text_of(document)).kind is FailureKind.IMPLAUSIBLE


def test_the_other_direction_is_another_test() -> None:
    document = finished()
    document["start"]["test_start"]["reverse"] = 1
    assert refused(text_of(document)).kind is FailureKind.IMPLAUSIBLE


def test_another_number_of_streams_is_another_test() -> None:
    assert refused(text_of(finished(streams=2)), streams=4).kind is FailureKind.IMPLAUSIBLE


def test_a_document_without_cpu_or_time_is_unfinished() -> None:
    document = finished()
    del document["end"]["cpu_utilization_percent"]
    assert refused(text_of(document)).kind is FailureKind.UNREADABLE


@pytest.mark.parametrize(
    ("streams", "member", "total", "limited"),
    [
        pytest.param([49.1, 48.7, 97.2, 0.4], None, 195.4, True, id="A15 streams collide on members"),
        pytest.param([24, 25, 24, 25], 100.0, 98.0, True, id="A15 all streams on one member of known rate"),
        pytest.param([24, 25, 24, 25], None, 98.0, False, id="even streams hint at nothing"),
        pytest.param([98], 100.0, 98.0, False, id="one stream cannot be hashed apart"),
    ],
)
def test_a_bond_is_never_multiplied(streams: list[float], member: float | None, total: float, limited: bool) -> None:
    flows = Flows(tuple(one * GIGABIT for one in streams))
    assert flows.total == pytest.approx(total * GIGABIT)
    assert hash_limited(flows, None if member is None else member * GIGABIT) is limited


def test_retransmits_are_a_share_of_segments() -> None:
    document = finished(3.67e10)
    document["end"]["sum_sent"]["retransmits"] = 3148
    ratio = accepted(text_of(document)).numbers.retransmit_ratio
    assert ratio == pytest.approx(9.93e-5, rel=0.01)


def test_an_address_is_no_name() -> None:
    assert plain_address("localhost") is None
