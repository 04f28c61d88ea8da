"""From the nodes of a pool to the schedule of its sweep."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from kvgate.api.words import LinkTool, Phase
from kvgate.core.at_once import UNLIMITED, AtOnce
from kvgate.core.evidence import Path
from kvgate.core.steps import Measure
from kvgate.probe.colouring import Rounds, in_order, rounds_of
from kvgate.probe.limits import within
from kvgate_probe.seats import companion_of
from kvgate_probe.wire import Pair, Schedule, Step

MOST_ROUNDS_ALONE = 16
"""Rounds of the phase Isolated in a sweep of both phases."""
PACED_TOOL = LinkTool.IPERF3
SHORT_SECONDS = 1.0
"""The shortest test that is believed."""


@dataclass(frozen=True)
class LinkTest:
    """How one path is tested; the line rate (bytes per second) and the pace (bits per second) where known.

    `most_bytes` is what the whole sweep may send, None for no limit; `further` is what each pair is tested for besides.
    """

    duration_seconds: float
    streams: int
    port: int
    tool: str = LinkTool.IPERF3.value
    line_rate_bytes_per_second: float | None = None
    paced_bits_per_second: int | None = None
    most_bytes: int | None = None
    further: tuple[Step, ...] = ()


@dataclass(frozen=True)
class SweepPlan:
    """What is measured, in rounds: a path from a node to itself between the node's walker and its companion."""

    schedule: Schedule
    paths: tuple[Path, ...]

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(sorted({node for path in self.paths for node in (path.source, path.destination)}))

    @property
    def seconds(self) -> float:
        """The time that the tests alone take, without start-up and rendezvous."""
        return len(self.schedule.rounds) * self.schedule.round_seconds


def plan_paths(
    run_id: str, pool_uid: str, paths: Iterable[Path], test: LinkTest, phase: Phase, at_once: AtOnce = UNLIMITED
) -> SweepPlan:
    """Each of these paths once, in as few rounds as the limits allow; their order changes nothing. Rounds wait for
    each other where something says what may run at once."""
    every = in_order(set(paths))
    rounds = within(rounds_of(every), at_once)
    schedule = _schedule(run_id, pool_uid, rounds, test, phase)
    ordered = at_once != UNLIMITED or phase is Phase.CONCURRENT
    return SweepPlan(replace(schedule, in_order=ordered), tuple(every))


def plan_phases(step: Measure, pool_uid: str, test: LinkTest, phases: Collection[Phase]) -> SweepPlan:
    """The sweep that the step means, in the phases that are asked for.

    Of both: all paths at once, as many as the limits allow, in the rounds at the end; and before them a sample alone,
    which is all of them where MOST_ROUNDS_ALONE suffice for that, and another one in each sweep otherwise.
    """
    test = test if step.pace_bytes_per_second is None else _gentle(test, step.pace_bytes_per_second)
    if len(set(phases)) == 1:
        return plan_paths(step.run_id, pool_uid, step.paths, test, next(iter(phases)), step.at_once)
    every = in_order(set(step.paths))
    beside = within(rounds_of(every), step.at_once)
    alone = _alone(beside, step)
    schedule = _schedule(step.run_id, pool_uid, (*alone, *beside), test, Phase.ISOLATED)
    both = replace(schedule, in_order=True, beside=(Phase.CONCURRENT.value, len(beside)))
    return SweepPlan(both, tuple(every))


def _gentle(test: LinkTest, bytes_per_second: float) -> LinkTest:
    """The test beside serving: iperf3 sends what is asked for and no more; the other tools know no pace, and are short.
    A pace that the test has already is kept where it is slower."""
    paces = (round(8 * bytes_per_second), test.paced_bits_per_second)
    further = (step if step.tool == PACED_TOOL else _short(step) for step in test.further)
    return replace(test, paced_bits_per_second=min(pace for pace in paces if pace), further=tuple(further))


def _short(step: Step) -> Step:
    return replace(step, seconds=min(step.seconds, SHORT_SECONDS), unpaced=True)


def _alone(beside: Rounds, step: Measure) -> Rounds:
    """Whole rounds of the other phase, for only a path that was measured alone too says who shares what; of a round
    that is too large a part. Those that hold what failed come first."""
    turn = step.number % max(1, len(beside))
    turned = sorted((*beside[turn:], *beside[:turn]), key=step.apart.first.isdisjoint)
    chosen: tuple[Path, ...] = ()
    for paths in turned:
        wanted = (*chosen, *sorted(paths, key=lambda path: path not in step.apart.first))
        if len(within((wanted,), step.apart.at_once)) > MOST_ROUNDS_ALONE:
            chosen = chosen or wanted
            break
        chosen = wanted
    return within((chosen,), step.apart.at_once)[:MOST_ROUNDS_ALONE]


def _pair(path: Path) -> Pair:
    return Pair(path.source, companion_of(path.source) if path.same_node else path.destination)


def _schedule(run_id: str, pool_uid: str, rounds: Rounds, test: LinkTest, phase: Phase) -> Schedule:
    return Schedule(
        run_id=run_id,
        pool_uid=pool_uid,
        tool=test.tool,
        rounds=tuple(tuple(map(_pair, in_order(r))) for r in rounds),
        duration_seconds=test.duration_seconds,
        streams=test.streams,
        port=test.port,
        phase=phase.value,
        line_rate_bytes_per_second=test.line_rate_bytes_per_second,
        paced_bits_per_second=test.paced_bits_per_second,
        most_bytes=test.most_bytes,
        further=test.further,
    )
