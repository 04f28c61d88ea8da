"""Makes the sample of one path from what its two ends' records amount to."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from kvgate.api.words import Memory, Phase
from kvgate.core.evidence import Failure, Layer, Path, Sample
from kvgate.core.text import rate
from kvgate.probe.ends import LOOPBACK, counted_bytes
from kvgate.probe.flows import hash_limited
from kvgate.probe.iperf3_guard import Accepted
from kvgate_probe.wire import Result, Schedule

MUCH_UNCONFIRMED = 0.05


def link_sample(
    path: Path,
    schedule: Schedule,
    measured_at: datetime,
    outcome: Accepted | Failure,
    source: Result | None,
    destination: Result | None,
) -> Sample:
    """A TCP link sample: bytes per second of payload by the receiver's count, or the failure."""
    numbers = outcome.numbers if isinstance(outcome, Accepted) else None
    return Sample(
        run_id=schedule.run_id,
        path=path,
        layer=Layer.LINK,
        tool=schedule.tool,
        operation="tcp-stream",
        memory=Memory.HOST,
        transport="tcp",
        phase=Phase(schedule.phase),
        streams=schedule.streams,
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
        bytes_sent=source.sent_bytes if source else None,
        notes=tuple(_notes(schedule, outcome, source, destination)) if numbers else (),
    )


def _notes(
    schedule: Schedule, outcome: Accepted | Failure, source: Result | None, destination: Result | None
) -> Iterator[str]:
    if isinstance(outcome, Failure):
        return
    if source is not None and source.interface in LOOPBACK:
        paced = "paced, " if schedule.paced_bits_per_second is not None else ""
        yield f"{paced}not a link: both ends are on one host"
    if source is not None and source.planned_seconds < schedule.duration_seconds:
        meant = f"tested for {source.planned_seconds:g} of {schedule.duration_seconds:g} s"
        yield f"{meant}, for the operator's probe.maxBytesPerSweep"
    if destination is None:
        yield "the destination left no record of its own"
    if counted_bytes(source) is None:
        yield "interface counters not read: unknown whether the bytes passed this interface"
    yield from _number_notes(schedule, outcome)


def _number_notes(schedule: Schedule, accepted: Accepted) -> Iterator[str]:
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
    if numbers.seconds > 1.2 * schedule.duration_seconds:
        yield f"ran {numbers.seconds:.1f} s, {schedule.duration_seconds:g} s planned"
