"""What a sweep measures: all paths, those whose evidence is due, or those of the sweep before; and how many at once."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime, timedelta

from kvgate.api.words import SweepExtent
from kvgate.core import text
from kvgate.core.at_once import AtOnce, PlaceLimit
from kvgate.core.evidence import Path
from kvgate.core.judging import Case
from kvgate.core.sampling import Sampling, sampled

OWN_SHARE = 8
"""One part in this many of a sample is for paths from a node to itself, and one path at least."""


def measurable(case: Case) -> tuple[Path, ...]:
    """The paths that a sweep may measure now: none of a node to itself where no second walker can stand there, none
    while the pool rests.

    A million where a thousand nodes face a thousand: for a sweep that is due, and not for a look."""
    if _rests(case):
        return ()
    return case.world.nodes.testable


def how_many(case: Case) -> int:
    """Of the paths that a sweep may measure now."""
    return 0 if _rests(case) else in_use(case)


def in_use(case: Case) -> int:
    nodes = case.world.nodes
    return len(nodes.prefill) * len(nodes.decode) - (len(nodes.shared) if nodes.unpaired else 0)


def uses(case: Case, path: Path) -> bool:
    """Whether it is one of the paths that a sweep may measure now."""
    nodes = case.world.nodes
    between = path.source in nodes.sides[0] and path.destination in nodes.sides[1]
    return between and not (path.same_node and nodes.unpaired) and not _rests(case)


def _rests(case: Case) -> bool:
    return bool(case.pool.spec.suspend or case.pool.deleted or case.world.claimed_by)


def too_few(case: Case) -> bool:
    """Whether maxPaths lets no sweep reach every node: the next ones reach the others, each at its time."""
    nodes = case.world.nodes
    return case.pool.spec.fabric.schedule.max_paths < max(len(nodes.prefill), len(nodes.decode))


def chosen(case: Case, extent: SweepExtent, number: int, since: datetime) -> tuple[Path, ...]:
    """The paths of the pool's sweep of that number, which began at `since`: the same in each turn while the evidence
    and the nodes are the same.

    First those without a number that counts, a sample of them where they are too many; then, the oldest first, those
    whose number is half an interval old, for what is due soon goes along.
    """
    paths, most = measurable(case), case.pool.spec.fabric.schedule.max_paths
    if extent is SweepExtent.AGAIN and (again := _again(case, paths)):
        return again[:most]
    measured = {} if extent is SweepExtent.ALL else _measured(case)
    missing = tuple(path for path in paths if path not in measured)
    if len(missing) > most:
        nodes, first = case.world.nodes, tuple(path for path in missing if path in case.weights)
        seen, own = frozenset(measured), _own(case, missing, max(min(1, most - 1), most // OWN_SHARE))
        rest = most - len(own)
        ask = Sampling(nodes.prefill, nodes.decode, rest, case.pool.uid, number, case.places, seen, first)
        return (*sampled(ask), *own)
    half = case.pool.spec.fabric.schedule.interval.delta / 2
    ages = sorted((measured[path], path) for path in paths if path in measured and since - measured[path] >= half)
    due = frozenset((*missing, *(path for _, path in ages[: most - len(missing)])))
    return tuple(path for path in paths if path in due) or paths[:most]


def _own(case: Case, missing: tuple[Path, ...], most: int) -> tuple[Path, ...]:
    """Of the paths that leave no node as many as a sample has room for: first those that worker pods use."""
    own = (path for path in missing if path.same_node)
    return tuple(sorted(own, key=lambda path: path not in case.weights)[:most])


def _again(case: Case, paths: tuple[Path, ...]) -> tuple[Path, ...]:
    """What the last sweep measured, and what would tell its suspects apart."""
    newest = case.world.evidence[0] if case.world.evidence else None
    if newest is None or newest.pool_uid != case.pool.uid:
        return ()
    usable, ends = frozenset(paths), {end for path in paths for end in (path.source, path.destination)}
    further = (path for path in case.further_tests if {path.source, path.destination} <= ends)
    return tuple(dict.fromkeys((*(path for path in newest.planned if path in usable), *further)))


def _measured(case: Case) -> dict[Path, datetime]:
    """When each path that has a number which counts now was measured."""
    if case.standing is None or case.from_the_future:
        return {}
    return {s.path: s.measured_at for s in case.standing.evidence.samples if s.bytes_per_second is not None}


def jitter(case: Case) -> timedelta:
    """The delay of the pool's next scheduled sweep, from 0 to fabric.schedule.jitter: the same at each look."""
    seed = f"{case.pool.uid}/{case.pool.status.sweeps}"
    share: float = int.from_bytes(hashlib.sha256(seed.encode()).digest()[:8], "big") / 2**64
    whole: timedelta = case.pool.spec.fabric.schedule.jitter.delta
    return timedelta(seconds=round(share * whole.total_seconds()))


def at_once(case: Case) -> AtOnce:
    """The limits that the spec sets, with the courtesy to serving while it is known to be busy."""
    schedule = case.pool.spec.fabric.schedule
    limits = [schedule.max_concurrent_paths]
    if schedule.while_busy is not None and busy(case):
        limits.append(schedule.while_busy.max_concurrent_paths)
    most = min((limit for limit in limits if limit is not None), default=None)
    labels = {node.name: dict(node.labels) for node in case.world.nodes.identities}
    places = tuple(
        PlaceLimit(limit.max_paths, {name: own[limit.key] for name, own in labels.items() if own.get(limit.key)})
        for limit in schedule.per_place
    )
    return AtOnce(most, places)


def busy(case: Case) -> bool:
    """Whether serving is known to be above fabric.schedule.whileBusy.above of the peak that the pool states."""
    limit, peak = case.pool.spec.fabric.schedule.while_busy, case.pool.spec.workload.peak_requests_per_second
    observed = case.world.observed_requests_per_second
    if limit is None or peak is None or observed is None:
        return False
    return observed > limit.above.fraction * peak.number


@dataclass(frozen=True)
class Sampled:
    """What a sample leaves out: of the paths in use, how many the evidence covers now, and how many it never can."""

    in_use: int
    covered: int
    at_a_time: int
    """How many can have evidence at a time: of as many sweeps as begin before that of the first expires."""
    uncovered: tuple[str, ...] = ()
    """Nodes that are in no path of the evidence on a side on which they may be used."""

    @property
    def never(self) -> int:
        return max(self.in_use - self.at_a_time, 0)

    @property
    def told(self) -> str:
        left = self.in_use - self.covered
        nodes = f" (and node {text.listed(self.uncovered)} is in none)" if self.uncovered else ""
        what = f"{left} have no evidence now{nodes}"
        if not self.never:
            return f"{what}, and sweeps take turns until all have"
        remedy = "a larger maxPaths, a shorter interval or a longer evidenceTTL covers more"
        return f"{what}, and {self.never} never have before that of others expires: {remedy}"


def sample_of(case: Case) -> Sampled | None:
    """None where a sweep measures every path in use."""
    nodes, schedule = case.world.nodes, case.pool.spec.fabric.schedule
    paths = in_use(case)
    if paths <= schedule.max_paths:
        return None
    prefill, decode = frozenset(nodes.prefill), frozenset(nodes.decode)
    planned = case.standing.evidence.planned if case.standing else ()
    covered = [p for p in planned if p.source in prefill and p.destination in decode]
    between = [path for path in covered if not path.same_node]
    away = (prefill - {path.source for path in between}) | (decode - {path.destination for path in between})
    rounds = max(1, int(_seconds_alive(case) // _seconds_between(case)))
    turned = max(len(prefill - decode), len(decode - prefill))
    room = 2 * max(len(prefill), len(decode)) <= schedule.max_paths
    each = schedule.max_paths - (turned if room else 0)
    return Sampled(paths, len(covered), rounds * each, tuple(sorted(away)))


def _seconds_alive(case: Case) -> float:
    fabric = case.pool.spec.fabric
    return float(fabric.evidence_ttl.seconds - fabric.schedule.sweep_timeout.seconds)


def _seconds_between(case: Case) -> float:
    schedule = case.pool.spec.fabric.schedule
    least = case.world.least_sweep_interval.total_seconds()
    return float(max(schedule.interval.seconds + schedule.jitter.seconds, least, 1.0))
