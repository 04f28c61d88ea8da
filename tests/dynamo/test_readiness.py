"""`GET /v1/models/{model}/ready` as the frontend of Dynamo 1.6.1 answers it, and anything else."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvgate.core.serving import NamespaceReadiness, Readiness, WorkerType
from kvgate.dynamo.readiness import read_readiness, readiness_path

SPLIT = {
    "model": "tiny",
    "ready": True,
    "namespaces": {
        "demo-bbbb": {
            "ready": True,
            "worker_types": {
                "decode": {"workers": 2, "needs": [["prefill"]]},
                "prefill": {"workers": 1, "needs": [["decode"]]},
            },
            "present": ["decode", "prefill"],
            "missing_worker_types": [],
        }
    },
}
LACKS_PREFILL = {
    "model": "tiny",
    "ready": False,
    "reason": "not ready",
    "namespaces": {
        "demo": {
            "ready": False,
            "reason": "missing worker types: prefill",
            "worker_types": {"decode": {"workers": 1, "needs": [["prefill"]]}},
            "present": ["decode"],
            "missing_worker_types": ["prefill"],
        }
    },
}


def test_a_split_names_its_workers_by_type() -> None:
    found = read_readiness(200, json.dumps(SPLIT))
    assert found == Readiness(True, (NamespaceReadiness("demo-bbbb", True, {"decode": 2, "prefill": 1}),))
    assert found.worker_types == {"decode", "prefill"}
    assert (found.count(WorkerType.DECODE), found.count(WorkerType.AGGREGATED)) == (2, 0)


def test_a_503_carries_what_is_missing() -> None:
    found = read_readiness(503, json.dumps(LACKS_PREFILL))
    assert found == Readiness(False, (NamespaceReadiness("demo", False, {"decode": 1}, ("prefill",)),))


NONE = {
    "another status": (404, json.dumps(SPLIT)),
    "no JSON": (200, "ready"),
    "a list": (200, "[]"),
    "no namespaces": (200, '{"ready": true}'),
    "a proxy's page": (503, "<html>"),
}


@pytest.mark.parametrize(("status", "body"), NONE.values(), ids=NONE)
def test_what_is_no_readiness_says_nothing(status: int, body: str) -> None:
    assert read_readiness(status, body) is None


def test_ready_needs_both_the_status_and_the_word() -> None:
    for status, word in ((200, False), (503, True), (200, "true")):
        found = read_readiness(status, json.dumps({**SPLIT, "ready": word}))
        assert found is not None
        assert not found.ready


def test_a_model_with_a_slash_keeps_it_and_nothing_else_leaves_the_path() -> None:
    assert readiness_path("Qwen/Qwen3-0.6B") == "/v1/models/Qwen/Qwen3-0.6B/ready"
    assert readiness_path("a b?c#d\r\n") == "/v1/models/a%20b%3Fc%23d%0D%0A/ready"


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=12,
)


@given(st.sampled_from((200, 503)), st.dictionaries(st.text(max_size=4), anything, max_size=3), anything)
def test_any_document_reads_without_raising(status: int, spaces: object, ready: object) -> None:
    found = read_readiness(status, json.dumps({"ready": ready, "namespaces": spaces}))
    assert found is not None
    assert isinstance(found.worker_types, frozenset)
