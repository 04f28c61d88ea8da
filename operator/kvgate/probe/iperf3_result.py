"""Reads an accepted iperf3 document's numbers, by PyPI iperf3's result model where that reads the receiver."""

from __future__ import annotations

import statistics

from iperf3 import TestResult

from kvgate.core.evidence import FailureKind
from kvgate.probe.iperf3_text import Refused
from kvgate.probe.measured import Numbers
from kvgate_probe.fields import Fields

MOST_RETRANSMITS = 2**31 - 1
"""Above it stands a negative number that an old iperf3 printed unsigned."""


def read_numbers(fields: Fields, text: str) -> Numbers:
    """Raises Refused or WireError where a number that is needed is missing or none."""
    protocol = fields.within("start").within("test_start").text("protocol")
    return _tcp(fields, text) if protocol == "TCP" else _udp(fields)


def _tcp(fields: Fields, text: str) -> Numbers:
    try:
        result = TestResult(text)
        read = Fields(
            "iperf3's result",
            {
                "bytes": result.received_bytes,
                "bits_per_second": result.received_bps,
                "sent": result.sent_bytes,
                "retransmits": result.retransmits,
                "segment": result.tcp_mss_default,
                "host": result.local_cpu_total,
                "remote": result.remote_cpu_total,
            },
        )
    except (KeyError, IndexError, TypeError, ValueError, AttributeError):
        raise Refused(FailureKind.UNREADABLE, "iperf3's document lacks a part that every finished one has") from None
    return Numbers(
        bytes_received=read.count("bytes"),
        seconds=fields.within("end").within("sum_received").number("seconds", above=0),
        bytes_per_second=read.number("bits_per_second", above=-1) / 8,
        bytes_sent=read.count("sent"),
        retransmits=_sane(read, "retransmits", MOST_RETRANSMITS),
        segment_bytes=_sane(read, "segment", 65535) or None,
        host_cpu_percent=read.number("host"),
        remote_cpu_percent=read.number("remote"),
        congestion=_congestion(fields),
        loaded_round_trip_seconds=_round_trip(fields),
    )


def _congestion(fields: Fields) -> str:
    told = fields.within("end").values.get("sender_tcp_congestion")
    return told if isinstance(told, str) and told.isascii() and told.isprintable() and len(told) < 32 else ""


def _round_trip(fields: Fields) -> float | None:
    """The mean over the streams of what the sender's kernel saw, in seconds; iperf3 tells microseconds."""
    end = fields.within("end")
    if not isinstance(end.values.get("streams"), list):
        return None
    senders = [one.within("sender") for one in end.objects("streams") if "sender" in one.values]
    seen = [told for one in senders if (told := _sane(one, "mean_rtt", 60_000_000))]
    return statistics.fmean(seen) / 1e6 if seen else None


def _udp(fields: Fields) -> Numbers:
    """The receiver's sum alone: end.sum, which the result model reads for UDP, is what the sender saw."""
    received = fields.within("end").within("sum_received")
    return Numbers(
        bytes_received=received.count("bytes"),
        seconds=received.number("seconds", above=0),
        bytes_per_second=received.number("bits_per_second", above=-1) / 8,
    )


def _sane(fields: Fields, key: str, most: int) -> int | None:
    value = fields.values.get(key)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= most:
        return None
    return int(value)
