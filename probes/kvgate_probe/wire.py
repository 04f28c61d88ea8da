"""What the operator and the probe say to each other: the schedule, the result lines and the summary, as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from kvgate_probe.fields import Fields, WireError

WIRE_VERSION = 1
LIMITED_VERSION = 2
"""Of a schedule with a limit on bytes: a walker that knows of none must not take it for one without."""
MAX_DOCUMENT_CHARACTERS = 262_144
MAX_TERMINATION_BYTES = 4096
MAX_SECONDS = 3600.0
MAX_STREAMS = 64
DATA_PORTS = 8
"""A walker's control port is `port`; its tool listens on one of the next DATA_PORTS ports."""


class Role(StrEnum):
    SOURCE = "source"
    DESTINATION = "destination"


class Trouble(StrEnum):
    """Why the walker has no document to show for a test."""

    SERVER_BUSY = "ServerBusy"
    PORT_IN_USE = "PortInUse"
    INTERRUPTED = "Interrupted"
    PARTNER_SILENT = "PartnerSilent"
    PARTNER_LOST = "PartnerLost"
    ADDRESS_UNKNOWN = "AddressUnknown"
    WRONG_RUN = "WrongRun"
    WRONG_HOST = "WrongHost"
    BYTE_BUDGET_SPENT = "ByteBudgetSpent"
    TOOL_MISSING = "ToolMissing"
    TOOL_FAILED = "ToolFailed"


@dataclass(frozen=True, order=True)
class Pair:
    """Bytes flow from `source` to `destination`."""

    source: str
    destination: str


@dataclass(frozen=True, order=True)
class Test:
    """One planned measurement; `index` is its place in the one total order that all walkers follow."""

    __test__ = False

    index: int
    round: int
    pair: Pair

    def partner_of(self, node: str) -> str:
        return self.pair.destination if node == self.pair.source else self.pair.source


@dataclass(frozen=True)
class Schedule:
    """The whole sweep, the same for every walker; `paced_bits_per_second` is for all streams together.

    `most_bytes` is what all senders together may send, None for no limit.
    """

    run_id: str
    pool_uid: str
    tool: str
    rounds: tuple[tuple[Pair, ...], ...]
    duration_seconds: float
    streams: int
    port: int
    phase: str
    line_rate_bytes_per_second: float | None = None
    paced_bits_per_second: int | None = None
    most_bytes: int | None = None

    def tests(self) -> tuple[Test, ...]:
        ordered = [(number, pair) for number, pairs in enumerate(self.rounds) for pair in sorted(pairs)]
        return tuple(Test(index, number, pair) for index, (number, pair) in enumerate(ordered))

    def tests_of(self, node: str) -> tuple[Test, ...]:
        return tuple(t for t in self.tests() if node in (t.pair.source, t.pair.destination))

    def share_of(self, node: str) -> int | None:
        """The bytes that a sender may send: as much of all as its tests are of all."""
        if self.most_bytes is None:
            return None
        tests = self.tests()
        own = sum(test.pair.source == node for test in tests)
        return self.most_bytes * own // max(1, len(tests))


@dataclass(frozen=True)
class Result:
    """One end's record of one test: the tool's own text, or the trouble that kept it from having any.

    Times are Unix seconds by the node's clock. The interface's bytes are those sent at the source and those
    received at the destination; None where the system does not tell. `sent_bytes` is the payload that a source sent,
    in tests that failed too; `planned_seconds` is less than the schedule's where its limit on bytes made it so.
    """

    run_id: str
    pool_uid: str
    node: str
    role: Role
    pair: Pair
    round: int
    phase: str
    tool: str
    streams: int
    planned_seconds: float
    started_at: float
    ended_at: float
    attempts: int
    partner_run: str = ""
    partner_address: str = ""
    local_address: str = ""
    interface: str = ""
    mtu: int | None = None
    interface_bytes_before: int | None = None
    interface_bytes_after: int | None = None
    paced_bits_per_second: int | None = None
    sent_bytes: int | None = None
    document: str = ""
    trouble: Trouble | None = None
    message: str = ""


@dataclass(frozen=True)
class Summary:
    """What the termination message carries: counts, never a measurement."""

    run_id: str
    node: str
    planned: int
    measured: int
    troubled: int
    interrupted: bool
    seconds: float
    message: str = ""


@dataclass(frozen=True)
class Unreadable:
    """A line that is no result of ours, and why."""

    reason: str


def encode_schedule(schedule: Schedule) -> str:
    document: dict[str, object] = {
        "version": WIRE_VERSION if schedule.most_bytes is None else LIMITED_VERSION,
        "runID": schedule.run_id,
        "poolUID": schedule.pool_uid,
        "tool": schedule.tool,
        "rounds": [[{"from": p.source, "to": p.destination} for p in pairs] for pairs in schedule.rounds],
        "durationSeconds": schedule.duration_seconds,
        "streams": schedule.streams,
        "port": schedule.port,
        "phase": schedule.phase,
    }
    if schedule.line_rate_bytes_per_second is not None:
        document["lineRateBytesPerSecond"] = schedule.line_rate_bytes_per_second
    if schedule.paced_bits_per_second is not None:
        document["pacedBitsPerSecond"] = schedule.paced_bits_per_second
    if schedule.most_bytes is not None:
        document["mostBytes"] = schedule.most_bytes
    return _dump(document)


def decode_schedule(text: str) -> Schedule:
    """Raises WireError for anything but a schedule in which no node is in two tests of one round."""
    reader = Fields.of(text, "schedule")
    most_bytes = reader.maybe_whole("mostBytes")
    version = WIRE_VERSION if most_bytes is None else LIMITED_VERSION
    if reader.values.get("version") != version:
        raise WireError(f"schedule: version must be {version}")
    return Schedule(
        run_id=reader.name("runID"),
        pool_uid=reader.text("poolUID"),
        tool=reader.name("tool"),
        rounds=tuple(_round(reader, n, entry) for n, entry in enumerate(reader.items("rounds"))),
        duration_seconds=reader.number("durationSeconds", above=0, most=MAX_SECONDS),
        streams=reader.whole("streams", least=1, most=MAX_STREAMS),
        port=reader.whole("port", least=1, most=65535 - DATA_PORTS),
        phase=reader.name("phase"),
        line_rate_bytes_per_second=reader.maybe_number("lineRateBytesPerSecond", above=0),
        paced_bits_per_second=reader.maybe_whole("pacedBitsPerSecond", least=1),
        most_bytes=most_bytes,
    )


def encode_result(result: Result) -> str:
    """One line of JSON, without the line end; a document longer than the limit is cut and so unreadable."""
    return _dump(
        {
            "kvgateProbe": WIRE_VERSION,
            "runID": result.run_id,
            "poolUID": result.pool_uid,
            "node": result.node,
            "role": result.role.value,
            "from": result.pair.source,
            "to": result.pair.destination,
            "round": result.round,
            "phase": result.phase,
            "tool": result.tool,
            "streams": result.streams,
            "plannedSeconds": result.planned_seconds,
            "startedAt": result.started_at,
            "endedAt": result.ended_at,
            "attempts": result.attempts,
            "partnerRunID": result.partner_run,
            "partnerAddress": result.partner_address,
            "localAddress": result.local_address,
            "interface": result.interface,
            "mtu": result.mtu,
            "interfaceBytesBefore": result.interface_bytes_before,
            "interfaceBytesAfter": result.interface_bytes_after,
            "pacedBitsPerSecond": result.paced_bits_per_second,
            "sentBytes": result.sent_bytes,
            "document": result.document[:MAX_DOCUMENT_CHARACTERS],
            "trouble": None if result.trouble is None else result.trouble.value,
            "message": result.message[:1000],
        }
    )


def decode_line(text: str) -> Result | Unreadable:
    """Never raises: whatever a pod printed is a result of this wire or unreadable."""
    try:
        return _decode_result(Fields.of(text, "line"))
    except WireError as error:
        return Unreadable(str(error))


def _decode_result(reader: Fields) -> Result:
    _refuse_unmarked(reader)
    document, trouble = reader.text("document"), reader.maybe_text("trouble")
    if not document and trouble is None:
        raise WireError("the line has neither a document nor a trouble")
    return Result(
        run_id=reader.name("runID"),
        pool_uid=reader.text("poolUID"),
        node=reader.name("node"),
        role=Role(reader.one_of("role", Role)),
        pair=Pair(reader.name("from"), reader.name("to")),
        round=reader.whole("round"),
        phase=reader.name("phase"),
        tool=reader.name("tool"),
        streams=reader.whole("streams", least=1, most=MAX_STREAMS),
        planned_seconds=reader.number("plannedSeconds", above=0, most=MAX_SECONDS),
        started_at=reader.number("startedAt"),
        ended_at=reader.number("endedAt"),
        attempts=reader.whole("attempts"),
        partner_run=reader.text("partnerRunID"),
        partner_address=reader.text("partnerAddress"),
        local_address=reader.text("localAddress"),
        interface=reader.text("interface"),
        mtu=reader.maybe_whole("mtu"),
        interface_bytes_before=reader.maybe_whole("interfaceBytesBefore"),
        interface_bytes_after=reader.maybe_whole("interfaceBytesAfter"),
        paced_bits_per_second=reader.maybe_whole("pacedBitsPerSecond", least=1),
        sent_bytes=reader.maybe_whole("sentBytes"),
        document=document,
        trouble=None if trouble is None else Trouble(reader.one_of("trouble", Trouble)),
        message=reader.text("message"),
    )


def encode_summary(summary: Summary) -> str:
    """At most MAX_TERMINATION_BYTES bytes, whatever the message."""
    return _dump(
        {
            "kvgateProbe": WIRE_VERSION,
            "runID": _plain(summary.run_id, 253),
            "node": _plain(summary.node, 253),
            "planned": summary.planned,
            "measured": summary.measured,
            "troubled": summary.troubled,
            "interrupted": summary.interrupted,
            "seconds": round(summary.seconds, 3),
            "message": _plain(summary.message, 400),
        }
    )


def decode_summary(text: str) -> Summary | Unreadable:
    try:
        reader = Fields.of(text, "summary")
        _refuse_unmarked(reader)
        return Summary(
            run_id=reader.name("runID"),
            node=reader.name("node"),
            planned=reader.whole("planned"),
            measured=reader.whole("measured"),
            troubled=reader.whole("troubled"),
            interrupted=reader.flag("interrupted"),
            seconds=reader.number("seconds"),
            message=reader.text("message"),
        )
    except WireError as error:
        return Unreadable(str(error))


def _refuse_unmarked(reader: Fields) -> None:
    if reader.values.get("kvgateProbe") != WIRE_VERSION:
        raise WireError(f"the {reader.what} is not marked kvgateProbe {WIRE_VERSION}")


def _plain(text: str, most: int) -> str:
    return text[:most].encode("ascii", "replace").decode("ascii")


def _dump(document: Mapping[str, object]) -> str:
    return json.dumps(document, separators=(",", ":"), allow_nan=False)


def _round(reader: Fields, number: int, entry: object) -> tuple[Pair, ...]:
    if not isinstance(entry, list):
        raise WireError(f"{reader.what}: rounds[{number}] must be a list of pairs")
    pairs = tuple(_pair(f"{reader.what}: rounds[{number}]", item) for item in entry)
    nodes = [node for pair in pairs for node in (pair.source, pair.destination)]
    if len(nodes) != len(set(nodes)):
        raise WireError(f"{reader.what}: rounds[{number}] has a node in two tests")
    return pairs


def _pair(where: str, item: object) -> Pair:
    if not isinstance(item, dict):
        raise WireError(f"{where} must hold objects with from and to")
    reader = Fields(where, item)
    return Pair(reader.name("from"), reader.name("to"))
