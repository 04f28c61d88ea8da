"""The ring on a directory: what is written, when, and that nothing is written twice."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.app.yard import FAST, SLOW, Yard, condition, edit, opened, sample, times, yard


def test_a_slow_path_holds_and_the_deployment_stays_byte_for_byte(tmp_path: Path) -> None:
    held = yard(tmp_path, SLOW)
    status = held.status()
    assert status.capabilities[0].outcome == "Fail"
    assert condition(status, "DisaggregationAccepted") == ("False", "TTFTBudgetExceeded")
    assert held.deployment() == sample("deployment.yaml")


def test_a_fast_path_waits_for_a_person(tmp_path: Path) -> None:
    waiting = yard(tmp_path, FAST)
    split = waiting.split()
    assert (split.enabled, split.held_by, split.approval.state) == (False, "Criteria", "Missing")
    assert split.plan_hash.startswith("v1:sha256:")
    assert waiting.deployment() == sample("deployment.yaml")


def test_an_approved_path_changes_two_values_and_no_comment(tmp_path: Path) -> None:
    deployment = opened(tmp_path).deployment()
    before, after = sample("deployment.yaml").splitlines(), deployment.splitlines()
    changed = [(old.strip(), new.strip()) for old, new in zip(before, after, strict=True) if old != new]
    assert changed == [("value: agg", "value: decode"), ("value: agg", "value: prefill")]
    assert deployment.count("#") == sample("deployment.yaml").count("#")


def test_a_second_run_writes_nothing_patches_nothing_and_measures_nothing(tmp_path: Path) -> None:
    made = opened(tmp_path)
    made.settle()
    before, sweeps = times(tmp_path), made.sweeps.count
    turns, ground = made.settle()
    assert (len(turns), ground.done, made.sweeps.count) == (1, [], sweeps)
    assert times(tmp_path) == before


def test_a_request_to_measure_is_met_once(tmp_path: Path) -> None:
    made = yard(tmp_path, SLOW)
    made.settle()
    made.sweeps.clock.wait(seconds=10)
    made.ask_to_measure("2030-01-01T00:00:00Z")
    assert made.status().last_handled_measure_at == "2030-01-01T00:00:00Z"
    made.settle()
    assert made.sweeps.count == 2


def test_one_bad_sweep_is_confirmed_by_a_second_one_and_then_the_deployment_is_as_it_was(tmp_path: Path) -> None:
    made = opened(tmp_path)
    approved = made.split().plan_hash
    made.sweeps.bytes_per_second = 12e6
    made.sweeps.clock.wait(minutes=5)
    made.ask_to_measure("again")
    status = made.status()
    assert made.sweeps.count == 3
    assert made.deployment() == sample("deployment.yaml")
    assert condition(status, "RolledBack") == ("True", "Disaggregation")
    assert [entry.action for entry in status.history] == ["Reverted", "Enabled"]
    assert status.capabilities[0].epoch == 1
    made.sweeps.bytes_per_second = FAST
    made.sweeps.clock.wait(hours=2)
    made.ask_to_measure("and again")
    split = made.split()
    assert (split.enabled, split.approval.state) == (False, "PlanChanged")
    assert split.plan_hash != approved
    assert made.deployment() == sample("deployment.yaml")


def test_at_most_the_kept_sweeps_stay_and_shards_of_a_sweep_that_never_ended_go(tmp_path: Path) -> None:
    made = yard(tmp_path, SLOW)
    made.settle()
    reports = tmp_path / ".kvgate" / "reports"
    shard = next(reports.glob("*-0.yaml"))
    orphan = reports / "serving.qwen3-00000000ff-0.yaml"
    orphan.write_text(shard.read_text().replace(shard.stem.split(".")[1], "qwen3-00000000ff-0"))
    for number in range(3):
        made.sweeps.clock.wait(minutes=1)
        made.ask_to_measure(f"request {number}")
        made.settle()
    assert not orphan.exists()
    assert len(list(reports.iterdir())) == 4


def test_a_status_in_a_manifest_is_no_memory(tmp_path: Path) -> None:
    made = yard(tmp_path, FAST)
    edit(tmp_path / "pool.yaml", {"status": {"permitted": ["Disaggregation"], "observedGeneration": 7}})
    status = made.status()
    assert (status.permitted, status.observed_generation) == ((), 1)


def test_a_switch_thrown_by_hand_is_never_patched_back(tmp_path: Path) -> None:
    made = yard(tmp_path, SLOW)
    text = sample("deployment.yaml").replace("value: agg", "value: decode", 1).replace("value: agg", "value: prefill")
    (tmp_path / "deployment.yaml").write_text(text)
    assert condition(made.status(), "Ready") == ("False", "EnabledOutsideGate")
    assert made.deployment() == text


def test_recommend_writes_the_patch_beside_and_leaves_the_deployment(tmp_path: Path) -> None:
    made = yard(tmp_path, FAST)
    edit(tmp_path / "pool.yaml", {"spec|mode": "Recommend"})
    made.settle()
    before = times(tmp_path)
    _, ground = made.settle()
    assert (tmp_path / ".kvgate" / "recommendations" / "serving.qwen3.disaggregation.yaml").exists()
    assert made.deployment() == sample("deployment.yaml")
    assert (ground.done, times(tmp_path)) == ([], before)


def test_a_recommendation_that_stands_keeps_no_turn_going(tmp_path: Path) -> None:
    made = yard(tmp_path, FAST)
    edit(tmp_path / "pool.yaml", {"spec|mode": "Recommend"})
    made.settle()
    turns, _ = made.settle()
    assert len(turns) == 1


def _slow(made: Yard) -> None:
    made.sweeps.bytes_per_second = SLOW


def _fast(made: Yard) -> None:
    made.sweeps.bytes_per_second = FAST


def _ask(made: Yard) -> None:
    made.ask_to_measure(made.sweeps.clock().isoformat())


def _approve(made: Yard) -> None:
    if made.split().plan_hash:
        made.approve()


def _withdraw(made: Yard) -> None:
    (made.folder / "approval.yaml").unlink(missing_ok=True)


def _reset_by_hand(made: Yard) -> None:
    (made.folder / "deployment.yaml").write_text(sample("deployment.yaml"))


def _lose_the_deployment(made: Yard) -> None:
    (made.folder / "deployment.yaml").unlink(missing_ok=True)


def _suspend(made: Yard) -> None:
    edit(made.folder / "pool.yaml", {"spec|suspend": True})


def _resume(made: Yard) -> None:
    edit(made.folder / "pool.yaml", {"spec|suspend": False})


def _turn(made: Yard) -> None:
    made.settle()


ACTS = (
    _slow, _fast, _ask, _approve, _withdraw, _reset_by_hand, _lose_the_deployment, _suspend, _resume, _turn,
)  # fmt: skip


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.sampled_from(ACTS), max_size=6))
def test_whatever_happened_before_an_idle_run_writes_nothing(acts: list[Callable[[Yard], None]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        made = yard(Path(folder), FAST)
        for act in acts:
            act(made)
            made.sweeps.clock.wait(seconds=61)
        made.settle()
        before, sweeps = times(made.folder), made.sweeps.count
        turns, ground = made.settle()
        assert not turns[-1].decision.patches
        assert (ground.done, made.sweeps.count) == ([], sweeps)
        assert times(made.folder) == before
