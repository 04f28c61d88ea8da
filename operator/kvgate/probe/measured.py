"""What the text of a finished test amounts to, whichever tool it is of; the readers of all tools hand this back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kvgate.core.evidence import Failure, Layer
from kvgate.probe.flows import Flows
from kvgate_probe.wire import Role

SHARE_OF_PLANNED_SECONDS = 0.9
"""A test that was shorter is not believed."""
MOST_CHARACTERS_OF_A_LANE = 100
MOST_CHARACTERS_OF_A_VERSION = 64


def version_in(text: str) -> str:
    """A tool's own word for its version, in plain characters; "" where it is none."""
    return text if text.isascii() and text.isprintable() and len(text) <= MOST_CHARACTERS_OF_A_VERSION else ""


@dataclass(frozen=True)
class Numbers:
    """What arrived: bytes and seconds by the receiver, bytes per second of wall time; CPU in percent of one core.

    `bytes_sent`, `retransmits` and `segment_bytes` are None where the document does not tell, `congestion` is "" there.
    `loaded_round_trip_seconds` is the mean that the sender's kernel saw while the test ran.
    """

    bytes_received: int
    seconds: float
    bytes_per_second: float
    bytes_sent: int | None = None
    retransmits: int | None = None
    segment_bytes: int | None = None
    host_cpu_percent: float | None = None
    remote_cpu_percent: float | None = None
    congestion: str = ""
    loaded_round_trip_seconds: float | None = None

    @property
    def retransmit_ratio(self) -> float | None:
        """Retransmitted segments of all segments sent; None where either is unknown."""
        if self.retransmits is None or not self.bytes_sent or not self.segment_bytes:
            return None
        return self.retransmits / (self.bytes_sent / self.segment_bytes)


@dataclass(frozen=True)
class Expected:
    """What was asked for: a document about anything else is refused.

    `remote_address` is the partner's; the line rate is in bytes per second, None where unknown.
    """

    remote_address: str
    planned_seconds: float
    streams: int
    protocol: str = "TCP"
    line_rate_bytes_per_second: float | None = None
    piece_bytes: int | None = None
    operation: str = ""

    @property
    def least_seconds(self) -> float:
        """For the tools that read: of a long test, most of a second is enough."""
        return SHARE_OF_PLANNED_SECONDS * min(self.planned_seconds, 1.0)


@dataclass(frozen=True)
class Accepted:
    """A measurement: the receiver's bytes over the receiver's seconds, and what came with it.

    `cookie` is what both ends' documents of one test share, "" where the tool has none. `transport` is what carried the
    bytes, and `lanes` what the transport's own log says of it. `sums_equal` is None for a tool that checks no data.
    `version` is the tool's own word for what it is, "" where its text does not say.
    """

    numbers: Numbers
    flows: Flows
    cookie: str
    transport: str = "tcp"
    lanes: tuple[str, ...] = ()
    sums_equal: bool | None = None
    set_up_seconds: float | None = None
    version: str = ""


@dataclass(frozen=True)
class Reader:
    """One tool as the operator sees it: one row of the table, and one function from text to numbers.

    `teller` is the end whose document counts. `cookie` finds in a document of the other end what both share. A tool
    that spins uses a whole core whatever it waits for, so that this says nothing. One for RDMA alone only meets
    over TCP.
    """

    layer: Layer
    operation: str
    teller: Role
    read: Callable[[str, Expected], Accepted | Failure]
    cookie: Callable[[str], str | None] = lambda _: None
    spins: bool = False
    rdma: bool = False
