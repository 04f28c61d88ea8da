"""What serving moved beside a test, by the interfaces' own counters at both ends."""

from __future__ import annotations

from kvgate.core.rates import LOOPBACK
from kvgate.probe.ends import Ends, counted_bytes
from kvgate.probe.measured import Numbers
from kvgate_probe.wire import Result

_HEADER_BYTES = 14 + 40 + 20 + 12
"""Of a segment on the wire at most: Ethernet, IPv6, TCP and its timestamps."""
_IN_A_PACKET = 40 + 20 + 12
LEAST_SHARE = 0.05
"""Of the test's own rate: less may as well be what counters and clocks are out by."""


def served(ends: Ends, numbers: Numbers) -> float | None:
    """Bytes per second that both ends' interfaces moved beyond the test's own bytes, the smaller of the two ends: what
    only one of them moved did not load the path. None where an end does not tell; 0 for what is too little to say."""
    extra = [_beyond(end, numbers) for end in (ends.source, ends.destination)]
    known = [rate for rate in extra if rate is not None]
    if len(known) < len(extra):
        return None
    least = min(known)
    return least if least >= LEAST_SHARE * numbers.bytes_per_second else 0.0


def _beyond(end: Result | None, numbers: Numbers) -> float | None:
    counted = counted_bytes(end)
    if end is None or counted is None or end.interface in LOOPBACK or end.ended_at <= end.started_at:
        return None
    segment = numbers.segment_bytes or (end.mtu or 0) - _IN_A_PACKET
    if segment <= 0:
        return None
    payload = max(numbers.bytes_received, numbers.bytes_sent or 0) + (numbers.retransmits or 0) * segment
    return max(0.0, counted - payload * (1 + _HEADER_BYTES / segment)) / (end.ended_at - end.started_at)
