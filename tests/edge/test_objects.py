"""Documents become objects: what kubectl and people write, with what an API server would have added."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from kvgate.api.selectors import LabelSelector
from kvgate.core.vetoes import vetoes
from kvgate.edge.files import read_directory, read_sources
from kvgate.edge.nodes import NodeView, read_node, selected
from kvgate.edge.objects import Objects, completed, sorted_by_kind
from tests.app.yard import sample

POOL = yaml.safe_load(sample("pool.yaml"))
APPROVAL = {
    "apiVersion": "kvgate.dev/v1alpha1",
    "kind": "GateApproval",
    "metadata": {"name": "split", "namespace": "serving"},
    "spec": {
        "poolRef": {"name": "qwen3", "uid": "u"},
        "capability": "Disaggregation",
        "planHash": "v1:sha256:" + "0" * 64,
        "approver": "someone",
        "expiresAt": "2027-01-31T00:00:00Z",
    },
}


def objects(folder: Path, *documents: Any, text: str = "") -> Objects:
    (folder / "all.yaml").write_text(text or yaml.safe_dump_all(documents, sort_keys=False))
    read = read_directory(folder)
    assert read.problems == ()
    return sorted_by_kind(read.sources)


def test_a_missing_uid_follows_from_kind_namespace_and_name(tmp_path: Path) -> None:
    [pool] = objects(tmp_path, POOL).pools
    assert uuid.UUID(pool.metadata.uid).version == 5
    [again] = objects(tmp_path, POOL).pools
    [other] = objects(tmp_path, POOL | {"metadata": POOL["metadata"] | {"name": "other"}}).pools
    assert (again.metadata.uid == pool.metadata.uid, other.metadata.uid == pool.metadata.uid) == (True, False)


def test_a_missing_creation_time_is_the_time_of_the_file(tmp_path: Path) -> None:
    [pool] = objects(tmp_path, POOL).pools
    written = datetime.fromtimestamp((tmp_path / "all.yaml").stat().st_mtime, UTC)
    assert pool.metadata.creation_timestamp == written


def test_what_stands_there_is_kept(tmp_path: Path) -> None:
    metadata = {"uid": "mine", "creationTimestamp": "2026-01-01T00:00:00Z", "generation": 7}
    [pool] = objects(tmp_path, POOL | {"metadata": POOL["metadata"] | metadata}).pools
    assert (pool.metadata.uid, pool.metadata.generation) == ("mine", 7)
    assert pool.metadata.creation_timestamp == datetime(2026, 1, 1, tzinfo=UTC)


def test_a_time_without_quotes_is_a_time(tmp_path: Path) -> None:
    text = yaml.safe_dump(APPROVAL).replace("'2027-01-31T00:00:00Z'", "2027-01-31T00:00:00Z")
    assert "'" not in text
    [approval] = objects(tmp_path, text=text).approvals
    assert approval.spec.expires_at == datetime(2027, 1, 31, tzinfo=UTC)


@pytest.mark.parametrize("kind", ["List", "InferencePoolList"])
def test_lists_are_opened_as_kubectl_prints_them(kind: str, tmp_path: Path) -> None:
    found = objects(tmp_path, {"apiVersion": "v1", "kind": kind, "items": [POOL, APPROVAL]})
    assert (len(found.pools), len(found.approvals)) == (1, 1)


def test_kinds_that_are_not_used_are_passed_over(tmp_path: Path) -> None:
    found = objects(
        tmp_path,
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"a": "b"}},
        {"apiVersion": "inference.networking.k8s.io/v1", "kind": "InferencePool", "metadata": {"name": "qwen3"}},
    )
    assert found == Objects(targets={}, config_maps={})


def test_the_same_name_in_two_namespaces_is_two_objects(tmp_path: Path) -> None:
    found = objects(tmp_path, POOL, POOL | {"metadata": POOL["metadata"] | {"namespace": "other"}})
    assert (len(found.pools), found.problems) == (2, ())


@pytest.mark.parametrize("where", ["one file", "one list"])
def test_an_object_that_stands_twice_is_a_problem(where: str, tmp_path: Path) -> None:
    twice = [POOL, POOL]
    documents = twice if where == "one file" else [{"apiVersion": "v1", "kind": "List", "items": twice}]
    (tmp_path / "all.yaml").write_text(yaml.safe_dump_all(documents))
    found = sorted_by_kind(read_sources([tmp_path / "all.yaml"]).sources)
    assert len(found.pools) == 1
    assert "InferencePool qwen3 is already defined in" in str(found.problems[0])


def test_a_name_that_stands_twice_is_not_echoed_raw(tmp_path: Path) -> None:
    foreign = {"apiVersion": "v1", "kind": "Secret\x1b[2J", "metadata": {"name": "a\x1b]0;b\x07"}}
    (tmp_path / "all.yaml").write_text(yaml.safe_dump_all([foreign, foreign]))
    [problem] = sorted_by_kind(read_sources([tmp_path / "all.yaml"]).sources).problems
    assert str(problem).isprintable()


@pytest.mark.parametrize("metadata", [None, [], "x", 7])
def test_metadata_of_another_shape_is_left_for_the_reader_to_refuse(metadata: Any, tmp_path: Path) -> None:
    (tmp_path / "all.yaml").write_text(yaml.safe_dump(POOL | {"metadata": metadata}))
    [source] = read_directory(tmp_path).sources
    assert completed(source) == source.body
    found = sorted_by_kind([source])
    assert found.pools == ()
    assert found.problems


def node(**fields: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "uid": "u"} | fields}


def view(body: dict[str, Any]) -> NodeView:
    read = read_node(body)
    assert isinstance(read, NodeView), read
    return read


def test_a_node_is_who_it_was_when_it_booted() -> None:
    info = {"nodeInfo": {"bootID": "b", "kernelVersion": "6.1"}}
    addresses = {"addresses": [{"type": "Hostname", "address": "n"}, {"type": "InternalIP", "address": "10.0.0.1"}]}
    found = view(node() | {"status": info | addresses})
    assert (found.identity.uid, found.identity.boot_id, found.identity.kernel) == ("u", "b", "6.1")
    assert found.addresses == ("10.0.0.1",)


@pytest.mark.parametrize("status", [None, [], {"addresses": "10.0.0.1"}, {"addresses": ["x"]}, {"nodeInfo": 7}])
def test_a_status_of_another_shape_tells_nothing(status: Any) -> None:
    found = view(node() | {"status": status})
    assert (found.addresses, found.identity.boot_id) == ((), "")


def test_a_node_tells_where_it_stands_and_what_health_tools_wrote_on_it() -> None:
    zone = "topology.kubernetes.io/zone"
    body = node(labels={zone: "z1", "app": "x", "autopilot.ibm.com/gpuhealth": "EVICT"}) | {
        "spec": {"taints": [{"key": "a", "value": "1", "effect": "NoSchedule"}, {"key": "a"}, {"key": "b"}, "odd"]},
        "status": {"conditions": [{"type": "KernelDeadlock", "status": "True"}, {"type": "Ready", "status": "True"}]},
    }
    found = view(body)
    assert found.identity.labels == ((zone, "z1"),)
    assert found.told.conditions == {"KernelDeadlock": "True", "Ready": "True"}
    assert (found.told.taints["a"], found.told.taints["b"]) == (("1", ""), ("",))
    assert {veto.tool for veto in vetoes("n", found.told)} == {"autopilot", "node problem detector"}


@pytest.mark.parametrize("odd", [None, 7, "x", {}, ["x"], [None]])
def test_taints_and_conditions_of_another_shape_tell_nothing(odd: Any) -> None:
    found = view(node() | {"spec": {"taints": odd}, "status": {"conditions": odd}})
    assert vetoes("n", found.told) == ()


def test_a_pace_is_in_bytes_per_second() -> None:
    assert view(node(annotations={"local.kvgate.dev/paced": "1Gbit/s"})).paced_bytes_per_second == 125e6


@pytest.mark.parametrize("name", ["", "../x", "a/b", "UPPER", "a" * 254, 7, None])
def test_a_name_that_is_none_is_refused(name: Any) -> None:
    assert "metadata.name" in str(read_node(node(name=name)))


@pytest.mark.parametrize(
    ("selector", "matches"),
    [
        pytest.param({"matchLabels": {"pool": "prefill"}}, True, id="a label that is there"),
        pytest.param({"matchLabels": {"pool": "decode"}}, False, id="another value"),
        pytest.param({"matchLabels": {"pool": "prefill", "gpu": "h200"}}, False, id="one of two labels"),
        pytest.param({"matchExpressions": [{"key": "pool", "operator": "Exists"}]}, True, id="Exists"),
        pytest.param({"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}, False, id="Exists, and does not"),
        pytest.param({"matchExpressions": [{"key": "gpu", "operator": "DoesNotExist"}]}, True, id="DoesNotExist"),
        pytest.param({"matchExpressions": [{"key": "pool", "operator": "In", "values": ["prefill"]}]}, True, id="In"),
        pytest.param({"matchExpressions": [{"key": "gpu", "operator": "In", "values": ["h200"]}]}, False, id="not In"),
        pytest.param({"matchExpressions": [{"key": "gpu", "operator": "NotIn", "values": ["a"]}]}, True, id="NotIn"),
    ],
)
def test_a_selector_matches_as_it_does_in_kubernetes(selector: dict[str, Any], matches: bool) -> None:
    labelled = view(node(labels={"pool": "prefill"}))
    assert bool(selected((labelled,), LabelSelector.model_validate(selector))) is matches
