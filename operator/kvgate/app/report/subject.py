"""What a report is about: one pool's newest evidence, each of its paths, and what is asked of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from functools import cached_property

from kvgate.api.status import PoolStatus
from kvgate.api.words import Capability
from kvgate.core.estimate import Transfer
from kvgate.core.evidence import Evidence, NodeIdentity, Path
from kvgate.core.findings import Finding
from kvgate.core.judging import Case
from kvgate.core.rates import PathRates, fabric, judged
from kvgate.core.topology import Places, places
from kvgate.core.verdicts import judge
from kvgate.core.world import KVKnown, Pool, World

USUAL_PERCENT = 10.0
"""The percentile of reports whose pool is not given."""
_DIGITS = re.compile(r"(\d+)")


class Reach(StrEnum):
    """What is known of a path. `Failed` is a test that could not look, `SameNode` had no second pod to look from."""

    MEASURED = "Measured"
    UNREACHABLE = "Unreachable"
    FAILED = "Failed"
    UNMEASURED = "Unmeasured"
    SAME_NODE = "SameNode"


@dataclass(frozen=True)
class PathFact:
    """One path: bytes per second per layer, where a number is known, or why there is none."""

    path: Path
    reach: Reach
    bytes_per_second: float | None = None
    link: float | None = None
    endpoint: float | None = None
    failure: str = ""
    message: str = ""
    stratum: str = ""
    measured_at: datetime | None = None


@dataclass(frozen=True)
class Required:
    """A throughput that is asked for, in bytes per second, and by what."""

    by: str
    bytes_per_second: float


@dataclass(frozen=True)
class PoolVerdict:
    """What the pool's spec and status add to the evidence."""

    pool: Pool
    status: PoolStatus
    findings: tuple[tuple[Capability, Finding], ...]
    kv: KVKnown | None


@dataclass(frozen=True)
class Subject:
    """One pool's evidence. `percent` is the judged percentile; `verdict` is None where the pool is not given."""

    name: str
    namespace: str
    evidence: Evidence
    facts: tuple[PathFact, ...]
    places: Places
    percent: float
    judged_bytes_per_second: float | None
    required: tuple[Required, ...] = ()
    verdict: PoolVerdict | None = None
    derating: float = 1.0
    notes: tuple[str, ...] = ()
    labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @cached_property
    def sources(self) -> tuple[str, ...]:
        return self._ordered({fact.path.source for fact in self.facts})

    @cached_property
    def destinations(self) -> tuple[str, ...]:
        return self._ordered({fact.path.destination for fact in self.facts})

    @cached_property
    def by_path(self) -> Mapping[Path, PathFact]:
        return {fact.path: fact for fact in self.facts}

    @cached_property
    def rated(self) -> tuple[tuple[float, Path], ...]:
        """Bytes per second of the measured paths, the slowest first."""
        return tuple(sorted((f.bytes_per_second, f.path) for f in self.facts if f.bytes_per_second is not None))

    def count(self, reach: Reach) -> int:
        return sum(1 for fact in self.facts if fact.reach is reach)

    def _ordered(self, names: Iterable[str]) -> tuple[str, ...]:
        """Nodes of one place beside each other, the widest place first, and in each as people count."""
        return tuple(sorted(names, key=self._standing))

    def _standing(self, name: str) -> tuple[object, ...]:
        own = self.places.labels.get(name, {})
        where = tuple(counted(own.get(key, "")) for key in reversed(self.places.keys))
        return (*where, counted(name))


def counted(word: str) -> tuple[tuple[int, int, str], ...]:
    """Sorts `n10` after `n9`."""
    parts = _DIGITS.split(word)
    return tuple(
        (1, int(part), "") if place % 2 and part.isascii() else (0, 0, part) for place, part in enumerate(parts)
    )


def of_pool(pool: Pool, world: World, status: PoolStatus, now: datetime, notes: tuple[str, ...] = ()) -> Subject | None:
    """The newest evidence with all that still counts beside it; None of a pool without evidence."""
    case = Case(pool, world, world.evidence[0] if world.evidence else None, now)
    if case.standing is None or case.evidence is None:
        return None
    capabilities = [c for c in (Capability.DISAGGREGATION, Capability.KV_STORAGE) if case.block(c) is not None]
    findings = tuple((c, finding) for c in capabilities for finding in judge(case, c).findings)
    return Subject(
        name=pool.name,
        namespace=pool.namespace,
        evidence=case.standing.evidence,
        facts=_facts(case.fabric.paths, case.places),
        places=case.places,
        percent=case.criteria.slowest_percent_of_paths,
        judged_bytes_per_second=case.judged_bytes_per_second,
        required=_required(case),
        verdict=PoolVerdict(pool, status, findings, world.kv if isinstance(world.kv, KVKnown) else None),
        derating=pool.spec.fabric.probe.load_derating.number,
        notes=(*notes, *case.standing.evidence.problems),
        labels=_labels((*case.evidence.nodes, *world.nodes.identities)),
    )


def of_evidence(name: str, namespace: str, evidence: Evidence, notes: tuple[str, ...] = ()) -> Subject:
    """Evidence alone: nothing is asked of it, and nothing judged."""
    where = places(evidence.nodes)
    seen = fabric(evidence, evidence.planned)
    return Subject(
        name=name,
        namespace=namespace,
        evidence=evidence,
        facts=_facts(seen.paths, where),
        places=where,
        percent=USUAL_PERCENT,
        judged_bytes_per_second=judged(seen, USUAL_PERCENT),
        notes=(*notes, *evidence.problems),
        labels=_labels(evidence.nodes),
    )


def _labels(nodes: Iterable[NodeIdentity]) -> Mapping[str, Mapping[str, str]]:
    return {node.name: dict(node.labels) for node in nodes}


def _facts(paths: Iterable[PathRates], where: Places) -> tuple[PathFact, ...]:
    return tuple(_fact(rates, where.stratum(rates.path) if where.labels else "") for rates in paths)


def _fact(rates: PathRates, stratum: str) -> PathFact:
    failure = rates.unreachable or next(iter(rates.failures), None)
    known = rates.bytes_per_second is not None
    return PathFact(
        path=rates.path,
        reach=_reach(rates),
        bytes_per_second=rates.bytes_per_second,
        link=rates.link,
        endpoint=rates.endpoint,
        failure=failure.kind.value if failure and not known else "",
        message=failure.message if failure and not known else "",
        stratum=stratum,
        measured_at=max((sample.measured_at for sample in rates.samples), default=None),
    )


def _reach(rates: PathRates) -> Reach:
    if rates.bytes_per_second is not None:
        return Reach.MEASURED
    if rates.unreachable is not None:
        return Reach.UNREACHABLE
    if rates.failures:
        return Reach.FAILED
    return Reach.SAME_NODE if rates.path.same_node else Reach.UNMEASURED


def _required(case: Case) -> tuple[Required, ...]:
    least, needed = case.criteria.min_throughput, _by_budget(case)
    asked = Required("minThroughput", float(least.bytes_per_second)) if least else None
    return tuple(line for line in (asked, needed) if line)


def _by_budget(case: Case) -> Required | None:
    """bytes / (budget − overhead) / derating of the longest prompt: below it no transfer fits, even without waiting."""
    kv, spec = case.world.kv, case.pool.spec
    room = case.criteria.ttft_budget.seconds - spec.workload.fixed_overhead.seconds
    if not isinstance(kv, KVKnown) or room <= 0 or spec.criteria.disaggregation is None:
        return None
    tokens = max(prompt.tokens for prompt in spec.workload.prompts)
    count = Transfer(kv.size, kv.block_tokens, case.decode_ranks, 1.0).kv_bytes(tokens)
    needed = count / room / spec.fabric.probe.load_derating.number
    return Required(f"ttftBudget at {tokens} tokens", needed) if needed > 0 else None
