"""What the operator and the probe say to each other: the schedule and the result lines, as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from hashlib import sha256

from kvgate_probe.fields import Fields, WireError
from kvgate_probe.rounds import Pair as Pair  # noqa: PLC0414 - one of the wire's words
from kvgate_probe.rounds import Rounds, refuse_strangers

WIRE_VERSION = 1
LIMITED_VERSION = 2
"""Of a schedule with a limit on bytes: a walker that knows of none must not take it for one without."""
STEPPED_VERSION = 3
"""Of a schedule in which a pair meets for more than one test."""
ORDERED_VERSION = 4
"""Of a schedule whose rounds wait for each other, or are of two phases."""
PACKED_VERSION = 5
"""Of a schedule with more than PLAIN_PAIRS pairs, whose rounds are packed."""
PLAIN_PAIRS = 1000
MAX_DOCUMENT_CHARACTERS = 262_144
MAX_SECONDS = 3600.0
MAX_STREAMS = 128
MAX_PIECE_BYTES = 1 << 30
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
class Test:
    """One planned measurement; `index` is its place in the one total order that all walkers follow, `step` its place
    among the tests for which its pair meets."""

    __test__ = False

    index: int
    round: int
    pair: Pair
    step: int = 0

    def partner_of(self, node: str) -> str:
        return self.pair.destination if node == self.pair.source else self.pair.source


@dataclass(frozen=True)
class Step:
    """One of the tests for which a pair meets: a tool and how it is used.

    `piece_bytes` is the size of one transfer of a tool that moves pieces, `operation` what it does where it knows more
    than one: `read` pulls at the destination, `write` pushes at the source.
    """

    tool: str
    streams: int
    seconds: float
    piece_bytes: int | None = None
    operation: str = ""
    unpaced: bool = False
    """Whether the schedule's pace is not meant for it."""


@dataclass(frozen=True)
class Schedule:
    """The whole sweep, the same for every walker; `paced_bits_per_second` is for all streams together.

    A pair meets once in a phase for all its steps: the first is `tool` with `streams` for `duration_seconds`, then come
    those of `further`. `most_bytes` is what all senders together may send, None for no limit. The rounds are of
    `phase`, but for the last ones where `beside` (a phase, and how many rounds are of it) is given. Where `in_order`,
    no test begins before those of the round before it have ended.
    """

    run_id: str
    pool_uid: str
    tool: str
    rounds: Sequence[tuple[Pair, ...]]
    duration_seconds: float
    streams: int
    port: int
    phase: str
    line_rate_bytes_per_second: float | None = None
    paced_bits_per_second: int | None = None
    most_bytes: int | None = None
    further: tuple[Step, ...] = ()
    in_order: bool = False
    beside: tuple[str, int] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "rounds", Rounds.of(self.rounds))

    @property
    def packed(self) -> Rounds:
        return Rounds.of(self.rounds)

    @property
    def nodes(self) -> tuple[str, ...]:
        return self.packed.nodes

    @property
    def count(self) -> int:
        """How many tests there are."""
        return self.packed.pairs * len(self.steps)

    def phase_of(self, round_number: int) -> str:
        if self.beside is None or round_number < len(self.rounds) - self.beside[1]:
            return self.phase
        return self.beside[0]

    @property
    def steps(self) -> tuple[Step, ...]:
        return (Step(self.tool, self.streams, self.duration_seconds), *self.further)

    @property
    def round_seconds(self) -> float:
        """The time that the tests of one meeting take."""
        return sum(step.seconds for step in self.steps)

    def tests(self) -> tuple[Test, ...]:
        meetings = ((number, pair) for number, pairs in enumerate(self.rounds) for pair in pairs)
        return self._tests((number, place, pair) for place, (number, pair) in enumerate(meetings))

    def tests_of(self, node: str) -> tuple[Test, ...]:
        return self._tests(self.packed.of_node(node))

    def _tests(self, meetings: Iterable[tuple[int, int, Pair]]) -> tuple[Test, ...]:
        steps = len(self.steps)
        return tuple(
            Test(place * steps + step, number, pair, step) for number, place, pair in meetings for step in range(steps)
        )

    def share_of(self, node: str) -> int | None:
        """The bytes that a sender may send: as much of all as its tests are of all."""
        if self.most_bytes is None:
            return None
        return self.most_bytes * self.packed.sent_by(node) // max(1, self.packed.pairs)


@dataclass(frozen=True)
class Load:
    """How the processors did during a test, in shares of its time; None where the system does not tell.

    `busy` and `stolen` are of all processors of the host; `cores` is the processor time that the tool used by its wall
    time; `waited` the share in which it could have run and was not let, `throttled` that in which its cgroup was held.
    """

    busy: float | None = None
    stolen: float | None = None
    cores: float | None = None
    waited: float | None = None
    throttled: float | None = None


@dataclass(frozen=True)
class Result:
    """One end's record of one test: the tool's own text, or the trouble that kept it from having any.

    Times are Unix seconds by the node's clock. The interface's bytes are those sent at the source and those
    received at the destination; None where the system does not tell. `sent_bytes` is the payload that a source sent,
    in tests that failed too; `planned_seconds` is less than the step's where the limit on bytes made it so.
    `round_trip_seconds` is of small packets just before the test, `set_up_seconds` from the start of the tool to its
    first transfer; the line rate, the driver and its firmware are those of the interface.
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
    step: int = 0
    round_trip_seconds: float | None = None
    set_up_seconds: float | None = None
    line_rate_bytes_per_second: float | None = None
    driver: str = ""
    firmware: str = ""
    load: Load = Load()
    document: str = ""
    trouble: Trouble | None = None
    message: str = ""


@dataclass(frozen=True)
class Unreadable:
    """A line that is no result of ours, and why."""

    reason: str


def encode_schedule(schedule: Schedule) -> str:
    return dump(_schedule_out(schedule, schedule.packed.packed))


def schedule_digest(schedule: Schedule) -> str:
    """SHA-256 in hex: the same for the same schedule, whoever compressed it."""
    text = dump(_schedule_out(schedule, lambda: sha256(schedule.packed.raw()).hexdigest()))
    return sha256(text.encode()).hexdigest()


def _schedule_out(schedule: Schedule, packed: Callable[[], str]) -> dict[str, object]:
    plain = schedule.packed.pairs <= PLAIN_PAIRS
    document: dict[str, object] = {
        "version": _version(
            packed=not plain,
            ordered=schedule.in_order or schedule.beside is not None,
            stepped=bool(schedule.further),
            limited=schedule.most_bytes is not None,
        ),
        "runID": schedule.run_id,
        "poolUID": schedule.pool_uid,
        "tool": schedule.tool,
        "durationSeconds": schedule.duration_seconds,
        "streams": schedule.streams,
        "port": schedule.port,
        "phase": schedule.phase,
    }
    if plain:
        document["rounds"] = [[{"from": p.source, "to": p.destination} for p in pairs] for pairs in schedule.rounds]
    else:
        document |= {"nodes": schedule.nodes, "packed": packed()}
    if schedule.line_rate_bytes_per_second is not None:
        document["lineRateBytesPerSecond"] = schedule.line_rate_bytes_per_second
    if schedule.paced_bits_per_second is not None:
        document["pacedBitsPerSecond"] = schedule.paced_bits_per_second
    if schedule.most_bytes is not None:
        document["mostBytes"] = schedule.most_bytes
    if schedule.further:
        document["further"] = [_step_out(step) for step in schedule.further]
    if schedule.in_order:
        document["inOrder"] = True
    if schedule.beside is not None:
        document["beside"] = {"phase": schedule.beside[0], "rounds": schedule.beside[1]}
    return document


def _version(*, limited: bool, stepped: bool, ordered: bool, packed: bool) -> int:
    if packed:
        return PACKED_VERSION
    if ordered:
        return ORDERED_VERSION
    if stepped:
        return STEPPED_VERSION
    return LIMITED_VERSION if limited else WIRE_VERSION


def _step_out(step: Step) -> dict[str, object]:
    told = {"tool": step.tool, "streams": step.streams, "seconds": step.seconds}
    more = {"pieceBytes": step.piece_bytes, "operation": step.operation or None, "unpaced": step.unpaced or None}
    return told | {key: value for key, value in more.items() if value is not None}


def _step(reader: Fields) -> Step:
    piece = reader.maybe_whole("pieceBytes", least=1)
    if piece is not None and piece > MAX_PIECE_BYTES:
        raise WireError(f"{reader.what}: pieceBytes must be at most {MAX_PIECE_BYTES}")
    return Step(
        tool=reader.name("tool"),
        streams=reader.whole("streams", least=1, most=MAX_STREAMS),
        seconds=reader.number("seconds", above=0, most=MAX_SECONDS),
        piece_bytes=piece,
        operation=reader.maybe_text("operation") or "",
        unpaced="unpaced" in reader.values and reader.flag("unpaced"),
    )


def decode_schedule(text: str) -> Schedule:
    """Raises WireError for anything but a schedule in which no node is in two tests of one round."""
    reader = Fields.of(text, "schedule")
    most_bytes = reader.maybe_whole("mostBytes")
    further = tuple(map(_step, reader.objects("further"))) if "further" in reader.values else ()
    in_order = "inOrder" in reader.values and reader.flag("inOrder")
    packed = "packed" in reader.values
    ordered = in_order or "beside" in reader.values
    version = _version(limited=most_bytes is not None, stepped=bool(further), ordered=ordered, packed=packed)
    if reader.values.get("version") != version:
        raise WireError(f"schedule: version must be {version}")
    rounds = _packed_rounds(reader) if packed else _plain_rounds(reader)
    beside = _beside(reader.within("beside"), len(rounds)) if "beside" in reader.values else None
    return Schedule(
        run_id=reader.name("runID"),
        pool_uid=reader.text("poolUID"),
        tool=reader.name("tool"),
        rounds=rounds,
        duration_seconds=reader.number("durationSeconds", above=0, most=MAX_SECONDS),
        streams=reader.whole("streams", least=1, most=MAX_STREAMS),
        port=reader.whole("port", least=1, most=65535 - DATA_PORTS),
        phase=reader.name("phase"),
        line_rate_bytes_per_second=reader.maybe_number("lineRateBytesPerSecond", above=0),
        paced_bits_per_second=reader.maybe_whole("pacedBitsPerSecond", least=1),
        most_bytes=most_bytes,
        further=further,
        in_order=in_order,
        beside=beside,
    )


def _beside(reader: Fields, rounds: int) -> tuple[str, int]:
    return reader.name("phase"), reader.whole("rounds", most=rounds)


def encode_result(result: Result) -> str:
    """One line of JSON, without the line end; a document longer than the limit is cut and so unreadable."""
    return dump(
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
            "step": result.step,
            "roundTripSeconds": result.round_trip_seconds,
            "setUpSeconds": result.set_up_seconds,
            "lineRateBytesPerSecond": result.line_rate_bytes_per_second,
            "driver": result.driver[:100],
            "firmware": result.firmware[:100],
            "load": asdict(result.load),
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
    refuse_unmarked(reader)
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
        step=reader.maybe_whole("step") or 0,
        round_trip_seconds=reader.maybe_number("roundTripSeconds", above=-1),
        set_up_seconds=reader.maybe_number("setUpSeconds", above=-1),
        line_rate_bytes_per_second=reader.maybe_number("lineRateBytesPerSecond", above=0),
        driver=reader.maybe_text("driver") or "",
        firmware=reader.maybe_text("firmware") or "",
        load=_load(reader.within("load")) if "load" in reader.values else Load(),
        document=document,
        trouble=None if trouble is None else Trouble(reader.one_of("trouble", Trouble)),
        message=reader.text("message"),
    )


def _load(reader: Fields) -> Load:
    return Load(**{share.name: reader.maybe_number(share.name, above=-1) for share in fields(Load)})


def refuse_unmarked(reader: Fields) -> None:
    if reader.values.get("kvgateProbe") != WIRE_VERSION:
        raise WireError(f"the {reader.what} is not marked kvgateProbe {WIRE_VERSION}")


def dump(document: Mapping[str, object]) -> str:
    return json.dumps(document, separators=(",", ":"), allow_nan=False)


def _packed_rounds(reader: Fields) -> Rounds:
    nodes = reader.items("nodes")
    if not all(isinstance(name, str) and 1 <= len(name) <= 255 and name.isprintable() for name in nodes):
        raise WireError("schedule: nodes must be names of 1 to 255 printable characters")
    return Rounds.unpacked([str(name) for name in nodes], reader.text("packed"))


def _plain_rounds(reader: Fields) -> tuple[tuple[Pair, ...], ...]:
    return tuple(_round(reader, n, entry) for n, entry in enumerate(reader.items("rounds")))


def _round(reader: Fields, number: int, entry: object) -> tuple[Pair, ...]:
    if not isinstance(entry, list):
        raise WireError(f"{reader.what}: rounds[{number}] must be a list of pairs")
    pairs = tuple(_pair(f"{reader.what}: rounds[{number}]", item) for item in entry)
    nodes = [node for pair in pairs for node in (pair.source, pair.destination)]
    if len(nodes) != len(set(nodes)):
        raise WireError(f"{reader.what}: rounds[{number}] has a node in two tests")
    refuse_strangers(pairs, f"{reader.what}: rounds[{number}]")
    return pairs


def _pair(where: str, item: object) -> Pair:
    if not isinstance(item, dict):
        raise WireError(f"{where} must hold objects with from and to")
    reader = Fields(where, item)
    return Pair(reader.name("from"), reader.name("to"))
