"""Latency of a path and of a fabric: medians, the worst under load, and nothing where no tool told."""

from __future__ import annotations

from dataclasses import replace

from kvgate.core.evidence import Sample
from kvgate.core.explain import explain
from kvgate.core.latency import Latency, latency_of
from tests.core import cases
from tests.core.worlds import NOW, Scene

PATH = cases.PATHS[0]
IDLE = cases.sample(PATH, round_trip_seconds=0.0002, loaded_round_trip_seconds=0.004, notes=("of the link",))
ONE_STREAM = replace(IDLE, streams=1, round_trip_seconds=0.0004, loaded_round_trip_seconds=0.001)
READ = cases.endpoint(PATH, round_trip_seconds=0.0003, set_up_seconds=1.5, notes=("of the transport",))


def test_of_several_tests_the_median_of_the_idle_ones_and_the_worst_under_load() -> None:
    assert latency_of((IDLE, ONE_STREAM, READ)) == Latency(round_trip=0.0003, loaded=0.004, set_up=1.5)


def test_nothing_is_told_of_nothing() -> None:
    assert latency_of(()) == latency_of((cases.sample(PATH),)) == Latency()


def test_a_path_is_explained_with_its_latency_and_what_every_test_noted() -> None:
    rest: tuple[Sample, ...] = cases.everywhere(paths=cases.PATHS[1:])
    scene = Scene(evidence=(cases.evidence((IDLE, ONE_STREAM, READ, *rest)),))
    line, silent, *_ = explain(scene.pool, scene.world, NOW).paths
    assert line.latency == Latency(round_trip=0.0003, loaded=0.004, set_up=1.5)
    assert line.notes == ("of the link", "of the transport")
    assert silent.latency == Latency()
