"""From the logs of a sweep's walkers to samples: only lines of this run, of the right node, on planned paths."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from kvgate.core.evidence import Failure, FailureKind, Sample
from kvgate.core.packed import packed, unpacked
from kvgate.probe.ends import Ends, weigh
from kvgate.probe.identities import Interface, interfaces
from kvgate.probe.measured import Accepted
from kvgate.probe.readers import READERS, reader_of
from kvgate.probe.samples import sample_of
from kvgate.probe.slots import Place, slots
from kvgate.probe.ucx_reading import TCP
from kvgate_probe.seats import is_companion
from kvgate_probe.summary import Summary, decode_summary
from kvgate_probe.wire import Result, Role, Schedule, Step, Test, Unreadable, decode_line

MOST_LOG_CHARACTERS = 64 * 1024 * 1024
MOST_PROBLEMS = 50
CLOCK_TOLERANCE = timedelta(minutes=5)


@dataclass(frozen=True)
class Reading:
    """What a sweep's logs amount to; a planned path without any record has no sample at all."""

    samples: tuple[Sample, ...]
    problems: tuple[str, ...] = ()
    interfaces: Mapping[str, Interface] = field(default_factory=dict)
    """What each node measured through."""


@dataclass(frozen=True)
class Elsewhere:
    """Why a node's walker was not on the network of the worker that it stood for; where `tcp_alone`, what went by RDMA
    was on the worker's."""

    why: str
    tcp_alone: bool = False


@dataclass(frozen=True)
class Setting:
    """What the operator knows of a sweep beside its schedule.

    `received_at` is the one clock by which evidence ages; a node's own clock is only compared with it, and with
    `began_at`, before which no test of the sweep can have ended.
    `addresses` are those that each node's walker may have, where known; `elsewhere` are the nodes whose walker was on
    another network than its worker. On loopback paths no wire is measured:
    allowed for tests on one host alone, and said in each sample.
    """

    received_at: datetime
    addresses: Mapping[str, frozenset[str]] = field(default_factory=dict)
    loopback: bool = False
    elsewhere: Mapping[str, Elsewhere] = field(default_factory=dict)
    began_at: datetime | None = None


@dataclass(frozen=True)
class _Line:
    """A record, and apart from it its tool's document: those of a thousand walkers are held at the same time."""

    where: str
    result: Result
    document: bytes

    @property
    def whole(self) -> Result:
        return replace(self.result, document=unpacked(self.document))


def read_logs(schedule: Schedule, logs: Mapping[str, str], setting: Setting) -> Reading:
    """`logs` is node → what its walker printed. Never raises; what is not accepted is named in `problems`."""
    strange = sorted({step.tool for step in schedule.steps} - READERS.keys())
    if strange:
        return Reading((), (f"the schedule names {len(strange)} tools that this version cannot read",))
    problems: list[str] = []
    tests = {_place(test): test for test in schedule.tests()}
    lines = (line for node in sorted(logs) for line in _lines(node, logs[node], problems))
    kept = [line for line in lines if _accept(line, schedule, tests, problems)]
    accepted = [line.result for line in kept]
    by_place: dict[Place, list[_Line]] = {}
    for line in kept:
        by_place.setdefault(_place(line.result), []).append(line)
    told = {place: test for place, test in tests.items() if place in by_place}
    at_once = slots(schedule, accepted)
    samples = tuple(
        _placed(_sample(test, [line.whole for line in by_place[place]], schedule, setting), at_once.get(place))
        for place, test in told.items()
    )
    problems += _skewed(accepted, setting)
    return Reading(samples, _few(problems), interfaces(accepted))


def _place(meant: Test | Result) -> Place:
    return meant.pair, meant.round, meant.step


def _lines(node: str, log: str, problems: list[str]) -> Iterator[_Line]:
    if len(log) > MOST_LOG_CHARACTERS:
        problems.append(f"log of {node}: {len(log)} characters, at most {MOST_LOG_CHARACTERS} are read")
        return
    for number, text in enumerate(log.split("\n"), start=1):
        if not text.strip():
            continue
        line, where = decode_line(text), f"log of {node}, line {number}"
        if isinstance(line, Unreadable):
            if isinstance(decode_summary(text), Summary):
                continue
            problems.append(f"{where}: {line.reason}")
        elif line.node != node:
            problems.append(f"{where}: written for another node: ignored")
        else:
            yield _Line(where, replace(line, document=""), packed(line.document))


def _accept(line: _Line, schedule: Schedule, tests: Mapping[Place, Test], problems: list[str]) -> bool:
    reason = _stranger(line.result, schedule, tests.get(_place(line.result)))
    if reason:
        problems.append(f"{line.where}: {reason}: ignored")
    return not reason


def _stranger(result: Result, schedule: Schedule, test: Test | None) -> str:
    if result.run_id != schedule.run_id or result.pool_uid != schedule.pool_uid:
        return "of another run"
    if test is None:
        return "of a path that is not planned in this round"
    end = test.pair.source if result.role is Role.SOURCE else test.pair.destination
    if result.node != end:
        return f"a {result.role.value}'s record by a node that is not the {result.role.value}"
    step = schedule.steps[test.step]
    planned = (step.tool, schedule.phase_of(test.round), step.streams)
    if (result.tool, result.phase, result.streams) != planned or not _of_planned_length(result, step, schedule):
        return "of another tool, phase, number of streams or duration than planned"
    if result.paced_bits_per_second != schedule.paced_bits_per_second:
        return "of another pace than planned"
    return ""


def _of_planned_length(result: Result, step: Step, schedule: Schedule) -> bool:
    """A limit on bytes makes a sender's tests shorter, to whole seconds, and those of one who reads from it."""
    seconds, planned = result.planned_seconds, step.seconds
    pulled = reader_of(step).teller is Role.DESTINATION
    limited = schedule.most_bytes is not None and (result.role is Role.SOURCE or pulled)
    return seconds == planned or (limited and 1 <= seconds < planned and seconds.is_integer())


def _sample(test: Test, results: Sequence[Result], schedule: Schedule, setting: Setting) -> Sample:
    sources = [result for result in results if result.role is Role.SOURCE]
    destinations = [result for result in results if result.role is Role.DESTINATION]
    source, destination = next(iter(sources), None), next(iter(destinations), None)
    count = max(len(sources), len(destinations))
    step, ends = schedule.steps[test.step], Ends(source, destination)
    told = reader_of(step).teller is Role.SOURCE
    addresses = setting.addresses.get(test.pair.destination if told else test.pair.source, frozenset())
    loopback = setting.loopback and not is_companion(test.pair.destination)
    outcome: Accepted | Failure
    if count > 1:
        outcome = Failure(FailureKind.AMBIGUOUS, f"{count} records of one test by one end, 1 expected")
    else:
        weighed = weigh(ends, step, schedule, addresses, loopback=loopback)
        outcome = _elsewhere(test, step, weighed, setting) or weighed
    return sample_of(test, schedule, setting.received_at, outcome, ends)


def _elsewhere(test: Test, step: Step, outcome: Accepted | Failure, setting: Setting) -> Failure | None:
    """What was measured on another network than the workers' says nothing of theirs, be it good or bad."""
    by_rdma = outcome.transport != TCP if isinstance(outcome, Accepted) else reader_of(step).rdma
    for node in (test.pair.source, test.pair.destination):
        away = setting.elsewhere.get(node)
        if away is not None and not (away.tcp_alone and by_rdma):
            return Failure(FailureKind.OTHER_NETWORK, f"{node}: {away.why}")
    return None


def _placed(sample: Sample, slot: int | None) -> Sample:
    return sample if slot is None else replace(sample, slot=slot)


def _skewed(results: Sequence[Result], setting: Setting) -> list[str]:
    latest = (setting.received_at + CLOCK_TOLERANCE).timestamp()
    earliest = (setting.began_at - CLOCK_TOLERANCE).timestamp() if setting.began_at else -math.inf
    ahead = {(result.node, "ahead") for result in results if result.ended_at > latest}
    behind = {(result.node, "behind") for result in results if result.ended_at < earliest}
    minutes = CLOCK_TOLERANCE.total_seconds() / 60
    return [
        f"clock of {node}: more than {minutes:.0f} min {way}; evidence ages by ours"
        for node, way in sorted(ahead | behind)
    ]


def _few(problems: list[str]) -> tuple[str, ...]:
    if len(problems) <= MOST_PROBLEMS:
        return tuple(problems)
    return (*problems[:MOST_PROBLEMS], f"and {len(problems) - MOST_PROBLEMS} more problems")
