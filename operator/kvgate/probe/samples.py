"""Makes the sample of one test from what its two ends' records amount to."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from datetime import datetime

from kvgate.api.words import LinkTool, Memory, Phase
from kvgate.core.evidence import Failure, Path, Sample
from kvgate.core.rates import LOOPBACK
from kvgate.core.text import rate
from kvgate.probe.ends import Ends, counted_bytes
from kvgate.probe.flows import hash_limited
from kvgate.probe.iperf3_guard import plain_address
from kvgate.probe.measured import Accepted, Reader
from kvgate.probe.readers import reader_of
from kvgate.probe.served import served
from kvgate.probe.starved import starved
from kvgate.probe.ucx_reading import TCP
from kvgate_probe.seats import node_of
from kvgate_probe.wire import Result, Schedule, Step, Test

MUCH_UNCONFIRMED = 0.05
COUNTED_TOOL = LinkTool.IPERF3
"""Tells every byte that it sent; the others count what they were asked for."""


def sample_of(test: Test, schedule: Schedule, measured_at: datetime, outcome: Accepted | Failure, ends: Ends) -> Sample:
    """Bytes per second of payload by the receiver's count, or the failure; the layer is the tool's."""
    step = schedule.steps[test.step]
    reader, source = reader_of(step), ends.source
    teller, _ = ends.told_by(reader.teller)
    accepted = outcome if isinstance(outcome, Accepted) else None
    numbers = accepted.numbers if accepted else None
    return Sample(
        run_id=schedule.run_id,
        path=Path(node_of(test.pair.source), node_of(test.pair.destination)),
        layer=reader.layer,
        tool=step.tool,
        operation=step.operation or reader.operation,
        memory=Memory.HOST,
        transport=accepted.transport if accepted else TCP,
        phase=Phase(schedule.phase_of(test.round)),
        streams=step.streams,
        measured_at=measured_at,
        bytes_per_second=numbers.bytes_per_second if numbers else None,
        failure=outcome if isinstance(outcome, Failure) else None,
        bytes_moved=numbers.bytes_received if numbers else None,
        seconds=numbers.seconds if numbers else None,
        retransmits=numbers.retransmits if numbers else None,
        host_cpu_percent=numbers.host_cpu_percent if numbers else None,
        remote_cpu_percent=numbers.remote_cpu_percent if numbers else None,
        interface=source.interface if source else "",
        interface_bytes=counted_bytes(source),
        bytes_sent=_sent(source, accepted),
        line_rate_bytes_per_second=_slower(ends),
        mtu=_least([end.mtu for end in (ends.source, ends.destination) if end and end.mtu]),
        segment_bytes=numbers.segment_bytes if numbers else None,
        congestion=numbers.congestion if numbers else "",
        ip_version=_ip_version(teller),
        round_trip_seconds=teller.round_trip_seconds if teller else None,
        set_up_seconds=_set_up(teller, accepted),
        loaded_round_trip_seconds=numbers.loaded_round_trip_seconds if numbers else None,
        piece_bytes=step.piece_bytes,
        tool_version=accepted.version if accepted else "",
        lanes=accepted.lanes if accepted else (),
        sums_equal=accepted.sums_equal if accepted else None,
        starved=starved(reader, ends.source, ends.destination),
        serving_bytes_per_second=served(ends, numbers) if numbers and step.tool == COUNTED_TOOL else None,
        paced_bytes_per_second=_paced(schedule, step, ends),
        notes=tuple(_notes(schedule, step, reader, outcome, ends)) if numbers else (),
    )


def _paced(schedule: Schedule, step: Step, ends: Ends) -> float | None:
    """On loopback a pace stands for a link, and is no less than that carries."""
    pace, local = schedule.paced_bits_per_second, ends.source is not None and ends.source.interface in LOOPBACK
    return None if pace is None or step.unpaced or local else pace / 8


def _set_up(teller: Result | None, accepted: Accepted | None) -> float | None:
    """By the tool's own clock where it has one, else by the walker's."""
    if accepted is not None and accepted.set_up_seconds is not None:
        return accepted.set_up_seconds
    return teller.set_up_seconds if teller else None


def _sent(source: Result | None, accepted: Accepted | None) -> int | None:
    """A source that is read from does not count what it sends: what arrived is the least."""
    if source is not None and source.sent_bytes is not None:
        return source.sent_bytes
    return accepted.numbers.bytes_received if accepted else None


def _slower(ends: Ends) -> float | None:
    rates = [end.line_rate_bytes_per_second for end in (ends.source, ends.destination) if end]
    known = [told for told in rates if told]
    return min(known) if known and len(known) == len(rates) else None


def _least(values: list[int]) -> int | None:
    return min(values, default=None)


def _ip_version(teller: Result | None) -> int | None:
    address = plain_address(teller.partner_address) if teller else None
    if address is None:
        return None
    return 4 if isinstance(address, ipaddress.IPv4Address) else 6


def _notes(schedule: Schedule, step: Step, reader: Reader, outcome: Accepted | Failure, ends: Ends) -> Iterator[str]:
    if isinstance(outcome, Failure):
        return
    yield from _record_notes(schedule, step, reader, ends)
    if (pace := _paced(schedule, step, ends)) is not None:
        yield f"asked for {rate(pace)} and no more, beside serving"
    if hungry := starved(reader, ends.source, ends.destination):
        yield f"the probe was starved, so that the path may carry more: {hungry}"
    if step.tool == LinkTool.IPERF3:
        yield from _stream_notes(step, outcome)
    if outcome.transport != TCP:
        yield "not TCP: the network interface's counters say nothing of these bytes"


def _record_notes(schedule: Schedule, step: Step, reader: Reader, ends: Ends) -> Iterator[str]:
    teller, other = ends.told_by(reader.teller)
    if teller is not None and teller.interface in LOOPBACK:
        paced = "paced, " if schedule.paced_bits_per_second is not None else ""
        yield f"{paced}not a link: both ends are on one host"
    if teller is not None and teller.planned_seconds < step.seconds:
        meant = f"tested for {teller.planned_seconds:g} of {step.seconds:g} s"
        yield f"{meant}, for the operator's probe.maxBytesPerSweep"
    if other is None:
        yield f"the {'destination' if teller is ends.source else 'source'} left no record of its own"
    if counted_bytes(teller) is None:
        yield "interface counters not read: unknown whether the bytes passed this interface"


def _stream_notes(step: Step, accepted: Accepted) -> Iterator[str]:
    numbers, flows = accepted.numbers, accepted.flows
    if hash_limited(flows, None):
        slowest, fastest = min(flows.bytes_per_second), max(flows.bytes_per_second)
        yield f"streams shared unevenly ({rate(slowest)} to {rate(fastest)} each): may be limited by hashing"
    if numbers.retransmits is None:
        yield "retransmits unknown"
    elif numbers.retransmit_ratio:
        yield f"retransmitted {numbers.retransmit_ratio:.4%} of segments"
    if numbers.bytes_sent and numbers.bytes_received < (1 - MUCH_UNCONFIRMED) * numbers.bytes_sent:
        yield f"{1 - numbers.bytes_received / numbers.bytes_sent:.0%} of the bytes sent were still under way at the end"
    if numbers.seconds > 1.2 * step.seconds:
        yield f"ran {numbers.seconds:.1f} s, {step.seconds:g} s planned"
