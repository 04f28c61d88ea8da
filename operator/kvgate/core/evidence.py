"""What was measured: paths, samples, and the evidence of one sweep."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from kvgate.api.words import Memory, Phase


class Path(NamedTuple):
    """An ordered pair of nodes that KV bytes would travel, prefill → decode."""

    source: str
    destination: str

    @property
    def same_node(self) -> bool:
        return self.source == self.destination

    def __str__(self) -> str:
        return f"{self.source}→{self.destination}"


class Layer(StrEnum):
    LINK = "link"
    ENDPOINT = "endpoint"


class FailureKind(StrEnum):
    """Why a sample carries no number; the last word of the tool or of the walker."""

    CONNECT_REFUSED = "ConnectRefused"
    CONNECT_TIMEOUT = "ConnectTimeout"
    NO_ROUTE = "NoRoute"
    SERVER_BUSY = "ServerBusy"
    SERVER_LOST = "ServerLost"
    PORT_IN_USE = "PortInUse"
    STALLED_FLOW = "StalledFlow"
    TOO_SHORT = "TooShort"
    UNREADABLE = "Unreadable"
    AMBIGUOUS = "Ambiguous"
    IMPLAUSIBLE = "Implausible"
    WRONG_HOST = "WrongHost"
    WRONG_RUN = "WrongRun"
    OTHER_NETWORK = "OtherNetwork"
    COUNTERS_STILL = "CountersStill"
    INTERRUPTED = "Interrupted"
    PARTNER_SILENT = "PartnerSilent"
    PARTNER_LOST = "PartnerLost"
    ADDRESS_UNKNOWN = "AddressUnknown"
    BYTE_BUDGET_SPENT = "ByteBudgetSpent"
    DATA_CORRUPT = "DataCorrupt"
    TOOL_MISSING = "ToolMissing"
    TOOL_FAILED = "ToolFailed"


FAULTS_OF_THE_PATH = frozenset(
    {FailureKind.NO_ROUTE, FailureKind.STALLED_FLOW, FailureKind.PARTNER_SILENT, FailureKind.DATA_CORRUPT}
)
"""Failures that say something about the path itself: judged as Unreachable, for what arrives changed is of no use. All
others could not look: a connection that times out between walkers that have met is as well a NetworkPolicy on the
tool's port."""


@dataclass(frozen=True, slots=True)
class Failure:
    kind: FailureKind
    message: str


@dataclass(frozen=True, slots=True)
class Sample:
    """One measurement of one path by one tool: exactly one of `bytes_per_second` and `failure`.

    `bytes_per_second` is payload in bytes per second of wall time as the receiver counted it, `bytes_moved` what it
    received, and `bytes_sent` what the sender sent, in a test that failed too. `slot` numbers the tests of a phase that
    ran at the same time; `line_rate_bytes_per_second` is that of the slower of the two interfaces, where known.

    `mtu` (bytes) is the smaller of the two interfaces'. `round_trip_seconds` is of small packets just before the test,
    `set_up_seconds` from the start of the tool to its first measured transfer. `lanes` are the transport's own words
    for what carried the bytes, `sums_equal` whether the data arrived as they were, None where the tool does not check.
    `loaded_round_trip_seconds` is the mean that the sender's kernel saw while the test ran. `tool_version` is what the
    tool says that it is, "" where it does not. `piece_bytes` is what one transfer of a tool that moves pieces was.
    `paced_bytes_per_second` is all that the test asked for, None where that was as much as the path carries.
    `starved` says which end did not get the processor that it asked for: the path may carry more than the number says.
    """

    run_id: str
    path: Path
    layer: Layer
    tool: str
    operation: str
    memory: Memory
    transport: str
    phase: Phase
    streams: int
    measured_at: datetime
    bytes_per_second: float | None = None
    failure: Failure | None = None
    bytes_moved: int | None = None
    seconds: float | None = None
    retransmits: int | None = None
    host_cpu_percent: float | None = None
    remote_cpu_percent: float | None = None
    interface: str = ""
    interface_bytes: int | None = None
    serving_bytes_per_second: float | None = None
    bytes_sent: int | None = None
    slot: int | None = None
    line_rate_bytes_per_second: float | None = None
    mtu: int | None = None
    segment_bytes: int | None = None
    congestion: str = ""
    ip_version: int | None = None
    round_trip_seconds: float | None = None
    set_up_seconds: float | None = None
    loaded_round_trip_seconds: float | None = None
    tool_version: str = ""
    piece_bytes: int | None = None
    lanes: tuple[str, ...] = ()
    sums_equal: bool | None = None
    starved: str = ""
    paced_bytes_per_second: float | None = None
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if (self.bytes_per_second is None) == (self.failure is None):
            raise ValueError(f"sample of {self.path}: needs a number or a failure, and not both")


@dataclass(frozen=True, slots=True)
class NodeIdentity:
    """Who a node was when it was measured; its paths' evidence dies with any of these. Empty where it was not told.

    `driver`, `firmware` and `mtu` (bytes) are those of the interface that was measured, `image` the digest of the image
    that measured there. `labels` are those that say
    where the node stands.
    """

    name: str
    uid: str = ""
    boot_id: str = ""
    kernel: str = ""
    driver: str = ""
    firmware: str = ""
    mtu: int | None = None
    labels: tuple[tuple[str, str], ...] = ()
    image: str = ""


@dataclass(frozen=True)
class Uplink:
    """A link that many paths share, its aggregate in bytes per second, and the share of all traffic that crosses it."""

    name: str
    aggregate_bytes_per_second: float
    traffic_share: float

    @property
    def readable(self) -> bool:
        return 0 < self.aggregate_bytes_per_second < math.inf and 0 <= self.traffic_share <= 1


@dataclass(frozen=True)
class Evidence:
    """The whole outcome of one sweep.

    `image` is the digest of the image that measured on all nodes, `tools` each tool with its version, where they are
    known. `copied`
    says, by node, what the probes had from the workers that they stood for.
    """

    run_id: str
    pool_uid: str
    planned: tuple[Path, ...]
    samples: tuple[Sample, ...]
    measured_at: datetime
    nodes: tuple[NodeIdentity, ...] = ()
    uplinks: tuple[Uplink, ...] = ()
    report: str = ""
    problems: tuple[str, ...] = ()
    image: str = ""
    tools: tuple[str, ...] = ()
    copied: tuple[str, ...] = ()
    in_use: int | None = None
    """Paths that could have been planned; more than were, where only some were due or too many for one sweep."""
