"""What a sweep measures, and how many paths at once: all, what is due, what was measured before, or a sample."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from kvgate.api.status import SweepStatus
from kvgate.api.words import ConditionType, SweepExtent
from kvgate.core.decide import decide
from kvgate.core.evidence import Evidence, NodeIdentity, Path
from kvgate.core.extent import at_once, busy, chosen, jitter, sample_of
from kvgate.core.steps import Measure
from kvgate.core.workers import PodRole
from tests.core import cases
from tests.core.worlds import FAST, NOW, SLOW, Scene, condition, opened, sweep, told

REBOOTED = cases.nodes(identities=cases.identities(d2=NodeIdentity("d2", "uid-d2", "another-boot", "6.18")))
OF_D2 = (Path("p1", "d2"), Path("p2", "d2"))
ASKED = "2026-11-30T12:00:00Z"


def measure(scene: Scene, **world: object) -> Measure | None:
    decision = decide(scene.pool, replace(scene.world, **world), scene.now)  # type: ignore[arg-type]
    return next((step for step in decision.steps if isinstance(step, Measure)), None)


def due(scene: Scene) -> tuple[Path, ...]:
    step = measure(scene)
    assert step is not None
    assert step.in_use == len(cases.PATHS)
    return step.paths


def partial(run: str, hours_ago: float, paths: tuple[Path, ...]) -> Evidence:
    ended = NOW - timedelta(hours=hours_ago)
    samples = cases.everywhere(FAST, paths=paths, run_id=run, measured_at=ended)
    return cases.evidence(samples, run_id=run, measured_at=ended, planned=paths)


# --- incremental --------------------------------------------------------------------------------------------------


def test_a_node_that_rebooted_costs_the_paths_that_it_touches_alone() -> None:
    assert due(Scene(nodes=REBOOTED)) == OF_D2


def test_once_they_are_measured_again_the_older_sweep_still_tells_of_the_others() -> None:
    fixed = partial("run-2", 0.1, OF_D2)
    fixed = replace(fixed, nodes=REBOOTED.identities)
    scene = Scene(nodes=REBOOTED, evidence=(fixed, *Scene().evidence))
    assert measure(scene) is None
    assert told(scene.decide().status, ConditionType.FABRIC_MEASURED) == ("True", "Measured")


def test_a_node_that_joined_costs_its_own_paths_alone() -> None:
    nodes = cases.nodes(decode=("d1", "d2", "d3"))
    step = measure(Scene(nodes=nodes))
    assert step is not None
    assert step.paths == (Path("p1", "d3"), Path("p2", "d3"))


def test_the_interval_counts_from_the_oldest_number_and_takes_along_what_is_due_soon() -> None:
    rest = tuple(path for path in cases.PATHS if path not in OF_D2)
    young, middle = (partial("run-2", hours, OF_D2) for hours in (10, 13))
    old = partial("run-1", 24.3, rest)
    assert due(Scene(evidence=(young, old))) == rest
    assert due(Scene(evidence=(middle, old))) == cases.PATHS
    assert measure(Scene(evidence=(young, partial("run-1", 23, rest)))) is None


def test_a_path_whose_last_test_failed_goes_along_with_the_next_sweep() -> None:
    silent = replace(sweep(FAST, "run-2", NOW - timedelta(hours=1)), samples=cases.everywhere(FAST, cases.PATHS[1:]))
    scene = Scene(evidence=(replace(silent, run_id=cases.RUN),), nodes=REBOOTED)
    assert set(due(scene)) == {cases.PATHS[0], *OF_D2}


def test_paths_that_no_sweep_that_counts_covers_wait_for_no_interval() -> None:
    """Each node is in some path of the newest sweep, and the older one was measured by another image."""
    crossing = (Path("p1", "d1"), Path("p1", "d2"), Path("p2", "d1"))
    newest = replace(partial("run-2", 1, crossing), image="probe@sha256:new")
    older = replace(partial("run-1", 2, cases.PATHS), image="probe@sha256:old")
    assert due(Scene(evidence=(newest, older))) == (Path("p2", "d2"),)
    assert measure(Scene(evidence=(newest, replace(older, image="")))) is None


def test_what_a_person_asks_for_measures_every_path() -> None:
    assert due(Scene(nodes=REBOOTED, asked=ASKED)) == cases.PATHS


def test_the_second_sweep_after_a_fail_measures_what_the_first_one_did() -> None:
    failing = opened().measured(SLOW)
    newest, *older = failing.evidence
    of_d2 = tuple(sample for sample in newest.samples if sample.path in OF_D2)
    step = measure(failing.but(evidence=(replace(newest, planned=OF_D2, samples=of_d2), *older)))
    assert step is not None
    assert step.extent is SweepExtent.AGAIN
    assert set(OF_D2) <= set(step.paths) < {*cases.PATHS, *(Path(p.destination, p.source) for p in cases.PATHS)}


def test_a_sweep_that_is_made_in_several_turns_keeps_its_paths() -> None:
    scene = Scene(nodes=REBOOTED)
    first = measure(scene)
    later = scene.after(seconds=30)
    assert later.status.sweep is not None
    again = measure(later)
    assert first is not None
    assert again is not None
    assert (again.run_id, again.paths, again.extent) == (first.run_id, OF_D2, SweepExtent.DUE)


# --- samples ------------------------------------------------------------------------------------------------------

WIDE = cases.nodes(prefill=tuple(f"p{n}" for n in range(8)), decode=tuple(f"d{n}" for n in range(8)), identities=())


def wide(most: int = 20, **changes: object) -> Scene:
    return Scene(nodes=WIDE, evidence=()).asking(fabric__schedule__maxPaths=most, **changes)


def test_beyond_max_paths_a_sample_covers_every_node_in_both_directions() -> None:
    step = measure(wide())
    assert step is not None
    assert len(step.paths) == 20
    assert step.in_use == len({*WIDE.paths, *step.paths}) > 64, "what was not in use takes no place of what was"
    names = {*WIDE.prefill, *WIDE.decode}
    assert {path.source for path in step.paths} == {path.destination for path in step.paths} == names


def test_samples_take_turns_by_the_number_of_the_sweep_and_are_the_same_for_the_same_one() -> None:
    scene = wide()
    one, same, other = (chosen(scene.case, SweepExtent.DUE, number, NOW) for number in (0, 0, 1))
    assert one == same
    assert set(one) != set(other)


def test_successive_sweeps_leave_out_what_has_a_number() -> None:
    scene, seen = wide(20, fabric__evidenceTTL="400h"), set[Path]()
    for number in range(5):
        step = measure(scene)
        assert step is not None
        used = [path for path in step.paths if path in set(WIDE.paths)]
        seen |= set(used)
        samples = cases.everywhere(FAST, step.paths, run_id=step.run_id, measured_at=scene.now)
        measured = cases.evidence(samples, run_id=step.run_id, planned=step.paths, measured_at=scene.now, nodes=())
        status = scene.after(seconds=0).status.model_copy(update={"sweep": None})
        assert status.sweeps == number + 1
        scene = scene.but(evidence=(measured, *scene.evidence), status=status).later(hours=24.2)
    assert seen == set(WIDE.paths)


def test_the_verdict_and_the_status_say_what_a_sample_left_out() -> None:
    paths = chosen(wide().case, SweepExtent.DUE, 0, NOW)
    samples = cases.everywhere(FAST, paths)
    scene = wide().but(evidence=(cases.evidence(samples, planned=paths, nodes=()),))
    status = scene.decide().status
    message = condition(status, ConditionType.FABRIC_MEASURED).message
    used = len(set(paths) & set(WIDE.paths))
    assert "a sample of 64 paths in use, for schedule.maxPaths is 20" in message
    assert f"{64 - used} have no evidence now, and 52 never have" in message
    assert status.fabric is not None
    assert status.fabric.sample is not None
    found = status.fabric.sample
    assert (found.paths_in_use, found.covered, found.never_covered) == (64, used, 52)


def test_where_evidence_lives_for_enough_sweeps_none_is_left_out_for_ever() -> None:
    long = wide(20, fabric__evidenceTTL="200h")
    found = sample_of(long.case)
    assert found is not None
    assert found.never == 0
    assert "sweeps take turns until all have" in found.told
    assert sample_of(wide(64).case) is None


def test_once_all_have_a_number_the_oldest_are_measured_again() -> None:
    paths = WIDE.paths
    old, young = (partial(f"run-{n}", hours, part) for n, hours, part in ((1, 60, paths[:30]), (2, 30, paths[30:])))
    scene = wide(20, fabric__evidenceTTL="400h").but(evidence=(replace(young, nodes=()), replace(old, nodes=())))
    step = measure(scene)
    assert step is not None
    assert len(step.paths) == 20
    assert set(step.paths) <= set(paths[:30])


def test_paths_of_worker_pods_come_first() -> None:
    pods = (*cases.pods(PodRole.PREFILL, "p3"), *cases.pods(PodRole.DECODE, "d6"))
    step = measure(wide().but(workers=pods))
    assert step is not None
    assert step.paths[0] == Path("p3", "d6")


def test_a_node_stands_for_the_worker_of_its_own_role_also_where_a_path_is_tested_the_other_way_round() -> None:
    step = measure(wide(30))
    assert step is not None
    backwards = [path for path in step.paths if path.source.startswith("d")]
    assert backwards
    assert not any(step.stands_for_prefill(path.source) for path in backwards)
    assert all(step.stands_for_prefill(path.destination) for path in backwards)


# --- when ---------------------------------------------------------------------------------------------------------


def test_the_jitter_is_the_same_at_each_look_and_another_for_each_sweep_and_pool() -> None:
    scene = Scene().asking(fabric__schedule__jitter="10m")
    later = scene.but(status=scene.status.model_copy(update={"sweeps": 1}))
    one, same, other = jitter(scene.case), jitter(scene.later(hours=1).case), jitter(later.case)
    assert one == same != other
    for number in range(50):
        case = scene.but(status=scene.status.model_copy(update={"sweeps": number})).case
        assert timedelta(0) <= jitter(case) <= timedelta(minutes=10)


def test_a_scheduled_sweep_waits_for_its_jitter() -> None:
    scene = Scene().asking(fabric__schedule__jitter="10m")
    ripe = timedelta(hours=23) + jitter(scene.case)
    assert measure(scene.but(now=NOW + ripe - timedelta(seconds=1))) is None
    assert measure(scene.but(now=NOW + ripe)) is not None
    assert measure(scene.asking(fabric__schedule__jitter="0s").later(hours=23)) is not None


CLOSED = {"changeWindows": [{"schedule": "0 2 * * *", "duration": "1h"}], "fabric__schedule__onlyInChangeWindows": True}


def test_a_scheduled_sweep_waits_for_a_change_window_where_the_pool_says_so() -> None:
    scene = Scene(evidence=()).asking(**CLOSED)
    decision = scene.decide()
    assert not any(isinstance(step, Measure) for step in decision.steps)
    assert told(decision.status, ConditionType.FABRIC_MEASURED) == ("Unknown", "WaitingForWindow")
    assert told(decision.status, ConditionType.READY) == ("Unknown", "WaitingForWindow")
    assert "opens, at 2026-12-01T02:00:00Z" in condition(decision.status, ConditionType.FABRIC_MEASURED).message
    assert measure(scene.later(hours=14.5)) is not None
    assert measure(scene.but(asked=ASKED)) is not None
    assert measure(Scene(evidence=()).asking(changeWindows=CLOSED["changeWindows"])) is not None


# --- how many at once ---------------------------------------------------------------------------------------------


def test_limits_are_handed_to_the_sweep() -> None:
    rack = "example.com/rack"
    racked = tuple(replace(node, labels=((rack, node.name[1:]),)) for node in cases.identities())
    limits = {"fabric__schedule__maxConcurrentPaths": 3, "fabric__schedule__perPlace": [{"key": rack, "maxPaths": 2}]}
    step = measure(Scene(evidence=(), nodes=cases.nodes(identities=racked)).asking(**limits))
    assert step is not None
    assert step.at_once.paths == 3
    assert [limit.most for limit in step.at_once.places] == [2]
    assert step.at_once.places[0].places == {"p1": "1", "p2": "2", "d1": "1", "d2": "2"}


@pytest.mark.parametrize(
    ("observed", "most"),
    [
        pytest.param(0.11, 2, id="serving above the share of its peak leaves room for few paths"),
        pytest.param(0.09, 8, id="serving below it leaves the pool's own limit"),
        pytest.param(None, 8, id="where no rate is known nothing is known to be busy"),
    ],
)
def test_courtesy_while_serving_is_busy(observed: float | None, most: int) -> None:
    courtesy = {"above": "50%", "maxConcurrentPaths": 2}
    scene = Scene().asking(fabric__schedule__whileBusy=courtesy, fabric__schedule__maxConcurrentPaths=8)
    case = replace(scene.case, world=replace(scene.world, observed_requests_per_second=observed))
    assert at_once(case).paths == most
    assert busy(case) is (most == 2)
    assert not busy(replace(case, pool=Scene().pool))


def test_the_memory_of_a_sweep_holds_its_number_and_extent() -> None:
    status = Scene(evidence=()).decide().status
    assert status.sweep is not None
    assert (status.sweep.number, status.sweep.extent, status.sweeps) == (0, SweepExtent.DUE, 1)
    old = SweepStatus.model_validate({"runID": "r", "startedAt": NOW, "reason": "x"})
    assert (old.number, old.extent) == (0, SweepExtent.ALL)


def test_where_max_paths_lets_no_sweep_reach_every_node_the_next_one_waits_for_its_time() -> None:
    """Else sweeps would follow one another without end, and each would leave nodes out."""
    few = (Path("p0", "d0"), Path("p1", "d1"), Path("p2", "d2"))
    samples = cases.everywhere(FAST, paths=few, measured_at=NOW - timedelta(hours=1))
    seen = cases.evidence(samples, measured_at=NOW - timedelta(hours=1), planned=few)
    scene = wide(3).but(evidence=(seen,))
    assert measure(scene) is None
    assert measure(wide(8).but(evidence=(seen,))) is not None
    later = measure(scene.later(hours=25))
    assert later is not None
    assert {path.source for path in later.paths}.isdisjoint({"p0", "p1", "p2"})
