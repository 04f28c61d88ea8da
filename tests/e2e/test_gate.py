"""The main job, in a real cluster: a link is measured, a person approves, one field is patched and patched back."""

from __future__ import annotations

import re

import pytest

from kvgate.api.status import PoolStatus
from kvgate.api.words import ApprovalState, Outcome
from kvgate.dynamo.owners import read_owners
from tests.cluster.waiting import eventually
from tests.e2e.documents import MODE, values, without_modes
from tests.e2e.stage import (
    AS_BEFORE,
    SPLIT,
    SWEEP_SECONDS,
    Scene,
    Stage,
    condition,
    is_false,
    is_split,
    is_true,
    ready,
    split_of,
    waits_for_approval,
)

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

PAYLOAD_SHARE = 1448 / 1514
PREFILL_MODE, DECODE_MODE = ("PrefillWorker", MODE), ("DecodeWorker", MODE)


def judged_megabits_per_second(status: PoolStatus) -> float:
    assert status.fabric is not None
    assert status.fabric.link is not None
    assert status.fabric.link.judged_bytes_per_second is not None
    return status.fabric.link.judged_bytes_per_second * 8 / 1e6


def asks_anew(status: PoolStatus, approved: str) -> bool:
    """Whether another plan than the approved one waits for a person."""
    split = split_of(status)
    return split.outcome is Outcome.INCONCLUSIVE and split.plan_hash != approved and not status.permitted


def test_a_manifest_that_names_the_mode_is_told_to_drop_it_and_one_patch_follows(scene: Scene) -> None:
    """On any cluster: one that is too fast for a link's number alone is approved as well."""
    scene.deploy(names_mode=True)
    before = scene.deployment()
    scene.gate("600s", requests_per_second="0.001")
    seen = scene.wait_for("a plan to approve", waits_for_approval)
    scene.approve(seen, "ReducedCapacity", "EndpointUnmeasured")
    seen = scene.wait_for("held", lambda status: ready(status) == ("True", "HoldingForConflict"))
    assert "the manifest of team names the gated field: drop that line" in condition(seen.status, "Ready").message
    assert scene.deployment() == before

    scene.deploy()
    seen = scene.wait_for("split", is_split)
    after = scene.deployment()
    assert scene.modes() == SPLIT
    assert without_modes(after) == without_modes(before)
    assert after["metadata"]["generation"] == before["metadata"]["generation"] + len(("the team's change", "ours"))
    assert condition(seen.status, "DisaggregationEnabled").reason == "AwaitingVerification"


def test_a_link_that_is_too_slow_holds_the_gate_and_says_by_how_much(shaped: Stage, scene: Scene) -> None:
    shaped.shape("1000mbit")
    before = scene.deployment()
    scene.gate("200ms")
    seen = scene.wait_for("refused", is_false("DisaggregationAccepted"))

    refused, estimate = condition(seen.status, "DisaggregationAccepted"), seen.status.estimates[0]
    assert refused.reason == "TTFTBudgetExceeded"
    told = re.search(r"would add ([0-9.]+) s", refused.message)
    assert told is not None, refused.message
    assert float(told[1]) == pytest.approx(estimate.added_ttft_milliseconds / 1000, abs=0.011)
    assert "ttftBudget is 200ms" in refused.message
    assert ready(seen.status) == ("True", "HoldingForCriteria")
    assert judged_megabits_per_second(seen.status) == pytest.approx(1000 * PAYLOAD_SHARE, rel=0.05)
    assert scene.deployment() == before
    eventually(lambda: not scene.jobs())


def test_an_approved_plan_is_patched_once_and_patched_back_when_the_link_goes_bad(shaped: Stage, scene: Scene) -> None:
    shaped.shape("2500mbit")
    scene.gate("2s")
    seen = scene.wait_for("a plan to approve", waits_for_approval)
    before = scene.deployment()
    missing = condition(seen.status, "Approved")
    assert (missing.status.value, missing.reason) == ("False", "ApprovalMissing")
    assert split_of(seen.status).plan_hash in missing.message
    assert ready(seen.status) == ("True", "HoldingForCriteria")
    assert judged_megabits_per_second(seen.status) > 2000
    assert scene.modes() == AS_BEFORE

    mark = scene.stage.mark()
    scene.approve(seen, "ReducedCapacity")
    seen = scene.wait_for("split", is_split)
    after = scene.deployment()
    assert scene.modes() == SPLIT
    assert values(after) == values(before) | {PREFILL_MODE: "prefill", DECODE_MODE: "decode"}
    assert without_modes(after) == without_modes(before)
    held = {(owner.component, owner.env) for owner in read_owners(after["metadata"]) if owner.manager == "kvgate-split"}
    assert held == {PREFILL_MODE, DECODE_MODE}
    assert scene.patches(mark) == 1
    assert ready(seen.status) == ("Unknown", "Progressing")
    assert split_of(seen.status).approval.state is ApprovalState.VALID

    approved = split_of(seen.status).plan_hash
    shaped.shape("100mbit")
    mark = scene.stage.mark()
    scene.ask_to_measure("first")
    scene.wait_for("the first sweep asked for", lambda status: status.last_handled_measure_at == "first")
    scene.ask_to_measure("second")
    seen = scene.wait_for("rolled back", is_true("RolledBack"), 2 * SWEEP_SECONDS)
    assert seen.status.last_handled_measure_at == "second"
    assert ready(seen.status) == ("True", "RolledBack")
    assert [entry.action for entry in seen.status.history] == ["Reverted", "Enabled"]
    assert values(scene.deployment()) == values(before)
    assert without_modes(scene.deployment()) == without_modes(before)
    assert scene.patches(mark) == 1

    shaped.shape("2500mbit")
    scene.ask_to_measure("third")
    seen = scene.wait_for("a new plan to approve", lambda status: asks_anew(status, approved))
    assert condition(seen.status, "Approved").status.value == "False"
    assert split_of(seen.status).plan_hash in condition(seen.status, "Approved").message
    assert values(scene.deployment()) == values(before)
    assert scene.patches(mark) == 1
