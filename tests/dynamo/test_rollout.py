"""The deployment's own status as a rollout, in either version of the API, and of any content."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvgate.core.serving import ComponentRollout, Rollout
from kvgate.dynamo.rollout import read_rollout
from kvgate.dynamo.shape import read_target

BETA = {
    "apiVersion": "nvidia.com/v1beta1",
    "kind": "DynamoGraphDeployment",
    "metadata": {"name": "qwen3", "namespace": "serving", "generation": 7},
    "spec": {
        "components": [{"name": "Frontend", "type": "frontend"}, {"name": "Decode", "type": "decode", "replicas": 2}]
    },
    "status": {
        "observedGeneration": 7,
        "rollingUpdate": {"phase": "InProgress"},
        "conditions": [{"type": "Ready", "status": "False", "reason": "rolling_update_in_progress"}],
        "components": {
            "Frontend": {"replicas": 1, "updatedReplicas": 1, "readyReplicas": 1},
            "Decode": {"replicas": 3, "updatedReplicas": 1, "readyReplicas": 2},
        },
    },
}


def test_a_v1beta1_status_is_read_whole() -> None:
    assert read_rollout(BETA, read_target(BETA)) == Rollout(
        7,
        7,
        "InProgress",
        ready=False,
        components=(ComponentRollout("Decode", 2, 3, 1, 2), ComponentRollout("Frontend", 1, 1, 1, 1)),
    )


def test_a_v1alpha1_status_has_services() -> None:
    alpha = {
        "apiVersion": "nvidia.com/v1alpha1",
        "kind": "DynamoGraphDeployment",
        "metadata": {"name": "qwen3", "generation": 2},
        "spec": {"services": {"Frontend": {"componentType": "frontend", "replicas": 1}}},
        "status": {
            "observedGeneration": 2,
            "services": {"Frontend": {"replicas": 1, "updatedReplicas": 1, "availableReplicas": 1}},
        },
    }
    found = read_rollout(alpha, read_target(alpha))
    assert (found.observed, found.components) == (True, (ComponentRollout("Frontend", 1, 1, 1, 1),))
    assert found.components[0].complete


ODD: dict[str, tuple[object, Rollout]] = {
    "no status, as where no Dynamo operator runs": ({**BETA, "status": None}, Rollout(7)),
    "a phase that is none": (
        {**BETA, "status": {"rollingUpdate": {"phase": "<b>"}}},
        Rollout(7),
    ),
    "no object at all": (None, Rollout(0)),
}


@pytest.mark.parametrize(("document", "rollout"), ODD.values(), ids=ODD)
def test_what_is_not_told_is_not_known(document: object, rollout: Rollout) -> None:
    assert read_rollout(document, None) == rollout


def test_a_component_that_the_status_lacks_is_not_rolled_out() -> None:
    half = {**BETA, "status": {**BETA["status"], "components": {"Frontend": {"replicas": 1}}}}  # type: ignore[dict-item]
    decode = read_rollout(half, read_target(BETA)).components[0]
    assert (decode.name, decode.complete) == ("Decode", False)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=12,
)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "observedGeneration": anything,
            "rollingUpdate": anything,
            "conditions": anything,
            "components": anything,
            "services": anything,
        },
    )
)
def test_any_status_reads_without_raising(status: object) -> None:
    found = read_rollout({**BETA, "status": status}, read_target(BETA))
    assert all(isinstance(component.complete, bool) for component in found.components)
