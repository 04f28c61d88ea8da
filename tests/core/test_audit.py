"""What is put on record of a decision: one record for each that is news, and all that an auditor asks of it."""

from __future__ import annotations

import json
import logging
from datetime import timedelta

import pytest

from kvgate.app.operator.auditing import audited
from kvgate.app.operator.logs import JSONLines
from kvgate.app.ring import Turn
from kvgate.core.steps import Decided
from kvgate.core.target import Switch
from tests.core.worlds import FAST, SLOW, SPLIT, Scene, closed, entry, opened, proposed


def told(scene: Scene) -> Decided | None:
    found = scene.decide().audit
    assert len(found) <= 1
    return next(iter(found), None)


def test_a_first_verdict_is_put_on_record_and_the_same_again_is_not() -> None:
    first = told(Scene())
    assert first is not None
    assert (first.outcome, first.held_by, first.approval, first.patch) == ("Pass", "Approval", "Missing", ())
    assert told(proposed()) is None
    assert told(proposed().later(hours=1)) is None


def test_a_switch_is_put_on_record_with_its_patch_before_it_is_written_and_once() -> None:
    meant = proposed().approved()
    found = told(meant)
    assert found is not None
    assert found.actor == "kvgate, approved by ann"
    assert found.patch == (
        "VllmDecodeWorker/DYN_DISAGGREGATION_MODE=decode",
        "VllmPrefillWorker/DYN_DISAGGREGATION_MODE=prefill",
    )
    assert found.operation
    assert "gateApproval approval-1" in found.inputs
    again = told(meant.after())
    assert again is None or not again.patch or again.operation != found.operation


def test_a_rollback_is_put_on_record_as_kvgates_own() -> None:
    failing = opened().measured(SLOW).later(minutes=1).measured(SLOW)
    found = told(failing)
    assert found is not None
    assert (found.outcome, found.decisive) == ("Fail", "TTFTBudgetExceeded")
    assert found.patch == (
        "VllmDecodeWorker/DYN_DISAGGREGATION_MODE removed",
        "VllmPrefillWorker/DYN_DISAGGREGATION_MODE removed",
    )
    assert found.findings[0].endswith("Fail TTFTBudgetExceeded")


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        pytest.param(proposed().asking(criteria__disaggregation__ttftBudget="3s"), "spec", id="another spec"),
        pytest.param(proposed().switched(Switch.OFF, projection="{}"), "target", id="another deployment"),
        pytest.param(proposed().later(hours=1).measured(FAST), "fabricReport", id="another sweep"),
    ],
)
def test_the_digest_of_what_changed_is_another_one(changed: Scene, name: str) -> None:
    def value(scene: Scene) -> str:
        found = told(scene.but(status=scene.status.model_copy(update={"capabilities": ()})))
        assert found is not None
        return dict(word.split(" ", 1) for word in found.inputs)[name]

    assert value(changed) != value(proposed())


def test_the_history_keeps_the_same_of_what_was_done() -> None:
    reverted, enabled = closed().status.history
    assert enabled.actor == "kvgate, approved by ann"
    assert enabled.patch == (
        "VllmDecodeWorker/DYN_DISAGGREGATION_MODE=decode",
        "VllmPrefillWorker/DYN_DISAGGREGATION_MODE=prefill",
    )
    assert "ttftBudget Pass TTFTWithinBudget" in enabled.findings
    assert reverted.actor == "kvgate"
    assert reverted.patch[0] == "VllmDecodeWorker/DYN_DISAGGREGATION_MODE removed"
    assert entry(closed().status, SPLIT).enabled is False


def test_a_line_of_the_log_is_one_json_object_with_all_of_it(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="kvgate")
    meant = proposed().approved()
    audited(Turn(meant.pool, meant.world, meant.decide(), meant.now))
    seen = meant.after().switched(Switch.ON).later(seconds=timedelta(seconds=1).total_seconds())
    audited(Turn(seen.pool, seen.world, seen.decide(), seen.now))
    lines = [json.loads(JSONLines().format(record)) for record in caplog.records]
    assert lines[0]["message"] == "decided"
    assert lines[0]["pool"] == "serving/qwen3"
    assert lines[0]["patch"][0] == "VllmDecodeWorker/DYN_DISAGGREGATION_MODE=decode"
    (done,) = [line for line in lines if line["message"] == "done"]
    assert (done["action"], done["reason"], done["capability"]) == ("Enabled", "CriteriaMet", "Disaggregation")
    assert done["findings"]
