"""A sweep that could not look at what failed before: it confirms nothing and clears nothing, and is soon followed by
another one; and evidence dated ahead of the clock."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from kvgate.api.words import Outcome
from kvgate.core.evidence import Evidence, FailureKind, Path, Sample
from kvgate.core.steps import Measure, Revert
from tests.core import cases
from tests.core.worlds import FAST, SLOW, Scene, opened

FIRST, *REST = cases.PATHS


def sweep(scene: Scene, run: str, **rates: float | FailureKind) -> Scene:
    """The next sweep, over all four paths: FAST but for those named, as `p1d1`, which carry less or fail."""
    now = scene.later(minutes=1)
    told = {Path(name[:2], name[2:]): rate for name, rate in rates.items()}

    def one(path: Path) -> Sample:
        rate = told.get(path, FAST)
        if isinstance(rate, FailureKind):
            return cases.failed(path, rate, run_id=run, measured_at=now.now)
        return cases.sample(path, rate, run_id=run, measured_at=now.now)

    found = cases.evidence(map(one, cases.PATHS), run_id=run, measured_at=now.now)
    return now.but(evidence=(found, *now.evidence))


def steps(scene: Scene) -> list[str]:
    return [type(step).__name__ for step in scene.decide().steps if isinstance(step, Measure | Revert)]


LENIENT = {"criteria__disaggregation__minCoverage": "50%"}
TIMEOUT, DEAD = FailureKind.CONNECT_TIMEOUT, FailureKind.NO_ROUTE


@pytest.fixture
def failed() -> Scene:
    return sweep(opened(Scene().asking(**LENIENT)), "second", p1d1=SLOW)


def test_a_path_that_fails_twice_closes(failed: Scene) -> None:
    assert steps(failed) == ["Measure"]
    assert steps(sweep(failed, "third", p1d1=SLOW)) == ["Revert"]


def test_a_fabric_that_is_slow_everywhere_closes_though_another_path_is_the_slowest() -> None:
    everywhere = {"p1d1": SLOW, "p1d2": SLOW + 1, "p2d1": SLOW + 2, "p2d2": SLOW + 3}
    turned = {"p1d1": SLOW + 3, "p1d2": SLOW + 2, "p2d1": SLOW + 1, "p2d2": SLOW}
    first = sweep(opened(Scene().asking(**LENIENT)), "second", **everywhere)
    assert steps(sweep(first, "third", **turned)) == ["Revert"]


def test_a_second_sweep_that_could_not_look_clears_nothing_and_is_followed_by_another_one(failed: Scene) -> None:
    blind = sweep(failed, "third", p1d1=TIMEOUT)
    (entry,) = blind.decide().status.capabilities
    assert (entry.outcome, steps(blind)) == (Outcome.INCONCLUSIVE, ["Measure"])
    (step,) = (step for step in blind.decide().steps if isinstance(step, Measure))
    assert step.reason == "the last sweep could not look at 1 path that failed before"
    assert FIRST in step.paths
    again = sweep(blind, "fourth", p1d1=TIMEOUT)
    assert (again.decide().status.capabilities[0].outcome, steps(again)) == (Outcome.INCONCLUSIVE, [])


def test_another_path_that_fails_for_the_first_time_confirms_nothing(failed: Scene) -> None:
    assert steps(sweep(failed, "third", p1d1=TIMEOUT, p2d2=SLOW)) == ["Measure"]
    assert steps(sweep(failed, "third", p1d1=TIMEOUT, p2d2=DEAD)) == ["Measure"]


def test_what_is_measured_and_fine_again_is_cleared(failed: Scene) -> None:
    assert steps(sweep(failed, "third")) == []
    assert sweep(failed, "third").decide().status.capabilities[0].outcome is Outcome.PASS


def test_a_path_that_never_failed_may_go_unmeasured_within_min_coverage() -> None:
    scene = sweep(opened(Scene().asking(**LENIENT)), "second", p1d1=TIMEOUT)
    assert (scene.decide().status.capabilities[0].outcome, steps(scene)) == (Outcome.PASS, [])


def ahead(scene: Scene, minutes: float) -> Evidence:
    return replace(scene.evidence[0], run_id="ahead", measured_at=scene.now + timedelta(minutes=minutes))


def test_a_status_written_of_evidence_ahead_of_the_clock_does_not_hold_up_what_was_measured_since() -> None:
    scene = opened(Scene())
    skewed = scene.but(evidence=(ahead(scene, 7), *scene.evidence))
    assert steps(skewed) == ["Measure"]
    after = skewed.after().later(minutes=1)
    assert after.status.sweep is not None
    measured = sweep(after.but(evidence=scene.evidence), after.status.sweep.run_id)
    assert (measured.decide().status.capabilities[0].outcome, steps(measured)) == (Outcome.PASS, [])
