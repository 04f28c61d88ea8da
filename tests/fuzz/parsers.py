"""Every reader of foreign text, with real texts to spoil, and the law that whatever it makes of them must keep."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from kvgate.core.events_seen import FrontendCounts, WorkerCounts
from kvgate.core.evidence import Failure
from kvgate.core.evidence import Path as FabricPath
from kvgate.core.kvcache.derive import kv_layout
from kvgate.core.kvcache.document import parse_config
from kvgate.core.kvcache.layout import KVLayout
from kvgate.core.kvcache.words import KVBytesUnknown
from kvgate.dynamo.argv import read_command_line
from kvgate.dynamo.container import read_env
from kvgate.dynamo.engine import read_engine
from kvgate.dynamo.metadata import WorkerMetadata, read_metadata
from kvgate.dynamo.metrics import Unreadable, frontend_counts, worker_counts
from kvgate.dynamo.roles import frontend_mode, migration_limit, role_of
from kvgate.dynamo.shape import Target, TargetProblem, read_target
from kvgate.dynamo.view import view
from kvgate.dynamo.words import Role
from kvgate.probe.events_results import read_listening
from kvgate.probe.ib_reading import read_ib
from kvgate.probe.iperf3_guard import guard
from kvgate.probe.measured import Accepted, Expected
from kvgate.probe.nixl_reading import read_nixl
from kvgate.probe.results import Setting, read_logs
from kvgate.probe.ucx_reading import read_ucx
from kvgate_probe.kvevents_payload import Batch, Malformed, decode
from kvgate_probe.wire import Role as End
from tests.dynamo import support
from tests.fuzz.mutations import spoilt, spoilt_json
from tests.probe import test_events_job as events
from tests.probe import test_ib_reading as ib
from tests.probe import test_kvevents_payload as kvevents
from tests.probe import test_nixl_reading as nixl
from tests.probe import test_results as results
from tests.probe import test_ucx_reading as ucx
from tests.probe.documents import expected, finished, text_of

DATA = Path(__file__).parents[1] / "data"
GIGABIT, TEN_GIGABIT, HUNDRED_GIGABIT = 125e6, 1.25e9, 12.5e9
SEPARATOR = b"\n--- next frame ---\n"
Spoil = Callable[[random.Random, Sequence[bytes]], bytes]


@dataclass(frozen=True)
class Parser:
    """`read` says whether it took the text as what it claims to be, and raises where the reader does or breaks the law.

    What a spoilt text is taken for may never let a path pass that its hardware could not: `law` is that in words.
    """

    name: str
    law: str
    corpus: tuple[bytes, ...]
    read: Callable[[bytes], bool]
    spoil: Spoil = spoilt


def as_text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def lone(raw: bytes) -> Any:
    """The tree that the text is, or the text itself as a value in its place."""
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        return as_text(raw)


def keeps_to_the_line(outcome: object, line: float, planned: Expected) -> bool:
    assert isinstance(outcome, Accepted | Failure), outcome
    if isinstance(outcome, Failure):
        assert outcome.message
        plain(outcome.message)
        return False
    told = outcome.numbers
    assert math.isfinite(told.bytes_per_second), told
    assert 0 < told.bytes_per_second <= 1.05 * line, told
    assert math.isfinite(told.seconds), told
    assert told.seconds >= 0.9 * min(planned.planned_seconds, 1.0), told
    assert abs(told.bytes_received / told.seconds - told.bytes_per_second) <= 0.05 * told.bytes_per_second, told
    for text in (outcome.version, outcome.transport, *outcome.lanes):
        plain(text)
    return True


def plain(text: str) -> None:
    assert text.isprintable() or set(text) <= {"\n"} | set(filter(str.isprintable, text)), repr(text)
    assert len(text) < 4000, len(text)


def tool(reader: Callable[[str, Expected], object], planned: Expected, line: float) -> Callable[[bytes], bool]:
    bounded = replace(planned, line_rate_bytes_per_second=line)
    return lambda raw: keeps_to_the_line(reader(as_text(raw), bounded), line, bounded)


def walker_log(raw: bytes) -> bool:
    """A source's whole log beside its partner's real one: what is sampled is of the planned run and path."""
    read = read_logs(results.PLAN.schedule, {"p": as_text(raw), "d": OTHER_END}, Setting(results.NOW))
    for sample in read.samples:
        assert (sample.run_id, sample.path) == ("run-7", FabricPath("p", "d")), sample
        assert sample.failure is not None or (sample.bytes_per_second or 0) > 0, sample
    for problem in read.problems:
        plain(problem)
    return any(sample.failure is None for sample in read.samples)


def finite(value: object) -> None:
    """Every number that was read is finite and not below 0."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        assert math.isfinite(value), value
        assert value >= 0, value
    elif isinstance(value, tuple):
        for one in value:
            finite(one)
    elif is_dataclass(value):
        for held in fields(value):
            finite(getattr(value, held.name))


def counts(raw: bytes) -> bool:
    read = (frontend_counts(as_text(raw)), worker_counts(as_text(raw)))
    for one in read:
        assert isinstance(one, FrontendCounts | WorkerCounts | Unreadable), one
        if isinstance(one, Unreadable):
            assert one.message
        else:
            finite(one)
    return not isinstance(read[0], Unreadable)


def payload(raw: bytes) -> bool:
    """Frames as a socket gives them; a batch says what it is of, and counts nothing below 0."""
    read = decode(raw.split(SEPARATOR))
    assert isinstance(read, Batch | Malformed), read
    if isinstance(read, Malformed):
        assert read.why
        plain(read.why)
        return False
    assert all(event.blocks >= 0 for event in read.events), read
    return True


def config(raw: bytes) -> bool:
    parsed = parse_config(as_text(raw))
    if isinstance(parsed, KVBytesUnknown):
        return False
    layout = kv_layout(parsed)
    assert isinstance(layout, KVLayout | KVBytesUnknown), layout
    if isinstance(layout, KVBytesUnknown):
        return False
    finite(layout.bytes_per_token)
    finite(layout.state_bytes)
    assert layout.bytes_per_token or layout.windows or layout.state_bytes, layout
    return True


def metadata(raw: bytes) -> bool:
    read = read_metadata(lone(raw))
    assert isinstance(read, WorkerMetadata), read
    return bool(read.cards)


def heard(raw: bytes) -> bool:
    read = read_listening(as_text(raw), "r1", events.PLAN.endpoints)
    planned = {(one.worker, one.address) for one in events.PLAN.endpoints}
    assert {(one.pod, one.address) for one in read.entries} <= planned, read
    assert len(read.entries) <= len(planned), read
    return bool(read.entries)


def command_line(raw: bytes) -> bool:
    """Words as a kubelet hands them on, split where the corpus has line ends; the env stands in the first word."""
    words = tuple(as_text(raw).split("\n"))
    half = len(words) // 3
    line, env = (
        read_command_line(words[:half], words[half:]),
        read_env([{"name": word, "value": word} for word in words]),
    )
    engine = read_engine(line, "")
    role, _ = role_of("worker", line, env, engine.engine)
    assert isinstance(role, Role), role
    frontend_mode(line, env)
    limit = migration_limit(line, env)
    assert limit is None or isinstance(limit, int), limit
    return bool(line.module)


def deployment(raw: bytes) -> bool:
    read = read_target(lone(raw))
    assert isinstance(read, Target | TargetProblem), read
    view(read)
    return isinstance(read, Target)


def _argv(document: object) -> list[str]:
    found = []
    if isinstance(document, dict):
        found += [str(word) for key in ("command", "args") for word in document.get(key) or ()]
        found += [line for value in document.values() for line in _argv(value)]
    elif isinstance(document, list):
        found += [line for value in document for line in _argv(value)]
    return found


OTHER_END = results.log(results.record(End.DESTINATION))
METRICS = tuple(path.read_bytes() for path in sorted((DATA / "metrics").glob("*.txt")))
CONFIGS = tuple(
    json.dumps(entry["config"]).encode()
    for entry in json.loads((DATA / "model-configs.json").read_bytes()).values()
    if entry["expected"] != "KVBytesUnknown"
)
EXAMPLES = tuple(
    json.dumps(document, default=str).encode()
    for path in sorted((DATA / "dynamo").glob("*/*.yaml"))
    for document in yaml.safe_load_all(path.read_text("utf-8"))
    if isinstance(document, dict)
)
ARGUMENTS = tuple("\n".join(words).encode() for one in EXAMPLES if (words := _argv(json.loads(one))))
FRAMES = (
    *(SEPARATOR.join(kvevents.message(name)) for name in kvevents.PAYLOADS),
    SEPARATOR.join(kvevents.PLANE),
)
METADATA = json.dumps(yaml.safe_load((DATA / "dynamo-worker-metadata.yaml").read_text("utf-8")), default=str).encode()
AT_MOST_THE_LINE = "finite, bytes ÷ seconds, at most 1.05 × the line rate"

PARSERS: tuple[Parser, ...] = (
    Parser(
        "iperf3",
        AT_MOST_THE_LINE,
        (text_of(finished()).encode(),),
        tool(guard, expected(), TEN_GIGABIT),
        spoilt_json,
    ),
    Parser("ucx_perftest", AT_MOST_THE_LINE, (ucx.GOOD.encode(),), tool(read_ucx, ucx.EXPECTED, GIGABIT)),
    Parser(
        "perftest (ib_read_bw)",
        AT_MOST_THE_LINE,
        (ib.GIGABITS.encode(), ib.MEGABYTES.encode(), json.dumps(ib.REPORT).encode()),
        tool(read_ib, ib.EXPECTED, HUNDRED_GIGABIT),
    ),
    Parser("NIXL", AT_MOST_THE_LINE, (nixl.text().encode(),), tool(read_nixl, nixl.EXPECTED, GIGABIT)),
    Parser(
        "a walker's log",
        "samples of the planned run and path alone, each with a number or a failure",
        (results.log(results.record()).encode(),),
        walker_log,
    ),
    Parser("KV events (ZMQ payloads)", "a batch or why not, no count below 0", FRAMES, payload),
    Parser(
        "a listener's log",
        "endpoints of the plan alone, each once",
        (f"{events.line()}\n{events.SECOND}\n".encode(),),
        heard,
    ),
    Parser("metrics text", "finite counts, none below 0, or why not", METRICS, counts),
    Parser("model configs", "bytes above 0 or unknown", CONFIGS, config, spoilt_json),
    Parser("DynamoWorkerMetadata", "facts or blanks", (METADATA,), metadata, spoilt_json),
    Parser("argv and env of workers", "a role, and whole limits", ARGUMENTS, command_line),
    Parser(
        "deployments (DGD)",
        "a target or a problem with its remedy",
        (*EXAMPLES, json.dumps(support.sample(), default=str).encode()),
        deployment,
        spoilt_json,
    ),
)


@dataclass(frozen=True)
class Told:
    """What came of spoilt texts: how many were still taken as whole, and each that broke the reader or its law."""

    inputs: int
    taken: int
    crashes: tuple[str, ...]


def fuzz(parser: Parser, seed: int, inputs: int) -> Told:
    """The same texts for the same seed, whatever machine it is."""
    chance = random.Random(f"{parser.name} {seed}")
    taken, crashes = 0, []
    for _ in range(inputs):
        raw = parser.spoil(chance, parser.corpus)
        try:
            taken += parser.read(raw)
        except Exception as error:  # noqa: BLE001  whatever a reader lets out is what is looked for
            crashes.append(f"{type(error).__name__}: {str(error)[:300]} of {raw[:300]!r} ({len(raw)} bytes)")
    return Told(inputs, taken, tuple(crashes))
