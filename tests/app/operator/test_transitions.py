"""Which changes of a status are told as Events."""

from datetime import UTC, datetime

import pytest

from kvgate.api.status import PoolStatus
from kvgate.api.wire import Condition
from kvgate.api.words import ConditionStatus
from kvgate.app.operator.transitions import transitions

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)


def status(*conditions: tuple[str, str, str]) -> PoolStatus:
    return PoolStatus(
        conditions=tuple(
            Condition(type=type_, status=ConditionStatus(value), reason=reason, message="m", last_transition_time=NOW)
            for type_, value, reason in conditions
        )
    )


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        pytest.param([], [("Ready", "Unknown", "Measuring")], [], id="a new pool that waits tells nothing"),
        pytest.param([], [("TargetResolved", "True", "Resolved")], [("Normal", "Resolved")],
                     id="a new pool tells what is known"),
        pytest.param([], [("RoutingAccepted", "False", "NotGated")], [], id="what is not gated is no news"),
        pytest.param([("Ready", "True", "Enabled")], [("Ready", "True", "Enabled")], [], id="no change, no news"),
        pytest.param([("Ready", "Unknown", "Measuring")], [("Ready", "True", "Holding")], [("Normal", "Holding")],
                     id="another status"),
        pytest.param([("Ready", "True", "Holding")], [("Ready", "True", "Enabled")], [("Normal", "Enabled")],
                     id="another reason alone"),
        pytest.param([("DisaggregationAccepted", "Unknown", "NotMeasured")],
                     [("DisaggregationAccepted", "False", "TTFTBudgetExceeded")], [("Warning", "TTFTBudgetExceeded")],
                     id="criteria that fail are a warning"),
        pytest.param([("Approved", "True", "Valid")], [("Approved", "False", "Missing")], [("Normal", "Missing")],
                     id="waiting for a person is no warning"),
        pytest.param([("DisaggregationEnabled", "True", "Enabled")], [("DisaggregationEnabled", "False", "Off")],
                     [("Normal", "Off")], id="being off is no warning"),
        pytest.param([("RolledBack", "False", "Never")], [("RolledBack", "True", "Disaggregation")],
                     [("Warning", "Disaggregation")], id="a roll-back is a warning"),
        pytest.param([("Drifted", "True", "Overwritten")], [("Drifted", "False", "None")], [("Normal", "None")],
                     id="the end of a drift is none"),
        pytest.param([("Ready", "True", "Enabled")], [("Ready", "False", "EvidenceLost")],
                     [("Warning", "EvidenceLost")], id="not ready is a warning"),
        pytest.param([], [("Stalled", "True", "BadSpec")], [("Warning", "BadSpec")], id="stalled from the start"),
        pytest.param([], [("Reconciling", "True", "Measuring")], [], id="reconciling is said by ready"),
        pytest.param([("Stalled", "True", "BadSpec")], [], [], id="a condition that goes away tells nothing"),
        pytest.param([], [("Drifted", "False", "NoDrift")], [], id="that nothing is wrong is no news of a new pool"),
        pytest.param([], [("Stalled", "True", "TargetNotFound"), ("TargetResolved", "False", "TargetNotFound")],
                     [("Warning", "TargetNotFound")], id="what another condition says too is told once"),
        pytest.param([], [("Ready", "False", "TargetNotFound"), ("Stalled", "True", "BadSpec")],
                     [("Warning", "TargetNotFound"), ("Warning", "BadSpec")], id="what no other says is told"),
        pytest.param([("KVEventsHealthy", "True", "Healthy")], [("KVEventsHealthy", "Unknown", "NoWorkers")],
                     [("Normal", "NoWorkers")], id="what is no longer known is told"),
    ],
)  # fmt: skip
def test_transitions(
    before: list[tuple[str, str, str]], after: list[tuple[str, str, str]], told: list[tuple[str, str]]
) -> None:
    assert [(event.type, event.reason) for event in transitions(status(*before), status(*after))] == told


def test_an_event_names_its_condition_and_fits_an_event() -> None:
    after = status(("Ready", "False", "EvidenceLost"))
    long = after.model_copy(
        update={"conditions": tuple(c.model_copy(update={"message": "é" * 5000}) for c in after.conditions)}
    )
    (event,) = transitions(PoolStatus(), long)

    assert event.message.startswith("Ready is False: é")
    assert len(event.message) == 1024
