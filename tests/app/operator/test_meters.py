"""What a scrape gets: the series of pools as they were last seen, counts of what happened, as the page says."""

from __future__ import annotations

import shutil
import subprocess
from datetime import datetime

import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from kvgate.api.status import PoolStatus
from kvgate.api.words import Capability
from kvgate.app.operator.grounds import GuardedGround
from kvgate.app.operator.meters import Meters
from kvgate.app.operator.pool_series import POOL, SERIES
from kvgate.core.steps import Enable, Revert
from kvgate.core.world import Pool
from kvgate.edge.errors import EdgeError
from tests.app.operator.memory_ground import MemoryGround, pool
from tests.app.operator.test_workers import KEY, Bench
from tests.core.test_kstatus import ROWS, Change
from tests.core.worlds import FAST, NOW, SLOW, Scene, closed, opened, proposed
from tests.docs import pages

SPLIT = Capability.DISAGGREGATION
Points = list[tuple[tuple[str, ...], float]]


def read(found: Meters) -> dict[str, Metric]:
    return {family.name: family for family in text_string_to_metric_families(found.page().decode())}


def points(found: Meters, name: str) -> Points:
    """The samples of a name: the values of its labels beyond those of the pool, in the order of their names."""
    return [
        (tuple(sample.labels[label] for label in sorted(sample.labels) if label not in POOL), sample.value)
        for family in read(found).values()
        for sample in family.samples
        if sample.name == name
    ]


def watched(status: PoolStatus, at: datetime = NOW) -> Meters:
    made = Meters(lambda: at)
    made.seen(pool(KEY), status)
    return made


def test_every_condition_has_one_series_with_its_status_and_reason() -> None:
    status = proposed().after().status
    found = points(watched(status), "kvgate_pool_condition")

    assert sorted(labels for labels, value in found if value == 1.0) == sorted(
        (said.reason, said.status.value, said.type) for said in status.conditions
    )


WHAT_IS_SEEN: dict[str, tuple[Scene, str, Points]] = {
    "the judged throughput": (
        Scene().measured(FAST), "kvgate_fabric_judged_bytes_per_second", [(("link", "iperf3"), float(FAST))],
    ),
    "the worst": (Scene().measured(SLOW), "kvgate_fabric_worst_bytes_per_second", [(("link", "iperf3"), float(SLOW))]),
    "that a capability is off": (proposed(), "kvgate_capability_enabled", [(("Disaggregation",), 0.0)]),
    "that a capability is on": (opened(), "kvgate_capability_enabled", [(("Disaggregation",), 1.0)]),
    "who holds it": (proposed(), "kvgate_capability_held", [(("Approval", "Disaggregation"), 1.0)]),
    "nobody who holds it": (opened(), "kvgate_capability_held", []),
    "what the criteria come to": (
        Scene().measured(SLOW), "kvgate_capability_outcome", [(("Disaggregation", "Fail"), 1.0)],
    ),
    "no evidence, and not evidence of age 0": (Scene().but(evidence=()), "kvgate_fabric_evidence_age_seconds", []),
    "that a sweep is wanted of a new pool": (Scene().but(evidence=()), "kvgate_sweep_running", [((), 1.0)]),
    "no switch where none was made": (proposed(), "kvgate_capability_switched_on_timestamp_seconds", []),
}  # fmt: skip


@pytest.mark.parametrize(("scene", "name", "expected"), WHAT_IS_SEEN.values(), ids=WHAT_IS_SEEN)
def test_it_is_seen(scene: Scene, name: str, expected: Points) -> None:
    assert points(watched(scene.after().status), name) == expected


def test_the_age_of_evidence_is_that_of_the_scrape() -> None:
    status = proposed().after().status
    assert status.fabric is not None
    assert status.fabric.measured_at is not None
    found = points(watched(status, status.fabric.measured_at.replace(year=2027)), "kvgate_fabric_evidence_age_seconds")

    assert found == [((), 365 * 86400.0)]


def test_a_switch_and_a_hold_have_their_times() -> None:
    status = opened().status
    on = points(watched(status), "kvgate_capability_switched_on_timestamp_seconds")
    off = points(watched(proposed().after().status), "kvgate_capability_held_since_timestamp_seconds")

    assert on == [(("Disaggregation",), status.history[0].time.timestamp())]
    assert [labels for labels, _ in off] == [("Disaggregation",)]


def test_the_estimate_stands_beside_its_budget_for_each_prompt_size() -> None:
    found = watched(proposed().after().status)
    added, budget = (points(found, f"kvgate_estimate_{name}_seconds") for name in ("added_ttft", "ttft_budget"))

    assert added
    assert [labels for labels, _ in added] == [labels for labels, _ in budget]
    assert {value for _, value in budget} == {2.0}


@pytest.mark.parametrize("change", [row[0] for row in ROWS.values()], ids=ROWS)
def test_no_state_has_a_series_twice(change: Change) -> None:
    status = change(Scene()).decide().status
    seen = [
        (sample.name, *sorted(sample.labels.items()))
        for family in read(watched(status)).values()
        for sample in family.samples
    ]

    assert len(set(seen)) == len(seen)


def act(made: Meters, scene: Scene) -> Pool:
    """A pool as it is before, and the status of the turn written."""
    before = Pool(**{**vars(pool(KEY)), "status": scene.status})
    made.seen(before, scene.decide().status)
    return before


def test_a_rollback_is_counted_once_and_its_counter_begins_at_0() -> None:
    made = Meters(lambda: NOW)
    act(made, opened())
    began = points(made, "kvgate_rollbacks_total")
    back = closed(opened())
    made.seen(Pool(**{**vars(pool(KEY)), "status": opened().status}), back.status)
    act(made, back)

    assert began == [(("Disaggregation",), 0.0)]
    assert points(made, "kvgate_rollbacks_total") == [(("Disaggregation",), 1.0)]


def test_patches_are_counted_where_they_were_made_and_not_where_they_failed() -> None:
    made = Meters(lambda: NOW)
    ground = MemoryGround({KEY: pool(KEY)})
    guarded = GuardedGround(ground, lambda: None, made)
    seen, world = guarded.observe(KEY)
    guarded.carry_out(seen, world, Enable(SPLIT, (), "op"))

    def refuse(call: str, key: str) -> None:
        raise EdgeError("refused")

    ground.before = refuse
    with pytest.raises(EdgeError):
        guarded.carry_out(seen, world, Revert(SPLIT, (), "op", "why"))

    assert points(made, "kvgate_patches_total") == [(("Enable", "Disaggregation"), 1.0)]


def test_turns_are_counted_and_timed_and_failures_in_a_row_are_told() -> None:
    made = Meters(lambda: NOW)
    bench = Bench(meters=made)

    def fail(call: str, key: str) -> None:
        if call == "write_status":
            raise EdgeError("the API server gave no answer")

    bench.ground.before = fail
    for _ in range(3):
        bench.turn()
        bench.seconds += 100
    failing = points(made, "kvgate_pool_failing_turns")
    bench.ground.before = lambda _call, _key: None
    bench.turn()

    assert failing == [((), 3.0)]
    assert points(made, "kvgate_pool_failing_turns") == [((), 0.0)]
    assert sorted(points(made, "kvgate_turns_total")) == [(("done",), 1.0), (("failed",), 3.0)]
    assert points(made, "kvgate_turn_duration_seconds_count") == [((), 4.0)]


def test_the_series_of_a_pool_that_is_gone_vanish_with_it() -> None:
    made = Meters(lambda: NOW)
    bench = Bench(meters=made)
    bench.turn()
    made.step_taken(bench.ground.pools[KEY], Enable(SPLIT, (), "op"))
    before = made.page().decode().count('pool="qwen3"')
    bench.seconds += 100
    del bench.ground.pools[KEY]
    bench.turn()

    assert before > 40
    assert 'pool="' not in made.page().decode()


def test_a_standby_says_nothing_of_pools() -> None:
    made = watched(proposed().after().status)
    leading = points(made, "kvgate_leading")
    made.leads = lambda: False

    assert leading == [((), 1.0)]
    assert points(made, "kvgate_leading") == [((), 0.0)]
    assert "kvgate_pool_condition{" not in made.page().decode()


def full() -> Meters:
    """Whatever a page can hold."""
    made = watched(opened().status)
    scene = Scene().measured(SLOW).after()
    made.seen(pool("serving/other"), scene.status)
    made.step_taken(pool(KEY), Enable(SPLIT, (), "op"))
    made.turned(KEY, 0.1)
    made.called("GET", "pods", 200, 0.01)
    made.called("GET", "pods", 0, 5.0)
    return made


def test_the_page_of_metrics_names_each_with_its_type_and_labels() -> None:
    found = read(full())
    rows = {row.word: row for row in pages.rows(pages.page("metrics.md"), "metric")}
    ours = {
        f"{family.name}_total" if family.type == "counter" else family.name: family
        for family in found.values()
        if family.name.startswith("kvgate_")
    }
    told = {
        name: (family.type, {label for sample in family.samples for label in sample.labels} - {"le", *POOL})
        for name, family in ours.items()
        if family.samples
    }

    assert set(rows) == set(ours)
    assert {
        name: (row.cells[1], {word.strip("` ") for word in row.cells[2].split(",")} - {""})
        for name, row in rows.items()
        if name in told
    } == told


def test_each_series_declares_the_labels_that_its_points_have() -> None:
    declared = {series.name: set(series.labels) for series in SERIES}
    rows = {row.word.removesuffix("_total"): row for row in pages.rows(pages.page("metrics.md"), "metric")}

    assert {name: {word.strip("` ") for word in rows[name].cells[2].split(",")} - {""} for name in declared} == declared


@pytest.mark.local
def test_promtool_finds_nothing_to_say_of_the_page() -> None:
    promtool = shutil.which("promtool")
    assert promtool, "promtool comes with Debian's package prometheus"
    checked = subprocess.run([promtool, "check", "metrics"], input=full().page(), capture_output=True, check=False)

    assert (checked.returncode, checked.stdout + checked.stderr) == (0, b"")
