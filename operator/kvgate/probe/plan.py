"""From the nodes of a pool to the schedule of its sweep."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product

from kvgate.api.words import Phase
from kvgate.core.at_once import UNLIMITED, AtOnce
from kvgate.core.evidence import Path
from kvgate.probe.colouring import in_order, rounds_of
from kvgate.probe.limits import within
from kvgate_probe.wire import Pair, Schedule, Step


@dataclass(frozen=True)
class LinkTest:
    """How one path is tested; the line rate (bytes per second) and the pace (bits per second) where known.

    `most_bytes` is what the whole sweep may send, None for no limit; `further` is what each pair is tested for besides.
    """

    duration_seconds: float
    streams: int
    port: int
    tool: str = "iperf3"
    line_rate_bytes_per_second: float | None = None
    paced_bits_per_second: int | None = None
    most_bytes: int | None = None
    further: tuple[Step, ...] = ()


@dataclass(frozen=True)
class SweepPlan:
    """What is measured, in rounds: all paths but those that start and end on one node."""

    schedule: Schedule
    paths: tuple[Path, ...]

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(sorted({node for path in self.paths for node in (path.source, path.destination)}))

    @property
    def seconds(self) -> float:
        """The time that the tests alone take, without start-up and rendezvous."""
        return len(self.schedule.rounds) * self.schedule.round_seconds


def plan_sweep(
    run_id: str, pool_uid: str, prefill: Iterable[str], decode: Iterable[str], test: LinkTest, phase: Phase
) -> SweepPlan:
    """Every prefill → decode path once; the same nodes in any order give the same plan."""
    paths = [Path(a, b) for a, b in product(sorted(set(prefill)), sorted(set(decode)))]
    return plan_paths(run_id, pool_uid, paths, test, phase)


def plan_paths(
    run_id: str, pool_uid: str, paths: Iterable[Path], test: LinkTest, phase: Phase, at_once: AtOnce = UNLIMITED
) -> SweepPlan:
    """Each of these paths once, in as few rounds as the limits allow; their order changes nothing."""
    every = in_order(set(paths))
    rounds = within(rounds_of(every), at_once)
    schedule = Schedule(
        run_id=run_id,
        pool_uid=pool_uid,
        tool=test.tool,
        rounds=tuple(tuple(Pair(path.source, path.destination) for path in in_order(r)) for r in rounds),
        duration_seconds=test.duration_seconds,
        streams=test.streams,
        port=test.port,
        phase=phase.value,
        line_rate_bytes_per_second=test.line_rate_bytes_per_second,
        paced_bits_per_second=test.paced_bits_per_second,
        most_bytes=test.most_bytes,
        further=test.further,
    )
    return SweepPlan(
        schedule=schedule,
        paths=tuple(path for path in every if not path.same_node),
    )
