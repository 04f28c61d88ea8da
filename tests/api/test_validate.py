"""What is said offline about documents, good and bad, and that nothing makes the judge stumble."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvgate.api.complaints import Complaint
from kvgate.api.objects import (
    BenchmarkReport,
    FabricReport,
    GateApproval,
    InferencePool,
    read_approval,
    read_benchmark,
    read_pool,
    read_report,
)
from kvgate.api.validate import is_ours, validate
from tests.api.cases import ACCEPTED, REFUSED, Accepted, Refused
from tests.api.documents import Document, approval, benchmark, full_pool, pool, shard
from tests.api.near_misses import near_misses


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.sentence)
def test_a_bad_document_is_refused_with_the_rule_s_own_words(case: Refused) -> None:
    complaints = validate(case.document, case.old)
    assert any(c.path == case.path and case.says in c.message for c in complaints), complaints


@pytest.mark.parametrize("case", ACCEPTED, ids=lambda case: case.sentence)
def test_a_good_document_has_no_complaint(case: Accepted) -> None:
    assert validate(case.document, case.old) == ()


def test_a_bad_document_gets_one_complaint_for_one_fault() -> None:
    said_more_than_once = {
        case.sentence: [str(c) for c in found]
        for case in REFUSED
        if len(found := validate(case.document, case.old)) > 1 and not case.sentence.startswith(SEVERAL_FAULTS)
    }
    assert said_more_than_once == {}


SEVERAL_FAULTS = ("an empty spec", "a spec of the other InferencePool", "a shard holds")


@pytest.mark.parametrize(
    ("document", "path", "says"),
    [
        pytest.param([], "", "must be one object with apiVersion, kind, metadata and spec, but is a list", id="a list"),
        pytest.param(None, "", "but is empty", id="nothing"),
        pytest.param("pool", "", "but is a str", id="a text"),
        pytest.param(3, "", "but is a int", id="a number"),
        pytest.param({}, "apiVersion", "must be kvgate.dev/v1alpha1", id="an empty object"),
        pytest.param(pool() | {"kind": "Pool"}, "kind", "must be one of InferencePool", id="an unknown kind"),
        pytest.param(pool() | {"kind": ["InferencePool"]}, "kind", "must be one of", id="a kind that is a list"),
        pytest.param(
            pool() | {"apiVersion": "inference.networking.k8s.io/v1"},
            "apiVersion",
            "the InferencePool of inference.networking.k8s.io is another kind",
            id="the other InferencePool",
        ),
        pytest.param(pool() | {"metadata": None}, "metadata", "Required value", id="no metadata"),
        pytest.param(pool() | {"metadata": {}}, "metadata.name", "Required value", id="no name"),
        pytest.param(pool() | {"metadata": {"name": "a/b"}}, "metadata.name", "should match", id="a name with a slash"),
        pytest.param(
            pool() | {"metadata": {"name": "a", "annotations": {"note": "x" * 262_144}}},
            "metadata.annotations",
            "may not be more than 262144 bytes; they have 262148",
            id="annotations beyond 256 KiB",
        ),
    ],
)
def test_what_is_no_object_of_ours_is_refused_in_one_line(document: Any, path: str, says: str) -> None:
    (complaint,) = validate(document)
    assert complaint.path == path
    assert says in complaint.message


@pytest.mark.parametrize(
    ("field", "hint"),
    [
        ("targetref", "did you mean spec.targetRef?"),
        ("fabrics", "did you mean spec.fabric?"),
        ("minThroughput", "did you mean spec.criteria.disaggregation.minThroughput?"),
    ],
)
def test_an_unknown_field_comes_with_a_hint(field: str, hint: str) -> None:
    (complaint,) = validate(pool(**{field: "x"}))
    assert complaint.message == f'unknown field "spec.{field}"; {hint}'


def test_an_odd_field_name_is_not_echoed() -> None:
    (complaint,) = validate(pool(**{"\x1b[31m" + "x" * 200: 1}))
    assert complaint.message == 'unknown field "spec.<a field name of 205 characters>"'


def test_the_door_drops_unknown_fields_as_the_server_does() -> None:
    found = read_pool(pool(foo=1))
    assert isinstance(found, InferencePool)
    assert found.spec.target_ref.name == "qwen3"


def test_metadata_is_read_and_what_is_more_is_tolerated() -> None:
    metadata = {
        "name": "qwen3",
        "namespace": "serving",
        "uid": "u1",
        "generation": 3,
        "resourceVersion": "17",
        "creationTimestamp": "2026-11-30T08:00:00Z",
        "deletionTimestamp": "2026-11-30T09:00:00Z",
        "annotations": {"kvgate.dev/measure-requested-at": "now"},
        "managedFields": [{"manager": "kubectl"}],
        "selfLink": None,
    }
    found = read_pool(pool() | {"metadata": metadata})
    assert isinstance(found, InferencePool)
    assert (found.metadata.namespace, found.metadata.generation, found.metadata.resource_version) == (
        "serving",
        3,
        "17",
    )
    assert found.metadata.deletion_timestamp is not None
    assert found.metadata.annotations == {"kvgate.dev/measure-requested-at": "now"}


def test_a_pool_without_status_is_not_current() -> None:
    found = read_pool(pool())
    assert isinstance(found, InferencePool)
    assert found.status.observed_generation == -1


def _swept(run_id: str) -> Document:
    """A sweep that could never be looked for: its run's ID fits neither a label nor a name."""
    return {"sweep": {"runID": run_id, "startedAt": "2026-11-30T12:00:00Z", "reason": "by hand"}}


@pytest.mark.parametrize(
    ("status", "path", "says"),
    [
        (_swept("Dance"), "status.sweep.runID", "should match"),
        (_swept("a,b in (c"), "status.sweep.runID", "should match"),
        (_swept("r" * 64), "status.sweep.runID", "Too long"),
        ({"permitted": ["Everything"]}, "status.permitted[0]", "supported values"),
        ({"capabilities": [{"name": "Routing"}] * 2}, "status.capabilities", "Duplicate value"),
        ({"conditions": [{"type": "Ready"}]}, "status.conditions[0].status", "Required value"),
    ],
)
def test_a_status_that_is_none_is_refused(status: Document, path: str, says: str) -> None:
    found = read_pool(pool() | {"status": status})
    assert isinstance(found, tuple)
    assert any(c.path == path and says in c.message for c in found), found


def test_each_kind_has_its_reader() -> None:
    assert isinstance(read_report(shard()), FabricReport)
    assert isinstance(read_benchmark(benchmark()), BenchmarkReport)
    assert isinstance(read_approval(approval()), GateApproval)
    assert read_report(approval()) == (Complaint("kind", "must be FabricReport"),)


def test_only_our_group_is_ours() -> None:
    assert is_ours(pool() | {"apiVersion": "kvgate.dev/v9"})
    assert not is_ours({"apiVersion": "apps/v1", "kind": "Deployment"})
    assert not is_ours([pool()])


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
JSON_LIKE = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4), max_leaves=12
)


@given(JSON_LIKE | near_misses(), near_misses() | JSON_LIKE)
@settings(max_examples=150, deadline=None)
def test_no_document_makes_the_judge_or_a_reader_stumble(document: Any, old: Any) -> None:
    validate(document)
    validate(document, old)
    for read in (read_pool, read_report, read_benchmark, read_approval):
        read(document)


@given(near_misses())
@settings(max_examples=150, deadline=None)
def test_what_is_accepted_can_be_read(document: Any) -> None:
    if validate(document) == ():
        readers = {
            "InferencePool": read_pool,
            "FabricReport": read_report,
            "BenchmarkReport": read_benchmark,
            "GateApproval": read_approval,
        }
        assert not isinstance(readers[document["kind"]](document), tuple)


def test_a_pool_that_is_read_says_the_same_when_written() -> None:
    found = read_pool(full_pool())
    assert isinstance(found, InferencePool)
    again = read_pool(found.model_dump(mode="json", by_alias=True, exclude_none=True))
    assert again == found
