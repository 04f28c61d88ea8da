"""What the operator and the load generator say to each other: the plan, and the lines of results, as JSON.

A run's requests are packed and cut into lines of at most LINE_CHARACTERS, so that no container runtime splits them
and a whole A/B stays far below the size at which a kubelet rotates a log.
"""

from __future__ import annotations

import base64
import gzip
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kvgate_probe.fields import Fields, WireError

WIRE_VERSION = 1
LINE_CHARACTERS = 12_000
MOST_RUN_CHARACTERS = 64 * 1024 * 1024
MOST_PARTS = 4096
ROUND_ROBIN, KV = "RoundRobin", "KV"
ARMS = (ROUND_ROBIN, KV)
FAULTS = (
    "Timeout",
    "NotConnected",
    "Unavailable",
    "Overloaded",
    "Rejected",
    "ServerError",
    "BrokenStream",
    "Empty",
)
BUILT_IN, TRACE = "BuiltIn", "Trace"
SALT_BLOCKS = 2
MOST_CACHE_SHARE = 0.2
"""Of one worker's KV cache, that the prompts of one run may fill."""
ACTIVE_FAMILIES = 6
"""Of the built-in workload: so many families are asked at a time, in turns drawn at random."""
QUIET_SECONDS = 30.0
"""How long users are watched before anything is sent, where there are any."""


@dataclass(frozen=True)
class Plan:
    """A whole A/B. Lengths are in tokens; the vocabulary is the range of token IDs that prompts are drawn from.

    `live` are the metrics pages of the frontends that users reach; `cache_blocks` is what one worker's KV cache holds.
    The built-in workload has families of `family_size` requests, whose prompts have the sizes of `prompts`.
    """

    run_id: str
    pool_uid: str
    model: str
    seed: int
    blocks: int
    requests_per_run: int
    requests_per_second: float
    timeout_seconds: float
    washout_seconds: float
    block_tokens: int
    cache_blocks: int
    first_token: int
    last_token: int
    output_tokens: int
    round_robin: str
    kv: str
    workload: str = BUILT_IN
    prompts: tuple[int, ...] = ()
    family_size: int = 0
    live: tuple[str, ...] = ()
    most_live_utilization: float = 0.5
    on_live: bool = False
    workers: int = 0
    """How many should be registered before it begins; 0 where that is not known."""
    ready_seconds: float = 180.0
    trace_digest: str = ""
    """SHA-256 of the trace in hex; another one is refused. Empty where it is not known."""

    def url(self, arm: str) -> str:
        return self.kv if arm == KV else self.round_robin


@dataclass(frozen=True)
class Sent:
    """One request: when it was due, what it asked, and what came of it. Exactly one of first token and fault."""

    family: int
    arrival_seconds: float
    prompt_tokens: int
    repeated_tokens: int
    first_token_seconds: float | None = None
    token_gap_seconds: float | None = None
    cached_tokens: int | None = None
    overlap_tokens: int | None = None
    worker: str = ""
    fault: str | None = None
    answer_tokens: int = 0


@dataclass(frozen=True)
class RunResult:
    """One arm in one block; `kv_families` are metrics of KV routing that the arm's frontend showed in use. It ran from
    `began_at` to `ended_at`, in seconds since 1970."""

    block: int
    arm: str
    offered: int
    requests: tuple[Sent, ...]
    kv_families: tuple[str, ...] = ()
    began_at: float = 0.0
    ended_at: float = 0.0


@dataclass(frozen=True)
class Asked:
    """One worker, asked alone: mean seconds to the first token of fresh and of repeated prompts."""

    worker: str
    miss_seconds: float
    hit_seconds: float


@dataclass(frozen=True)
class Ending:
    """The last line: who served at the start and at the end, and why it ended early, if it did."""

    workers_before: tuple[str, ...] = ()
    workers_after: tuple[str, ...] = ()
    template_tokens: int = 0
    calibration: tuple[Asked, ...] = ()
    aborted: str = ""
    live_requests_per_second: float | None = None
    slowest_start_seconds: float = 0.0


@dataclass(frozen=True)
class Results:
    """What was read of a log. `ending` is None where the last line is missing; problems name what was passed over."""

    runs: tuple[RunResult, ...] = ()
    ending: Ending | None = None
    problems: tuple[str, ...] = ()


@dataclass
class _Parts:
    """The parts of one run as they come in."""

    total: int
    found: dict[int, str] = field(default_factory=dict)


def encode_plan(plan: Plan) -> str:
    values = {name: getattr(plan, name) for name in plan.__dataclass_fields__}
    return _dump({"kvgateBench": WIRE_VERSION} | values)


def decode_plan(text: str) -> Plan:
    """Raises WireError for anything that is no plan."""
    reader = Fields.of(text, "plan")
    if reader.values.get("kvgateBench") != WIRE_VERSION:
        raise WireError(f"plan: is not marked kvgateBench {WIRE_VERSION}")
    plan = Plan(
        run_id=reader.name("run_id"),
        pool_uid=reader.name("pool_uid"),
        model=reader.name("model"),
        seed=reader.whole("seed", most=2**53 - 1),
        blocks=reader.whole("blocks", least=2, most=64),
        requests_per_run=reader.whole("requests_per_run", least=5, most=20_000),
        requests_per_second=reader.number("requests_per_second", above=0, most=10_000),
        timeout_seconds=reader.number("timeout_seconds", above=0, most=600),
        washout_seconds=reader.number("washout_seconds", above=-1, most=600),
        block_tokens=reader.whole("block_tokens", least=1, most=65_536),
        cache_blocks=reader.whole("cache_blocks", least=1),
        first_token=reader.whole("first_token", most=2**31),
        last_token=reader.whole("last_token", most=2**31),
        output_tokens=reader.whole("output_tokens", least=1, most=65_536),
        round_robin=reader.name("round_robin"),
        kv=reader.name("kv"),
        workload=_one_of(reader, "workload", (BUILT_IN, TRACE)),
        prompts=tuple(_whole(entry) for entry in reader.items("prompts")),
        family_size=reader.whole("family_size", most=20_000),
        live=tuple(_text(entry) for entry in reader.items("live")),
        most_live_utilization=reader.number("most_live_utilization", above=-1, most=1),
        on_live=reader.flag("on_live"),
        workers=reader.whole("workers", most=10_000),
        ready_seconds=reader.number("ready_seconds", above=0, most=3600),
        trace_digest=reader.text("trace_digest"),
    )
    if plan.workload == BUILT_IN and (
        not plan.prompts or min(plan.prompts) < 2 * plan.block_tokens or not plan.family_size
    ):
        raise WireError("plan: the built-in workload needs prompts of two KV blocks or more, and a family size")
    if plan.last_token - plan.first_token < 255:
        raise WireError("plan: the vocabulary must hold at least 256 token IDs")
    return plan


def _one_of(reader: Fields, key: str, words: Sequence[str]) -> str:
    value = reader.text(key)
    if value not in words:
        raise WireError(f"{reader.what}: {key} is none of the {len(words)} known words")
    return value


def encode_run(run_id: str, result: RunResult) -> Iterable[str]:
    """The lines of one run."""
    body = {
        "block": result.block,
        "arm": result.arm,
        "offered": result.offered,
        "families": list(result.kv_families),
        "began_at": round(result.began_at, 3),
        "ended_at": round(result.ended_at, 3),
        "requests": [_row(sent) for sent in result.requests],
    }
    packed = base64.b64encode(gzip.compress(_dump(body).encode(), 9, mtime=0)).decode()
    parts = [packed[start : start + LINE_CHARACTERS] for start in range(0, len(packed), LINE_CHARACTERS)]
    for number, part in enumerate(parts):
        head = {"kvgateBench": WIRE_VERSION, "runID": run_id, "line": "run", "block": result.block, "arm": result.arm}
        yield _dump(head | {"part": number, "parts": len(parts), "data": part})


def _row(sent: Sent) -> list[object]:
    return [
        sent.family,
        round(sent.arrival_seconds, 6),
        sent.prompt_tokens,
        sent.repeated_tokens,
        None if sent.first_token_seconds is None else round(sent.first_token_seconds, 6),
        None if sent.token_gap_seconds is None else round(sent.token_gap_seconds, 6),
        sent.cached_tokens,
        sent.overlap_tokens,
        sent.worker,
        sent.fault,
        sent.answer_tokens,
    ]


def encode_ending(run_id: str, ending: Ending) -> str:
    head: dict[str, object] = {"kvgateBench": WIRE_VERSION, "runID": run_id, "line": "end"}
    asked = [[entry.worker, entry.miss_seconds, entry.hit_seconds] for entry in ending.calibration]
    values = {name: getattr(ending, name) for name in ending.__dataclass_fields__}
    return _dump(head | values | {"calibration": asked})


def decode_log(text: str, run_id: str) -> Results:
    """What a pod's log holds of this run. Never raises: a line that cannot be read is a problem, or not ours."""
    parts: dict[tuple[int, str], _Parts] = {}
    ending: Ending | None = None
    problems: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.startswith('{"kvgateBench"'):
            continue
        try:
            found = _line(line, run_id, parts)
            ending = found or ending
        except (WireError, ValueError, TypeError, KeyError) as error:
            problems.append(f"line {number}: {error if isinstance(error, WireError) else 'cannot be read'}")
    runs: list[RunResult] = []
    for (block, arm), collected in sorted(parts.items()):
        try:
            runs.append(_run_in(block, arm, collected))
        except (WireError, ValueError, TypeError, KeyError, IndexError, zlib.error, RecursionError) as error:
            told = error if isinstance(error, WireError) else "cannot be unpacked"
            problems.append(f"{arm} of block {block}: {told}")
    return Results(tuple(runs), ending, tuple(problems))


def _line(line: str, run_id: str, parts: dict[tuple[int, str], _Parts]) -> Ending | None:
    reader = Fields.of(line, "result")
    if reader.values.get("kvgateBench") != WIRE_VERSION:
        raise WireError(f"result: is not marked kvgateBench {WIRE_VERSION}")
    if reader.text("runID") != run_id:
        raise WireError("result: of another run")
    if reader.text("line") == "end":
        return _ending_in(reader)
    key = (reader.whole("block", most=64), _one_of(reader, "arm", ARMS))
    total = reader.whole("parts", least=1, most=MOST_PARTS)
    part = reader.whole("part", most=total - 1)
    collected = parts.setdefault(key, _Parts(total))
    if part in collected.found or collected.total != total:
        raise WireError("result: a part that is already there")
    collected.found[part] = reader.text("data")
    return None


def _run_in(block: int, arm: str, collected: _Parts) -> RunResult:
    if len(collected.found) != collected.total:
        raise WireError(f"{len(collected.found)} of {collected.total} parts are there")
    packed = base64.b64decode("".join(collected.found[part] for part in range(collected.total)), validate=True)
    body = Fields.of(zlib.decompressobj(wbits=31).decompress(packed, MOST_RUN_CHARACTERS).decode(), "run")
    if (body.whole("block"), body.text("arm")) != (block, arm):
        raise WireError("its lines say another block or arm")
    return RunResult(
        block=block,
        arm=arm,
        offered=body.whole("offered", most=1_000_000),
        requests=tuple(_sent_in(row) for row in body.items("requests")),
        kv_families=tuple(_text(name) for name in body.items("families")),
        began_at=body.number("began_at", above=-1),
        ended_at=body.number("ended_at", above=-1),
    )


def _sent_in(row: object) -> Sent:
    if not isinstance(row, list) or len(row) != 11:
        raise WireError("a request is a row of eleven")
    family, arrival, prompt, repeated, first, gap, cached, overlap, worker, fault, answer = row
    if (first is None) == (fault is None) or (fault is not None and fault not in FAULTS):
        raise WireError("a request has either a first token or one of the known faults")
    return Sent(
        family=_whole(family),
        arrival_seconds=_number(arrival),
        prompt_tokens=_whole(prompt),
        repeated_tokens=_whole(repeated),
        first_token_seconds=None if first is None else _number(first),
        token_gap_seconds=None if gap is None else _number(gap),
        cached_tokens=None if cached is None else _whole(cached),
        overlap_tokens=None if overlap is None else _whole(overlap),
        worker=_text(worker)[:64],
        fault=fault,
        answer_tokens=_whole(answer),
    )


def _ending_in(reader: Fields) -> Ending:
    live = reader.values.get("live_requests_per_second")
    return Ending(
        workers_before=tuple(_text(name)[:64] for name in reader.items("workers_before")),
        workers_after=tuple(_text(name)[:64] for name in reader.items("workers_after")),
        template_tokens=reader.whole("template_tokens", most=1_000_000),
        calibration=tuple(_asked_in(entry) for entry in reader.items("calibration")),
        aborted=reader.text("aborted")[:400],
        live_requests_per_second=None if live is None else _number(live),
        slowest_start_seconds=reader.number("slowest_start_seconds", above=-1),
    )


def _asked_in(entry: object) -> Asked:
    if not isinstance(entry, list) or len(entry) != 3:
        raise WireError("a calibration is a row of three")
    return Asked(_text(entry[0])[:64], _number(entry[1]), _number(entry[2]))


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise WireError("a name must be a string")
    return value


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 2**53:
        raise WireError("a count must be a whole number from 0")
    return value


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 2**53:
        raise WireError("a time must be a number from 0")
    return float(value)


def _dump(document: Mapping[str, Any]) -> str:
    return json.dumps(document, separators=(",", ":"), allow_nan=False)
