"""Which pods are a deployment's, and what each does there."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvgate.core.workers import PodRole, WorkerPod
from kvgate.dynamo.pods import pods_of
from kvgate.dynamo.shape import Target, read_target
from tests.dynamo.workers import Document, pod_document, told


def deployment(**types: str) -> Target:
    """A deployment whose components have these types, by name."""
    parts = [
        {"name": name, "type": kind, "podTemplate": {"spec": {"containers": [{"name": "main", "image": "vllm:1"}]}}}
        for name, kind in types.items()
    ]
    document = {
        "apiVersion": "nvidia.com/v1beta1",
        "kind": "DynamoGraphDeployment",
        "metadata": {"name": "qwen3", "namespace": "serving", "uid": "u"},
        "spec": {"components": parts},
    }
    read = read_target(document)
    assert isinstance(read, Target)
    return read


SPLIT = deployment(Frontend="frontend", VllmDecodeWorker="worker", VllmPrefillWorker="worker")


def found(*pods: Document, read: Target | None = SPLIT, metadata: tuple[Any, ...] = ()) -> tuple[WorkerPod, ...]:
    return pods_of("qwen3", pods, read, metadata)


def test_a_pod_is_read_with_where_it_runs_and_since_when_it_is_ready() -> None:
    assert found(pod_document("d-0")) == (
        WorkerPod(
            pod="d-0",
            uid="uid-d-0",
            component="VllmDecodeWorker",
            role=PodRole.DECODE,
            node="n2",
            address="10.88.2.2",
            ready=True,
            ready_since=datetime(2026, 11, 30, 7, 19, 2, tzinfo=UTC),
            generation="5f2d",
        ),
    )


@pytest.mark.parametrize(
    ("pod", "ours"),
    [
        pytest.param(pod_document("p"), True, id="one with its very name"),
        pytest.param(pod_document("p", deployment="qwen3-8b"), False, id="not one whose name it begins"),
        pytest.param(pod_document("p", deployment="qwen"), False, id="not one whose name begins it"),
        pytest.param(pod_document("p", labels={}), False, id="not one without the label"),
        pytest.param(pod_document("p", phase="Succeeded"), False, id="not one that has ended well"),
        pytest.param(pod_document("p", phase="Failed"), False, id="not one that has failed"),
        pytest.param(pod_document("p", phase="Pending", node="", ready=False), True, id="one that waits for a node"),
    ],
)
def test_a_pod_is_the_deployments(pod: Document, ours: bool) -> None:
    assert bool(found(pod)) is ours


@pytest.mark.parametrize(
    ("component", "kind", "read", "role"),
    [
        pytest.param("VllmPrefillWorker", "worker", SPLIT, PodRole.PREFILL, id="what its component does when split"),
        pytest.param("vllmprefillworker", "worker", SPLIT, PodRole.PREFILL, id="whatever the case of the name"),
        pytest.param("Frontend", "frontend", SPLIT, PodRole.FRONTEND, id="a frontend"),
        pytest.param(
            "A", "prefill", deployment(A="decode", B="prefill"), PodRole.DECODE, id="the spec's word above the label's"
        ),
        pytest.param("A", "worker", deployment(A="worker"), PodRole.WORKER, id="a worker of no said role"),
        pytest.param("Gone", "prefill", SPLIT, PodRole.PREFILL, id="the label's where the component is not known"),
        pytest.param("Gone", "planner", SPLIT, PodRole.OTHER, id="something else"),
        pytest.param("VllmDecodeWorker", "decode", None, PodRole.DECODE, id="the label's without a deployment"),
    ],
)
def test_a_pods_role_is(component: str, kind: str, read: Target | None, role: PodRole) -> None:
    [pod] = found(pod_document("p", component=component, kind=kind), read=read)
    assert pod.role is role


def test_a_pod_that_is_not_ready_has_no_time_since_when() -> None:
    [pod] = found(pod_document("p", ready=False))
    assert (pod.ready, pod.ready_since) == (False, None)


def test_a_pod_that_is_being_deleted_is_leaving() -> None:
    [pod] = found(pod_document("p", deletionTimestamp="2026-11-30T08:00:00Z"))
    assert pod.leaving


@pytest.mark.parametrize(
    ("uid", "instance", "serves_as"),
    [
        pytest.param("uid-d-0", 17, "decode", id="counts for the very pod"),
        pytest.param("uid-of-an-earlier-pod", None, "", id="does not count for an earlier pod of its name"),
    ],
)
def test_what_a_worker_publishes(uid: str, instance: int | None, serves_as: str) -> None:
    [pod] = found(pod_document("d-0"), metadata=(told("d-0", uid=uid, worker_type="decode"),))
    assert (pod.instance, pod.serves_as) == (instance, serves_as)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=4),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["labels", "status", "conditions", "type", "uid", "name"]), inner, max_size=3
            )
        ),
        max_leaves=8,
    ),
    st.sampled_from(["metadata", "spec", "status"]),
)
def test_pods_of_any_shape_are_read_without_raising(value: object, place: str) -> None:
    broken = pod_document("p") | {place: value}
    assert len(found(broken, pod_document("p"), pod_document("p"))) in (2, 3)
